"""``strandline sessions``: lists and shows sessions, sets their policy, corrects and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any, TextIO

import click

from strandline.cli.command import CommandGroup, Output
from strandline.cli.servers.memories import OpenedSession, opened_session
from strandline.cli.servers.options import (
    actor_option,
    limit_option,
    namespace_filter,
    namespace_option,
    session_options,
    settings_alone,
    user_option,
)
from strandline.cli.servers.targets import Running, opened_database, opened_servers
from strandline.cli.terminal.output import Row, table
from strandline.memory import Memory
from strandline.pipelines.inspect.changes import change_line, correction_line
from strandline.pipelines.inspect.sessions import (
    PipelineCoverage,
    SessionFlush,
    SessionPage,
    SessionPicture,
    SessionPolicy,
    SessionState,
    each_session,
    list_sessions,
    show_session,
)
from strandline.producers.blocks.resolve import stored_blocks
from strandline.producers.writing.correcting.correct import Correction
from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.errors import ConfigurationError, ConflictError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.policy import DELIVERIES, PolicyChange, changed_policy, stored_policy
from strandline.schemas.wire.report import Report
from strandline.schemas.wire.sessions import ForkOut


@click.group("sessions", cls=CommandGroup)
def command() -> None:
    """List and show the sessions of a database; set the policy of one, correct or delete it."""


_key_option = click.option(
    "--key", metavar="KEY", help="A name for this correction: repeated with it, nothing more is corrected."
)


class CorrectionReport(Report):
    """A correction: its number in the session, and the messages that it took back or replaced.

    Of a dry run there is neither a number nor a time, and no messages are named: ``messages`` counts them.
    """

    number: int | None
    kind: str
    from_seq: int
    through_seq: int
    seqs: tuple[int, ...]
    messages: int
    created_at: datetime | None


class DeletionReport(Report):
    """A session whose messages were deleted, with their derived memory."""

    namespace: str
    session_id: str
    messages: int


@command.add("rewind", opened_session, CorrectionReport)
@click.argument("from_seq", type=click.IntRange(1))
@actor_option
@_key_option
@click.option("--dry-run", "is_dry", is_flag=True, help="Only say how many messages it would take back.")
def rewind_command(
    opened: OpenedSession, from_seq: int, actor: str | None, key: str | None, is_dry: bool
) -> Output:
    """Take back the messages of SESSION from number FROM_SEQ on, with the memory derived from them.

    No copy of them is kept.
    """
    memory, _ = opened
    if is_dry:
        return _estimate(memory, from_seq)
    correction = memory.rewind(from_seq, actor=actor, idempotency_key=key)
    return _output(correction, f"took back {quantity(len(correction.seqs), 'message')}")


@command.add("replace", settings_alone, CorrectionReport)
@session_options
@click.argument("seq", type=click.IntRange(1))
@click.argument("content", type=click.File(encoding="utf-8"))
@actor_option
@_key_option
@click.option("--empty", "may_be_empty", is_flag=True, help="Leave the message without content.")
def replace_command(
    settings: Settings,
    session: str,
    namespace: str,
    user: str | None,
    seq: int,
    content: TextIO,
    actor: str | None,
    key: str | None,
    may_be_empty: bool,
) -> Output:
    """Give message SEQ of SESSION other content: the text of the file CONTENT, or of the input with -.

    Memory derived from the message goes, and is derived again.  No copy of the old content is kept.
    """
    text = content.read().removesuffix("\n")
    if not text and not may_be_empty:
        raise click.UsageError(
            "CONTENT is empty, and no copy of the old content is kept. If that is meant, give --empty."
        )
    with opened_session(settings, session, namespace, user) as (memory, _):
        correction = memory.replace(seq, text, actor=actor, idempotency_key=key)
    return _output(correction, f"gave message {seq} other content")


@command.add("fork", opened_session, ForkOut)
@click.argument("new", required=False)
@click.option("--through", type=click.IntRange(1), metavar="SEQ", help="The last message to take over.")
def fork_command(opened: OpenedSession, new: str | None, through: int | None) -> Output:
    """Begin the session NEW (default: a random name) of the same user with the messages of SESSION.

    Memory derived from them is taken over; nothing is extracted again.
    """
    memory, _ = opened
    fork = memory.fork(new, through_seq=through)
    line = f"session {fork.session_id} begins with {quantity(fork.messages, 'message')}"
    return Output(ForkOut.model_validate(fork), [line])


@command.add("delete", opened_session, DeletionReport)
@click.option("--yes", is_flag=True, help="Delete; without it, only say what would be deleted.")
def delete_command(opened: OpenedSession, session: str, namespace: str, yes: bool) -> Output:
    """Delete the messages of SESSION and the memory derived from them, as reset(derived=True) does.

    Its name stays with its owner.  Facts that people added or worded by hand stay.
    """
    memory, state = opened
    if yes:
        memory.reset(derived=True)
    messages = quantity(state.messages, "message")
    return Output(
        DeletionReport(namespace=namespace, session_id=session, messages=state.messages if yes else 0),
        [f"deleted {messages}" if yes else f"would delete {messages}, and what was derived: add --yes"],
    )


def _estimate(memory: Memory, from_seq: int) -> Output:
    # Page by page: a session may hold more messages than fit into memory.
    count, last = 0, from_seq - 1
    for message in memory.iterate(after_seq=last):
        count, last = count + 1, message.seq or last
    estimate = CorrectionReport(
        number=None,
        kind="rewind",
        from_seq=from_seq,
        through_seq=last,
        seqs=(),
        messages=count,
        created_at=None,
    )
    return Output(estimate, [f"would take back {quantity(count, 'message')}; nothing was changed"])


def _output(correction: Correction, what: str) -> Output:
    report = CorrectionReport.of(correction, messages=len(correction.seqs))
    return Output(report, [f"{what} (correction {correction.number})"])


_CHANGING = (
    "--token-limit", "--history-ratio", "--token-flush-size", "--max-window-messages", "--max-window-bytes",
    "--message-flush-size", "--deliver", "--time-zone", "--idle-seconds", "--never-idle", "--pipelines",
    "--no-pipelines",
)  # fmt: skip


class PoliciesChanged(Report):
    """``set-policy --all``: the sessions that it changes, and why others cannot be changed so."""

    sessions: int
    changed: tuple[str, ...]
    refused: dict[str, str]
    dry_run: bool


@command.add("set-policy", settings_alone, SessionPolicy, PoliciesChanged)
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="All sessions of the namespace, or of --user.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@namespace_option
@user_option
@click.option("--token-limit", type=int, metavar="N", help="Maximum tokens of a read.")
@click.option("--history-ratio", type=float, metavar="R", help="The mark as a share of the token limit.")
@click.option("--token-flush-size", type=int, metavar="N", help="Minimum tokens of one flush event.")
@click.option("--max-window-messages", type=int, metavar="N", help="Maximum messages in the window.")
@click.option("--max-window-bytes", type=int, metavar="N", help="Maximum bytes in the window, as stored.")
@click.option(
    "--message-flush-size", type=int, metavar="N", help="Minimum messages of a flush by their number."
)
@click.option("--deliver", type=click.Choice(DELIVERIES), help="When messages are delivered.")
@click.option("--time-zone", metavar="NAME", help="Whose days messages have whose time is in UTC.")
@click.option("--idle-seconds", type=int, metavar="N", help="Flush after this long without a put.")
@click.option("--never-idle", is_flag=True, help="Never flush an idle session.")
@click.option("--pipelines", metavar="NAMES", help="What later flushes feed: facts,summary,vectors.")
@click.option("--no-pipelines", is_flag=True, help="Flushes feed nothing, and are only archived.")
@click.option(
    "--max-facts", type=click.IntRange(1), metavar="N", help="Facts in the facts block; needs --pipelines."
)
@actor_option
def set_policy_command(
    settings: Settings,
    session: str | None,
    everything: bool,
    dry_run: bool,
    namespace: str,
    user: str | None,
    history_ratio: float | None,
    idle_seconds: int | None,
    never_idle: bool,
    pipelines: str | None,
    no_pipelines: bool,
    max_facts: int | None,
    actor: str | None,
    **plain: Any,
) -> Output:
    """Change the stored policy of SESSION, from its next put and flush on; settings not named stay.

    With --all, of all sessions, one after the other; run again, it resumes with the rest.
    Added pipelines receive later flushes; `strandline replay` with --session derives from earlier ones.
    Tokenizer, user and shared scope are fixed.
    """
    if everything is (session is not None):
        raise click.UsageError("Name one SESSION, or give --all.")
    names = _names(pipelines, no_pipelines)
    values = _values({**plain, "chat_history_token_ratio": history_ratio}, idle_seconds, never_idle)
    _refuse_nothing(values, names, max_facts)

    def change(memory: Memory, state: SessionState) -> SessionPolicy:
        facts = max_facts or state.policy.max_facts
        if dry_run:
            asked = PolicyChange(**values, pipelines=names, max_facts=facts)
            return SessionPolicy.of(changed_policy(stored_policy(state.policy), asked))
        blocks = None if names is None else stored_blocks(names, facts)
        return SessionPolicy.of(memory.set_policy(**values, memory_blocks=blocks, actor=actor))

    done = "would change" if dry_run else "changed"
    if session is None:
        with opened_servers(settings) as running:
            changes = _change_all(running, namespace, user, change, dry_run)
        return Output(changes, _lines_of_all(changes, done, namespace), code=1 if changes.refused else 0)
    with opened_session(settings, session, namespace, user) as (memory, state):
        policy = change(memory, state)
    first = "nothing changed" if policy == state.policy else f"{done} the policy of session {session}"
    size = values["token_flush_size"] or state.policy.token_flush_size
    return Output(policy, [first, *_lines_of_size(size, policy), *policy_lines(policy)])


def _values(values: dict[str, Any], idle_seconds: int | None, never_idle: bool) -> dict[str, Any]:
    if never_idle and idle_seconds is not None:
        raise click.UsageError("--never-idle excludes --idle-seconds.")
    is_idle_given = never_idle or idle_seconds is not None
    return {**values, "idle_seconds": idle_seconds} if is_idle_given else values


def _refuse_nothing(values: Mapping[str, Any], names: tuple[str, ...] | None, max_facts: int | None) -> None:
    if "idle_seconds" not in values and {*values.values(), names, max_facts} == {None}:
        raise click.UsageError(f"Nothing would change. Give at least one of {', '.join(_CHANGING)}.")
    if max_facts is not None and "facts" not in (names or ()):
        raise click.UsageError("--max-facts needs --pipelines with facts among them.")


def _lines_of_all(changes: PoliciesChanged, done: str, namespace: str) -> Iterator[str]:
    count = f"{len(changes.changed)} of {quantity(changes.sessions, 'session')}"
    yield f"{done} {count} of namespace {namespace}"
    yield from changes.changed
    yield from (f"not {name}: {reason}" for name, reason in changes.refused.items())


def _lines_of_size(requested: int, policy: SessionPolicy) -> Iterator[str]:
    if policy.token_flush_size != requested:
        yield (
            f"the flush size of {requested:,} does not fit the token limit and became"
            f" {policy.token_flush_size:,}; a larger limit will not restore it, --token-flush-size does"
        )


def _change_all(
    running: Running, namespace: str, user: str | None, change: Callable[..., SessionPolicy], dry_run: bool
) -> PoliciesChanged:
    sessions, changed, refused = 0, [], {}
    open_memory = partial(Memory.from_defaults, namespace=namespace, **running.urls)
    with closing(open_memory()):
        for state in each_session(running.database, namespace=namespace, user_id=user):
            sessions += 1
            try:
                if change(open_memory(state.session_id, user_id=state.user_id), state) != state.policy:
                    changed.append(state.session_id)
            except (ConfigurationError, ConflictError) as error:
                refused[state.session_id] = str(error)
    return PoliciesChanged(sessions=sessions, changed=tuple(changed), refused=refused, dry_run=dry_run)


def policy_lines(policy: SessionPolicy) -> Iterator[str]:
    """A policy, as a person reads it."""
    idle = "never" if policy.idle_seconds is None else f"after {quantity(policy.idle_seconds, 'second')}"
    at_turns = ", and at the end of each turn" if policy.deliver == "turn" else ""
    window = (
        f"{quantity(policy.max_window_messages, 'message')} and {quantity(policy.max_window_bytes, 'byte')}"
    )
    size = f"{policy.token_flush_size:,}"
    if policy.message_flush_size is not None:
        size += f" or {quantity(policy.message_flush_size, 'message')}"
    yield (
        f"policy: token limit {policy.token_limit:,}, mark {policy.flush_at_tokens:,}, flush size"
        f" {size}; window of at most {window}; delivered when idle: {idle}{at_turns}"
    )
    facts = "" if policy.max_facts is None else f", at most {quantity(policy.max_facts, 'fact')}"
    zone = "" if policy.time_zone is None else f"; time zone {policy.time_zone}"
    shared = "" if policy.shared_scope is None else f", shared with {policy.shared_scope}"
    yield (
        f"  pipelines: {', '.join(policy.pipelines) or 'none'}{facts}{shared}; tokenizer {policy.tokenizer}"
        f"{zone}"
    )


def _names(pipelines: str | None, none: bool) -> tuple[str, ...] | None:
    if none and pipelines is not None:
        raise click.UsageError("--no-pipelines excludes --pipelines.")
    if none or pipelines is None:
        return () if none else None
    names = tuple(dict.fromkeys(name.strip() for name in pipelines.split(",") if name.strip()))
    if not names:
        raise click.UsageError("--pipelines names none; to feed none, give --no-pipelines.")
    return names


_HEADERS = (
    "namespace", "session", "user", "messages", "window tokens", "pinned", "flushed", "window from",
    "last put",
)  # fmt: skip


@command.add("list", opened_database, SessionPage)
@namespace_filter
@click.option(
    "--user",
    "user_id",
    metavar="ID",
    help="Only those of this user (of namespace default, unless one is named).",
)
@limit_option()
@click.option("--after", metavar="PLACE", help="Continue after a page, with the PLACE that it printed.")
def list_command(database: Database, after: str | None, **filters: Any) -> Output:
    """List sessions by name, with their marks, page by page."""
    page = list_sessions(database, after=after, **filters)
    if not page.sessions:
        return Output(page, ["no more sessions" if after else "no sessions"])
    more = [] if page.after is None else [f"there are more: add --after {page.after}"]
    return Output(page, [*table(_HEADERS, map(_row, page.sessions)), *more])


@command.add("show", opened_database, SessionPicture)
@click.argument("session")
@click.option("--namespace", metavar="NAME", help="Its namespace; default: default.")
@user_option
@click.option(
    "--flushes",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="Show this many of the newest flushes.",
)
def show_command(
    database: Database, session: str, namespace: str | None, user: str | None, flushes: int
) -> Output:
    """Show a session's marks, its policy, how far each pipeline is, its flushes and its dead letters."""
    picture = show_session(database, session, namespace=namespace, user_id=user, flushes=flushes)
    return Output(picture, _lines(picture))


