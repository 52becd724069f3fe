"""The ranking of ``search_v1`` with its constants left open, over conversations held in memory.

What the statement does in Postgres is done here in arrays, many questions at once, so that hundreds of
weightings can be tried.  ``bench.recall.weighting`` prints what the constants of the statement find here, to
be held against what ``bench.recall.measure`` measures through the real search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.recall.data import Conversation, Question
from strandline.pipelines.models.contract import Embedder
from strandline.pipelines.text.aim import aim_of
from strandline.pipelines.text.lexemes import length_of, lexemes, query_lexemes, words_of_query
from strandline.pipelines.text.tone import WISH
from strandline.pipelines.text.weighting import BESIDE_BEST, full_text_score, rarity, weight_of_words
from strandline.pipelines.vectors.chunks import Chunk, chunks, said_on, voice_of
from strandline.producers.search.ranking import SearchQuery
from strandline.producers.search.unindexed import day_score, factors
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.message import Message

Floats = NDArray[np.float64]

FIRST = 10
# As many pieces make up what a scope has in common.
SAMPLE = 300
# No word reaches farther than this, so that many empty places part one session from the next.
REACH = 3
# A vector of fewer lexemes says little.
FULL_LENGTH = 18


@dataclass(frozen=True, slots=True)
class TextWeighting:
    """How words count.

    Attributes:
        k1, b: of BM25.
        length: lexemes of a message that is neither short nor long.
        beside: what a word counts for the messages one, two and three places off.
    """

    k1: float
    b: float
    length: float
    beside: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class VectorWeighting:
    """How vectors count.

    Attributes:
        share: of the score, beside words.
        few: of so many pieces, half of what they have in common is taken out; 0: always all of it.
    """

    share: float
    few: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """A conversation as arrays: a row per place, messages in order and empty places between sessions.

    Attributes:
        counts: how often each word of the questions occurs in each message.
        lengths: in lexemes; 0 where nothing can be found.
        asked: per word, how rare it is for the questions that name it, else 0.
        pieces: the vectors of all pieces; ``piece_places`` says where each belongs.
        common: the mean of the first pieces' vectors, and ``sampled`` how many these are.
        piece_shares: of each piece's vector, less where it has few words.
        wholes: per question, the weight of all of its words.
        factors: per place and question, what speaks for a message beside its words and its vector.
        day_scores: per place and question, the score of a message for its day alone.
        days: per place, the ordinal of the day on which it was said; 0 if that is not known.
        queries: a vector per question.
        begins: the first place of each session.
        evidence: per question, the places of the messages that hold the answer, and how many are named.
    """

    name: str
    collection: str
    counts: Floats
    lengths: Floats
    asked: Floats
    pieces: Floats
    piece_places: NDArray[np.int64]
    piece_shares: Floats
    wholes: Floats
    factors: Floats
    day_scores: Floats
    days: NDArray[np.int64]
    common: Floats
    sampled: int
    queries: Floats
    begins: NDArray[np.int64]
    evidence: Sequence[tuple[frozenset[int], int]]


def prepare(conversation: Conversation, embedder: Embedder) -> Prepared:
    """Cut, count and embed a conversation as the pipeline does."""
    places, found, size = _placed(conversation)
    queries = [_query(question) for question in conversation.questions]
    words = [query.lexemes for query in queries]
    columns = {word: at for at, word in enumerate(sorted({word for asked in words for word in asked}))}
    counts = np.zeros((size, len(columns)))
    lengths = np.zeros(size)
    for place, _, chunk in found:
        said = lexemes(chunk.text)
        counted = Counter(lexeme for lexeme, _ in said)
        lengths[place] += max(1, length_of(said))
        for word in counted.keys() & columns.keys():
            counts[place, columns[word]] += counted[word]
    pieces = _vectors(embedder, [chunk.text for _, _, chunk in found])
    order = sorted(range(len(found)), key=lambda at: (found[at][1], found[at][0], found[at][2].piece))
    sample = pieces[order[:SAMPLE]]
    asked = _asked(words, columns, counts, messages := int(np.count_nonzero(lengths)))
    held = asked[counts.any(axis=0)].T
    of_questions, day_scores = _factors(conversation, queries, places, size)
    return Prepared(
        name=conversation.name,
        collection=conversation.collection,
        counts=counts,
        lengths=lengths,
        asked=asked,
        pieces=pieces,
        piece_places=np.array([place for place, _, _ in found]),
        piece_shares=_piece_shares(conversation, places, found, lengths),
        wholes=np.array(
            [
                weight_of_words(weights[weights > 0].tolist(), query.word_count, rarity(messages, 0))
                for weights, query in zip(held, queries, strict=True)
            ]
        ),
        factors=of_questions,
        day_scores=day_scores,
        days=_days(conversation, places, size),
        common=sample.mean(axis=0),
        sampled=len(sample),
        queries=_vectors(embedder, [question.text for question in conversation.questions]),
        begins=np.cumsum([0, *(len(session) + REACH for session in conversation.sessions[:-1])]),
        evidence=[
            (frozenset(places[one] for one in question.evidence if one in places), len(question.evidence))
            for question in conversation.questions
        ],
    )


def text_scores(one: Prepared, weighting: TextWeighting) -> Floats:
    """BM25 with what is beside: a row per place, a column per question."""
    norm = 1 - weighting.b + weighting.b * np.maximum(one.lengths, 1) / weighting.length
    times = one.counts / norm[:, None]
    near = times.copy()
    for distance, share in enumerate(weighting.beside, start=1):
        shares = share * (one.days[distance:] == one.days[:-distance])[:, None]
        near[distance:] += shares * times[:-distance]
        near[:-distance] += shares * times[distance:]
    near[one.lengths == 0] = 0
    scores: Floats = (near / (near + weighting.k1)) @ one.asked
    return scores


def fuse(one: Prepared, texts: Floats, contrast: Floats | None = None, share: float = 0.0) -> Floats:
    """Texts, and contrasts if there are vectors, as one score."""
    nearest = np.zeros(texts.shape[1]) if contrast is None else contrast.max(axis=0)
    columns = zip(texts.max(axis=0).tolist(), one.wholes.tolist(), nearest.tolist(), strict=True)
    full = np.array([max(full_text_score(*column), 1e-9) for column in columns])
    words: Floats = texts / full
    return one.day_scores + (words if contrast is None else (1 - share) * words + share * contrast)


def contrasts(one: Prepared, few: float) -> Floats:
    """The cosines of questions and pieces without what the scope has in common, at the scale by which its
    pieces differ; a row per place, from 0 to 1.
    """
    share = one.sampled / (one.sampled + few)
    queries = one.queries - share * one.common
    usual = np.sqrt(np.maximum(0.05, 1 - (2 * share - share**2) * (one.common @ one.common)))
    length = np.maximum(1e-3, np.linalg.norm(queries, axis=1)) * usual
    by_piece = ((one.pieces - share * one.common) @ queries.T) / length
    by_place = np.zeros((len(one.lengths), len(one.queries)))
    np.maximum.at(by_place, one.piece_places, by_piece * one.piece_shares[:, None])
    return np.minimum(by_place, 1)


def recalled(one: Prepared, scores: Floats) -> Floats:
    """Per question, the share of its evidence among the first ten places, after all that speaks for them."""
    scores = scores * one.factors
    best = np.maximum.reduceat(scores, one.begins, axis=0)
    best = np.repeat(best, np.diff([*one.begins, len(scores)]), axis=0)
    scores = np.where(scores < best, scores * BESIDE_BEST, scores)
    first = np.argpartition(-scores, FIRST, axis=0)[:FIRST]
    found = [
        sum(place in places and scores[place, column] > 0 for place in first[:, column]) / named
        for column, (places, named) in enumerate(one.evidence)
    ]
    return np.array(found)


def _placed(conversation: Conversation) -> tuple[dict[str, int], list[tuple[int, Any, Chunk]], int]:
    """Where each message id stands; each piece with its place and its session's key; how many places."""
    places: dict[str, int] = {}
    found = []
    begin = 0
    for number, session in enumerate(conversation.sessions, start=1):
        key = identify_session("default", f"{conversation.name}-{number}", conversation.name).session_key
        messages = [
            Message(one["role"], one["content"], name=one.get("name"), seq=seq)
            for seq, one in enumerate(session, start=1)
        ]
        places |= {str(one["id"]): begin + at for at, one in enumerate(session)}
        found += [(begin + chunk.from_seq - 1, key, chunk) for chunk in chunks(messages)]
        begin += len(session) + REACH
    return places, found, begin


