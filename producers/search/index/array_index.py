"""Ranking by arrays in memory, as the SQL function search_small_v1 ranks the rows of a small scope.

The scores are the same, within single precision (thousandths where vectors are kept as bytes); a test
compares the two.  ``schemas/sql/fragments/search.sql`` explains the constants, and ``docs/search-trials.md``
their choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np

from strandline.pipelines.text.tone import QUESTION, WISH
from strandline.pipelines.text.weighting import (
    ASKS,
    ASSISTANT,
    BESIDE_BEST,
    K1,
    NAMED_DAY,
    NEARBY,
    OTHER_DAY,
    OTHER_SPEAKER,
    STANDING_WISH,
    USUAL_LENGTH,
    WORDS_BESIDE_VECTOR,
    B,
    full_text_score,
    rarity,
    weight_of_words,
)
from strandline.producers.search.hits import Place, Utterance
from strandline.producers.search.index.scope_arrays import (
    Flags,
    Floats,
    Numbers,
    ScopeArrays,
    ScopeParts,
    Singles,
    join,
)
from strandline.producers.search.index.scope_index import (
    NO_RANKS,
    FactIndex,
    IndexQuery,
    RankedFact,
    Ranks,
    ScopeIndex,
    StoredPieces,
    Word,
)

# A word's weight for neighbouring messages, from three before to three after.
_SHARES = np.array(list(NEARBY.values()))

# Of a kept message, about, without its text.
_SAID_BYTES = 1_200
# Ranking so many takes about as long as a task that goes to another thread and comes back.
_QUICK_PIECES = 2_000


class ArrayIndex:
    """An index that ranks by arrays; in addition it keeps as many bytes of found messages.

    Args:
        version, since: of the pieces.
        arrays: None for a scope without pieces.
    """

    def __init__(self, version: str, since: int, arrays: ScopeArrays | None) -> None:
        self.version = version
        self.since = since
        self._arrays = arrays
        self.utterances: dict[Place, Utterance] = {}
        self._utterance_bytes = 0
        # Of the last vector: messages and facts are mostly searched for by the same.
        self._compared: tuple[str | None, tuple[Floats, Floats]] | None = None
        # Of these facts: the number of each with that of a message that it comes from.
        self._sources: tuple[FactIndex, tuple[Numbers, Numbers]] | None = None

    @property
    def size(self) -> int:
        return 2 * self._arrays.size if self._arrays else 200

    @property
    def is_empty(self) -> bool:
        return self._arrays is None

    @property
    def is_quick(self) -> bool:
        return self._arrays is None or len(self._arrays.trust) <= _QUICK_PIECES

    def keep_utterance(self, utterance: Utterance) -> None:
        size = _SAID_BYTES + 2 * len(utterance.text)
        self._utterance_bytes += size
        self.utterances[utterance.place] = utterance
        if self._arrays and self._utterance_bytes > self._arrays.size:
            self.utterances, self._utterance_bytes = {utterance.place: utterance}, size

    def with_pieces(self, version: str, since: int, added: ScopeArrays | None) -> ArrayIndex:
        arrays = join([self._arrays, added]) if self._arrays and added else self._arrays or added
        index = ArrayIndex(version, since, arrays)
        index.utterances, index._utterance_bytes = dict(self.utterances), self._utterance_bytes
        return index

    def narrow(self, session_key: UUID) -> ArrayIndex:
        arrays = self._arrays
        if arrays is not None:
            arrays = join([arrays], session_key) if session_key in arrays.sessions else None
        return ArrayIndex(self.version, self.since, arrays)

    def rank(self, query: IndexQuery) -> Ranks:
        if self._arrays is None:
            return NO_RANKS
        return _rank(self._arrays, query, self._compare(query.vector))

    def rank_facts(self, facts: FactIndex, query: IndexQuery, limit: int) -> list[RankedFact]:
        scores, similarities = _score_facts(self._arrays, facts, query, self._nearest(facts, query))
        order = np.argsort(-scores, kind="stable")[:limit]
        ranks = zip(order.tolist(), scores[order].tolist(), similarities[order].tolist(), strict=True)
        return [
            RankedFact(facts.facts[n], min(score, 1), similar) for n, score, similar in ranks if score > 0
        ]

    def _nearest(self, facts: FactIndex, query: IndexQuery) -> tuple[Floats, Floats]:
        nearest = np.zeros(len(facts.facts)), np.zeros(len(facts.facts))
        if self._arrays is not None and query.vector is not None:
            if self._sources is None or self._sources[0] is not facts:
                self._sources = facts, _sources(self._arrays, facts)
            of_fact, at = self._sources[1]
            for scores, compared in zip(nearest, self._compare(query.vector), strict=True):
                np.maximum.at(scores, of_fact, compared[at])
        return nearest

    def _compare(self, vector: str | None) -> tuple[Floats, Floats]:
        compared = self._compared
        if compared is None or compared[0] != vector:
            scores = _vector_scores(self._arrays, vector) if self._arrays else (np.zeros(0), np.zeros(0))
            self._compared = compared = vector, scores
        return compared[1]


class ArrayParts:
    """Makes such an index of a scope, part by part."""

    def __init__(self) -> None:
        self._parts = ScopeParts()

    @property
    def pieces(self) -> int:
        return self._parts.pieces

    @property
    def size(self) -> int:
        return self._parts.size

    def add(self, pieces: StoredPieces, words: Sequence[Word]) -> None:
        self._parts.add(pieces, words)

    def finish(self, version: str, since: int, onto: ScopeIndex | None = None) -> ScopeIndex:
        arrays = self._parts.arrange() if self.pieces else None
        if isinstance(onto, ArrayIndex):
            return onto.with_pieces(version, since, arrays)
        return ArrayIndex(version, since, arrays)


def _rank(index: ScopeArrays, query: IndexQuery, compared: tuple[Floats, Floats]) -> Ranks:
    hidden = _hidden(index, query)
    texts, whole = _text_scores(index, query, hidden)
    similarities, contrasts = compared
    factors = _factors(index, query, hidden)
    scores = factors * _fuse(query, texts, whole, contrasts, float(contrasts[~hidden].max(initial=0)))
    if query.days:
        fits = _day_fits(index, query)
        scores = (scores + NAMED_DAY * factors * fits) * (OTHER_DAY + (1 - OTHER_DAY) * fits)
    scores[hidden] = 0
    if query.scope_key is None:
        best = np.zeros(len(index.sessions))
        np.maximum.at(best, index.session, scores)
        scores = np.where(scores < best[index.session], scores * BESIDE_BEST, scores)
    matching = np.flatnonzero((scores > 0) & (similarities >= query.similarity_cutoff))
    order = _best_first(index, matching, scores, query.limit)
    numbers, places = np.unique(index.session[order], return_inverse=True)
    return Ranks(
        sessions=[index.sessions[number] for number in numbers.tolist()],
        numbers=(places + 1).tolist(),
        from_seqs=index.from_seqs[order].tolist(),
        through_seqs=index.through_seqs[order].tolist(),
        scores=np.minimum(scores[order], 1).tolist(),
        similarities=similarities[order].tolist(),
    )


def _best_first(index: ScopeArrays, messages: Numbers, scores: Floats, limit: int) -> Numbers:
    if 0 < limit < len(messages):
        least = np.partition(scores[messages], -limit)[-limit]
        messages = messages[scores[messages] >= least]
    order: Numbers = np.lexsort((-messages, -index.days[messages].astype(np.int64), -scores[messages]))
    return messages[order[:limit]]


def _fuse(query: IndexQuery, texts: Floats, whole: float, contrasts: Floats, nearest: float) -> Floats:
    """Texts and contrasts as one score; ``nearest`` is the best contrast that counts."""
    full = full_text_score(float(texts.max(initial=0)), whole, nearest)
    weight = 1 if query.vector is None else WORDS_BESIDE_VECTOR
    return (texts / full * weight if full > 0 else texts) + (1 - WORDS_BESIDE_VECTOR) * contrasts


def _hidden(index: ScopeArrays, query: IndexQuery) -> Flags:
    session_key, visible_from = query.visible
    if session_key not in index.sessions:
        return np.zeros(len(index.session), bool)
    number = index.sessions.index(session_key)
    hidden: Flags = (index.session == number) & (index.through_seqs >= visible_from)
    return hidden


def _text_scores(index: ScopeArrays, query: IndexQuery, hidden: Flags) -> tuple[Floats, float]:
    count = len(index.session)
    visible = count - int(hidden.sum())
    scores, held = np.zeros(count), []
    for lexeme in query.lexemes:
        postings = index.postings.find(lexeme)
        if postings is None:
            continue
        messages, times_there = postings
        is_seen = ~hidden[messages]
        holders = int(is_seen.sum())
        if not holders:
            continue
        weight = rarity(visible, holders)
        held.append(weight)
        beside = index.beside[messages[is_seen]]
        shares = times_there[is_seen, None] * _SHARES
        is_there = beside >= 0
        times = np.bincount(beside[is_there], shares[is_there], count)
        scores += weight * (times / (times + K1))
    return scores, weight_of_words(held, query.word_count, rarity(visible, 0))


def _vector_scores(index: ScopeArrays, vector: str | None) -> tuple[Floats, Floats]:
    """Of each message its best piece's: the cosine, and the contrast, without the scope's common part.

    With p a piece, q the query, c the centre and s its share, the latter is
    (p - s c) (q - s c) / (|q - s c| u), u being the usual length of p - s c; times the trust in the piece.
    """
    count = len(index.session)
    if vector is None or not index.vectors.rows.shape[1]:
        return np.zeros(count), np.zeros(count)
    query = np.fromstring(vector[1:-1], np.float32, sep=",").astype(np.float16).astype(np.float32)
    cosines = index.vectors.times(query)
    if index.centre is None:
        return _best(index, cosines), np.zeros(count)
    share, along_centre = index.share, float(index.centre @ query)
    centre_square = float(index.centre @ index.centre)
    offset = -share * along_centre + share * share * centre_square
    usual = np.sqrt(max(0.05, 1 - (2 * share - share * share) * centre_square))
    length = np.sqrt(max(1e-6, 1 - 2 * share * along_centre + share * share * centre_square)) * usual
    contrasts = (cosines - share * index.centred + offset) / length * index.trust
    return _best(index, cosines), np.minimum(_best(index, contrasts), 1)


def _score_facts(
    index: ScopeArrays | None, facts: FactIndex, query: IndexQuery, nearest: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """By words as rare as they are in messages and facts together, and by the facts' sources."""
    count = len(facts.facts)
    messages = len(index.session) if index else 0
    texts = np.zeros(count)
    usual = 1 / (1 - B + B * np.array(facts.lengths) / USUAL_LENGTH)
    saturated = usual / (usual + K1)
    held = []
    for lexeme in query.lexemes:
        of_facts = facts.words.get(lexeme, ())
        postings = index.postings.find(lexeme) if index else None
        holders = len(of_facts) + (len(postings[0]) if postings else 0)
        if not holders:
            continue
        weight = rarity(messages + count, holders)
        held.append(weight)
        if len(of_facts):
            np.add.at(texts, of_facts, weight * saturated[of_facts])
    whole = weight_of_words(held, query.word_count, rarity(messages + count, 0))
    similarities, contrasts = nearest
    return _fuse(query, texts, whole, contrasts, float(contrasts.max(initial=0))), similarities


