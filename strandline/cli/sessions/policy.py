"""``strandline sessions set-policy``: a session's stored limits and pipelines, changed on record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from strandline.cli.servers.memories import opened_session
from strandline.cli.servers.options import (
    as_json,
    json_schema_option,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.terminal.output import print_json, print_schema, say
from strandline.pipelines.inspect.sessions import SessionPolicy
from strandline.producers.blocks.resolve import stored_blocks
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.policy import DELIVERIES, Deliver, Policy, Unchanged

_CHANGING = (
    "--token-limit", "--history-ratio", "--token-flush-size", "--max-window-messages", "--max-window-bytes",
    "--message-flush-size", "--deliver", "--time-zone", "--idle-seconds", "--never-idle", "--pipelines",
    "--no-pipelines",
)  # fmt: skip


@click.command("set-policy", short_help="Change a session's limits or pipelines.")
@click.argument("session")
@namespace_option
@click.option("--user", metavar="ID", help="The user that must own it; default: any.")
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
@click.option("--actor", metavar="NAME", help="Your name; it is stored with the change, and shown with it.")
@as_json
@json_schema_option
@target_options
def set_policy_command(
    session: str,
    namespace: str,
    user: str | None,
    token_limit: int | None,
    history_ratio: float | None,
    token_flush_size: int | None,
    max_window_messages: int | None,
    max_window_bytes: int | None,
    message_flush_size: int | None,
    deliver: Deliver | None,
    time_zone: str | None,
    idle_seconds: int | None,
    never_idle: bool,
    pipelines: str | None,
    no_pipelines: bool,
    max_facts: int | None,
    actor: str | None,
    as_json: bool,
    json_schema: bool,
    **target: Any,
) -> int:
    """Change the stored policy of SESSION, from its next put and flush on; settings not named stay.

    Added pipelines receive later flushes; `strandline replay` with --session derives from earlier ones.
    Tokenizer, user and shared scope are fixed.
    """
    if json_schema:
        print_schema(SessionPolicy)
        return 0
    if (never_idle and idle_seconds is not None) or (no_pipelines and pipelines is not None):
        raise click.UsageError(
            "--never-idle excludes --idle-seconds, and --no-pipelines excludes --pipelines."
        )
    names = _names(pipelines, no_pipelines)
    limits = (token_limit, history_ratio, token_flush_size, max_window_messages, max_window_bytes)
    changes = (*limits, message_flush_size, deliver, time_zone, idle_seconds, names, max_facts)
    if not never_idle and all(change is None for change in changes):
        raise click.UsageError(f"What is to change? Give at least one of {', '.join(_CHANGING)}.")
    if max_facts is not None and "facts" not in (names or ()):
        raise click.UsageError("--max-facts needs --pipelines with facts among them.")
    settings = settings_from(**target)
    with opened_session(settings, session, namespace=namespace, user_id=user) as (memory, state):
        policy = memory.set_policy(
            token_limit=token_limit,
            chat_history_token_ratio=history_ratio,
            token_flush_size=token_flush_size,
            idle_seconds=idle_seconds if idle_seconds is not None or never_idle else Unchanged.UNCHANGED,
            memory_blocks=None
            if names is None
            else stored_blocks(names, max_facts or state.policy.max_facts),
            max_window_messages=max_window_messages,
            max_window_bytes=max_window_bytes,
            message_flush_size=message_flush_size,
            deliver=deliver,
            time_zone=time_zone,
            actor=actor,
        )
    report = _report(policy)
    if as_json:
        print_json(report)
    else:
        say("nothing changed" if report == state.policy else f"changed the policy of session {session}")
        requested_size = state.policy.token_flush_size if token_flush_size is None else token_flush_size
        if policy.token_flush_size != requested_size:
            say(
                f"the flush size of {requested_size:,} does not fit the token limit and became"
                f" {policy.token_flush_size:,}; a larger limit will not restore it, --token-flush-size does"
            )
        say(*policy_lines(report))
    return 0


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
    if none:
        return ()
    if pipelines is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in pipelines.split(",") if name.strip()))
    if not names:
        raise click.UsageError("--pipelines names none; to feed none, give --no-pipelines.")
    return names


def _report(policy: Policy) -> SessionPolicy:
    return SessionPolicy(**{name: getattr(policy, name) for name in SessionPolicy.model_fields})
