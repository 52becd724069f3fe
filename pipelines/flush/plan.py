"""Chooses the messages of a flush: a pure function over seq, role, tokens and tool calls.

A window is never cut between a tool call and the result that follows it.  A cut before a user message is
preferred, so that the window begins with a whole turn; a single turn that is too large is cut inside, before
the assistant's next step.  A call without a result counts as closed once the conversation continues behind
it: a cut between it and a late result is taken only if no other brings the window within its marks.  The last
resort is a cut where a call is open, so that the marks always hold.

The size of one event is bounded separately: a piece that is too large becomes several events, cut at the same
places if possible, otherwise also between a call and its result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from strandline.schemas.values.message import HEAD_ROLES, Role

UNBOUNDED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One message as planning sees it; ``calls`` are the ids of calls that it makes, ``answers`` those of
    calls whose results it has.
    """

    seq: int
    role: Role
    tokens: int
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    bytes: int = 0

    @property
    def is_new_turn(self) -> bool:
        """Whether a person speaks: in some forms a user's message holds results."""
        return self.role == "user" and not self.answers

    @property
    def is_answer(self) -> bool:
        """Whether the assistant ends a turn."""
        return self.role == "assistant" and not self.calls


@dataclass(frozen=True, slots=True)
class Size:
    """How large a piece of the log is, or may be."""

    tokens: int = UNBOUNDED
    messages: int = UNBOUNDED
    bytes: int = UNBOUNDED

    def holds(self, other: Size) -> bool:
        return other.tokens <= self.tokens and other.messages <= self.messages and other.bytes <= self.bytes

    def is_reached_by(self, other: Size) -> bool:
        """Whether the other is at least as large in some respect."""
        return other.tokens >= self.tokens or other.messages >= self.messages or other.bytes >= self.bytes


# Bounds of one event, unless a single message is larger.  Tokens: twice a worker's default for one model
# call, so with its instructions it fits any context of 32,000.  Messages and bytes: loaded at a time by a
# worker, and 64 such events may be one batch.
EVENT_BOUND = Size(tokens=16_000, messages=500, bytes=1_000_000)

# A cut may part nothing; a call from a late result; or an open call from the messages behind it.
_DEGREES = _NOTHING, _LATE, _WAITING = range(3)

# A flush step is at least this part of a window's most messages or bytes.
_SHARE_OF_WINDOW = 4


