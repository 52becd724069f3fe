"""An in-memory index of a scope: its inputs, queries and answers.

Protocols stand for arrays, so that numpy is imported only with the first index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, Protocol
from uuid import UUID

from strandline.producers.search.hits import HitFact, Place, Utterance

# In memory, of a fact without its text and its words.
_FACT_BYTES = 800


class ScopeKey(NamedTuple):
    """The scope of an index: a session, or without one all that lies under the shard key; and its vectors."""

    shard_key: UUID
    generation_id: int
    scope_key: UUID | None


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A query, and its part of the scope.

    Attributes:
        vector: as pgvector text; None to compare words alone.
        lexemes, is_own, names: as search_v1 takes them.
        days: ranges of days, and how well a day in each fits, 0 to 1.
        visible: the session and the seq from where on its messages are not looked for.
        similarity_cutoff: the least cosine of a hit.
        limit: of the hits.
        scope_key: the session that is searched; None for all of the owner's.
        words: how many words the lexemes come from; None: one for each lexeme.
    """

    vector: str | None
    lexemes: Sequence[str]
    is_own: bool
    names: Sequence[str]
    days: Sequence[tuple[date, date, float]]
    visible: tuple[UUID, int]
    similarity_cutoff: float
    limit: int
    scope_key: UUID | None
    words: int | None = None

    @property
    def word_count(self) -> int:
        return len(self.lexemes) if self.words is None else self.words


class PieceKey(NamedTuple):
    """The key of a piece within a scope; they are in the order of their keys."""

    session_key: UUID
    from_seq: int
    piece: int


# Before all pieces.
FIRST_KEY = PieceKey(UUID(int=0), 0, -1)


class StoredPieces(NamedTuple):
    """Columns of pieces, in the order of their keys.

    Attributes:
        has_vector: which pieces have a vector.
        vectors: one after the other, as pgvector sends halfvec.
    """

    session_keys: Sequence[UUID]
    from_seqs: Sequence[int]
    through_seqs: Sequence[int]
    lengths: Sequence[int]
    roles: Sequence[str]
    speakers: Sequence[str]
    tones: Sequence[int]
    said_on: Sequence[date | None]
    has_vector: Sequence[bool]
    vectors: bytes


class Word(NamedTuple):
    """A word: the pieces that it occurs in, numbered from 0 among those it is added with, and how often."""

    lexeme: str
    pieces: Sequence[int]
    times: Sequence[int]


class Ranks(NamedTuple):
    """The best messages of a scope as columns, best first.

    Attributes:
        sessions: the keys of their sessions.
        numbers: of each message, the number of its session among these, from 1.
    """

    sessions: list[UUID]
    numbers: list[int]
    from_seqs: list[int]
    through_seqs: list[int]
    scores: list[float]
    similarities: list[float]

    @property
    def places(self) -> list[Place]:
        """Of each message, its session and first seq."""
        keys = [key.int for key in self.sessions]
        return [(keys[number - 1], seq) for number, seq in zip(self.numbers, self.from_seqs, strict=True)]


NO_RANKS = Ranks([], [], [], [], [], [])


class KeptIndex(Protocol):
    """An immutable index, which threads share."""

    @property
    def version(self) -> str:
        """The version of the rows that it is made of."""
        ...

    @property
    def size(self) -> int:
        """Its memory, in bytes, about."""
        ...

    @property
    def since(self) -> int:
        """The transaction from which on added rows may be missing; 0: none can be added to it."""
        ...

    @property
    def is_empty(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class FactIndex:
    """All live facts of an owner, the last said first, with the words of each.

    Attributes:
        version: of the owner's facts.
        words: by lexeme, the numbers of the facts that have it.
        lengths: of each, how many lexemes.
        is_whole: false for an owner with too many facts, of which none is here.
    """

    version: str
    facts: Sequence[HitFact]
    words: Mapping[str, Sequence[int]]
    lengths: Sequence[int]
    is_whole: bool = True
    since: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.facts

    @property
    def size(self) -> int:
        return sum(_FACT_BYTES + len(fact.text) for fact in self.facts) + 100 * sum(self.lengths)


class RankedFact(NamedTuple):
    fact: HitFact
    score: float
    similarity: float


class ScopeIndex(KeptIndex, Protocol):
    """An index of pieces."""

    @property
    def utterances(self) -> dict[Place, Utterance]:
        """The kept ones of the shown messages."""
        ...

    def keep_utterance(self, utterance: Utterance) -> None:
        """Keep a message for the next search; the oldest makes room."""
        ...

    @property
    def is_quick(self) -> bool:
        """Whether it ranks too quickly to leave the event loop."""
        ...

    def narrow(self, session_key: UUID) -> ScopeIndex:
        """The index of one session's pieces alone."""
        ...

    def rank(self, query: IndexQuery) -> Ranks:
        """The best messages, as the SQL function ``search_small_v1`` ranks them."""
        ...

    def rank_facts(self, facts: FactIndex, query: IndexQuery, limit: int) -> list[RankedFact]:
        """The best facts, as that function ranks them, by an index of all of the owner's pieces."""
        ...


class IndexParts(Protocol):
    """Makes an index, part by part; for one thread at a time."""

    @property
    def pieces(self) -> int:
        """The pieces so far."""
        ...

    @property
    def size(self) -> int:
        """Their memory, in bytes, about."""
        ...

    def add(self, pieces: StoredPieces, words: Sequence[Word]) -> None: ...

    def finish(self, version: str, since: int, onto: ScopeIndex | None = None) -> ScopeIndex:
        """The index of all of them, and of those in ``onto``, which may have some of them already."""
        ...
