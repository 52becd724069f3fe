"""``strandline flush``: deliver the messages of a session now, or of all sessions of a user or namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.targets import NOTHING_DERIVES, Running, opened_servers
from strandline.cli.terminal.output import say, status_line
from strandline.memory import Memory
from strandline.pipelines.inspect.directory import find_session
from strandline.pipelines.inspect.sessions import each_session
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError, ConflictError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.report import Report
from strandline.schemas.wire.work import FlushReport


class SessionsFlushed(Report):
    """``strandline flush`` without a session: how many delivered something, and why others could not."""

    namespace: str
    user_id: str | None
    sessions: int
    events: int
    refused: dict[str, str]


@contextmanager
def _opened_servers(
    settings: Settings, session: str | None, namespace: str | None, user: str | None
) -> Iterator[Running]:
    """The servers of a flush; UsageError if nothing is named, whether servers run or not."""
    if session is None and namespace is None and user is None:
        raise click.UsageError("Name a SESSION, or give --user or --namespace for all of their sessions.")
    with opened_servers(settings) as running:
        yield running


@cli_command("flush", _opened_servers, FlushReport, SessionsFlushed)
@click.argument("session", required=False)
@click.option("--namespace", metavar="NAME", help="Its namespace; without SESSION, all sessions in it.")
@click.option("--user", metavar="ID", help="The user that must own it; without SESSION, all their sessions.")
@click.option("--all", "everything", is_flag=True, help="Also deliver the last turn.")
def command(
    running: Running, session: str | None, namespace: str | None, user: str | None, everything: bool
) -> Output:
    """Deliver the messages of SESSION to its pipelines now, without waiting for its mark.

    SESSION is an id, as `strandline sessions list` shows it. Without it, --user delivers the messages of all
    sessions of a user, and --namespace of all in a namespace; run again, it resumes with the rest. The last
    turn stays in the window, since it may not be complete; --all delivers it as well.
    """
    within = DEFAULT_NAMESPACE if namespace is None else namespace
    rest = "" if everything else " yet; --all also delivers the last turn"
    broker_url = running.servers.broker_url
    open_memory = partial(Memory.from_defaults, namespace=within, broker_url=broker_url, **running.urls)
    if session is None:
        flushed = _flush_each(running.database, open_memory, within, user, everything)
        _say_if_alone(running, flushed.events)
        return Output(flushed, _lines_of_all(flushed, rest), code=1 if flushed.refused else 0)
    owner = find_session(running.database, session, namespace=within, user_id=user).user_id
    with closing(open_memory(session, user_id=owner)) as memory:
        events = [str(event) for event in memory.flush(all=everything)]
    _say_if_alone(running, len(events))
    report = FlushReport(namespace=within, session_id=session, user_id=owner, events=events)
    lines = [f"{session}: flush event {event}" for event in events]
    return Output(report, lines or [f"{session}: nothing to deliver{rest}"])


def _flush_each(
    database: Database, open_memory: Callable[..., Memory], namespace: str, user: str | None, everything: bool
) -> SessionsFlushed:
    sessions, events, refused = 0, 0, {}
    with status_line("delivering") as update, closing(open_memory()):
        for state in each_session(database, namespace=namespace, user_id=user):
            if state.flushed_through == state.last_seq:
                continue
            try:
                delivered = open_memory(state.session_id, user_id=state.user_id).flush(all=everything)
            except (ConfigurationError, ConflictError) as error:
                refused[state.session_id] = str(error)
                continue
            sessions, events = sessions + bool(delivered), events + len(delivered)
            update(f"delivering: {quantity(sessions, 'session')} done")
    return SessionsFlushed(
        namespace=namespace, user_id=user, sessions=sessions, events=events, refused=refused
    )


def _lines_of_all(flushed: SessionsFlushed, rest: str) -> Iterator[str]:
    whose = flushed.namespace if flushed.user_id is None else flushed.user_id
    done = f"{quantity(flushed.events, 'flush event')} of {quantity(flushed.sessions, 'session')}"
    yield f"{whose}: {done if flushed.events else f'nothing to deliver{rest}'}"
    yield from (f"not {name}: {reason}" for name, reason in flushed.refused.items())


def _say_if_alone(running: Running, events: int) -> None:
    if running.servers.alone and events:
        say(NOTHING_DERIVES, err=True)
