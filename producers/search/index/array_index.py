"""Ranking by arrays in memory, as the function search_v1 ranks the rows of a small scope.

The scores are the same, to the digit that single precision allows; a test compares the two.
What the constants are for is said there (search.sql, bm25.sql); docs/search-trials.md says how they were
chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strandline.producers.search.index.scope_arrays import Flags, Floats, ScopeArrays, ScopeParts, Singles
from strandline.producers.search.index.scope_index import (
    IndexQuery,
    Ranks,
    ScopeIndex,
    StoredPieces,
    Word,
)

# What a word counts for the messages beside its own, from three before to three after.
_SHARES = np.array([0.1, 0.2, 0.4, 1, 0.4, 0.2, 0.1])
_OF_WORDS, _OF_VECTORS = 0.53, 0.47


@dataclass(frozen=True, slots=True)
class ArrayIndex:
    """An index that ranks by arrays."""

    version: str
    arrays: ScopeArrays

    @property
    def size(self) -> int:
        return self.arrays.size

    def rank(self, query: IndexQuery) -> Ranks:
        return _rank(self.arrays, query)


class ArrayParts:
    """Makes such an index of a scope, part by part."""

    def __init__(self) -> None:
        self._parts = ScopeParts()

    @property
    def pieces(self) -> int:
        return self._parts.pieces

    def add(self, pieces: StoredPieces, words: Sequence[Word]) -> None:
        self._parts.add(pieces, words)

    def finish(self, version: str) -> ScopeIndex:
        return ArrayIndex(version, self._parts.arrange())


def _rank(index: ScopeArrays, query: IndexQuery) -> Ranks:
    hidden = _hidden(index, query)
    texts = _text_scores(index, query.lexemes, hidden)
    similarities, contrasts = _vector_scores(index, query.vector)
    most = texts.max(initial=0)
    weight = 1 if query.vector is None else _OF_WORDS
    scores = _factors(index, query, hidden) * (
        (texts / most * weight if most > 0 else texts) + _OF_VECTORS * contrasts
    )
    scores[hidden] = 0
    if query.scope_key is None:
        best = np.zeros(len(index.sessions))
        np.maximum.at(best, index.session, scores)
        scores = np.where(scores < best[index.session], scores * 0.9, scores)
    matching = np.flatnonzero((scores > 0) & (similarities >= query.similarity_cutoff))
    order = matching[np.argsort(-scores[matching], kind="stable")[: query.limit]]
    numbers, places = np.unique(index.session[order], return_inverse=True)
    return Ranks(
        sessions=[index.sessions[number] for number in numbers.tolist()],
        numbers=(places + 1).tolist(),
        from_seqs=index.from_seqs[order].tolist(),
        through_seqs=index.through_seqs[order].tolist(),
        scores=np.minimum(scores[order], 1).tolist(),
        similarities=similarities[order].tolist(),
    )


def _hidden(index: ScopeArrays, query: IndexQuery) -> Flags:
    """Which messages are shown anyway."""
    session_key, visible_from = query.visible
    if session_key not in index.sessions:
        return np.zeros(len(index.session), bool)
    number = index.sessions.index(session_key)
    hidden: Flags = (index.session == number) & (index.through_seqs >= visible_from)
    return hidden


def _text_scores(index: ScopeArrays, lexemes: Sequence[str], hidden: Flags) -> Floats:
    """BM25 of each message, with a part of what the messages beside it say."""
    count = len(index.session)
    visible = count - int(hidden.sum())
    scores = np.zeros(count)
    for lexeme in dict.fromkeys(lexemes):
        postings = index.postings.find(lexeme)
        if postings is None:
            continue
        messages, times_there = postings
        is_seen = ~hidden[messages]
        holders = int(is_seen.sum())
        if not holders:
            continue
        beside = index.beside[messages[is_seen]]
        shares = times_there[is_seen, None] * _SHARES
        is_there = beside >= 0
        times = np.bincount(beside[is_there], shares[is_there], count)
        weight = np.log(1 + (visible - holders + 0.5) / (holders + 0.5))
        scores += weight * (times / (times + 1.2))
    return scores


def _vector_scores(index: ScopeArrays, vector: str | None) -> tuple[Floats, Floats]:
    """Of each message its best piece's: the cosine, and that without what the scope has in common."""
    count = len(index.session)
    if vector is None or index.centre is None:
        return np.zeros(count), np.zeros(count)
    query = np.fromstring(vector[1:-1], np.float32, sep=",").astype(np.float16).astype(np.float32)
    cosines = index.vectors.times(query)
    share, common = index.share, float(index.centre @ query)
    square = float(index.centre @ index.centre)
    offset = -share * common + share * share * square
    usual = np.sqrt(max(0.05, 1 - (2 * share - share * share) * square))
    length = np.sqrt(max(1e-6, 1 - 2 * share * common + share * share * square)) * usual
    contrasts = (cosines - share * index.centred + offset) / length * index.trust
    return _best(index, cosines), np.minimum(_best(index, contrasts), 1)


def _best(index: ScopeArrays, of_pieces: Singles) -> Floats:
    best = of_pieces if len(index.firsts) == len(of_pieces) else np.maximum.reduceat(of_pieces, index.firsts)
    return np.maximum(best, 0).astype(np.float64)


def _factors(index: ScopeArrays, query: IndexQuery, hidden: Flags) -> Floats:
    """What else speaks for a message: who speaks, how, and when."""
    is_named = np.zeros(len(index.session), bool)
    for name in query.names:
        if name in index.speakers:
            is_named[index.speakers[name]] = True
    if (is_named & ~hidden).any():
        factors = np.where(is_named, 1, 0.7) * np.where(index.tones == 2, 0.85, 1)
    else:
        factors = np.where(index.is_assistant & query.is_own, 0.8, 1) * np.where(index.tones == 1, 1.3, 1)
    if not query.days:
        return factors
    fits = np.zeros(len(index.session))
    for first, last, fit in query.days:
        is_within = (index.days >= first.toordinal()) & (index.days <= last.toordinal())
        fits = np.maximum(fits, np.where(is_within, fit, 0))
    return factors * (0.5 + 0.5 * fits)
