"""The choice of a read: which of its candidates stay, are shortened or left out.

The pinned head, the window and blocks of priority 0 stay whole.  The tail may take up to half of the
remaining room, newest messages first; then come the other blocks, the largest priority number shortened or
left out first; then what fills the room; then the tail takes the room that is still free.  The memory is
counted as it is rendered, template included, so that the sum is that of the prompt that a model receives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strandline.producers.blocks.base import FactExtractionMemoryBlock, SummaryMemoryBlock
from strandline.producers.blocks.render import conversation_text, facts_text
from strandline.producers.reading.candidates import Shown, by_place, reserved_tail, without_shown
from strandline.producers.reading.context import Omission, sum_tokens
from strandline.producers.reading.contributions import (
    Contribution,
    Measure,
    attempt,
    contributions_of,
    is_quick,
    recent_counts,
    render_blocks,
)
from strandline.producers.reading.pieces import SUMMARY_SHARE, Candidates, Chosen, choose_pieces, words_of
from strandline.producers.reading.request import ReadRequest
from strandline.producers.reading.snapshot import Snapshot, Tail, newest_that_fit
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.postgres.operations import Operation, Run
from strandline.schemas.values.message import Message

# A shorter part of a message may mean something else there.
MIN_PART_CHARACTERS = 24
# Attempts to fit the room, as lines are counted singly, and the memory as a whole. Each gives up twice as
# much of the room as the one before, since other pieces replace those that were too large.
MAX_ATTEMPTS = 16
# A block that is still too long after so many attempts to shorten it is left out.
MAX_TRUNCATIONS = 4
# Each round takes messages out of the hits that the tail came to show; one is the rule.
_MAX_ROUNDS = 3

_NOT_RENDERED = "The memory template does not show its text."


@dataclass(frozen=True, slots=True)
class Choice:
    """The parts of a read other than pinned head and window; ``tokens`` is the sum with these.

    ``kept`` are the contributions of which ``memory`` is made; ``chosen`` are the pieces that fill the room.
    """

    memory: str
    parts: tuple[Mapping[str, Any], ...]
    tail: tuple[Message, ...]
    tokens: int
    over_budget: bool
    omitted: tuple[Omission, ...]
    kept: tuple[Contribution, ...] = ()
    chosen: Chosen = field(default_factory=Chosen)


def choose(request: ReadRequest, snapshot: Snapshot, candidates: Candidates) -> Operation[Choice]:
    """Render the blocks and choose what fits: inline if that is quick, otherwise off the event loop."""
    blocks = [block for block in request.blocks if not block.is_filler]
    contributions, failures = yield from render_blocks(blocks, candidates.material)
    work = partial(_choose, request, snapshot, candidates, contributions)
    choice: Choice = work() if is_quick(contributions, candidates.characters) else (yield Run(work))
    return replace(choice, omitted=(*failures, *choice.omitted)) if failures else choice


def _choose(
    request: ReadRequest, snapshot: Snapshot, candidates: Candidates, contributions: Sequence[Contribution]
) -> Choice:
    """Choose, and again without the hits that the tail turned out to show."""
    choose_again = partial(
        choose_within,
        token_limit=request.token_limit,
        fixed_tokens=snapshot.fixed_tokens,
        tail=snapshot.tail,
        measure=request.measure,
        order=[block.name for block in request.blocks],
    )
    choice = choose_again(contributions=contributions, candidates=candidates)
    for _ in range(_MAX_ROUNDS):
        if not choice.tail:
            break  # the window's messages are left out already
        tail = by_place(request, choice.tail)
        seqs = frozenset([*(seq for _, seq in tail), *snapshot.ahead])
        shown = Shown(request.identity, snapshot.window_from, seqs)
        material = candidates.material
        hits = {name: without_shown(of_block, shown) for name, of_block in material.hits.items()}
        if hits == material.hits:
            break
        candidates = replace(
            candidates,
            material=replace(material, hits=hits),
            shown={**candidates.shown, **tail},
            known_texts=None,
        )
        blocks = [block for block in request.blocks if not block.is_filler]
        contributions, _ = contributions_of(blocks, candidates.material)
        choice = choose_again(contributions=contributions, candidates=candidates)
    return choice


def choose_within(
    *,
    token_limit: int,
    fixed_tokens: int,
    contributions: Sequence[Contribution],
    tail: Tail,
    measure: Measure,
    candidates: Candidates | None = None,
    order: Sequence[str] = (),
) -> Choice:
    """Choose the parts that fit with ``fixed_tokens`` (pinned head and window), and name the others.

    Args:
        candidates: for the room that the contributions leave.
        order: names of all blocks, in the order of their sections.
    """
    room = token_limit - fixed_tokens
    for_memory = room - sum_tokens(reserved_tail(room, contributions, tail, measure))
    kept, omitted = _shrunk(contributions, for_memory, measure)
    chosen = Chosen() if candidates is None else fill(candidates, kept, for_memory, measure)
    places = {name: place for place, name in enumerate(order)}
    kept = sorted([*kept, *chosen.sections.values()], key=lambda one: places.get(one.block.name, len(places)))
    omitted += [Omission("not_rendered", c.block.name, _NOT_RENDERED) for c in measure.find_unrendered(kept)]
    cost = measure.cost(kept)
    shown = newest_that_fit(tail, room - cost)
    tokens = fixed_tokens + cost + sum_tokens(shown)
    return Choice(
        memory=measure.render_all(kept),
        parts=tuple(part for c in kept for part in c.parts),
        tail=shown,
        tokens=tokens,
        over_budget=tokens > token_limit,
        omitted=(*omitted, *chosen.omitted, *_omitted_tail(tail, shown)),
        kept=tuple(kept),
        chosen=chosen,
    )


def _shrunk(
    contributions: Sequence[Contribution], room: int, measure: Measure
) -> tuple[list[Contribution], list[Omission]]:
    """The contributions that fit, the smallest priority number first; the others shortened or left out.

    Omitted ones make room for less important ones.
    """
    if measure.cost(contributions) <= room:
        return list(contributions), []
    unrendered = measure.find_unrendered(contributions)
    kept = [c for c in contributions if c.block.priority == 0 or c in unrendered]
    omitted: list[Omission] = []
    for candidate in sorted([c for c in contributions if c not in kept], key=lambda c: c.block.priority):
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
    return next(at for at, one in enumerate(contributions) if one.block is contribution.block)


def _made_to_fit(
    victim: Contribution,
    others: tuple[list[Contribution], list[Contribution]],
    room: int,
    measure: Measure,
) -> tuple[Contribution | None, Omission | None]:
    """``victim`` shortened until it fits with ``others``; None if it has to be dropped whole.

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


