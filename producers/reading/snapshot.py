"""The rows of the statement ``read``, as values: marks, coverage, what blocks show, and messages."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.producers.reading.call_pairs import REASONS, Settled, is_settled
from strandline.producers.reading.context import Omission, sum_tokens
from strandline.producers.reading.window_cache import (
    NOTHING_KNOWN,
    UNKNOWN,
    KnownFacts,
    KnownSession,
    KnownWindow,
)
from strandline.producers.search.hits import HitFact
from strandline.producers.search.index.indexed_search import Standing
from strandline.schemas.queries.conversation.read import ReadRow
from strandline.schemas.values.message import HEAD_ROLES, Message, read_rows

_WINDOW_PART = 2


@dataclass(frozen=True, slots=True)
class Tail:
    """Flushed messages that some block does not cover yet.

    Attributes:
        messages: the newest of them, in order, each result behind its call; there may be more than were read.
        ranges: first and last ``seq`` of each event that holds such messages, in order.
    """

    messages: Sequence[Message] = ()
    ranges: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One session at one moment.

    Attributes:
        exists: whether anything was ever put to it; if not, its marks are those of an empty session.
        last_seq: of the newest message; 0 before the first.
        fed: the pipelines that its flushes feed.
        shared_key: the key of its shared scope, if it has one.
        serving: by pipeline, ``generation_id``, ``version`` and ``config`` of the generation that serves.
        pending: pipeline, first and last ``seq`` of each range that is flushed and not covered.
        has_flushed: whether anything can have been derived from it.
        pinned: the pinned head or the message that replaced it, and ``note``.
        note: the newest system message behind the head, if before the window and different.
        prompt: the number of the message that replaced the head; None: the head stands.
        fixed_tokens: tokens of ``pinned`` and the window.
        standing: versions by which a process's cached data of the owner are checked.
        known: the window and the facts in the form of the cache, for the next read.
        token_limit: of the session's policy; None: it has not begun.
        header: the statement's other columns.
        time_zone: of the session's policy; None: UTC.
        erasures: the newest erasure in the database.
        omitted: changes to tail and window against the log.
        ahead: numbers of messages that have left the window and stand at its beginning: the user's that its
            first turn answers, and calls whose results came later.
    """

    exists: bool
    window_from: int
    last_seq: int
    flushed_through: int
    pinned_through: int
    has_flushed: bool
    fed: frozenset[str]
    shared_key: UUID | None
    serving: Mapping[str, Mapping[str, Any]]
    pending: Sequence[tuple[str, int, int]]
    facts: tuple[HitFact, ...]
    states: Mapping[str, Any]
    pinned: Sequence[Message]
    window: Sequence[Message]
    tail: Tail
    fixed_tokens: int
    standing: Standing
    known: KnownSession
    header: Mapping[str, Any]
    erasures: int = 0
    omitted: tuple[Omission, ...] = ()
    ahead: tuple[int, ...] = ()
    token_limit: int | None = None
    time_zone: str | None = None
    note: Message | None = None
    prompt: int | None = None

    @property
    def head(self) -> list[Message]:
        """The system messages that stand in front."""
        return [one for one in self.pinned if one is not self.note]

    def with_note(self, tail: Sequence[Message]) -> Sequence[Message]:
        return tail if self.note is None else insert_in_order([self.note], tail)

    @property
    def lost_calls(self) -> dict[str, int]:
        """The ids of calls that are not shown, with the numbers of their first results in the window."""
        lost = [one for one in reversed(self.omitted) if one.kind == "result_left_out"]
        return {one.name: seq for one in lost if (seq := one.from_seq or 0) >= self.window_from}

    @property
    def fact_texts(self) -> list[str]:
        return [fact.text for fact in self.facts]

    def covered_through(self, pipelines: Sequence[str]) -> dict[str, int]:
        """Per pipeline, the last ``seq`` up to which it covers all flushed messages."""
        return {pipeline: self._covered_through(pipeline) for pipeline in pipelines}

    def _covered_through(self, pipeline: str) -> int:
        if pipeline not in self.serving or pipeline not in self.fed:
            return self.pinned_through
        starts = (first for name, first, _ in self.pending if name == pipeline)
        return min(starts, default=self.flushed_through + 1) - 1


