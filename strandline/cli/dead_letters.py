"""``strandline dead-letters``: look at the holes, try them again, or give them up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import click

from strandline.administration.dead_letters import LetterDone, Outcome, drop_letters, retry_letters
from strandline.cli.command import CommandGroup, Output
from strandline.cli.servers.options import Command, namespace_filter, pipeline_filter
from strandline.cli.servers.targets import Running, opened_database, opened_servers
from strandline.pipelines.engine.dead_letters import DeadLetter, list_dead_letters
from strandline.pipelines.inspect.directory import check_known
from strandline.schemas.display.shown_text import quantity, quote, shown_lines, time_text
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.values.lanes import Lane
from strandline.schemas.wire.report import Report, Time


@click.group("dead-letters", cls=CommandGroup)
def command() -> None:
    """List, retry and drop dead letters: events that a pipeline gave up on, each with its reason.

    A dead letter's ID is EVENT/STAGE, as `list` shows it; EVENT alone means all its stages.
    """


MAX_REASON_CHARACTERS = 200


class DeadLetterReport(Report):
    """One dead letter; retry, drop and show take ``id``.

    ``dropped_at`` is null while it is a hole; dropped ones are listed with ``--all``.
    ``retry_at`` is when a worker tries it again, null if a person has to; ``retries`` how often workers have.
    """

    id: str
    event_id: UUID
    pipeline: str
    stage: str
    generation: int
    namespace: str
    session_id: str
    user_id: str | None
    from_seq: int
    through_seq: int
    messages: int
    tokens: int
    cause: str
    flushed_at: Time
    died_at: Time
    batch_id: UUID
    reason: str
    current: bool
    dropped_at: Time | None
    retry_at: Time | None
    retries: int


class DeadLettersReport(Report):
    """``strandline dead-letters list`` and ``show``."""

    dead_letters: list[DeadLetterReport]


class ActionReport(Report):
    """The action on one dead letter; ``refolded`` counts the other events that are folded again with it.

    ``rung`` says that a worker was notified through a broker; otherwise a sweep finds the lane.
    """

    id: str
    outcome: Outcome
    refolded: int = 0
    rung: bool = False


class ActionsReport(Report):
    """``strandline dead-letters retry`` and ``drop``."""

    actions: list[ActionReport]


@dataclass(frozen=True, slots=True)
class _Opened:
    running: Running
    listed: Callable[..., list[DeadLetter]]


@namespace_filter
@click.option(
    "--session", metavar="ID", help="Only those of this session (of namespace default, unless one is named)."
)
@pipeline_filter
@contextmanager
def _opened_letters(
    settings: Settings, namespace: str | None, session: str | None, pipeline: str | None
) -> Iterator[_Opened]:
    if namespace is None and session is not None:
        namespace = DEFAULT_NAMESPACE
    with opened_servers(settings) as running:
        database = running.database
        check_known(database, namespace=namespace, session_id=session)
        filters: dict[str, Any] = {"namespace": namespace, "session_id": session, "pipeline": pipeline}
        yield _Opened(running, partial(list_dead_letters, database, **filters))


def _choice_options(command: Command) -> Command:
    """Which letters: ids, or ``--all`` that fit the filters."""
    ids = click.argument("ids", nargs=-1, metavar="[ID]...")
    return ids(click.option("--all", "everything", is_flag=True, help="All that match the filters.")(command))


@command.add("list", _opened_letters, DeadLettersReport)
@click.option("--all", "dropped", is_flag=True, help="Include those that were dropped.")
def list_command(opened: _Opened, dropped: bool) -> Output:
    """List dead letters, oldest first."""
    letters = opened.listed(dropped=dropped)
    return _show(letters, map(_line, letters) if letters else ["no dead letters"])


@command.add("show", opened_database, DeadLettersReport)
@click.argument("id_", metavar="ID")
def show_command(database: Database, id_: str) -> Output:
    """Show one dead letter with its whole reason."""
    letters = _find_letters(partial(list_dead_letters, database, dropped=True), [id_])
    return _show(letters, _pictures(letters))


@command.add("retry", _opened_letters, ActionsReport)
@_choice_options
def retry_command(opened: _Opened, ids: tuple[str, ...], everything: bool) -> Output:
    """Make events due again.

    A pipeline that folds, such as the summary, is folded again from the state before the event, later events
    included. Events of a retired generation are refused, and the exit code is then 1.
    """
    letters = _choose_letters(opened, ids, everything=everything)
    done = retry_letters(opened.running.database, letters, partial(_ring, opened.running))
    is_refused = any(one.outcome == "retired" for one in done)
    return _show_actions(done, rung=opened.running.servers.broker_url is not None, code=int(is_refused))


@command.add("drop", _opened_letters, ActionsReport)
@_choice_options
def drop_command(opened: _Opened, ids: tuple[str, ...], everything: bool) -> Output:
    """Give events up for good: their messages stay in the log, and reads no longer wait for them.

    A record of each drop and its reason is kept; `list --all` shows it.
    """
    return _show_actions(
        drop_letters(opened.running.database, _choose_letters(opened, ids, everything=everything))
    )


def _ring(running: Running, lanes: Sequence[Lane]) -> None:
    if running.servers.broker_url is None:
        return
    # Celery is loaded only where something is rung for.
    from strandline.producers.doorbell.doorbell import Doorbell

    bell = Doorbell(running.servers.broker_url, public_apis_only=running.settings.public_apis_only)
    bell.ring(lanes)
    bell.close()


def _show_actions(done: Sequence[LetterDone], *, rung: bool = False, code: int = 0) -> Output:
    actions = [ActionReport.of(one, id=_id(one.letter), rung=rung and one.outcome == "due") for one in done]
    return Output(ActionsReport(actions=actions), _action_lines(actions), code=code)


def _choose_letters(opened: _Opened, ids: Sequence[str], *, everything: bool) -> list[DeadLetter]:
    if everything == bool(ids):
        raise click.UsageError("Name dead letters by their ids, or all of them with --all.")
    return opened.listed() if everything else _find_letters(opened.listed, ids)


def _find_letters(listed: Callable[..., list[DeadLetter]], ids: Sequence[str]) -> list[DeadLetter]:
    """The letters of these ids; raises ConfigurationError for an id that names none."""
    chosen: dict[tuple[UUID, str, int], DeadLetter] = {}
    for id_ in ids:
        event_id, stage = _parse_id(id_)
        letters = listed(event_id=event_id, stage=stage)
        if not letters:
            raise ConfigurationError(
                f"No dead letter has the id {quote(id_)}; `strandline dead-letters list` lists them."
            )
        chosen |= {(letter.event_id, letter.stage, letter.generation_id): letter for letter in letters}
    return list(chosen.values())


def _parse_id(id_: str) -> tuple[UUID, str | None]:
    event, _, stage = id_.partition("/")
    try:
        return UUID(event), stage or None
    except ValueError:
        raise click.BadParameter(
            f"{quote(id_)} is not an id; `strandline dead-letters list` shows them (EVENT or EVENT/STAGE)",
            param_hint="ID",
        ) from None


def _id(letter: DeadLetter) -> str:
    return f"{letter.event_id}/{letter.stage}"


def _show(letters: Sequence[DeadLetter], lines: Iterable[str]) -> Output:
    reports = [
        DeadLetterReport.of(
            letter, id=_id(letter), generation=letter.generation_id, messages=letter.message_count
        )
        for letter in letters
    ]
    return Output(DeadLettersReport(dead_letters=reports), lines)


def _line(letter: DeadLetter) -> str:
    reason = " ".join(letter.reason.split())
    if len(reason) > MAX_REASON_CHARACTERS:
        reason = reason[: MAX_REASON_CHARACTERS - 1].rstrip() + "…"
    dropped = f", dropped {time_text(letter.dropped_at)}" if letter.dropped_at else ""
    if letter.retry_at:
        dropped = f", to be retried {time_text(letter.retry_at)}"
    return (
        f"{_id(letter)}  {letter.session_id}, messages {letter.from_seq} to {letter.through_seq},"
        f" {time_text(letter.died_at)}{dropped}: {reason}"
    )


def _picture(letter: DeadLetter) -> Iterator[str]:
    owner = f" of {letter.user_id}" if letter.user_id else ""
    yield from (
        f"dead letter {_id(letter)}",
        f"session: {letter.session_id}{owner}, namespace {letter.namespace}",
        f"messages: {letter.from_seq} to {letter.through_seq}"
        f" ({quantity(letter.tokens, 'token')}, cause {letter.cause})",
        f"flushed: {time_text(letter.flushed_at)}",
        f"gave up: {time_text(letter.died_at)}",
        f"pipeline: {letter.pipeline}, generation {letter.generation_id}, batch {letter.batch_id}",
    )
    first, *more = shown_lines(letter.reason)
    yield f"reason: {first}"
    yield from (f"  {line}" for line in more)
    if letter.dropped_at is not None:
        yield f"dropped: {time_text(letter.dropped_at)}"
    elif letter.generation_state == "retired":
        yield "its generation is retired: it cannot be retried, only dropped"
    elif not letter.current:
        yield "its session has been reset since: a retry only ends it"
    elif letter.retry_at is not None:
        yield f"next: a worker retries it {time_text(letter.retry_at)}"


def _pictures(letters: Sequence[DeadLetter]) -> Iterator[str]:
    for number, letter in enumerate(letters):
        yield from [""] if number else []
        yield from _picture(letter)


def _action_lines(actions: Sequence[ActionReport]) -> Iterator[str]:
    sentences = {
        "due": "due again",
        "void": "void, since its session was reset",
        "gone": "retried or dropped by someone else",
        "retired": "refused, because its generation is retired and serves no owner; drop it instead",
        "dropped": "dropped",
    }
    if not actions:
        yield "no dead letters"
    for action in actions:
        more = f", and {quantity(action.refolded, 'later event')} folded again" if action.refolded else ""
        if action.outcome == "due":
            more += "; a worker was notified" if action.rung else "; without a broker, a sweep finds it"
        yield f"{action.id}: {sentences[action.outcome]}{more}"
