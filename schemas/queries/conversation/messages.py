"""The statements of ``schemas/sql/messages.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query


class PutOneRow(NamedTuple):
    seq: int


class PutOne(Query[PutOneRow]):
    """Accept one message in the simple case: the session exists, the message is not part of its head, crosses
    none of its marks, ends no turn that is to be delivered, and no watch has to be planned. No row:
    nothing was done, and put_v1 decides. It also decides if the id was used before: the unique index
    refuses it then, which undoes all of this.
    """

    __slots__ = ()
    name = "put_one"
    repeatable = True
    row = PutOneRow

    def __init__(
        self,
        *,
        tokens: int,
        bytes: int,
        role: str,
        shard_key: UUID,
        session_key: UUID,
        calls: str | None,
        id: str,
        digest: bytes,
        envelope: str,
        metadata: str | None,
        answers: str | None,
        created_at: datetime | None,
    ) -> None:
        self.values = (
            tokens,
            bytes,
            role,
            shard_key,
            session_key,
            calls,
            id,
            digest,
            envelope,
            metadata,
            answers,
            created_at,
        )


class PutManyRow(NamedTuple):
    session_key: str
    seq: int


class PutMany(Query[PutManyRow]):
    """The same for one message into each of several sessions, all different, in one commit; returns the
    sessions whose message was stored. A message whose id was used before is left out, and one whose
    session is locked: so it keeps no other waiting, and two such statements never wait for each other.
    (JSON, since it is written in a third of the time that psycopg takes for arrays.  No CTE is joined to
    another: their sizes are unknown to the planner, which would compare all with all.)
    """

    __slots__ = ()
    name = "put_many"
    repeatable = True
    row = PutManyRow

    def __init__(self, *, messages: str) -> None:
        self.values = (messages,)


class PutRow(NamedTuple):
    status: str
    detail: str | None
    seqs: list[int | None] | None
    to_flush: str | None


class Put(Query[PutRow]):
    """Accept messages: one round trip."""

    __slots__ = ()
    name = "put"
    repeatable = True
    row = PutRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        claimed: bool,
        session: str,
        ids: list[str],
        roles: list[str],
        tokens: list[int],
        bytes: list[int],
        digests: list[bytes],
        envelopes: list[str],
        metadata: list[str | None],
        created_at: list[datetime | None],
        calls: list[str | None],
        answers: list[str | None],
    ) -> None:
        self.values = (
            shard_key,
            session_key,
            claimed,
            session,
            ids,
            roles,
            tokens,
            bytes,
            digests,
            envelopes,
            metadata,
            created_at,
            calls,
            answers,
        )


class HistoryRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class History(Query[HistoryRow]):
    """A page of the whole log, in order."""

    __slots__ = ()
    name = "history"
    repeatable = True
    row = HistoryRow

    def __init__(self, *, after_seq: int, shard_key: UUID, session_key: UUID, page_size: int) -> None:
        self.values = (after_seq, shard_key, session_key, page_size)


class NewestMessageRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class NewestMessage(Query[NewestMessageRow]):
    """The message that a pop would remove."""

    __slots__ = ()
    name = "newest_message"
    repeatable = True
    row = NewestMessageRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class PopRow(NamedTuple):
    status: str


class Pop(Query[PopRow]):
    """Remove it, if it is still the newest, and was not delivered."""

    __slots__ = ()
    name = "pop"
    repeatable = True
    row = PopRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, seq: int, pop_id: UUID) -> None:
        self.values = (shard_key, session_key, seq, pop_id)


class KnownMessagesRow(NamedTuple):
    messages: int


class KnownMessages(Query[KnownMessagesRow]):
    """How many of these ids exist in the session's current incarnation."""

    __slots__ = ()
    name = "known_messages"
    repeatable = True
    row = KnownMessagesRow

    def __init__(self, *, ids: list[str], shard_key: UUID, session_key: UUID) -> None:
        self.values = (ids, shard_key, session_key)


class MakeImportTable(Query[Never]):
    """Where COPY writes to: a table of this connection alone, empty again when the transaction ends."""

    __slots__ = ()
    name = "make_import_table"


class CopyImport(Query[Never]):
    """Messages in their order."""

    __slots__ = ()
    name = "copy_import"


class PutImportedRow(NamedTuple):
    status: str
    detail: str | None
    seqs: list[int | None] | None
    to_flush: str | None


class PutImported(Query[PutImportedRow]):
    """Put what was copied, as ``put`` does."""

    __slots__ = ()
    name = "put_imported"
    row = PutImportedRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, claimed: bool, session: str) -> None:
        self.values = (shard_key, session_key, claimed, session)


class ResetRow(NamedTuple):
    messages: int
    ended: list[UUID] | None
    touched: list[UUID] | None


class Reset(Query[ResetRow]):
    """Start the log over; with derived, forget the derived memory."""

    __slots__ = ()
    name = "reset"
    repeatable = True
    row = ResetRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, derived: bool) -> None:
        self.values = (shard_key, session_key, derived)