def _sources(index: ScopeArrays, facts: FactIndex) -> tuple[Numbers, Numbers]:
    numbers = {key.int: number for number, key in enumerate(index.sessions)}
    keys = (index.session.astype(np.int64) << 40) + index.from_seqs
    pairs = [
        (number, (numbers[key] << 40) + seq)
        for number, fact in enumerate(facts.facts)
        for key, seq in fact.sources
        if key in numbers
    ]
    of_fact, asked = np.array(pairs, np.int64).reshape(-1, 2).T
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    is_there = keys[at] == asked
    return of_fact[is_there], at[is_there]


def _best(index: ScopeArrays, of_pieces: Singles) -> Floats:
    best = of_pieces if len(index.firsts) == len(of_pieces) else np.maximum.reduceat(of_pieces, index.firsts)
    return np.maximum(best, 0).astype(np.float64)


def _factors(index: ScopeArrays, query: IndexQuery, hidden: Flags) -> Floats:
    is_named = np.zeros(len(index.session), bool)
    for name in query.names:
        if name in index.speakers:
            is_named[index.speakers[name]] = True
    if (is_named & ~hidden).any():
        factors = np.where(is_named, 1, OTHER_SPEAKER) * np.where(index.tones == QUESTION, ASKS, 1)
    else:
        role = np.where(index.is_assistant & query.is_own, ASSISTANT, 1)
        factors = role * np.where(index.tones == WISH, STANDING_WISH, 1)
    return factors


def _day_fits(index: ScopeArrays, query: IndexQuery) -> Floats:
    fits = np.zeros(len(index.session))
    for first, last, fit in query.days:
        is_within = (index.days >= first.toordinal()) & (index.days <= last.toordinal())
        fits = np.maximum(fits, np.where(is_within, fit, 0))
    return fits
