"""``strandline mcp``: a user's memory for an MCP client that starts this process and speaks to its stdio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import click

from strandline.cli.command import cli_command
from strandline.cli.mcp.streams import ProtocolStreams, protocol_streams
from strandline.cli.servers.memories import opened_for_agent
from strandline.cli.servers.options import namespace_option, settings_alone
from strandline.cli.terminal.streams import log_to_stderr
from strandline.memory import Memory
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.workers.signal_pipe import SignalPipe, ending_signals

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_NEEDED = "strandline mcp needs the MCP SDK, version 2.3 or newer: pip install 'strandline[mcp]'."


@cli_command("mcp", settings_alone)
@click.option(
    "--user", required=True, metavar="ID", help="Whose memory it is; the client cannot choose another."
)
@namespace_option
@click.option(
    "--session", metavar="ID", help="A session of this user, whose latest messages get_context shows as well."
)
@click.option("--read-only", is_flag=True, help="Offer no tool that changes anything.")
def command(settings: Settings, user: str, namespace: str, session: str | None, read_only: bool) -> None:
    """Offer a user's memory as tools to an MCP client, over stdin and stdout, until the client closes them.

    The tools search memories, add, correct and delete facts, and give the context of a question. Logs go to
    stderr. The configured database is used, or the embedded one of STRANDLINE_HOME, which is started and
    stopped with this command unless another process runs it. SIGTERM ends the server in order; the exit code
    is then 0 as well.
    """
    make_server = _load_server()
    with protocol_streams() as streams, _given_up_at_signals(streams):
        log_to_stderr("WARNING")
        with opened_for_agent(settings, user, namespace, session) as memory:
            server = make_server(memory.acall_tool, read_only=read_only)
            asyncio.run(_serve(server, memory, streams))


@contextmanager
def _given_up_at_signals(streams: ProtocolStreams) -> Iterator[None]:
    """Within it a signal that asks for an end counts as the end of the client's input, and nothing more.

    So the SDK ends as usual, and embedded servers are stopped, even if the client closed its end just before.
    """

    def watch() -> None:
        if signals.wait() is not None:
            streams.give_up()

    with SignalPipe(ending_signals()) as signals:
        watcher = threading.Thread(target=watch, name="signals", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            signals.wake()
            watcher.join()


def _load_server() -> Callable[..., Server[Any]]:
    try:
        from strandline.producers.tools.mcp_server import make_server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ConfigurationError(_NEEDED) from None
    return make_server


async def _serve(server: Server[Any], memory: Memory, streams: ProtocolStreams) -> None:
    try:
        await _answer(server, streams)
    finally:
        streams.give_up()
        await memory.aclose()


async def _answer(server: Server[Any], streams: ProtocolStreams) -> None:
    from mcp.server.stdio import stdio_server

    stream = cast("Any", streams)  # the SDK only uses methods of ProtocolStreams
    async with stdio_server(stdin=stream, stdout=stream) as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())
