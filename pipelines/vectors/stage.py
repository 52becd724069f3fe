"""Vectors: a commutative pipeline that makes messages searchable, by meaning and by words."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from strandline.pipelines.engine.stage import Batch, Call, RawAnswer
from strandline.pipelines.models.contract import Embedder
from strandline.pipelines.text.lexemes import length_of, lexemes, to_tsvector_text
from strandline.pipelines.transcript import load_messages
from strandline.pipelines.vectors.chunks import MAX_INDEXED_CHARACTERS, Chunk, Voice, chunks, voice_of
from strandline.pipelines.vectors.sharing import share
from strandline.schemas.errors import PermanentModelError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.operations import find_owner_keys
from strandline.schemas.queries.conversation.search import InsertChunks
from strandline.schemas.values.lanes import VECTORS_STAGE, Lane

_STEP = "embed"


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk and the event that delivered it; ``is_embedded``: not where a namespace has no vectors."""

    event_id: UUID
    session_key: UUID
    chunk: Chunk
    voice: Voice
    is_embedded: bool = True

    @property
    def message(self) -> tuple[UUID, int]:
        """The message that it is a piece of; its other pieces are in the same batch."""
        return self.session_key, self.chunk.from_seq


@dataclass(frozen=True, slots=True)
class VectorsStage:
    """Embeds a batch's turns; the vectors are stored as halves, as they are kept.

    Without an ``embedder`` messages are stored for words alone.  ``prefix`` is before each text that is
    embedded, and in nothing else; of a message the first ``max_characters`` are indexed.
    """

    embedder: Embedder | None
    prefix: str = ""
    max_characters: int = MAX_INDEXED_CHARACTERS
    name: ClassVar[str] = VECTORS_STAGE

    def wait_seconds(self) -> float:
        return 0.0 if self.embedder is None else self.embedder.wait_seconds()

    def load(self, fetcher: Fetcher, batch: Batch) -> tuple[PlacedChunk, ...]:
        keys = fetcher.run(find_owner_keys(batch.lane.shard_key))
        is_embedded = self.embedder is not None and (keys is None or keys.has_vectors)
        return tuple(
            PlacedChunk(event.event_id, event.session_key, chunk, voice, is_embedded)
            for event, messages in load_messages(fetcher, batch)
            for message in messages
            if (pieces := chunks([message], self.max_characters))
            for voice in [voice_of(message)]
            for chunk in pieces
        )

    def calls(self, batch: Batch, work: tuple[PlacedChunk, ...]) -> Sequence[Call]:
        if self.embedder is None or not work or not work[0].is_embedded:
            return ()
        return (self._call(self.embedder, _STEP, work, is_alone=len(batch.events) == 1),)

    def _call(
        self, embedder: Embedder, step: str, work: tuple[PlacedChunk, ...], first: int = 0, *, is_alone: bool
    ) -> Call:
        def parts() -> list[Call]:
            middle = len(work) // 2
            halves = ((work[:middle], first), (work[middle:], first + middle)) if middle else ()
            return [
                self._call(embedder, f"{_STEP}/{begin}-{begin + len(half)}", half, begin, is_alone=True)
                for half, begin in halves
            ]

        return Call(step, lambda: self._embed(embedder, work), parts=parts if is_alone else None)

    def effect(
        self, batch: Batch, work: tuple[PlacedChunk, ...], answers: Mapping[str, RawAnswer]
    ) -> InsertChunks | None:
        """The rows of the chunks; finding the words of a large batch takes seconds."""
        return _rows(batch, work, answers) if work else None

    def share(
        self,
        database: Database,
        batch: Batch,
        effect: InsertChunks | None,
        check_lease: Callable[[Fetcher], None],
    ) -> None:
        """Copy the written rows to the session's shared scope, if it has one."""
        share(database, batch, effect, check_lease)

    def write(
        self, fetcher: Fetcher, batch: Batch, work: tuple[PlacedChunk, ...], effect: InsertChunks | None
    ) -> list[Lane]:
        if effect:
            fetcher.fetch(effect)
        return []

    def _embed(self, embedder: Embedder, work: tuple[PlacedChunk, ...]) -> RawAnswer:
        answer = embedder.embed([self.prefix + placed.chunk.text for placed in work])
        return RawAnswer(
            model=answer.model,
            prompt_hash="",
            body=pack_vectors(answer.vectors),
            input_tokens=answer.input_tokens,
        )


