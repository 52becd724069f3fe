"""Gathers what may fill the room of a read: messages and facts that match its query, and the newest facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from strandline.pipelines.text.aim import NO_AIM, Aim
from strandline.producers.blocks.render import fact_line
from strandline.producers.reading.budget.pieces import FactPiece, MessagePiece, Place, place_of
from strandline.producers.reading.budget.recent_counts import recent_counts
from strandline.producers.search.hits import Hit
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.read import FactSources
from strandline.schemas.values.message import Message

# Who speaks and the line's end, beside what was counted when the message was put.
LINE_TOKENS = 4

# A hit costs the statement and the process as much as a message of the window; more than these seldom fit.
MIN_HITS = 10
MAX_HITS = 100
# A short message, as it is shown.
USUAL_TOKENS = 20

# Where not even the best scores so much, no word of the query was met, and meaning alone is a guess:
# questions about other matters reach 0.1 to 0.23 in real conversations, those about these 0.57 and more.
NOISE_SCORE = 0.25
# What the search leaves of a message's score if it was not said on the days that are asked for (search_v1).
OTHER_DAY = 0.5

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


def message_pieces(hits: Sequence[Hit], query: str = "") -> tuple[MessagePiece, ...]:
    """The messages of the hits, each once, best first; one that only repeats the query answers nothing."""
    pieces: dict[Place, MessagePiece] = {}
    rank = 1.0
    for hit in hits:
        rank = min(rank, hit.score)
        if hit.session_key is None:
            continue
        for message in hit.messages:
            place = place_of(hit.session_key, message.seq)
            text = message.text
            if place not in pieces and text.strip() not in ("", query):
                pieces[place] = MessagePiece(
                    message=message,
                    place=place,
                    text=text,
                    session_key=hit.session_key,
                    score=hit.score,
                    rank=rank,
                    similarity=hit.similarity,
                    tokens=_tokens(message),
                )
    return tuple(pieces.values())


def _tokens(message: Message) -> int:
    return (message.tokens or 0) + LINE_TOKENS


def fact_pieces(
    shard_key: UUID,
    generation_id: int | None,
    facts: Mapping[str, tuple[str, float]],
    count_text: Callable[[str], int],
) -> Operation[dict[str, FactPiece]]:
    """Facts with the messages that they come from.

    Args:
        generation_id: of the facts; None where there are none.
        facts: text and score, by id.
    """
    if not facts:
        return {}
    rows = yield from fetch(
        FactSources(shard_key=shard_key, generation_id=generation_id, fact_ids=[UUID(one) for one in facts])
    )
    sources: dict[str, set[Place]] = {}
    times: dict[str, datetime] = {}
    for row in rows:
        times[str(row.fact_id)] = row.said_at
        if row.session_key is not None and row.seqs:
            sources.setdefault(str(row.fact_id), set()).update(
                place_of(row.session_key, seq) for seq in row.seqs
            )
    return {
        fact_id: FactPiece(
            fact_id=UUID(fact_id),
            text=text,
            line=(line := fact_line(text)),
            said_at=times[fact_id],
            sources=frozenset(sources.get(fact_id, ())),
            score=score,
            tokens=tokens_of_line(line, count_text),
        )
        for fact_id, (text, score) in facts.items()
        if fact_id in times
    }


def tokens_of_line(line: str, count_text: Callable[[str], int]) -> int:
    """With the line's end."""
    return recent_counts.count(count_text, line) + 1


def matching_facts(hits: Sequence[Hit]) -> Iterator[tuple[str, tuple[str, float]]]:
    """Text and score of the facts among the hits, best first."""
    for hit in hits:
        if hit.fact is not None:
            yield str(hit.fact.fact_id), (hit.fact.text, hit.score)
