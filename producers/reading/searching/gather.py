"""Gathers what may fill the room of a read: messages and facts that match its query, and the newest facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strandline.pipelines.text.aim import NO_AIM, Aim
from strandline.pipelines.text.weighting import OTHER_DAY
from strandline.producers.blocks.render import fact_line
from strandline.producers.reading.budget.pieces import FactPiece, MessagePiece
from strandline.producers.reading.budget.recent_counts import recent_counts
from strandline.producers.search.hits import Hit, HitFact, Place, Utterance

# A hit costs the statement and the process as much as a message of the window; more than these seldom fit.
MIN_HITS = 10
MAX_HITS = 100
# A short message, as it is shown.
USUAL_TOKENS = 20

# Where not even the best scores so much, no word of the query was met, and meaning alone is a guess:
# questions about other matters reach 0.1 to 0.3 in real conversations, those about these mostly 0.4 and more.
NOISE_SCORE = 0.2

# Facts that a read looks at because they are new, and because they match.
NEWEST_FACTS = 20
MAX_MATCHING_FACTS = 40


def hits_for(room: int) -> int:
    """How many hits to ask for, so that they fill ``room`` tokens if they are short."""
    return min(MAX_HITS, max(MIN_HITS, room // USUAL_TOKENS))


def without_noise(hits: Sequence[Hit], aim: Aim = NO_AIM) -> list[Hit]:
    """The hits; none if even the best says nothing of what is asked.

    Args:
        aim: of the question, if the hits are messages; the scores of facts do not depend on it.
    """
    least = NOISE_SCORE * OTHER_DAY if aim.days else NOISE_SCORE
    return list(hits) if any(hit.score >= least for hit in hits) else []


def message_pieces(hits: Sequence[Hit]) -> tuple[MessagePiece, ...]:
    """The messages of the hits, each once, best first."""
    pieces: dict[Place, MessagePiece] = {}
    rank = 1.0
    for hit in hits:
        rank = min(rank, hit.score)
        if hit.session_key is None:
            continue
        utterances = (
            [hit.utterance] if hit.utterance else [Utterance(hit.session_key, one) for one in hit.messages]
        )
        for utterance in utterances:
            if utterance.place not in pieces and utterance.text.strip():
                pieces[utterance.place] = MessagePiece.of(utterance, hit.score, rank, hit.similarity)
    return tuple(pieces.values())


def fact_piece(fact: HitFact, score: float, count_text: Callable[[str], int]) -> FactPiece:
    """A fact that may be shown; its line is made and counted once."""
    shown = fact.shown.get(count_text)
    if shown is None:
        line = fact_line(fact.text)
        fact.shown[count_text] = shown = line, tokens_of_line(line, count_text)
    return FactPiece(fact.fact_id, fact.text, shown[0], fact.said_at, fact.sources, score, shown[1])


def tokens_of_line(line: str, count_text: Callable[[str], int]) -> int:
    """With the line's end."""
    return recent_counts.count(count_text, line) + 1


def matching_facts(hits: Sequence[Hit]) -> Iterator[tuple[HitFact, float]]:
    """The facts among the hits with their scores, best first."""
    for hit in hits:
        if hit.fact is not None:
            yield hit.fact, hit.score
