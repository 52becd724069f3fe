"""The statements of ``schemas/sql/resealing.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query


class UnsealedMessagesRow(NamedTuple):
    session_key: UUID
    seq: int
    version: str
    id: str
    digest: bytes
    envelope: str
    metadata: str | None
    calls: str | None
    answers: str | None
    labels: list[int] | None


class UnsealedMessages(Query[UnsealedMessagesRow]):
    """The next messages of an owner of which something is not sealed under the newest data key, whose tokens
    begin with the prefix.
    """

    __slots__ = ()
    name = "unsealed_messages"
    repeatable = True
    row = UnsealedMessagesRow

    def __init__(
        self, *, shard_key: UUID, after_session: UUID, after_seq: int, prefix: str, limit: int
    ) -> None:
        self.values = (shard_key, after_session, after_seq, prefix, limit)


class ResealMessagesRow(NamedTuple):
    seq: int


class ResealMessages(Query[ResealMessagesRow]):
    """Store messages in the form that they are to have."""

    __slots__ = ()
    name = "reseal_messages"
    repeatable = True
    row = ResealMessagesRow

    def __init__(
        self,
        *,
        session_keys: list[UUID],
        seqs: list[int],
        versions: list[str],
        digests: list[bytes],
        envelopes: list[str],
        metadata: list[str | None],
        calls: list[str | None],
        answers: list[str | None],
        labels: list[str | None],
        shard_key: UUID,
    ) -> None:
        self.values = (
            session_keys,
            seqs,
            versions,
            digests,
            envelopes,
            metadata,
            calls,
            answers,
            labels,
            shard_key,
        )


class UnsealedSharedMessagesRow(NamedTuple):
    session_key: UUID
    seq: int
    version: str
    id: str
    envelope: str
    metadata: str | None


class UnsealedSharedMessages(Query[UnsealedSharedMessagesRow]):
    """The same of copies in a shared scope."""

    __slots__ = ()
    name = "unsealed_shared_messages"
    repeatable = True
    row = UnsealedSharedMessagesRow

    def __init__(
        self, *, shard_key: UUID, after_session: UUID, after_seq: int, prefix: str, limit: int
    ) -> None:
        self.values = (shard_key, after_session, after_seq, prefix, limit)


class ResealSharedMessagesRow(NamedTuple):
    seq: int


class ResealSharedMessages(Query[ResealSharedMessagesRow]):
    """Store copies in the form that they are to have."""

    __slots__ = ()
    name = "reseal_shared_messages"
    repeatable = True
    row = ResealSharedMessagesRow

    def __init__(
        self,
        *,
        session_keys: list[UUID],
        seqs: list[int],
        versions: list[str],
        envelopes: list[str],
        metadata: list[str | None],
        shard_key: UUID,
    ) -> None:
        self.values = (session_keys, seqs, versions, envelopes, metadata, shard_key)


class UnsealedCorrectionsRow(NamedTuple):
    session_key: UUID
    number: int
    digest: bytes


class UnsealedCorrections(Query[UnsealedCorrectionsRow]):
    """The next corrections of an owner whose digest of the content asked for is not keyed."""

    __slots__ = ()
    name = "unsealed_corrections"
    repeatable = True
    row = UnsealedCorrectionsRow

    def __init__(self, *, shard_key: UUID, after_session: UUID, after_number: int, limit: int) -> None:
        self.values = (shard_key, after_session, after_number, limit)


class ResealCorrectionsRow(NamedTuple):
    number: int


class ResealCorrections(Query[ResealCorrectionsRow]):
    """Store the keyed forms of these digests."""

    __slots__ = ()
    name = "reseal_corrections"
    repeatable = True
    row = ResealCorrectionsRow

    def __init__(
        self, *, session_keys: list[UUID], numbers: list[int], digests: list[bytes], shard_key: UUID
    ) -> None:
        self.values = (session_keys, numbers, digests, shard_key)


class UnsealedChunksRow(NamedTuple):
    generation_id: int
    session_key: UUID
    from_seq: int
    piece: int
    version: str
    lexemes: str
    speaker: list[str]


class UnsealedChunks(Query[UnsealedChunksRow]):
    """The next pieces of an owner's messages, of any generation, with words that are not keyed."""

    __slots__ = ()
    name = "unsealed_chunks"
    repeatable = True
    row = UnsealedChunksRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        after_generation: int,
        after_session: UUID,
        after_seq: int,
        after_piece: int,
        limit: int,
    ) -> None:
        self.values = (shard_key, after_generation, after_session, after_seq, after_piece, limit)


class ResealChunksRow(NamedTuple):
    piece: int


class ResealChunks(Query[ResealChunksRow]):
    """Store pieces with keyed words."""

    __slots__ = ()
    name = "reseal_chunks"
    repeatable = True
    row = ResealChunksRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_ids: list[int],
        session_keys: list[UUID],
        from_seqs: list[int],
        pieces: list[int],
        versions: list[str],
        lexemes: list[str],
        speakers: list[str],
    ) -> None:
        self.values = (
            shard_key,
            generation_ids,
            session_keys,
            from_seqs,
            pieces,
            versions,
            lexemes,
            speakers,
        )


class UnsealedStatesRow(NamedTuple):
    batch_id: UUID
    version: str
    state: str


class UnsealedStates(Query[UnsealedStatesRow]):
    """The next states of an owner's lanes that are not sealed under the newest data key."""

    __slots__ = ()
    name = "unsealed_states"
    repeatable = True
    row = UnsealedStatesRow

    def __init__(self, *, shard_key: UUID, after_batch: UUID, prefix: str, limit: int) -> None:
        self.values = (shard_key, after_batch, prefix, limit)


class ResealStatesRow(NamedTuple):
    batch_id: UUID


class ResealStates(Query[ResealStatesRow]):
    """Store states in the form that they are to have."""

    __slots__ = ()
    name = "reseal_states"
    repeatable = True
    row = ResealStatesRow

    def __init__(
        self, *, batch_ids: list[UUID], versions: list[str], states: list[str], shard_key: UUID
    ) -> None:
        self.values = (batch_ids, versions, states, shard_key)


class UnsealedAnswersRow(NamedTuple):
    batch_id: UUID
    step: str
    version: str
    body: bytes


class UnsealedAnswers(Query[UnsealedAnswersRow]):
    """The next stored answers of models that are not sealed under the newest data key."""

    __slots__ = ()
    name = "unsealed_answers"
    repeatable = True
    row = UnsealedAnswersRow

    def __init__(
        self, *, shard_key: UUID, after_batch: UUID, after_step: str, prefix: bytes, limit: int
    ) -> None:
        self.values = (shard_key, after_batch, after_step, prefix, limit)


class ResealAnswersRow(NamedTuple):
    step: str


class ResealAnswers(Query[ResealAnswersRow]):
    """Store answers in the form that they are to have."""

    __slots__ = ()
    name = "reseal_answers"
    repeatable = True
    row = ResealAnswersRow

    def __init__(
        self,
        *,
        batch_ids: list[UUID],
        steps: list[str],
        versions: list[str],
        bodies: list[bytes],
        shard_key: UUID,
    ) -> None:
        self.values = (batch_ids, steps, versions, bodies, shard_key)
