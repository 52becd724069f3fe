"""The pieces of a scope as arrays, in the order of their keys; they are added part by part.

This module imports numpy at once, so it is itself imported only where an index is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, compress
from typing import Any, NamedTuple, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt

from strandline.pipelines.text.tone import WISH
from strandline.pipelines.text.weighting import NEARBY, USUAL_LENGTH, B
from strandline.producers.search.index.scope_index import StoredPieces, Word

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Rows = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
SmallNumbers = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

# As search_v1: what all have in common is the mean of the first so many, less of it where they are few.
PIECES_OF_THE_MEAN = 300
FEW_PIECES = 10
# Of few words a vector says little (the fragment contrast).
FEW_WORDS = 18
# How far a word counts for neighbouring messages.
REACH = max(NEARBY)
# The vectors of more pieces are kept as numbers of one byte, a quarter of the memory.
PRECISE_PIECES = 20_000
_BYTE = 127
# Converted together, so that a large scope takes no second copy.
ROWS_AT_ONCE = 2_048
# In memory, of a word.
_WORD_BYTES = 200
_NO_DAY = np.iinfo(np.int32).min


@dataclass(frozen=True, slots=True)
class PieceVectors:
    """Vectors of pieces, in single precision; or as numbers of one byte, with a factor for each row."""

    rows: Singles | npt.NDArray[np.int8]
    scales: Singles | None

    def times(self, vector: Singles) -> Singles:
        """The product of each with a vector."""
        # Not by matrix: those products wait for threads, ten times as long where processors are busy.
        if self.scales is None:
            precise: Singles = np.vecdot(self.rows, vector)
            return precise
        products = np.empty(len(self.rows), np.float32)
        for first in range(0, len(self.rows), ROWS_AT_ONCE):
            block = self.rows[first : first + ROWS_AT_ONCE].astype(np.float32)
            np.vecdot(block, vector, out=products[first : first + ROWS_AT_ONCE])
        return products * self.scales

    def first_vectors(self) -> Singles:
        """The first vectors, whose mean is what all have in common."""
        rows: Singles = self.rows[:PIECES_OF_THE_MEAN].astype(np.float32)
        return rows if self.scales is None else rows * self.scales[:PIECES_OF_THE_MEAN, None]


@dataclass(frozen=True, slots=True)
class Postings:
    """Of each word, the messages that it occurs in, and how often, for their lengths.

    Attributes:
        words: the number of each word.
        starts: where the entries of each word begin, and those of the last one end.
    """

    words: Mapping[str, int]
    starts: Numbers
    messages: SmallNumbers
    times: Singles

    def find(self, word: str) -> tuple[SmallNumbers, Singles] | None:
        """The messages, and how often it occurs in each."""
        number = self.words.get(word)
        if number is None:
            return None
        entries = slice(self.starts[number], self.starts[number + 1])
        return self.messages[entries], self.times[entries]


@dataclass(frozen=True, slots=True)
class ScopeArrays:
    """The pieces of a scope.

    Attributes:
        sessions: the sessions' keys, in order.
        session: of each message, the number of its session.
        from_seqs, through_seqs: the seqs of each message.
        firsts: of each message, the number of its first piece.
        vectors: of each piece, of length 1; zero for a piece without one.
        centre: the common part of all vectors; None without vectors.
        share: how much of that is left out.
        centred: the product of each vector with the centre.
        trust: of each piece, how much its vector says.
        postings: where each word occurs.
        is_assistant: of each message, whether the assistant said it.
        tones, days: of each message, as ``chunk.tone``, and as an ordinal.
        speakers: the messages of each lexeme of a speaker's name.
        beside: of each message, its own number and those of the three seqs before and after it; -1 for a
            missing one, or one of another day.
        size: its memory, in bytes, about.
    """

    sessions: Sequence[UUID]
    session: SmallNumbers
    from_seqs: Numbers
    through_seqs: Numbers
    firsts: Numbers
    vectors: PieceVectors
    centre: Singles | None
    share: float
    centred: Singles
    trust: Singles
    postings: Postings
    is_assistant: Flags
    tones: SmallNumbers
    days: SmallNumbers
    speakers: Mapping[str, SmallNumbers]
    beside: SmallNumbers
    size: int


class _Columns(NamedTuple):
    session: SmallNumbers
    from_seqs: Numbers
    through_seqs: Numbers
    lengths: Floats
    is_assistant: Flags
    tones: SmallNumbers
    days: SmallNumbers
    has_vector: Flags
    vectors: Halves
    word: Numbers
    holder: Numbers
    times: Floats


@dataclass(slots=True)
class ScopeParts:
    """The parts of a scope that are there so far."""

    pieces: int = 0
    _sessions: dict[UUID, int] = field(default_factory=dict)
    _words: dict[str, int] = field(default_factory=dict)
    _speakers: dict[str, list[int]] = field(default_factory=dict)
    _parts: list[_Columns] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Their memory, in bytes, about."""
        return sum(column.nbytes for part in self._parts for column in part) + len(self._words) * _WORD_BYTES

    def add(self, pieces: StoredPieces, words: Sequence[Word]) -> None:
        for number, name in enumerate(pieces.speakers, start=self.pieces):
            for lexeme in name.split():
                self._speakers.setdefault(lexeme, []).append(number)
        has_vector = np.array(pieces.has_vector, np.bool_)
        sessions = [self._sessions.setdefault(key, len(self._sessions)) for key in pieces.session_keys]
        days = [_NO_DAY if day is None else day.toordinal() for day in pieces.said_on]
        holders = np.fromiter(chain.from_iterable(word.pieces for word in words), np.int64)
        numbers = [self._words.setdefault(word.lexeme, len(self._words)) for word in words]
        self._parts.append(
            _Columns(
                session=np.array(sessions, np.int32),
                from_seqs=np.array(pieces.from_seqs, np.int64),
                through_seqs=np.array(pieces.through_seqs, np.int64),
                lengths=np.array(pieces.lengths, np.float64),
                is_assistant=np.array([role == "assistant" for role in pieces.roles], np.bool_),
                tones=np.array(pieces.tones, np.int32),
                days=np.array(days, np.int32),
                has_vector=has_vector,
                vectors=_read_vectors(pieces.vectors, has_vector),
                word=np.repeat(np.array(numbers, np.int64), [len(word.pieces) for word in words]),
                holder=holders + self.pieces,
                times=np.fromiter(chain.from_iterable(word.times for word in words), np.float64),
            )
        )
        self.pieces += len(pieces.session_keys)

    def arrange(self) -> ScopeArrays:
        """All of them; there is at least one piece."""
        width = max(part.vectors.shape[1] for part in self._parts)
        parts = [part._replace(vectors=_of_width(part.vectors, width)) for part in self._parts]
        columns = _Columns(*map(np.concatenate, zip(*parts, strict=True)))
        session, from_seqs, lengths = columns.session, columns.from_seqs, columns.lengths
        is_first = np.ones(len(session), np.bool_)
        is_first[1:] = (session[1:] != session[:-1]) | (from_seqs[1:] != from_seqs[:-1])
        firsts, message = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        centre, share = _centre(columns.vectors, columns.has_vector)
        vectors = _keep_vectors(columns.vectors)
        by_length = 1 - B + B * lengths[firsts] / USUAL_LENGTH
        postings = _postings(columns, self._words, message, by_length)
        beside = _beside(session[firsts].astype(np.int64), from_seqs[firsts], columns.days[firsts])
        trust = np.where(columns.tones == WISH, 1, np.minimum(1, lengths / FEW_WORDS)) * columns.has_vector
        return ScopeArrays(
            sessions=list(self._sessions),
            session=session[firsts],
            from_seqs=from_seqs[firsts],
            through_seqs=np.maximum.reduceat(columns.through_seqs, firsts),
            firsts=firsts,
            vectors=vectors,
            centre=centre,
            share=share,
            centred=np.zeros(len(session), np.float32) if centre is None else vectors.times(centre),
            trust=trust.astype(np.float32),
            postings=postings,
            is_assistant=columns.is_assistant[firsts],
            tones=np.maximum.reduceat(columns.tones, firsts),
            days=columns.days[firsts],
            speakers={
                name: message[np.array(pieces)].astype(np.int32) for name, pieces in self._speakers.items()
            },
            beside=beside,
            size=_size(vectors, beside, postings),
        )