@dataclass(frozen=True, slots=True)
class Range:
    """A contiguous piece of the log that one flush event delivers."""

    from_seq: int
    through_seq: int
    tokens: int
    messages: int


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The effect of a flush on the marks, and the events that it records, oldest first.

    ``tokens_out``, ``messages_out`` and ``bytes_out`` count what leaves the window (0 for a delivery in
    place, which moves only ``flushed_through``).
    """

    window_from: int
    flushed_through: int
    tokens_out: int
    events: tuple[Range, ...]
    messages_out: int = 0
    bytes_out: int = 0


def plan_threshold(
    entries: Sequence[Entry],
    *,
    flushed_through: int,
    pinned_tokens: int,
    mark: int,
    flush_size: int,
    max_messages: int = UNBOUNDED,
    max_bytes: int = UNBOUNDED,
    message_flush_size: int | None = None,
    event_bound: Size = EVENT_BOUND,
) -> FlushPlan | None:
    """Flush the oldest messages until the window is within all its marks; None if nothing can leave.

    ``entries`` is the whole window in order.  The marks are ``mark`` tokens, the pinned head's included, and
    ``max_messages`` and ``max_bytes`` of the window.  Each step takes at least ``flush_size`` tokens, or a
    quarter of the messages or bytes that the window may hold, if a cut allows it; messages after the last
    possible cut stay, however large they are.  ``message_flush_size`` takes the place of that quarter: a
    window of too many messages then gives off so many, or a multiple, whatever tokens they have.
    """
    window = _Window(entries)
    limit = Size(mark - pinned_tokens, max_messages, max_bytes)
    share = max(1, max_messages // _SHARE_OF_WINDOW)
    usual = Size(flush_size, message_flush_size or share, max(1, max_bytes // _SHARE_OF_WINDOW))
    ends: list[int] = []
    start = 0
    while not limit.holds(size := window.size(start, len(entries))):
        excess = size.messages - max_messages
        step = usual
        if message_flush_size is not None and excess > 0:
            step = Size(messages=-(-excess // usual.messages) * usual.messages)
        end = window.next_cut(start, step)
        if end is None:
            break
        ends.append(end)
        start = end
    return _plan(window, ends, flushed_through, _bound(event_bound, flush_size)) if ends else None


def plan_manual(
    entries: Sequence[Entry],
    *,
    flushed_through: int,
    flush_size: int,
    everything: bool,
    event_bound: Size = EVENT_BOUND,
) -> FlushPlan | None:
    """Flush all but the last turn (or all, if ``everything``), in events of about ``flush_size`` tokens."""
    window = _Window(entries)
    if everything:
        stop = max(window.all_before(len(entries) + 1), default=0)
    else:
        # The last turn's beginning is not a cut if a late result lies behind it.
        stop = max(window.whole_turns(0), default=0)
    ends = window.fill(0, stop, flush_size)
    return _plan(window, ends, flushed_through, _bound(event_bound, flush_size)) if ends else None


def plan_delivery(
    entries: Sequence[Entry],
    *,
    window_from: int,
    flushed_through: int,
    flush_size: int,
    whole_turns: bool = False,
    event_bound: Size = EVENT_BOUND,
) -> FlushPlan | None:
    """Deliver the window's messages and leave them there, up to the last place where no call is open.

    With ``whole_turns``, up to the last answer that calls no tool.
    """
    window = _Window(entries)
    begin = window.delivered(flushed_through)
    places = window.all_before(len(entries) + 1, _LATE if whole_turns else _NOTHING)
    if whole_turns:
        places = (end for end in places if entries[end - 1].is_answer)
    stop = max((end for end in places if end > begin), default=0)
    ends = window.fill(begin, stop, flush_size)
    events = _ranges(window, begin, ends, flushed_through, _bound(event_bound, flush_size))
    if not events:
        return None
    return FlushPlan(window_from, events[-1].through_seq, 0, tuple(events))


def _bound(event_bound: Size, flush_size: int) -> Size:
    return replace(event_bound, tokens=max(event_bound.tokens, 2 * flush_size))


class _Window:
    """A window's messages: their sizes, and the places between them where the conversation may be cut.

    A cut at ``i`` separates ``entries[:i]`` from ``entries[i:]``.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._tokens = [0, *accumulate(entry.tokens for entry in entries)]
        self._bytes = [0, *accumulate(entry.bytes for entry in entries)]
        self._forbidden = _inside_calls(entries)
        users = [index for index, entry in enumerate(entries) if entry.is_new_turn]
        self.last_turn = users[-1] if users else 0

    def size(self, start: int, end: int) -> Size:
        return Size(
            self._tokens[end] - self._tokens[start], end - start, self._bytes[end] - self._bytes[start]
        )

    def delivered(self, flushed_through: int) -> int:
        return bisect_right(self.entries, flushed_through, key=lambda entry: entry.seq)

    def allows(self, at: int, degree: int = _NOTHING) -> bool:
        return not self._forbidden[degree][at]

    def whole_turns(self, after: int, degree: int = _NOTHING) -> Iterable[int]:
        return (
            at
            for at in range(after + 1, self.last_turn + 1)
            if self.entries[at].is_new_turn and self.allows(at, degree)
        )

    def inside_turn(self, after: int, degree: int = _NOTHING) -> Iterable[int]:
        """Cuts before a step of an assistant that does not directly follow its user's message, or before a
        system message, which may have caused the step.
        """
        return (
            at
            for at in range(after + 1, len(self.entries))
            if self._begins_step(at) and self.allows(at, degree)
        )

    def _begins_step(self, at: int) -> bool:
        role, before = self.entries[at].role, self.entries[at - 1]
        if role == "assistant":
            return before.role in ("assistant", "tool") or bool(before.answers)
        return role in HEAD_ROLES and not before.is_new_turn

    def all_before(self, limit: int, degree: int = _NOTHING) -> Iterable[int]:
        return (at for at in range(1, min(limit, len(self.entries) + 1)) if self.allows(at, degree))

    def next_cut(self, start: int, step: Size) -> int | None:
        for degree in _DEGREES:
            for candidates in (self.whole_turns(start, degree), self.inside_turn(start, degree)):
                last: int | None = None
                for at in candidates:
                    if step.is_reached_by(self.size(start, at)):
                        return at
                    last = at
                if last is not None:
                    return last
        return None

    def fill(self, start: int, stop: int, flush_size: int) -> list[int]:
        """Cuts from ``start`` to ``stop``, each piece about ``flush_size`` tokens, the last one the rest."""
        ends: list[int] = []
        for at in self.all_before(stop):
            if at > start and self.size(ends[-1] if ends else start, at).tokens >= flush_size:
                ends.append(at)
        if stop > start and (not ends or ends[-1] < stop):
            ends.append(stop)
        return ends

    def pieces(self, begin: int, end: int, bound: Size) -> Iterable[int]:
        while not bound.holds(self.size(begin, end)) and end - begin > 1:
            most = max(begin + 1, self._furthest(begin, bound))
            begin = next((at for at in range(most, begin, -1) if self.allows(at)), most)
            yield begin
        yield end

    def _furthest(self, begin: int, bound: Size) -> int:
        by_tokens = bisect_right(self._tokens, self._tokens[begin] + bound.tokens) - 1
        by_bytes = bisect_right(self._bytes, self._bytes[begin] + bound.bytes) - 1
        return min(by_tokens, by_bytes, begin + bound.messages)


