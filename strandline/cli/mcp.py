"""``strandline mcp``: a user's memory for an MCP client that starts this process and speaks to its stdio."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import click

from strandline.cli.command import cli_command
from strandline.cli.servers.memories import opened_for_agent
from strandline.cli.servers.options import namespace_option, settings_alone
from strandline.cli.terminal.streams import log_to_stderr
from strandline.memory import Memory
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.extras import install_command
from strandline.schemas.settings import Settings
from strandline.workers.signal_pipe import SignalPipe, ending_signals

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


# A ready pipe takes so much without blocking (POSIX's least value of PIPE_BUF).
_WRITE_BYTES = 512
_READ_BYTES = 65_536

# After the last line, requests get so long for their answers; some, such as cancelled ones, get none.
ANSWER_SECONDS = 10.0


class ProtocolStreams:
    """Lines of text from one descriptor and to another; each in its own thread, while it is awaited.

    A thread that reads a pipe cannot be interrupted, so the end of a process would wait for the other side's
    next line.  Here each wait ends as well when ``give_up`` is called.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._given_up, self._giving_up = os.pipe()
        self._unanswered: set[str] = set()
        self._answered = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def lines(self) -> AsyncIterator[str]:
        """The lines as they come, until the other side closes, or ``give_up``.

        The last one may lack its end.  The lines end only when all requests among them are answered, since
        the SDK then drops unfinished ones.
        """
        self._loop = asyncio.get_running_loop()
        rest = bytearray()
        while piece := await asyncio.to_thread(self._read):
            *ends, last = piece.split(b"\n")
            for end in ends:
                yield self._note_request((rest + end).decode(errors="replace"))
                rest.clear()
            rest += last
        if rest:
            yield self._note_request(rest.decode(errors="replace"))
        if self._unanswered and not self._is_given_up():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), ANSWER_SECONDS)

    async def write(self, text: str) -> None:
        """Write a text; it is dropped after ``give_up``, and if the other side has stopped reading."""
        with suppress(BrokenPipeError):
            await asyncio.to_thread(self._write, text.encode())
        self._unanswered.discard(_id_of(text, "result", "error"))
        self._update()

    async def flush(self) -> None:
        """Nothing is held back."""

    def __aiter__(self) -> AsyncIterator[str]:
        return self.lines()

    def give_up(self) -> None:
        """End all that waits to read or to write, and what begins to; from any thread."""
        os.write(self._giving_up, b"\0")
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and nothing waits any more
                self._loop.call_soon_threadsafe(self._answered.set)

    def close(self) -> None:
        os.close(self._given_up)
        os.close(self._giving_up)

    def _note_request(self, line: str) -> str:
        if number := _id_of(line, "method"):
            self._unanswered.add(number)
            self._update()
        return line

    def _update(self) -> None:
        if self._unanswered and not self._is_given_up():
            self._answered.clear()
        else:
            self._answered.set()

    def _is_given_up(self) -> bool:
        poll = select.poll()
        poll.register(self._given_up, select.POLLIN)
        return bool(poll.poll(0))

    def _read(self) -> bytes:
        return os.read(self._source, _READ_BYTES) if self._is_ready(reads=True) else b""

    def _write(self, content: bytes) -> None:
        while content and self._is_ready(reads=False):
            content = content[os.write(self._target, content[:_WRITE_BYTES]) :]

    def _is_ready(self, *, reads: bool) -> bool:
        poll = select.poll()
        poll.register(self._given_up, select.POLLIN)
        poll.register(self._source if reads else self._target, select.POLLIN if reads else select.POLLOUT)
        return all(number != self._given_up for number, _ in poll.poll())


def _id_of(line: str, *members: str) -> str:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(message, dict) or message.get("id") is None:
        return ""
    return json.dumps(message["id"]) if any(member in message for member in members) else ""


@contextmanager
def protocol_streams() -> Iterator[ProtocolStreams]:
    """Stdin and stdout for a protocol alone: other readers get nothing, and what others print goes to stderr.

    Processes that are started within it inherit neither.
    """
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)  # which no child inherits
    streams = ProtocolStreams(source, target)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield streams
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(source)
        os.close(target)
        streams.close()


_NEEDED = f"strandline mcp needs the MCP SDK, version 2.3 or newer: {install_command('mcp')}."


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
        log_to_stderr("WARNING", settings.log_format)
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