def join(parts: Sequence[ScopeArrays], session_key: UUID | None = None) -> ScopeArrays:
    """The pieces of all parts, or those of one session; a message that several have is the first one's."""
    sessions = (
        sorted({key for part in parts for key in part.sessions}) if session_key is None else [session_key]
    )
    numbers = {key: number for number, key in enumerate(sessions)}
    session = np.concatenate(
        [np.array([numbers.get(key, -1) for key in part.sessions], np.int32)[part.session] for part in parts]
    )
    from_seqs = np.concatenate([part.from_seqs for part in parts])
    _, order = np.unique((session.astype(np.int64) << 40) + from_seqs, return_index=True)
    order = order[session[order] >= 0]
    place = np.full(len(session), -1)
    place[order] = np.arange(len(order))
    counts = np.concatenate([np.diff(part.firsts, append=len(part.trust)) for part in parts])
    message = place[np.repeat(np.arange(len(session)), counts)]
    pieces = np.argsort(message, kind="stable")[np.count_nonzero(message < 0) :]
    vectors = _join_vectors([part.vectors for part in parts], pieces)
    beginning = vectors.first_vectors()
    centre, share = _centre(beginning.astype(np.float16), np.logical_or.reduce(beginning, axis=1))
    days = np.concatenate([part.days for part in parts])[order]
    postings = _join_postings(parts, place)
    beside = _beside(session[order].astype(np.int64), from_seqs[order], days)
    return ScopeArrays(
        sessions=sessions,
        session=session[order],
        from_seqs=from_seqs[order],
        through_seqs=np.concatenate([part.through_seqs for part in parts])[order],
        firsts=np.cumsum(counts[order]) - counts[order],
        vectors=vectors,
        centre=centre,
        share=share,
        centred=np.zeros(len(pieces), np.float32) if centre is None else vectors.times(centre),
        trust=np.concatenate([part.trust for part in parts])[pieces],
        postings=postings,
        is_assistant=np.concatenate([part.is_assistant for part in parts])[order],
        tones=np.concatenate([part.tones for part in parts])[order],
        days=days,
        speakers=_join_speakers(parts, place),
        beside=beside,
        size=_size(vectors, beside, postings),
    )


