"""Flushing: plan from an unlocked read, then one compare-and-set of marks, events and due work.

Producers (a put that crossed the mark, a manual flush) and the sweep (idle and overdue sessions) run
this same operation; it is here because neither may import the other.  No lock is held between the
plan and the flush, and a process that dies between them leaves everything as it was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid4

from strandline.pipelines.flush.plan import (
    Entry,
    FlushPlan,
    plan_delivery,
    plan_manual,
    plan_threshold,
)
from strandline.schemas.postgres.operations import Operation, fetch, find_owner_keys
from strandline.schemas.queries.conversation.flush import EndDelay, Flush, PlanWindow, PostponePlanning
from strandline.schemas.sealing.tokens import REFERENCE
from strandline.schemas.tracing import send_span
from strandline.schemas.values.flush_event import EVENT_VERSION, FlushCause
from strandline.schemas.values.identity import SessionKeys
from strandline.schemas.values.lanes import Lane
from strandline.schemas.values.policy import Deliver

logger = logging.getLogger("strandline.producers")

# A manual flush that loses the race plans again; each loss means that another caller flushed.
MAX_MANUAL_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Marks:
    """A session's marks and policy as one read saw them."""

    incarnation: UUID
    corrections: int
    window_from: int
    flushed_through: int
    pinned_tokens: int
    window_tokens: int
    flush_at_tokens: int
    token_flush_size: int
    window_messages: int
    window_bytes: int
    max_window_messages: int
    max_window_bytes: int
    message_flush_size: int | None
    deliver: Deliver
    idle_for_seconds: float
    idle_seconds: int | None
    watched: bool | None

    @property
    def is_crossed(self) -> bool:
        """Whether the window holds more than it may, by tokens, messages or bytes."""
        return (
            self.pinned_tokens + self.window_tokens > self.flush_at_tokens
            or self.window_messages > self.max_window_messages
            or self.window_bytes > self.max_window_bytes
        )


@dataclass(frozen=True, slots=True)
class Flushed:
    """One flush's record: its events, oldest first, and the lanes that now have work."""

    event_ids: tuple[UUID, ...]
    lanes: tuple[Lane, ...]

    def after(self, earlier: Flushed | None) -> Flushed:
        """Both flushes as one; each lane is named once."""
        if earlier is None:
            return self
        lanes = dict.fromkeys(earlier.lanes + self.lanes)
        return Flushed(earlier.event_ids + self.event_ids, tuple(lanes))


@lru_cache(maxsize=64)
def tell_failed_flush(reason: str, _minute: int) -> None:
    """Log, once a minute for each reason, that a put could not flush: the next one, or the sweep, does."""
    logger.warning("flush after put failed", extra={"action": "flush_failed", "reason": reason})


@dataclass(frozen=True, slots=True)
class Window:
    """A session's window as one read saw it: its marks, and its messages in order."""

    keys: SessionKeys
    marks: Marks
    entries: Sequence[Entry]


def flush_over_mark(keys: SessionKeys) -> Operation[Flushed | None]:
    """Flush a session that crossed its mark, and deliver its turns; None if that is no longer needed."""
    window = yield from read_window(keys)
    return None if window is None else (yield from _flush_by_policy(window))


def flush_at_put(
    keys: SessionKeys,
    window: str,
    *,
    cause: FlushCause = "threshold",
    lazily: bool = False,
    turn_delay_seconds: float = 0.0,
) -> Operation[Flushed | None]:
    """Flush as a put that crossed the mark, or ended a turn, found the session; None as above.

    ``window``: the JSON of ``window_v1``.
    ``lazily``: without waiting for the disk, for a flush that is alone in its transaction.
    ``turn_delay_seconds``: how long the work of a turn waits for more.
    """
    seen = yield from _read_window(keys, window)
    return (yield from _flush_by_policy(seen, cause, lazily=lazily, turn_delay_seconds=turn_delay_seconds))


def _flush_by_policy(
    window: Window,
    cause: FlushCause = "threshold",
    *,
    lazily: bool = False,
    turn_delay_seconds: float = 0.0,
) -> Operation[Flushed | None]:
    """Deliver whole turns in place, and then move the excess out of the window.

    In this order, leaving messages were delivered with their turn, and no event parts a question from its
    answer.
    """
    delivered: Flushed | None = None
    marks = window.marks
    if marks.deliver == "turn":
        plan = plan_delivery(
            window.entries,
            window_from=marks.window_from,
            flushed_through=marks.flushed_through,
            flush_size=marks.token_flush_size,
            whole_turns=True,
        )
        if plan is not None:
            of_turn: FlushCause = "turn" if cause == "threshold" else cause
            delivered = yield from _apply(
                window, plan, of_turn, lazily=lazily, delay_seconds=turn_delay_seconds
            )
            if delivered is None:
                return None
            marks = replace(marks, flushed_through=plan.flushed_through)
    if not marks.is_crossed:
        return delivered
    flushed = yield from _flush_threshold(replace(window, marks=marks), cause, lazily=lazily)
    return delivered if flushed is None else flushed.after(delivered)


