"""Which messages a flush takes: a pure function over seq, role, tokens and tool calls.

The window is cut only where the conversation can be cut: never between a tool call and its result,
never before the first message that must stay.  A cut before a user message is preferred, so that the
window begins with a whole turn; a single turn that is too large is cut inside, before an assistant
message, as long as no call is open there.  (LlamaIndex documents the first rule; without the second a
long agent turn grows without bound.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from strandline.schemas.messages import Role


@dataclass(frozen=True, slots=True)
class Entry:
    """What planning knows of one message; ``calls`` are ids it opens, ``answers`` the id it closes."""

    seq: int
    role: Role
    tokens: int
    calls: tuple[str, ...] = ()
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A contiguous piece of the log that one flush event delivers."""

    from_seq: int
    through_seq: int
    tokens: int
    messages: int


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """What a flush does to the marks, and the events that it records, oldest first.

    ``tokens_out`` is what leaves the window (0 for an idle flush, which moves only ``flushed_through``).
    """

    window_from: int
    flushed_through: int
    tokens_out: int
    events: tuple[Range, ...]


def plan_threshold(
    entries: Sequence[Entry], *, flushed_through: int, pinned_tokens: int, mark: int, flush_size: int
) -> FlushPlan | None:
    """Flush the oldest messages until the window is under ``mark``; None if nothing can leave.

    ``entries`` is the whole window in order.  Each step takes at least ``flush_size`` tokens where a
    cut allows it; whatever follows the last possible cut stays, however large it is.
    """
    sums = [0, *accumulate(entry.tokens for entry in entries)]
    cuts = _Cuts(entries)
    ends: list[int] = []
    start = 0
    while pinned_tokens + sums[-1] - sums[start] > mark:
        end = _next_cut(cuts, sums, start, flush_size)
        if end is None:
            break
        ends.append(end)
        start = end
    return _plan(entries, sums, ends, flushed_through) if ends else None


def plan_manual(
    entries: Sequence[Entry], *, flushed_through: int, flush_size: int, everything: bool
) -> FlushPlan | None:
    """Flush all but the last turn (or all, if ``everything``), in events of about ``flush_size`` tokens."""
    sums = [0, *accumulate(entry.tokens for entry in entries)]
    cuts = _Cuts(entries)
    if everything:
        stop = max(cuts.all_before(len(entries) + 1), default=0)
    else:
        # The last turn's beginning is no cut if a result that came late lies behind it.
        stop = max(cuts.whole_turns(0), default=0)
    ends = _fill(cuts, sums, 0, stop, flush_size)
    return _plan(entries, sums, ends, flushed_through) if ends else None


def plan_idle(
    entries: Sequence[Entry], *, window_from: int, flushed_through: int, flush_size: int
) -> FlushPlan | None:
    """Deliver what the window holds and leave it there, up to the last place where no call is open."""
    sums = [0, *accumulate(entry.tokens for entry in entries)]
    cuts = _Cuts(entries)
    begin = sum(1 for entry in entries if entry.seq <= flushed_through)
    stop = max((end for end in cuts.all_before(len(entries) + 1) if end > begin), default=0)
    events = _ranges(entries, sums, begin, _fill(cuts, sums, begin, stop, flush_size), flushed_through)
    if not events:
        return None
    return FlushPlan(window_from, events[-1].through_seq, 0, tuple(events))


class _Cuts:
    """The places between entries where the conversation may be cut.

    A cut at ``i`` separates ``entries[:i]`` from ``entries[i:]``.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._forbidden = _inside_calls(entries)
        users = [index for index, entry in enumerate(entries) if entry.role == "user"]
        self.last_turn = users[-1] if users else 0

    def allows(self, at: int) -> bool:
        return not self._forbidden[at]

    def whole_turns(self, after: int) -> Iterable[int]:
        """Cuts that leave a window beginning with a user message."""
        return (
            at
            for at in range(after + 1, self.last_turn + 1)
            if self._entries[at].role == "user" and self.allows(at)
        )

    def inside_turn(self, after: int) -> Iterable[int]:
        """Cuts before an assistant message that does not directly follow its user's message."""
        return (
            at
            for at in range(after + 1, len(self._entries))
            if self._entries[at].role == "assistant"
            and self._entries[at - 1].role in ("assistant", "tool")
            and self.allows(at)
        )

    def all_before(self, limit: int) -> Iterable[int]:
        return (at for at in range(1, min(limit, len(self._entries) + 1)) if self.allows(at))


def _inside_calls(entries: Sequence[Entry]) -> list[bool]:
    """For each cut, whether it would part a call from its result, or from a result still to come.

    A call without a result stays open to the end of the window; a later user message closes it.
    """
    results: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        if entry.answers is not None:
            results.setdefault(entry.answers, []).append(index)
    next_user = _next_user(entries)
    covered = [0] * (len(entries) + 2)
    for index, entry in enumerate(entries):
        for call in entry.calls:
            # Providers reuse ids ("call_1"): a call belongs to the first result that follows it.
            found = results.get(call, [])
            place = bisect_right(found, index)
            until = found[place] if place < len(found) else next_user[index]
            covered[index + 1] += 1
            covered[until + 1] -= 1
    return [depth > 0 for depth in accumulate(covered)][: len(entries) + 1]


def _next_user(entries: Sequence[Entry]) -> list[int]:
    """For each entry, where a call it opens is closed if no result comes: just before the next user.

    The value is the index of the last entry that still belongs to the open call.
    """
    following, closes_at = [0] * len(entries), len(entries)
    for index in range(len(entries) - 1, -1, -1):
        following[index] = closes_at
        if entries[index].role == "user":
            closes_at = index - 1
    return following


def _next_cut(cuts: _Cuts, sums: Sequence[int], start: int, flush_size: int) -> int | None:
    for candidates in (cuts.whole_turns(start), cuts.inside_turn(start)):
        last: int | None = None
        for at in candidates:
            if sums[at] - sums[start] >= flush_size:
                return at
            last = at
        if last is not None:
            return last
    return None


def _fill(cuts: _Cuts, sums: Sequence[int], start: int, stop: int, flush_size: int) -> list[int]:
    """Cuts from ``start`` to ``stop``, each piece about ``flush_size`` tokens, the last one what is left."""
    ends: list[int] = []
    for at in cuts.all_before(stop):
        if at > start and sums[at] - sums[ends[-1] if ends else start] >= flush_size:
            ends.append(at)
    if stop > start and (not ends or ends[-1] < stop):
        ends.append(stop)
    return ends


def _plan(
    entries: Sequence[Entry], sums: Sequence[int], ends: Sequence[int], flushed_through: int
) -> FlushPlan:
    window_from = entries[ends[-1] - 1].seq + 1
    begin = sum(1 for entry in entries if entry.seq <= flushed_through)
    events = _ranges(entries, sums, begin, [end for end in ends if end > begin], flushed_through)
    return FlushPlan(
        window_from=window_from,
        flushed_through=max(flushed_through, window_from - 1),
        tokens_out=sums[ends[-1]],
        events=tuple(events),
    )


def _ranges(
    entries: Sequence[Entry], sums: Sequence[int], begin: int, ends: Sequence[int], flushed_through: int
) -> list[Range]:
    """One range per end, each beginning where the one before it ended: popped numbers lie inside one."""
    ranges = []
    for end in ends:
        through_seq = entries[end - 1].seq
        ranges.append(Range(flushed_through + 1, through_seq, sums[end] - sums[begin], end - begin))
        begin, flushed_through = end, through_seq
    return ranges
