"""The token budget of a read: which parts stay, are shortened or left out; pure functions.

The pinned head, the window and blocks of priority 0 stay whole.  The tail may take up to half of the
remaining room, newest messages first; then come the other blocks, the largest priority number shortened or
left out first; then the tail takes the room that is still free.  The memory is counted as it is rendered,
template included, so that the sum is that of the prompt that a model receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.producers.reading.budget.contributions import Contribution, Measure
from strandline.producers.reading.budget.filling import Filled, Filling
from strandline.producers.reading.context import Omission
from strandline.producers.reading.foreign_code import attempt
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message

_NOT_RENDERED = "The memory template does not show its text."

NOTHING_TO_FILL = Filling()

# A block that is still too long after so many attempts to shorten it is left out.
MAX_TRUNCATIONS = 4


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
class Fitted:
    """The parts of a read other than pinned head and window; ``tokens`` is the sum with these.

    ``kept`` are the contributions of which ``memory`` is made, and ``filled`` those that filled the room.
    """

    memory: str
    parts: tuple[Mapping[str, Any], ...]
    tail: tuple[Message, ...]
    tokens: int
    over_budget: bool
    omitted: tuple[Omission, ...]
    kept: tuple[Contribution, ...] = ()
    filled: Filled = field(default_factory=Filled)


def fit(
    *,
    token_limit: int,
    fixed_tokens: int,
    contributions: Sequence[Contribution],
    tail: Tail,
    measure: Measure,
    filling: Filling = NOTHING_TO_FILL,
    order: Sequence[str] = (),
) -> Fitted:
    """Choose the parts that fit beside ``fixed_tokens`` (pinned head and window), and name the others.

    Args:
        filling: what takes the room that the contributions leave.
        order: names of all blocks, in the order of their sections.
    """
    room = token_limit - fixed_tokens
    reserved = reserved_tail(room=room, contributions=contributions, tail=tail, measure=measure)
    kept, omitted = _shrunk(contributions, room - _tokens(reserved), measure)
    filled = filling.fill(kept, room - _tokens(reserved), measure)
    kept = _in_order([*kept, *filled.contributions.values()], order)
    omitted += [Omission("not_rendered", c.block.name, _NOT_RENDERED) for c in measure.find_unrendered(kept)]
    cost = measure.cost(kept)
    shown = newest_that_fit(tail, room - cost)
    tokens = fixed_tokens + cost + _tokens(shown)
    return Fitted(
        memory=measure.render_all(kept),
        parts=tuple(part for c in kept for part in c.parts),
        tail=shown,
        tokens=tokens,
        over_budget=tokens > token_limit,
        omitted=(*omitted, *filled.omitted, *_omitted_tail(tail, shown)),
        kept=tuple(kept),
        filled=filled,
    )


def _in_order(contributions: Sequence[Contribution], order: Sequence[str]) -> list[Contribution]:
    places = {name: place for place, name in enumerate(order)}
    return sorted(contributions, key=lambda one: places.get(one.block.name, len(places)))


def reserved_tail(
    *, room: int, contributions: Sequence[Contribution], tail: Tail, measure: Measure
) -> tuple[Message, ...]:
    """The part of the tail that only blocks of priority 0 can displace: at most half the room."""
    if not tail.messages:
        return ()
    always = [c for c in contributions if c.block.priority == 0]
    return newest_that_fit(tail, (room - measure.cost(always)) // 2)


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


def _shrunk(
    contributions: Sequence[Contribution], room: int, measure: Measure
) -> tuple[list[Contribution], list[Omission]]:
    """The contributions that fit, the smallest priority number first; the others shortened or left out.

    One that is left out makes room, which less important ones can have.
    """
    if measure.cost(contributions) <= room:
        return list(contributions), []
    unrendered = measure.find_unrendered(contributions)
    kept = [c for c in contributions if c.block.priority == 0 or c in unrendered]
    omitted: list[Omission] = []
    for candidate in _most_important_first([c for c in contributions if c not in kept]):
        place = contributions.index(candidate)
        others = (
            [c for c in kept if _index(c, contributions) < place],
            [c for c in kept if _index(c, contributions) > place],
        )
        fitting, failure = _made_to_fit(candidate, others, room, measure)
        if fitting is not candidate:
            omitted.append(failure or _shortening_omission(candidate, fitting, measure))
        kept = [*others[0], *([fitting] if fitting else []), *others[1]]
    return kept, omitted[::-1]


def _index(contribution: Contribution, contributions: Sequence[Contribution]) -> int:
    """The place of a contribution, which may be shortened, among all of them as they were given."""
    return next(at for at, one in enumerate(contributions) if one.block is contribution.block)


def _most_important_first(contributions: Sequence[Contribution]) -> list[Contribution]:
    """The smallest priority number first; of equals, the one named first."""
    return sorted(contributions, key=lambda c: c.block.priority)


def _made_to_fit(
    victim: Contribution,
    others: tuple[list[Contribution], list[Contribution]],
    room: int,
    measure: Measure,
) -> tuple[Contribution | None, Omission | None]:
    """``victim`` shortened until it fits beside ``others``; None if it has to be dropped whole.

    This may take several attempts: a block estimates by its own text, but the whole memory is counted.
    """
    shorter = victim
    for _ in range(MAX_TRUNCATIONS):
        excess = measure.cost([*others[0], shorter, *others[1]]) - room
        if excess <= 0:
            return shorter, None
        cut, failure = _truncate(shorter, excess, measure)
        if cut is None:
            return None, failure
        shorter = cut
    return (shorter if measure.cost([*others[0], shorter, *others[1]]) <= room else None), None


def _truncate(
    contribution: Contribution, excess: int, measure: Measure
) -> tuple[Contribution | None, Omission | None]:
    """The contribution shortened by its own block; None if it has to be dropped whole."""
    block, text = contribution.block, contribution.text
    shorter, failure = attempt("truncate", block, lambda: block.truncate(text, excess, measure.count_text))
    if not isinstance(shorter, str) or not shorter:
        return None, failure
    return replace(contribution, text=shorter), None


def _shortening_omission(before: Contribution, after: Contribution | None, measure: Measure) -> Omission:
    name = before.block.name
    size = measure.count_text(before.text)
    if after is None:
        return Omission(
            "block_dropped",
            name,
            f"Its {quantity(size, 'token')} {'does' if size == 1 else 'do'} not fit the token limit.",
        )
    left = measure.count_text(after.text)
    return Omission(
        "block_truncated", name, f"Shortened from {size} to {quantity(left, 'token')} to fit the limit."
    )


def _omitted_tail(tail: Tail, shown: Sequence[Message]) -> list[Omission]:
    """The ranges of the tail that are not shown, adjacent ones joined."""
    first_shown = shown[0].seq if shown else None
    gaps: list[tuple[int, int]] = []
    for first, last in sorted(tail.ranges):
        end = last if first_shown is None else min(last, first_shown - 1)
        if first > end:
            continue
        if gaps and first <= gaps[-1][1] + 1:
            gaps[-1] = (gaps[-1][0], max(end, gaps[-1][1]))
        else:
            gaps.append((first, end))
    # A late result stands before messages with smaller numbers, and goes with its call.
    late = [one.seq for one in tail.messages[: len(tail.messages) - len(shown)] if one.seq is not None]
    gaps += [(seq, seq) for seq in late if first_shown is not None and seq > first_shown]
    everything_read = len(shown) == len(tail.messages)
    reason = (
        "More messages wait for the workers than one read includes."
        if everything_read
        else "Messages that the workers have not processed yet do not fit the token limit."
    )
    return [Omission("tail", "tail", reason, *gap) for gap in gaps]


def _tokens(messages: Iterable[Message]) -> int:
    return sum(message.tokens or 0 for message in messages)