def _flush_threshold(window: Window, cause: FlushCause, *, lazily: bool) -> Operation[Flushed | None]:
    marks = window.marks
    plan = plan_threshold(
        window.entries,
        flushed_through=marks.flushed_through,
        pinned_tokens=marks.pinned_tokens,
        mark=marks.flush_at_tokens,
        flush_size=marks.token_flush_size,
        max_messages=marks.max_window_messages,
        max_bytes=marks.max_window_bytes,
        message_flush_size=marks.message_flush_size,
    )
    if plan is not None:
        return (yield from _apply(window, plan, cause, lazily=lazily))
    # Until half a flush more has come in; a user message or a tool result ends the wait.
    yield from fetch(
        PostponePlanning(
            **window.keys,
            incarnation=marks.incarnation,
            old_window_from=marks.window_from,
            old_flushed_through=marks.flushed_through,
            tokens_more=max(1, marks.token_flush_size // 2),
        )
    )
    return None


def flush_by_hand(keys: SessionKeys, *, everything: bool) -> Operation[Flushed | None]:
    """Flush all but the last turn, or all; None if there is nothing to flush."""
    for _attempt in range(MAX_MANUAL_ATTEMPTS):
        window = yield from read_window(keys)
        plan = None if window is None else _plan_by_hand(window, window.entries, everything=everything)
        if window is None or plan is None:
            return None
        flushed = yield from _apply(window, plan, "manual")
        if flushed is not None:
            return flushed
    return None


def _plan_by_hand(window: Window, entries: Sequence[Entry], *, everything: bool) -> FlushPlan | None:
    return plan_manual(
        entries,
        flushed_through=window.marks.flushed_through,
        flush_size=window.marks.token_flush_size,
        everything=everything,
    )


def deliver_idle(window: Window, *, cause: FlushCause = "idle") -> Operation[Flushed | None]:
    """Deliver the messages in an idle session's window, and leave them in the window.

    If there is nothing to deliver, there are no events; None if another flush, or a reset, was first.
    """
    plan = plan_delivery(
        window.entries,
        window_from=window.marks.window_from,
        flushed_through=window.marks.flushed_through,
        flush_size=window.marks.token_flush_size,
    )
    return Flushed((), ()) if plan is None else (yield from _apply(window, plan, cause))


def deliver_by_hand(keys: SessionKeys) -> Operation[Flushed | None]:
    """Deliver all that the window holds, and leave it there; None if there is nothing to deliver."""
    for _attempt in range(MAX_MANUAL_ATTEMPTS):
        window = yield from read_window(keys)
        if window is None:
            return None
        delivered = yield from deliver_idle(window, cause="manual")
        if delivered is not None:
            return delivered if delivered.event_ids else None
    return None


def end_delay(keys: SessionKeys) -> Operation[list[Lane]]:
    """Let turns of a session wait no longer for others to share their calls; returns lanes to ring for."""
    rows = yield from fetch(EndDelay(**keys))
    return list(dict.fromkeys(Lane(*row) for row in rows))


def deliver_closed(keys: SessionKeys, cause: FlushCause) -> Operation[Flushed | None]:
    """Deliver all of a session to which nothing will be added; None if there is nothing to deliver.

    Calls without results wait for none.
    """
    window = yield from read_window(keys)
    if window is None:
        return None
    closed = [replace(entry, calls=(), answers=()) for entry in window.entries]
    plan = _plan_by_hand(window, closed, everything=True)
    return None if plan is None else (yield from _apply(window, plan, cause))


def read_window(keys: SessionKeys) -> Operation[Window | None]:
    """A session's window, in one snapshot; None if there is no such session."""
    rows = yield from fetch(PlanWindow(**keys))
    window = rows[0].to_flush
    return None if window is None else (yield from _read_window(keys, window))


def _read_window(keys: SessionKeys, window: str) -> Operation[Window]:
    """The window of a JSON text; ids of tool calls in one form, if only some of them are keyed yet."""
    seen: dict[str, Any] = json.loads(window)
    seen["marks"]["incarnation"] = UUID(seen["marks"]["incarnation"])
    entries = [
        Entry(seq, role, tokens, tuple(calls or ()), tuple(answers or ()), size)
        for seq, role, tokens, calls, answers, size in seen["entries"]
    ]
    ids = [name for entry in entries for name in (*entry.calls, *entry.answers)]
    if len({name.startswith(REFERENCE) for name in ids}) == 2:
        owner = yield from find_owner_keys(keys["shard_key"])
        if owner is not None:
            entries = [
                replace(
                    entry,
                    calls=tuple(map(owner.reference, entry.calls)),
                    answers=tuple(map(owner.reference, entry.answers)),
                )
                for entry in entries
            ]
    return Window(keys, Marks(**seen["marks"]), entries)


def _apply(
    window: Window, plan: FlushPlan, cause: FlushCause, *, lazily: bool = False, delay_seconds: float = 0.0
) -> Operation[Flushed | None]:
    marks = window.marks
    event_ids = [uuid4() for _ in plan.events]
    with send_span(**window.keys, events=len(event_ids)) as span:
        rows = yield from fetch(
            Flush.of(
                plan,
                **window.keys,
                incarnation=marks.incarnation,
                corrections=marks.corrections,
                old_window_from=marks.window_from,
                old_flushed_through=marks.flushed_through,
                cause=cause,
                event_ids=event_ids,
                from_seqs=[event.from_seq for event in plan.events],
                through_seqs=[event.through_seq for event in plan.events],
                tokens=[event.tokens for event in plan.events],
                messages=[event.messages for event in plan.events],
                version=EVENT_VERSION,
                lazily=lazily,
                delay_seconds=delay_seconds,
                traceparent=span.traceparent,
            )
        )
    if not rows:
        return None
    lanes = tuple(
        Lane(window.keys["shard_key"], scope_key, generation_id, stage)
        for generation_id, stage, scope_key in rows
        if generation_id is not None
    )
    # The sweep rings for waiting messages when their time has come.
    return Flushed(tuple(event_ids), () if delay_seconds else lanes)