def _piece_shares(
    conversation: Conversation,
    places: Mapping[str, int],
    found: Sequence[tuple[int, Any, Chunk]],
    lengths: Floats,
) -> Floats:
    """1; less for the pieces of a message of few words, unless it is a standing wish."""
    wishes = {
        places[str(one["id"])]
        for session in conversation.sessions
        for one in session
        if voice_of(_message(one)).tone == WISH
    }
    return np.array(
        [1.0 if place in wishes else min(1.0, lengths[place] / FULL_LENGTH) for place, _, _ in found]
    )


def _query(question: Question) -> SearchQuery:
    words = words_of_query(question.text)
    aim = aim_of(question.text, datetime.now(UTC).date())
    return SearchQuery(question.text, query_lexemes(question.text), None, None, aim, len(words))


def _factors(
    conversation: Conversation, queries: Sequence[SearchQuery], places: Mapping[str, int], size: int
) -> tuple[Floats, Floats]:
    """The factors, and the scores of days."""
    result, of_days = np.ones((size, len(queries))), np.zeros((size, len(queries)))
    said = [one for session in conversation.sessions for one in session]
    messages, where = [_message(one) for one in said], [places[str(one["id"])] for one in said]
    for column, query in enumerate(queries):
        result[where, column] = factors(messages, query)
        of_days[where, column] = [day_score(message, query) for message in messages]
    return result, of_days


def _days(conversation: Conversation, places: Mapping[str, int], size: int) -> NDArray[np.int64]:
    days = np.zeros(size, np.int64)
    for one in (one for session in conversation.sessions for one in session):
        day = said_on(_message(one))
        days[places[str(one["id"])]] = day.toordinal() if day else 0
    return days


def _message(one: Mapping[str, Any]) -> Message:
    said_at = one.get("created_at")
    return Message(
        one["role"],
        one["content"],
        name=one.get("name"),
        created_at=None if said_at is None else datetime.fromisoformat(said_at),
    )


def _asked(words: Sequence[Sequence[str]], columns: dict[str, int], counts: Floats, messages: int) -> Floats:
    """A row per word, a column per question: the word's rarity where the question names it."""
    having = np.count_nonzero(counts, axis=0)
    rarities = [rarity(messages, int(count)) for count in having]
    asked = np.zeros((len(columns), len(words)))
    for question, named in enumerate(words):
        for word in named:
            asked[columns[word], question] = rarities[columns[word]]
    return asked


def _vectors(embedder: Embedder, texts: Sequence[str]) -> Floats:
    """As they are stored: at half precision."""
    return np.array(embedder.embed(list(texts)).vectors).astype(np.float16).astype(np.float64)