def read_snapshot(
    rows: Sequence[ReadRow],
    known: KnownSession = UNKNOWN,
    most_facts: int = 0,
    limits: tuple[int | None, int] = (None, 0),
    recalled: Sequence[Message] = (),
) -> Snapshot:
    """Read the header row, then the tail with the question, the pinned head and the window, in this order.

    ``known`` was given to the statement; the rows lack its current parts. ``limits`` are the most tokens of
    this read, None if the session's alone count, and the tokens that are used already. ``recalled`` are calls
    of results that are in the window, and other results of theirs.
    """
    header: dict[str, Any] = json.loads(rows[0].envelope)
    marks: dict[str, Any] = header["session"] or {}
    window_from, pinned_through = marks.get("window_from", 1), marks.get("pinned_through", 0)
    flushed_through = marks.get("flushed_through", 0)
    part_two = bisect_left(rows, _WINDOW_PART, key=lambda row: row.part)
    window_at = bisect_left(rows, window_from, lo=part_two, key=lambda row: row.seq)
    window = (known.window if header.pop("known") else NOTHING_KNOWN).move_to(
        window_from, rows[window_at:], header["seal"] or ""
    )
    facts, version = header.pop("facts"), header["facts_version"]
    known_facts = known.facts
    if facts is not None or known_facts.version != version or known_facts.most != most_facts:
        known_facts = KnownFacts(version, most_facts, tuple(map(HitFact.read_json, facts or ())))
    prompt = marks.get("prompt")
    head = read_rows(rows[part_two:window_at])
    note = head.pop() if head and (head[-1].seq or 0) > (prompt or pinned_through) else None
    whole = messages = window.messages
    prompts = frozenset(marks.get("prompts") or ())
    if prompts:
        head = head or [one for one in messages if one.seq == prompt]
        messages = tuple([one for one in messages if one.seq not in prompts])
    if note is not None and note.shown_text.strip() in ("", *[one.shown_text.strip() for one in head]):
        note = None  # a framework may put the prompt again with each turn
    pinned = head if note is None else [*head, note]
    shown_elsewhere = prompts.union(one.seq for one in pinned)
    tail = [one for one in read_rows(rows[1:part_two]) if one.seq not in shown_elsewhere]
    questions = frozenset(marks.get("question_seqs") or ())
    # Twice where it is of the tail as well.
    asked = {one.seq or 0: one for one in tail if one.seq in questions}
    before_window = _of_open_turn(asked, messages, window_from) | {one.seq or 0: one for one in recalled}
    ahead = dict(sorted(before_window.items()))
    tail = [one for one in tail if asked.get(one.seq or 0) is not one and one.seq not in ahead]
    shown = (*ahead.values(), *messages) if ahead else messages
    limit, (most_tokens, used_tokens) = marks.get("token_limit", 0), limits
    room = (limit if most_tokens is None else min(limit, most_tokens)) - used_tokens - sum_tokens(pinned)
    before, shown, omitted = _settle_calls(tail, shown, None if ahead else window, room)
    pending = [(name, first, last) for name, first, last in header["pending"] or ()]
    return Snapshot(
        exists=header["session"] is not None,
        window_from=window_from,
        last_seq=marks.get("next_seq", 1) - 1,
        flushed_through=flushed_through,
        pinned_through=pinned_through,
        has_flushed=flushed_through > pinned_through or marks.get("log_start_seq", 1) > 1,
        fed=frozenset(marks.get("pipelines") or ()),
        shared_key=UUID(marks["shared_key"]) if marks.get("shared_key") else None,
        serving=header["serving"] or {},
        pending=pending,
        facts=known_facts.facts,
        states=header["states"] or {},
        pinned=pinned,
        window=shown,
        standing=Standing(
            header["pieces_version"], version, header["is_bounded"], header["is_alone"], flushed_through
        ),
        known=KnownSession(window, known_facts, vain=known.vain),
        header=header,
        erasures=header["erasures"] or 0,
        token_limit=marks.get("token_limit"),
        time_zone=marks.get("time_zone"),
        note=note,
        prompt=prompt,
        tail=Tail(before, _gaps(pending, window_from)),
        fixed_tokens=sum_tokens(pinned) + (window.tokens if shown is whole else sum_tokens(shown)),
        omitted=omitted,
        ahead=tuple(ahead),
    )


def insert_in_order(group: Sequence[Message], tail: Sequence[Message]) -> Sequence[Message]:
    """The tail with a message and its results in their place, never between a call and its results."""
    first = group[0].seq or 0
    behind = (at for at, one in enumerate(tail) if (one.seq or 0) > first and not one.answers)
    at = next(behind, len(tail))
    return (*tail[:at], *group, *tail[at:])


def newest_that_fit(tail: Tail, room: int) -> tuple[Message, ...]:
    """The newest messages of the tail, within ``room`` tokens, from a place where a conversation can be cut.

    Such a place is before a user message, or at the beginning of an event, and never before a tool's result.
    """
    starts = {first for first, _ in tail.ranges}
    used, begin = 0, len(tail.messages)
    for index in range(len(tail.messages) - 1, -1, -1):
        message = tail.messages[index]
        used += message.tokens or 0
        if used > room:
            break
        if (message.seq in starts or message.role == "user") and not message.answers:
            begin = index
    return tuple(tail.messages[begin:])


def _of_open_turn(
    asked: Mapping[int, Message], window: Sequence[Message], window_from: int
) -> dict[int, Message]:
    """The user's messages before the window of the turn inside which it begins.

    Those directly before it are of that turn once the assistant has begun it; if all has left, the newest is.
    """
    speaking = [one for one in window if one.role not in HEAD_ROLES] if asked else []
    if speaking:
        answer = next((one for one in speaking if one.role == "assistant"), None)
        has_begun = not speaking[0].is_new_turn or (answer is not None and bool(answer.calls))
        newest = None
    else:
        has_begun, newest = False, max(asked, default=None)
    shown = dict(asked)
    while not has_begun and (window_from := window_from - 1) in shown:
        if window_from != newest:
            del shown[window_from]
    return shown


def _settle_calls(
    tail: Sequence[Message], shown: tuple[Message, ...], window: KnownWindow | None, room: int
) -> tuple[Sequence[Message], tuple[Message, ...], tuple[Omission, ...]]:
    if is_settled((*tail, *shown)) if tail or window is None else window.is_settled(shown):
        return tail, shown, ()
    settled = Settled((*tail, *shown))
    behind = [message for group in settled.groups[len(tail) :] for message in group]
    if sum_tokens(shown) <= room < sum_tokens(behind):  # the notes alone have no room
        settled = Settled((*tail, *shown), with_notes=False)
    before = [message for group in settled.groups[: len(tail)] for message in group]
    omitted = [
        Omission(one.kind, one.call_id, REASONS[one.kind], one.seq, one.seq) for one in settled.changes
    ]
    return before, settled.messages[len(before) :], tuple(omitted)


def _gaps(pending: Sequence[tuple[str, int, int]], window_from: int) -> list[tuple[int, int]]:
    return sorted({(first, min(last, window_from - 1)) for _, first, last in pending if first < window_from})
