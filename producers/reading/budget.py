"""The token budget of a read: which parts stay, are shortened or left out; pure functions.

The pinned head, the window and blocks of priority 0 stay whole.  The tail may take up to half of the
remaining room, newest messages first; then come the other blocks, the largest priority number shortened or
left out first; then the tail takes the room that is still free.  The memory is counted as it is rendered,
template included, so that the sum is that of the prompt that a model receives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from strandline.producers.blocks.base import BaseMemoryBlock, CountText
from strandline.producers.blocks.render import Renderer, Section, render_memory
from strandline.producers.reading.context import Omission
from strandline.producers.reading.foreign_code import attempt
from strandline.producers.reading.parted_calls import parted_calls
from strandline.producers.reading.recent_counts import recent_counts
from strandline.producers.tokens import PART_TOKENS, count_parts
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.message import Message

_PARTED = "The blocks already cover the other part of its tool call."

_NOT_RENDERED = "The memory template does not show its text."

# Lines and markup stay as they are, for templates that look at these.
_ANY_CHARACTER = re.compile(r"[^\s<>&;]")
_OTHER_CHARACTER = "\u2588"

# Separates the memory from the message that it is inserted into.
SEPARATOR = "\n\n"

# A block that is still too long after so many attempts to shorten it is left out.
MAX_TRUNCATIONS = 4


@dataclass(frozen=True, slots=True)
class Contribution:
    """The output of one block: its text, escaped, and its content parts."""

    block: BaseMemoryBlock
    text: str
    parts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Tail:
    """Flushed messages that some block does not cover yet.

    Attributes:
        messages: the newest of them, in order; there may be more than were read.
        ranges: first and last ``seq`` of each event that holds such messages, in order.
    """

    messages: Sequence[Message] = ()
    ranges: Sequence[tuple[int, int]] = ()

    @cached_property
    def parted_seqs(self) -> frozenset[int]:
        """The seqs of messages that cannot be shown, because a part of their tool call is not in the tail."""
        return (
            parted_calls(self.messages, {first for first, _ in self.ranges}) if self.ranges else frozenset()
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """The parts of a read other than pinned head and window; ``tokens`` is their sum."""

    memory: str
    parts: tuple[Mapping[str, Any], ...]
    tail: tuple[Message, ...]
    tokens: int
    over_budget: bool
    omitted: tuple[Omission, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """How the memory is rendered and counted; ``part_tokens``: tokens of content parts that are not text,
    by type.
    """

    count_text: CountText
    render: Renderer
    part_tokens: Mapping[str, int] = field(default_factory=lambda: PART_TOKENS)

    def render_all(self, contributions: Iterable[Contribution]) -> str:
        return self.render([Section(c.block.name, c.text) for c in contributions if c.text])

    def find_unrendered(self, contributions: Sequence[Contribution]) -> list[Contribution]:
        """The contributions whose text the caller's template does not show at all."""
        if self.render is render_memory:
            return []
        return [c for c in contributions if c.text and not self._shows(c, contributions)]

    def _shows(self, one: Contribution, contributions: Sequence[Contribution]) -> bool:
        # A template may lay text out as it likes, so what counts is that another text gives another memory.
        other = replace(one, text=_ANY_CHARACTER.sub(_OTHER_CHARACTER, one.text))
        try:
            changed = self.render_all([other if c is one else c for c in contributions])
        except ConfigurationError:
            return True  # it stumbles over this text, so it looks at it
        return changed != self.render_all(contributions)

    def cost(self, contributions: Sequence[Contribution]) -> int:
        """Tokens of the memory as inserted, and of the content parts by their estimates."""
        text = self.render_all(contributions)
        parts = [part for c in contributions for part in c.parts]
        estimates = count_parts(parts, self.count_text, self.part_tokens)
        return estimates + (recent_counts.count(self.count_text, text + SEPARATOR) if text else 0)


def fit(
    *,
    token_limit: int,
    fixed_tokens: int,
    contributions: Sequence[Contribution],
    tail: Tail,
    measure: Measure,
) -> Fitted:
    """Choose the parts that fit beside ``fixed_tokens`` (pinned head and window), and name the others."""
    room = token_limit - fixed_tokens
    reserved = reserved_tail(room=room, contributions=contributions, tail=tail, measure=measure)
    kept, omitted = _shrunk(contributions, room - _tokens(reserved), measure)
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
        omitted=(*omitted, *_omitted_tail(tail, shown)),
    )


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

    Such a place is before a user message, or at the beginning of an event, and never between a tool call and
    its result; a call or result whose counterpart is not in the tail is left out.
    """
    starts = {first for first, _ in tail.ranges}
    answers: set[str] = set()
    messages = [message for message in tail.messages if message.seq not in tail.parted_seqs]
    used, begin = 0, len(messages)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        used += message.tokens or 0
        if used > room:
            break
        if message.tool_call_id is not None:
            answers.add(message.tool_call_id)
        answers.difference_update(str(call.get("id")) for call in message.tool_calls or ())
        if not answers and (message.seq in starts or message.role == "user"):
            begin = index
    return tuple(messages[begin:])


def _shrunk(
    contributions: Sequence[Contribution], room: int, measure: Measure
) -> tuple[list[Contribution], list[Omission]]:
    """The contributions with the largest priority numbers shortened or dropped until all fit."""
    kept = list(contributions)
    omitted: list[Omission] = []
    if measure.cost(kept) <= room:
        return kept, omitted
    unrendered = measure.find_unrendered(kept)
    for victim in _least_important_first([c for c in kept if c not in unrendered]):
        if measure.cost(kept) <= room:
            break
        place = kept.index(victim)
        others = kept[:place], kept[place + 1 :]
        shorter, failure = _made_to_fit(victim, others, room, measure)
        kept = [*others[0], *([shorter] if shorter else []), *others[1]]
        omitted.append(failure or _shortening_omission(victim, shorter, measure))
    return kept, omitted


def _least_important_first(contributions: Sequence[Contribution]) -> list[Contribution]:
    """The contributions that may be cut: the largest priority number first; of equals, the one named last."""
    cuttable = [c for c in contributions if c.block.priority > 0]
    return sorted(cuttable, key=lambda c: c.block.priority)[::-1]


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
    everything_read = len(shown) == len(tail.messages) - len(tail.parted_seqs)
    reason = (
        "More messages wait for the workers than one read includes."
        if everything_read
        else "Messages that the workers have not processed yet do not fit the token limit."
    )
    gaps += [(seq, seq) for seq in sorted(tail.parted_seqs) if first_shown is not None and seq > first_shown]
    return [
        Omission("tail", "tail", _PARTED if _is_parted(tail, gap) else reason, gap[0], gap[1]) for gap in gaps
    ]


def _is_parted(tail: Tail, gap: tuple[int, int]) -> bool:
    """Whether the gap holds only messages that are parts of split tool calls."""
    inside = [message.seq for message in tail.messages if gap[0] <= (message.seq or 0) <= gap[1]]
    return bool(inside) and tail.parted_seqs.issuperset(inside)


def _tokens(messages: Iterable[Message]) -> int:
    return sum(message.tokens or 0 for message in messages)
