"""The statements of ``schemas/sql/audit.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query


class AppendActRow(NamedTuple):
    is_recorded: bool


class AppendAct(Query[AppendActRow]):
    """Append an act to the trail, in this transaction, if the namespace's level has it recorded
    (append_act_v1).
    """

    __slots__ = ()
    name = "append_act"
    row = AppendActRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        has_owner: bool,
        namespace: str,
        user_id: str | None,
        session_key: UUID | None,
        act: str,
        lazily: bool,
    ) -> None:
        self.values = (shard_key, has_owner, namespace, user_id, session_key, act, lazily)


class PutOneRecordedRow(NamedTuple):
    seq: int
    is_recorded: bool


class PutOneRecorded(Query[PutOneRecordedRow]):
    """As put_one, with the act in the audit trail if the namespace's level has it recorded. Without a row
    nothing was done, and put_v1 decides; it also makes the owner's pseudonym.
    """

    __slots__ = ()
    name = "put_one_recorded"
    repeatable = True
    row = PutOneRecordedRow

    def __init__(
        self,
        *,
        tokens: int,
        bytes: int,
        role: str,
        shard_key: UUID,
        session_key: UUID,
        calls: str | None,
        sealed: bool,
        id: str,
        digest: bytes,
        envelope: str,
        metadata: str | None,
        answers: str | None,
        created_at: datetime | None,
        labels: list[int] | None,
        entry_id: UUID,
        actor: str | None,
        origin: str | None,
        flags: list[str],
        level: str,
    ) -> None:
        self.values = (
            tokens,
            bytes,
            role,
            shard_key,
            session_key,
            calls,
            sealed,
            id,
            digest,
            envelope,
            metadata,
            answers,
            created_at,
            labels,
            entry_id,
            actor,
            origin,
            flags,
            level,
        )


class PutManyRecordedRow(NamedTuple):
    session_key: str
    seq: int
    is_recorded: bool


class PutManyRecorded(Query[PutManyRecordedRow]):
    """As put_many, with the acts in the audit trail; a message without an entry_id is left out where puts are
    recorded.
    """

    __slots__ = ()
    name = "put_many_recorded"
    repeatable = True
    row = PutManyRecordedRow

    def __init__(self, *, messages: str) -> None:
        self.values = (messages,)


class LevelOfNamespaceRow(NamedTuple):
    level: str


class LevelOfNamespace(Query[LevelOfNamespaceRow]):
    """The level of a namespace's trail."""

    __slots__ = ()
    name = "level_of_namespace"
    repeatable = True
    row = LevelOfNamespaceRow

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class NamesOfOwnerRow(NamedTuple):
    namespace: str
    user_id: str | None


class NamesOfOwner(Query[NamesOfOwnerRow]):
    """The names of an owner, from one of the sessions."""

    __slots__ = ()
    name = "names_of_owner"
    repeatable = True
    row = NamesOfOwnerRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)