def fill(candidates: Candidates, kept: Sequence[Contribution], room: int, measure: Measure) -> Chosen:
    """The pieces that fit with ``kept``, within ``room`` tokens for the whole memory."""
    if not candidates.blocks:
        return Chosen()
    free = room - measure.cost(kept)
    for number in range(MAX_ATTEMPTS):
        chosen = _fill(candidates, free, measure)
        excess = measure.cost([*kept, *chosen.sections.values()]) - room
        if excess <= 0 or not chosen.sections:
            return chosen
        free -= excess << number
    return Chosen()


def _fill(candidates: Candidates, free: int, measure: Measure) -> Chosen:
    free -= sum([_count(f"<{block.name}>\n\n</{block.name}>\n", measure) for block in candidates.blocks])
    is_alone = not (candidates.has_facts or candidates.has_messages)
    room = free if is_alone else int(free * SUMMARY_SHARE)
    cut = _cut_summaries(candidates, room, measure)
    left = free - _sum_counts(cut, measure)
    chosen = choose_pieces(candidates, left)
    unused = left - chosen.tokens
    if unused > 0 and cut != candidates.summaries:
        cut = _cut_summaries(candidates, room + unused, measure)
    summaries = _without_repeated(cut, chosen) if any(cut.values()) else cut
    if summaries != cut:
        # Parts that the summary omits leave room for more pieces, unless a line is then lost from both.
        more = choose_pieces(candidates, free - _sum_counts(summaries, measure))
        shorter = _without_repeated(cut, more)
        if _sum_counts(shorter, measure) <= _sum_counts(summaries, measure):
            chosen, summaries = more, shorter
    return replace(
        chosen,
        sections=_sections(candidates, chosen, summaries),
        omitted=(
            *_cut_omissions(candidates.summaries, cut, summaries, measure),
            *_left_out(candidates, chosen),
        ),
    )