def _row(state: SessionState) -> Row:
    return (
        state.namespace,
        state.session_id,
        state.user_id or "-",
        state.messages,
        state.window_tokens,
        state.pinned_through,
        state.flushed_through,
        state.window_from,
        time_text(state.last_put_at),
    )


def _lines(picture: SessionPicture) -> Iterator[str]:
    yield from _state_lines(picture.session)
    yield from policy_lines(picture.session.policy)
    yield from map(change_line, picture.policy_changes)
    yield from map(correction_line, picture.corrections)
    if picture.coverage:
        yield ""
        yield from table(
            ("pipeline", "generation", "covered", "due", "dead"), map(_coverage_row, picture.coverage)
        )
    yield from ("", f"{quantity(picture.flushes, 'flush', 'flushes')} so far")
    if picture.latest_flushes:
        headers = ("flush event", "cause", "from", "through", "tokens", "at")
        yield from table(headers, map(_flush_row, picture.latest_flushes))
    for letter in picture.dead_letters:
        yield f"dead letter {letter.id}: messages {letter.from_seq} to {letter.through_seq}: {letter.reason}"


def _flush_row(flush: SessionFlush) -> Row:
    at = time_text(flush.at)
    return (str(flush.event_id), flush.cause, flush.from_seq, flush.through_seq, flush.tokens, at)


def _state_lines(state: SessionState) -> Iterator[str]:
    owner = f" of {state.user_id}" if state.user_id else ""
    yield f"session {state.session_id}{owner}, namespace {state.namespace}"
    yield f"begun {time_text(state.created_at)}, last put {time_text(state.last_put_at)}"
    yield f"{quantity(state.messages, 'message')}, seq {state.log_start_seq} to {state.last_seq}"
    yield (
        f"marks: pinned through {state.pinned_through}, flushed through {state.flushed_through},"
        f" window from {state.window_from}"
    )
    yield (
        f"tokens: {state.window_tokens:,} in the window, {state.pinned_tokens:,} in the pinned head;"
        f" flushes above {state.policy.flush_at_tokens:,}"
    )


def _coverage_row(coverage: PipelineCoverage) -> Row:
    if coverage.generation is None:
        return coverage.pipeline, "not registered", "-", "-", "-"
    return (
        coverage.pipeline,
        str(coverage.generation),
        f"through {coverage.covered_through}",
        str(coverage.due),
        str(coverage.dead),
    )
