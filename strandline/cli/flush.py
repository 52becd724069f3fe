"""``strandline flush``: deliver a session's messages now."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from strandline.cli.servers.options import as_json, settings_from, target_options
from strandline.cli.servers.targets import NOTHING_DERIVES, opened_pool, servers_for_once
from strandline.cli.terminal.output import print_json, say
from strandline.memory import Memory
from strandline.pipelines.inspect.directory import find_session
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.work import FlushReport


@click.command("flush")
@click.argument("session")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True)
@click.option("--user", metavar="ID", help="The user that must own it; default: any.")
@click.option("--all", "everything", is_flag=True, help="Also deliver the last turn.")
@as_json
@target_options
def command(
    session: str,
    namespace: str,
    user: str | None,
    everything: bool,
    as_json: bool,
    **target: Any,
) -> None:
    """Deliver the messages of SESSION to its pipelines now, without waiting for its mark.

    SESSION is an id, as `strandline sessions list` shows it. The last turn stays in the window, since it may
    not be complete; --all delivers it as well.
    """
    settings = settings_from(**target)
    with servers_for_once(settings) as servers:
        with opened_pool(servers.database_url, settings) as database:
            owner = find_session(database, session, namespace=namespace, user_id=user).user_id
        memory = Memory.from_defaults(
            session,
            user_id=owner,
            namespace=namespace,
            database_url=servers.database_url,
            broker_url=servers.broker_url,
            schema=settings.database_schema,
        )
        with closing(memory):
            events = memory.flush(all=everything)
    if servers.alone and events:
        say(NOTHING_DERIVES, err=True)
    if as_json:
        ids = [str(event) for event in events]
        print_json(FlushReport(namespace=namespace, session_id=session, user_id=owner, events=ids))
        return
    if not events:
        rest = "" if everything else " yet; --all also delivers the last turn"
        say(f"{session}: nothing to deliver{rest}")
    for event in events:
        say(f"{session}: flush event {event}")
