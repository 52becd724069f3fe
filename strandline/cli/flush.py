"""``strandline flush``: deliver a session's messages now."""

from __future__ import annotations

from contextlib import closing

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import session_options
from strandline.cli.servers.targets import NOTHING_DERIVES, Running, opened_servers
from strandline.cli.terminal.output import say
from strandline.memory import Memory
from strandline.pipelines.inspect.directory import find_session
from strandline.schemas.wire.work import FlushReport


@cli_command("flush", opened_servers, FlushReport)
@session_options
@click.option("--all", "everything", is_flag=True, help="Also deliver the last turn.")
def command(running: Running, session: str, namespace: str, user: str | None, everything: bool) -> Output:
    """Deliver the messages of SESSION to its pipelines now, without waiting for its mark.

    SESSION is an id, as `strandline sessions list` shows it. The last turn stays in the window, since it may
    not be complete; --all delivers it as well.
    """
    owner = find_session(running.database, session, namespace=namespace, user_id=user).user_id
    broker_url = running.servers.broker_url
    with closing(
        Memory.from_defaults(
            session, user_id=owner, namespace=namespace, broker_url=broker_url, **running.urls
        )
    ) as memory:
        events = [str(event) for event in memory.flush(all=everything)]
    if running.servers.alone and events:
        say(NOTHING_DERIVES, err=True)
    rest = "" if everything else " yet; --all also delivers the last turn"
    lines = [f"{session}: flush event {event}" for event in events]
    return Output(
        FlushReport(namespace=namespace, session_id=session, user_id=owner, events=events),
        lines or [f"{session}: nothing to deliver{rest}"],
    )