def _inside_calls(entries: Sequence[Entry]) -> list[list[bool]]:
    results: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        for call in entry.answers:
            results.setdefault(call, []).append(index)
    goes_on = _goes_on(entries)
    covered = [[0] * (len(entries) + 2) for _ in _DEGREES]
    for index, entry in enumerate(entries):
        for call in entry.calls:
            # Providers reuse ids ("call_1"): a call belongs to the first result that follows it.
            places = results.get(call, [])
            place = bisect_right(places, index)
            closed = goes_on[index]
            result = places[place] if place < len(places) else closed
            came = place < len(places) and result <= closed
            for spans, end in zip(covered, (result,) * 3 if came else (result, closed, index), strict=True):
                spans[index + 1] += 1
                spans[end + 1] -= 1
    return [[depth > 0 for depth in accumulate(spans)][: len(entries) + 1] for spans in covered]


def _goes_on(entries: Sequence[Entry]) -> list[int]:
    """For each entry, the last one before the conversation continues: the assistant, or a person, speaks.

    A call in it waits for its result up to there, or to the end.
    """
    following, closes_at = [0] * len(entries), len(entries)
    for index in range(len(entries) - 1, -1, -1):
        following[index] = closes_at
        if entries[index].role == "assistant" or entries[index].is_new_turn:
            closes_at = index - 1
    return following


def _plan(window: _Window, ends: Sequence[int], flushed_through: int, bound: Size) -> FlushPlan:
    window_from = window.entries[ends[-1] - 1].seq + 1
    begin = window.delivered(flushed_through)
    events = _ranges(window, begin, [end for end in ends if end > begin], flushed_through, bound)
    out = window.size(0, ends[-1])
    return FlushPlan(
        window_from=window_from,
        flushed_through=max(flushed_through, window_from - 1),
        tokens_out=out.tokens,
        events=tuple(events),
        messages_out=out.messages,
        bytes_out=out.bytes,
    )


def _ranges(
    window: _Window, begin: int, ends: Sequence[int], flushed_through: int, bound: Size
) -> list[Range]:
    """The ranges that end at ``ends``, in pieces within ``bound``.

    Each begins where the one before it ended, so popped numbers are inside one.
    """
    ranges = []
    for stop in ends:
        for end in window.pieces(begin, stop, bound):
            through_seq = window.entries[end - 1].seq
            size = window.size(begin, end)
            ranges.append(Range(flushed_through + 1, through_seq, size.tokens, size.messages))
            begin, flushed_through = end, through_seq
    return ranges
