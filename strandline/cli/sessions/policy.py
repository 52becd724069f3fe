"""``strandline sessions set-policy``: a session's stored limits and pipelines, changed on record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.memories import opened_session
from strandline.cli.servers.options import actor_option, namespace_option, settings_alone, user_option
from strandline.cli.servers.targets import Running, opened_servers
from strandline.memory import Memory
from strandline.pipelines.inspect.sessions import SessionPolicy, SessionState, list_sessions
from strandline.producers.blocks.resolve import stored_blocks
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError, ConflictError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.policy import (
    DELIVERIES,
    PolicyChange,
    changed_policy,
    stored_policy,
)
from strandline.schemas.wire.report import Report

_CHANGING = (
    "--token-limit", "--history-ratio", "--token-flush-size", "--max-window-messages", "--max-window-bytes",
    "--message-flush-size", "--deliver", "--time-zone", "--idle-seconds", "--never-idle", "--pipelines",
    "--no-pipelines",
)  # fmt: skip
_PAGE = 200


class PoliciesChanged(Report):
    """``set-policy --all``: the sessions that it changes, and why others cannot be changed so."""

    sessions: int
    changed: tuple[str, ...]
    refused: dict[str, str]
    dry_run: bool


@cli_command(
    "set-policy",
    settings_alone,
    SessionPolicy,
    PoliciesChanged,
    short_help="Change the limits or pipelines of a session, or of all.",
)
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
    change = partial(_change_session, values, names, max_facts, actor, dry_run=dry_run)
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


def _change_session(
    values: Mapping[str, Any],
    pipelines: tuple[str, ...] | None,
    max_facts: int | None,
    actor: str | None,
    memory: Memory,
    state: SessionState,
    *,
    dry_run: bool,
) -> SessionPolicy:
    facts = max_facts or state.policy.max_facts
    if dry_run:
        change = PolicyChange(**values, pipelines=pipelines, max_facts=facts)
        policy = changed_policy(stored_policy(state.policy), change)
    else:
        blocks = None if pipelines is None else stored_blocks(pipelines, facts)
        policy = memory.set_policy(**values, memory_blocks=blocks, actor=actor)
    return SessionPolicy(**{name: getattr(policy, name) for name in SessionPolicy.model_fields})


def _change_all(
    running: Running, namespace: str, user: str | None, change: Callable[..., SessionPolicy], dry_run: bool
) -> PoliciesChanged:
    sessions, changed, refused = 0, [], {}
    open_memory = partial(Memory.from_defaults, namespace=namespace, **running.urls)
    with closing(open_memory()):
        for state in _sessions(running.database, namespace, user):
            sessions += 1
            try:
                if change(open_memory(state.session_id, user_id=state.user_id), state) != state.policy:
                    changed.append(state.session_id)
            except (ConfigurationError, ConflictError) as error:
                refused[state.session_id] = str(error)
    return PoliciesChanged(sessions=sessions, changed=tuple(changed), refused=refused, dry_run=dry_run)


def _sessions(database: Database, namespace: str, user: str | None) -> Iterator[SessionState]:
    page = list_sessions(database, namespace=namespace, user_id=user, limit=_PAGE)
    yield from page.sessions
    while page.after is not None:
        page = list_sessions(database, namespace=namespace, user_id=user, limit=_PAGE, after=page.after)
        yield from page.sessions


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
