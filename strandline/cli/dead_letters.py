"""``strandline dead-letters``: look at the holes, try them again, or give them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, Unpack
from uuid import UUID

import click

from strandline.cli.servers.options import as_json, json_options, settings_from, target_options
from strandline.cli.servers.targets import opened_pool, servers_for_once
from strandline.cli.terminal.output import print_json, say
from strandline.pipelines.engine.dead_letters import (
    DeadLetter,
    drop_dead_letter,
    list_dead_letters,
    retry_dead_letter,
)
from strandline.pipelines.inspect.directory import check_known
from strandline.schemas.display.shown_text import quantity, quote, shown_lines, time_text
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.values.lanes import Lane
from strandline.schemas.wire.report import Report

Command = TypeVar("Command", bound=Callable[..., Any])
Outcome = Literal["due", "void", "gone", "retired", "dropped"]

MAX_REASON_CHARACTERS = 200


class _Options(TypedDict):
    """The options that all these commands have, and the filters of most."""

    database_url: str | None
    broker_url: str | None
    schema: str | None
    namespace: NotRequired[str | None]
    session: NotRequired[str | None]
    pipeline: NotRequired[str | None]


class _Filters(TypedDict, total=False):
    namespace: str | None
    session_id: str | None
    pipeline: str | None
    dropped: bool


class _Id(TypedDict):
    event_id: UUID
    stage: str | None


class DeadLetterReport(Report):
    """One dead letter; ``id`` is what retry, drop and show take.

    ``dropped_at`` is null while it is a hole; what was dropped is listed with ``--all``.
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
    flushed_at: str
    died_at: str
    batch_id: UUID
    reason: str
    current: bool
    dropped_at: str | None
    retry_at: str | None
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


def filter_options(command: Command) -> Command:
    """``--namespace``, ``--session`` and ``--pipeline``."""
    namespace = click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
    session = click.option(
        "--session",
        metavar="ID",
        help="Only those of this session (of namespace default, unless one is named).",
    )
    pipeline = click.option("--pipeline", metavar="NAME", help="Only those of this pipeline.")
    return namespace(session(pipeline(command)))


def choice_options(command: Command) -> Command:
    """Which letters: ids, or ``--all`` that fit the filters."""
    ids = click.argument("ids", nargs=-1, metavar="[ID]...")
    everything = click.option("--all", "everything", is_flag=True, help="All that match the filters.")
    return ids(everything(filter_options(command)))


@click.group("dead-letters")
def command() -> None:
    """List, retry and drop dead letters: events that a pipeline gave up on, each with its reason.

    A dead letter's ID is EVENT/STAGE, as `list` shows it; EVENT alone means all its stages.
    """


@command.command("list", short_help="List dead letters, oldest first.")
@filter_options
@click.option("--all", "everything", is_flag=True, help="Include those that were dropped.")
@json_options(DeadLettersReport)
@target_options
def list_command(everything: bool, as_json: bool, **options: Unpack[_Options]) -> None:
    """List dead letters, oldest first."""
    with _database(options) as (database, _broker_url):
        letters = list_dead_letters(database, **(_filters(database, options) | {"dropped": everything}))
    if as_json:
        print_json(DeadLettersReport(dead_letters=[_report(letter) for letter in letters]))
    elif not letters:
        say("no dead letters")
    else:
        say(*map(_line, letters))


@command.command("show", short_help="Show one dead letter with its whole reason.")
@click.argument("id_", metavar="ID")
@as_json
@target_options
def show_command(id_: str, as_json: bool, **options: Unpack[_Options]) -> None:
    """Show one dead letter with its whole reason."""
    with _database(options) as (database, _broker_url):
        letters = _choose_letters(database, [id_], everything=False, filters={"dropped": True})
    if as_json:
        print_json(DeadLettersReport(dead_letters=[_report(letter) for letter in letters]))
    else:
        for number, letter in enumerate(letters):
            say(*([""] if number else []), *_picture(letter))


@command.command("retry", short_help="Make events due again.")
@choice_options
@as_json
@target_options
def retry_command(ids: tuple[str, ...], everything: bool, as_json: bool, **options: Unpack[_Options]) -> int:
    """Make events due again.

    A pipeline that folds, such as the summary, is folded again from the state before the event, later events
    included. Events of a retired generation are refused, and the exit code is then 1.
    """
    with _database(options) as (database, broker_url):
        letters = _choose_letters(database, ids, everything=everything, filters=_filters(database, options))
        retries = [(letter, retry_dead_letter(database, letter)) for letter in letters]
        due = [letter.lane for letter, retry in retries if retry.outcome == "due"]
        rung = _ring(broker_url, due, _settings(options))
    actions = [
        ActionReport(
            id=_id(letter),
            outcome=retry.outcome,
            refolded=retry.refolded,
            rung=rung and retry.outcome == "due",
        )
        for letter, retry in retries
    ]
    _print(actions, as_json=as_json)
    return int(any(action.outcome == "retired" for action in actions))