def _join_vectors(parts: Sequence[PieceVectors], pieces: Numbers) -> PieceVectors:
    width = max(part.rows.shape[1] for part in parts)
    rows = [_of_width(part.rows, width) for part in parts]
    if parts[0].scales is None:
        return _keep_vectors(np.concatenate(rows)[pieces])
    small = [parts[0], *map(_as_bytes, rows[1:])]
    scales = np.concatenate([cast("Singles", part.scales) for part in small])
    return PieceVectors(np.concatenate([part.rows for part in small])[pieces], scales[pieces])


def _join_postings(parts: Sequence[ScopeArrays], place: Numbers) -> Postings:
    numbers: dict[str, int] = {}
    for lexeme in chain.from_iterable(part.postings.words for part in parts):
        numbers.setdefault(lexeme, len(numbers))
    word = np.concatenate(
        [
            np.repeat([numbers[lexeme] for lexeme in part.postings.words], np.diff(part.postings.starts))
            for part in parts
        ]
    )
    message = place[np.concatenate([part.postings.messages + first for first, part in _number_parts(parts)])]
    is_there = message >= 0
    word, message = word[is_there], message[is_there]
    is_held = np.bincount(word, minlength=len(numbers)) > 0
    keys = (np.cumsum(is_held)[word] - 1 << 32) + message
    order = np.argsort(keys, kind="stable")
    words = {lexeme: number for number, lexeme in enumerate(compress(numbers, is_held.tolist()))}
    return Postings(
        words=words,
        starts=np.searchsorted(keys[order], np.arange(len(words) + 1, dtype=np.int64) << 32),
        messages=message[order].astype(np.int32),
        times=np.concatenate([part.postings.times for part in parts])[is_there][order],
    )


