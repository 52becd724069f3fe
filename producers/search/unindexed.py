"""Searches messages that the search statement cannot find: not delivered, or not covered by vectors (yet).

They are ranked here, by their words, with the weights that ``search_v1`` gives words; no model is called.
So a search finds a message from the moment it is put, within the bounds below, and never in a shared scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from uuid import UUID

from strandline.pipelines.text.lexemes import length_of, lexemes
from strandline.pipelines.text.tone import QUESTION, WISH
from strandline.pipelines.text.weighting import (
    ASKS,
    ASSISTANT,
    BESIDE_BEST,
    CLEAR_CONTRAST,
    NAMED_DAY,
    NEARBY,
    OTHER_DAY,
    OTHER_SPEAKER,
    STANDING_WISH,
    WORDS_BESIDE_VECTOR,
    by_length,
    full_text_score,
    rarity,
    saturated,
    weight_of_words,
)
from strandline.pipelines.vectors.chunks import Voice, chunks, said_on, voice_of
from strandline.producers.search.hits import Hit
from strandline.producers.search.ranking import ALL_VISIBLE, SearchQuery, Target
from strandline.producers.sessions import HISTORY_PAGE_BYTES
from strandline.schemas.postgres.operations import Compute, Operation, fetch
from strandline.schemas.queries.conversation.search import UnsearchedMessages
from strandline.schemas.values.message import Message, read_rows

# At most so many are looked at, the newest; there are more while workers are far behind, and in long sessions
# that feed no vectors.
MAX_MESSAGES = 1_000
# Of an owner, the sessions that were put to last.
MAX_SESSIONS = 20


@dataclass(frozen=True, slots=True)
class _WordCounts:
    session_key: UUID | None
    message: Message
    times: Mapping[str, float]
    said_on: date | None


def with_unsearched(
    hits: Sequence[Hit], query: SearchQuery, target: Target, generation_id: int | None, limit: int
) -> Operation[list[Hit]]:
    """The ``hits`` of a search merged with matches among messages without vectors, best first.

    A message without a vector is ranked by its words, as if its vector said the same: where vectors were
    compared it scores at most as much as the best hit, or as words alone can. A message that repeats the
    query is usually the question itself, and is left out.

    Args:
        generation_id: the generation of the vectors that were searched; None if no vectors serve.
    """
    if target.scope == "shared" or "message" not in target.kinds or not query.lexemes:
        return list(hits)
    rows = yield from fetch(_statement(target, generation_id))
    indexed = {(hit.session_key, message.seq) for hit in hits for message in hit.messages}
    waiting = {
        (row.session_key, row.seq): (row.session_key, message)
        for row, message in zip(rows, read_rows(rows), strict=True)
        if (row.session_key, row.seq) not in indexed and message.text.strip() != query.text
    }
    if not waiting:
        return list(hits)
    of_several = target.scope == "owner"
    merged: list[Hit] = yield Compute(partial(_merge_hits, hits, list(waiting.values()), query, of_several))
    return merged[:limit]


def _statement(target: Target, generation_id: int | None) -> UnsearchedMessages:
    session_key = target.identity.session_key
    return UnsearchedMessages(
        **target.filters.params(session_key),
        session_key=session_key,
        shard_key=target.shard_key,
        scope_key=session_key if target.scope == "session" else None,
        excluded_session=session_key if target.visible_from == ALL_VISIBLE else None,
        generation_id=generation_id,
        sessions=MAX_SESSIONS,
        messages=MAX_MESSAGES,
        page_bytes=HISTORY_PAGE_BYTES,
    )


def _merge_hits(
    hits: Sequence[Hit], waiting: Sequence[tuple[UUID, Message]], query: SearchQuery, of_several: bool
) -> list[Hit]:
    known = [(hit.session_key, message) for hit in hits for message in hit.messages]
    places = [*known, *waiting]
    texts, whole = _scores([_count_words(key, message, query) for key, message in places], query)
    nearest = 0.0 if query.vector is None else CLEAR_CONTRAST
    best = max(texts.values(), default=0.0)
    days = [day_score(message, query) for _, message in waiting]
    if not best and not any(days):
        return list(hits)
    full = full_text_score(best, whole, nearest) or 1.0
    best_known = max((texts[key, message.seq] for key, message in known), default=0.0)
    weighed = factors([message for _, message in places], query)
    scores = {
        (key, message.seq): texts[key, message.seq] * factor
        for (key, message), factor in zip(known, weighed[: len(known)], strict=True)
    }
    share = 1.0 if query.vector is None else WORDS_BESIDE_VECTOR
    surplus = share * (1 / full_text_score(best_known, whole, nearest) - 1 / full) if best_known else 0.0
    words = [max((scores[hit.session_key, m.seq] for m in hit.messages), default=0.0) for hit in hits]
    lowered = [
        replace(hit, score=max(0.0, hit.score - surplus * own)) for hit, own in zip(hits, words, strict=True)
    ]
    most = max([share, *(hit.score for hit in lowered)])
    added = [
        Hit(min(1.0, score), key, (message,), has_vector=False)
        for (key, message), factor, day in zip(waiting, weighed[len(known) :], days, strict=True)
        if (score := factor * (most * texts[key, message.seq] / full + day))
    ]
    if of_several:
        added = behind_the_best(added, lowered)
    # Among equals the newest first, and unindexed messages are newer than flushed ones.
    return sorted((*added, *lowered), key=lambda hit: -hit.score)


def day_score(message: Message, query: SearchQuery) -> float:
    """The score of a message for its day alone; 0 if the query names none."""
    day = said_on(message) if query.aim.days else None
    return 0.0 if day is None else NAMED_DAY * query.aim.fit(day)


def behind_the_best(added: Sequence[Hit], hits: Sequence[Hit]) -> list[Hit]:
    """The added ones with less of their score where their session has a better one, as ``search_v1`` does."""
    bests: dict[UUID | None, float] = {}
    for hit in (*hits, *added):
        bests[hit.session_key] = max(hit.score, bests.get(hit.session_key, 0.0))
    return [
        replace(hit, score=hit.score * BESIDE_BEST) if hit.score < bests[hit.session_key] else hit
        for hit in added
    ]


def _count_words(session_key: UUID | None, message: Message, query: SearchQuery) -> _WordCounts:
    sought_words = frozenset(query.lexemes)
    pieces = [lexemes(chunk.text) for chunk in chunks([message])]
    divisor = by_length(max(1, sum(map(length_of, pieces))))
    counts = Counter(lexeme for piece in pieces for lexeme, _position in piece if lexeme in sought_words)
    times = {lexeme: count / divisor for lexeme, count in counts.items()}
    return _WordCounts(session_key, message, times, said_on(message))


def _scores(
    counted: Sequence[_WordCounts], query: SearchQuery
) -> tuple[dict[tuple[UUID | None, int | None], float], float]:
    """The BM25 score of each message, with a share of its neighbours' words in the session; and the weight of
    all words.
    """
    holders = Counter(lexeme for place in counted for lexeme in place.times)
    weights = {lexeme: rarity(len(counted), count) for lexeme, count in holders.items()}
    whole = weight_of_words([*weights.values()], query.word_count, rarity(len(counted), 0))
    by_seq = {(place.session_key, place.message.seq): place for place in counted}

    def score(place: _WordCounts) -> float:
        times: dict[str, float] = {}
        for share, near in _near(place, by_seq):
            for lexeme, count in near.times.items():
                times[lexeme] = times.get(lexeme, 0.0) + count * share
        return sum(weights[lexeme] * saturated(count) for lexeme, count in times.items())

    return {key: score(place) for key, place in by_seq.items()}, whole


def _near(
    place: _WordCounts, by_seq: Mapping[tuple[UUID | None, int | None], _WordCounts]
) -> Iterator[tuple[float, _WordCounts]]:
    for distance, share in NEARBY.items():
        near = by_seq.get((place.session_key, (place.message.seq or 0) + distance))
        if near is not None and near.said_on == place.said_on:
            yield share, near


def factors(messages: Sequence[Message], query: SearchQuery) -> list[float]:
    """Factors of each message's score."""
    voices = [voice_of(message) for message in messages]
    names = frozenset(query.aim.names)
    names_speaker = any(not names.isdisjoint(voice.name) for voice in voices)
    return [_factor(voice, query, names, names_speaker) for voice in voices]


def _factor(voice: Voice, query: SearchQuery, names: frozenset[str], names_speaker: bool) -> float:
    factor = 1.0
    if names_speaker:
        factor *= OTHER_SPEAKER if names.isdisjoint(voice.name) else 1.0
        factor *= ASKS if voice.tone == QUESTION else 1.0
    else:
        factor *= ASSISTANT if query.aim.is_own and voice.role == "assistant" else 1.0
        factor *= STANDING_WISH if voice.tone == WISH else 1.0
    if query.aim.days:
        fit = 0.0 if voice.said_on is None else query.aim.fit(voice.said_on)
        factor *= OTHER_DAY + (1 - OTHER_DAY) * fit
    return factor