def _sections(
    candidates: Candidates, chosen: Chosen, summaries: Mapping[str, str]
) -> dict[str, Contribution]:
    sections = {}
    for block in candidates.blocks:
        text = summaries.get(block.name)
        if isinstance(block, FactExtractionMemoryBlock):
            text = facts_text((fact.day, fact.line) for fact in chosen.facts)
        elif pieces := chosen.messages.get(block.name):
            lines = [(one.place[0], one.message, one.line) for one in pieces]
            text = conversation_text(lines, candidates.time_zone)
        if text:
            sections[block.name] = Contribution(block, text)
    return sections


def _cut_summaries(candidates: Candidates, room: int, measure: Measure) -> dict[str, str]:
    cut = {}
    for block in candidates.blocks:
        if isinstance(block, SummaryMemoryBlock):
            text = candidates.summaries.get(block.name, "")
            excess = _count(text, measure) - room
            shorter = text if excess <= 0 else block.truncate(text, excess, measure.count_text)
            cut[block.name] = shorter or ""
    return cut


def _left_out(candidates: Candidates, chosen: Chosen) -> Iterator[Omission]:
    pieces = [piece for of_block in chosen.messages.values() for piece in of_block]
    taken = {piece.place: piece.message for piece in pieces}
    texts = candidates.shown_texts.union([piece.text for piece in pieces])
    facts = {fact.fact_id for fact in chosen.facts}
    for block in candidates.blocks:
        if isinstance(block, FactExtractionMemoryBlock):
            what = "fact"
            kept = [f.fact_id in facts or f.is_told_by(candidates.shown, taken) for f in candidates.facts]
        else:
            what = "message"
            kept = [piece.text in texts for piece in candidates.messages.get(block.name, ())]
        if missing := kept.count(False):
            reason = f"{missing} of {quantity(len(kept), what)} that match had no room."
            yield Omission("block_truncated", block.name, reason)


def _cut_omissions(
    whole: Mapping[str, str], cut: Mapping[str, str], reduced: Mapping[str, str], measure: Measure
) -> Iterator[Omission]:
    """The cut summaries, except parts that shown messages repeat."""
    for name, text in cut.items():
        if text == whole.get(name, ""):
            continue
        before, after = _count(whole[name], measure), _count(reduced[name], measure)
        if after:
            reason = f"Shortened from {before} to {quantity(after, 'token')} to fit the limit."
            yield Omission("block_truncated", name, reason)
        else:
            yield Omission("block_dropped", name, f"Its {quantity(before, 'token')} had no room.")


def _sum_counts(texts: Mapping[str, str], measure: Measure) -> int:
    return sum(_count(text, measure) for text in texts.values() if text)


def _count(text: str, measure: Measure) -> int:
    return recent_counts.count(measure.count_text, text)


def _without_repeated(summaries: Mapping[str, str], chosen: Chosen) -> dict[str, str]:
    lines = [piece.words for pieces in chosen.messages.values() for piece in pieces]
    return {name: _without_said(text, frozenset(lines), "\n".join(lines)) for name, text in summaries.items()}


def _without_said(summary: str, messages: frozenset[str], together: str) -> str:
    pieces, between = SummaryMemoryBlock.pieces_of(summary)
    return between.join(piece for piece in pieces if not _is_said(words_of(piece), messages, together))


def _is_said(words: str, messages: frozenset[str], together: str) -> bool:
    """Whether a message is these words, or holds them where they are more than a phrase."""
    return words in messages or (len(words) >= MIN_PART_CHARACTERS and words in together)