def vector_text(vector: Sequence[float]) -> str:
    """A vector as pgvector reads it."""
    return "[" + ",".join(["%.6g"] * len(vector)) % tuple(vector) + "]"


def pack_vectors(vectors: Sequence[Sequence[float]]) -> bytes:
    """Vectors of one length as bytes: count and dimensions, then little-endian half floats.

    An empty one, of a text that could not be embedded, is packed as NaN.
    """
    dimensions = max(map(len, vectors), default=0)
    none = (math.nan,) * dimensions
    flat = [value for vector in vectors for value in vector or none]
    return struct.pack(f"<II{len(flat)}e", len(vectors), dimensions, *flat)


def unpack_texts(body: bytes) -> list[str | None]:
    """The vectors that ``pack_vectors`` packed, as ``vector_text`` gives them; None for an empty one."""
    count, dimensions = struct.unpack_from("<II", body)
    texts = list(map(_HALVES.__getitem__, struct.unpack_from(f"<{count * dimensions}H", body, 8)))
    if not dimensions:
        return [None] * count
    starts = range(0, count * dimensions, dimensions)
    return [
        None if texts[start] == "nan" else f"[{','.join(texts[start : start + dimensions])}]"
        for start in starts
    ]


class _Halves(dict[int, str]):
    """Half floats as text, by their bits: writing one takes nine times as long as looking it up."""

    def __missing__(self, bits: int) -> str:
        (value,) = struct.unpack("<e", struct.pack("<H", bits))
        text = self[bits] = f"{value:.6g}"
        return text


_HALVES = _Halves()


def _range_of(step: str, count: int) -> tuple[int, int]:
    """Of ``count`` chunks the first that a step embeds, and the one after its last."""
    _, _, part = step.partition("/")
    first, _, through = part.partition("-")
    return (int(first), int(through)) if part else (0, count)


def _rows(batch: Batch, work: Sequence[PlacedChunk], answers: Mapping[str, RawAnswer]) -> InsertChunks:
    embeddings: list[str | None] = [None] * len(work)
    for step, answer in answers.items():
        first, through = _range_of(step, len(work))
        embeddings[first:through] = unpack_texts(answer.body)
    if len(embeddings) != len(work):
        raise PermanentModelError(f"{len(embeddings)} vectors are stored for {len(work)} chunks.")
    words = [lexemes(placed.chunk.text) for placed in work]
    lengths: Counter[tuple[UUID, int]] = Counter()
    for placed, piece in zip(work, words, strict=True):
        lengths[placed.message] += max(1, length_of(piece))
    return InsertChunks(
        shard_key=batch.lane.shard_key,
        generation_id=batch.lane.generation_id,
        batch_id=batch.batch_id,
        session_keys=[placed.session_key for placed in work],
        event_ids=[placed.event_id for placed in work],
        from_seqs=[placed.chunk.from_seq for placed in work],
        through_seqs=[placed.chunk.through_seq for placed in work],
        pieces=[placed.chunk.piece for placed in work],
        lengths=[lengths[placed.message] for placed in work],
        lexemes=[to_tsvector_text(piece) for piece in words],
        embeddings=embeddings,
        roles=[placed.voice.role for placed in work],
        speakers=[placed.voice.speaker for placed in work],
        tones=[placed.voice.tone for placed in work],
        said_on=[placed.voice.said_on for placed in work],
    )