@command.command("drop", short_help="Give events up for good.")
@choice_options
@as_json
@target_options
def drop_command(ids: tuple[str, ...], everything: bool, as_json: bool, **options: Unpack[_Options]) -> None:
    """Give events up for good: their messages stay in the log, and reads no longer wait for them.

    A record of each drop and its reason is kept; `list --all` shows it.
    """
    with _database(options) as (database, _broker_url):
        letters = _choose_letters(database, ids, everything=everything, filters=_filters(database, options))
        actions = [
            ActionReport(id=_id(letter), outcome="dropped" if drop_dead_letter(database, letter) else "gone")
            for letter in letters
        ]
    _print(actions, as_json=as_json)


def _ring(broker_url: str | None, lanes: Sequence[Lane], settings: Settings) -> bool:
    """Tell workers of the lanes, if there is a broker to tell them through."""
    if broker_url is None or not lanes:
        return False
    # Celery is loaded only where something is rung for.
    from strandline.producers.doorbell.doorbell import Doorbell

    bell = Doorbell(broker_url, public_apis_only=settings.public_apis_only)
    bell.ring(lanes)
    bell.close()
    return True


def _settings(options: _Options) -> Settings:
    return settings_from(options["database_url"], options["broker_url"], options["schema"])


@contextmanager
def _database(options: _Options) -> Iterator[tuple[Database, str | None]]:
    """The database, and the broker's URL if there is one."""
    settings = _settings(options)
    with (
        servers_for_once(settings) as servers,
        opened_pool(servers.database_url, settings) as database,
    ):
        yield database, servers.broker_url


def _filters(database: Database, options: _Options) -> _Filters:
    """The filters, checked to exist; a session without a namespace is in ``default``."""
    namespace = options["namespace"]
    if namespace is None and options["session"] is not None:
        namespace = DEFAULT_NAMESPACE
    check_known(database, namespace=namespace, session_id=options["session"])
    return {
        "namespace": namespace,
        "session_id": options["session"],
        "pipeline": options["pipeline"],
    }


def _choose_letters(
    database: Database, ids: Sequence[str], *, everything: bool, filters: _Filters
) -> list[DeadLetter]:
    """The letters named, or all that fit.

    Raises:
        ConfigurationError: an id names no dead letter.
    """
    if everything == bool(ids):
        raise click.UsageError("Name dead letters by their ids, or all of them with --all.")
    if everything:
        return list_dead_letters(database, **filters)
    chosen: dict[tuple[UUID, str, int], DeadLetter] = {}
    for id_ in ids:
        letters = list_dead_letters(database, **filters, **_parse_id(id_))
        if not letters:
            raise ConfigurationError(
                f"There is no dead letter {quote(id_)}; `strandline dead-letters list` lists them."
            )
        chosen |= {(letter.event_id, letter.stage, letter.generation_id): letter for letter in letters}
    return list(chosen.values())


def _parse_id(id_: str) -> _Id:
    event, _, stage = id_.partition("/")
    try:
        return {"event_id": UUID(event), "stage": stage or None}
    except ValueError:
        raise click.BadParameter(
            f"{quote(id_)} is not an id; `strandline dead-letters list` shows them (EVENT or EVENT/STAGE)",
            param_hint="ID",
        ) from None


def _id(letter: DeadLetter) -> str:
    return f"{letter.event_id}/{letter.stage}"


def _report(letter: DeadLetter) -> DeadLetterReport:
    return DeadLetterReport.of(
        letter,
        id=_id(letter),
        generation=letter.generation_id,
        messages=letter.message_count,
        flushed_at=letter.flushed_at.isoformat(),
        died_at=letter.died_at.isoformat(),
        dropped_at=letter.dropped_at.isoformat() if letter.dropped_at else None,
        retry_at=letter.retry_at.isoformat() if letter.retry_at else None,
    )


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


def _print(actions: Sequence[ActionReport], *, as_json: bool) -> None:
    if as_json:
        print_json(ActionsReport(actions=list(actions)))
        return
    sentences = {
        "due": "due again",
        "void": "void, since its session was reset",
        "gone": "retried or dropped by someone else meanwhile",
        "retired": "refused, because its generation is retired and serves no owner; drop it instead",
        "dropped": "dropped",
    }
    if not actions:
        say("no dead letters")
    for action in actions:
        more = f", and {quantity(action.refolded, 'later event')} folded again" if action.refolded else ""
        if action.outcome == "due":
            more += "; a worker was notified" if action.rung else "; without a broker, a sweep finds it"
        say(f"{action.id}: {sentences[action.outcome]}{more}")
