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


class UnsealedRunsRow(NamedTuple):
    session_key: UUID
    run_id: str
    digests: list[bytes]


class UnsealedRuns(Query[UnsealedRunsRow]):
    """The next runs of an owner of whose messages, as they were given, not all digests are keyed."""

    __slots__ = ()
    name = "unsealed_runs"
    repeatable = True
    row = UnsealedRunsRow

    def __init__(self, *, shard_key: UUID, after_session: UUID, after_run: str, limit: int) -> None:
        self.values = (shard_key, after_session, after_run, limit)


class ResealRunRow(NamedTuple):
    run_id: str


class ResealRun(Query[ResealRunRow]):
    """Store the keyed forms of a run's digests, unless the run was changed meanwhile."""

    __slots__ = ()
    name = "reseal_run"
    repeatable = True
    row = ResealRunRow

    def __init__(
        self, *, digests: list[bytes], shard_key: UUID, session_key: UUID, run_id: str, known: list[bytes]
    ) -> None:
        self.values = (digests, shard_key, session_key, run_id, known)