def _join_speakers(parts: Sequence[ScopeArrays], place: Numbers) -> dict[str, SmallNumbers]:
    speakers: dict[str, SmallNumbers] = {}
    for first, part in _number_parts(parts):
        for name, messages in part.speakers.items():
            speakers[name] = np.concatenate([speakers.get(name, messages[:0]), messages + first])
    placed = {name: place[messages] for name, messages in speakers.items()}
    return {name: messages[messages >= 0].astype(np.int32) for name, messages in placed.items()}


def _number_parts(parts: Sequence[ScopeArrays]) -> Iterator[tuple[int, ScopeArrays]]:
    """Each part with the number of its first message among those of all."""
    return zip(accumulate((len(part.session) for part in parts), initial=0), parts, strict=False)


def _size(vectors: PieceVectors, beside: SmallNumbers, postings: Postings) -> int:
    words = len(postings.words) * _WORD_BYTES + postings.messages.nbytes + postings.times.nbytes
    return vectors.rows.nbytes + beside.nbytes + 48 * len(vectors.rows) + words


def _read_vectors(sent: bytes, has_vector: Flags) -> Halves:
    """As pgvector sends halfvec: its dimensions, 2 bytes that are unused, and the numbers."""
    if not has_vector.any():
        return np.zeros((len(has_vector), 0), np.float16)
    dimensions = int.from_bytes(sent[:2], "big")
    vectors = np.zeros((len(has_vector), dimensions), np.float16)
    vectors[has_vector] = np.frombuffer(sent, ">f2").reshape(-1, dimensions + 2)[:, 2:]
    return vectors


def _of_width(vectors: Rows, width: int) -> Rows:
    return vectors if vectors.shape[1] == width else np.zeros((len(vectors), width), vectors.dtype)


def _keep_vectors(vectors: Rows) -> PieceVectors:
    if len(vectors) <= PRECISE_PIECES or not vectors.shape[1]:
        return PieceVectors(vectors.astype(np.float32, copy=False), None)
    return _as_bytes(vectors)


def _as_bytes(vectors: Rows) -> PieceVectors:
    rows, scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
    for first in range(0, len(vectors), ROWS_AT_ONCE):
        block = vectors[first : first + ROWS_AT_ONCE].astype(np.float32)
        of_block = np.maximum(np.abs(block).max(axis=1), 1e-9) / _BYTE
        scales[first : first + ROWS_AT_ONCE] = of_block
        rows[first : first + ROWS_AT_ONCE] = np.round(block / of_block[:, None])
    return PieceVectors(rows, scales)


def _centre(vectors: Halves, has_vector: Flags) -> tuple[Singles | None, float]:
    first = vectors[:PIECES_OF_THE_MEAN][has_vector[:PIECES_OF_THE_MEAN]]
    if not len(first):
        return None, 0.0
    mean = first.mean(axis=0, dtype=np.float64).astype(np.float16).astype(np.float32)
    return mean, len(first) / (len(first) + FEW_PIECES)


def _postings(
    columns: _Columns,
    words: Mapping[str, int],
    message: Numbers,
    by_length: Floats,
) -> Postings:
    keys = (columns.word << 32) + message[columns.holder]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else order
    counts = np.add.reduceat(columns.times[order], starts) if len(keys) else columns.times
    keys = keys[starts]
    messages = keys & 0xFFFFFFFF
    return Postings(
        words=words,
        starts=np.searchsorted(keys, np.arange(len(words) + 1, dtype=np.int64) << 32),
        messages=messages.astype(np.int32),
        times=(counts / by_length[messages]).astype(np.float32),
    )


def _beside(session: Numbers, from_seqs: Numbers, days: SmallNumbers) -> SmallNumbers:
    """Of each message, the number of the message so many seqs away, from 3 before to 3 after.

    It is -1 for a missing one, or one of another day.
    """
    keys = (session << 40) + from_seqs
    asked = keys[:, None] + np.arange(-REACH, REACH + 1)
    places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    is_there = (keys[places] == asked) & (days[places] == days[:, None])
    return np.where(is_there, places, -1).astype(np.int32)
