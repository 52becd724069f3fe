"""The statements of ``schemas/sql/erasures.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class LookAtFenceRow(NamedTuple):
    erasure: int | None


class LookAtFence(Query[LookAtFenceRow]):
    """The erasure that keeps an owner or a session away (look_at_fence_v1); until the transaction ends, none
    is begun.
    """

    __slots__ = ()
    name = "look_at_fence"
    repeatable = True
    row = LookAtFenceRow

    def __init__(self, *, shard_key: UUID, scope_key: UUID) -> None:
        self.values = (shard_key, scope_key)


class FenceOwnerRow(NamedTuple):
    status: str
    number: int
    ledger_key: UUID | None
    requested_at: datetime | None


class FenceOwner(Query[FenceOwnerRow]):
    """Set the fence of an owner, and end all that can write for it (fence_v1)."""

    __slots__ = ()
    name = "fence_owner"
    row = FenceOwnerRow

    def __init__(
        self,
        *,
        erasure_id: UUID,
        kind: str,
        namespace: str,
        shard_key: UUID,
        ledger_key: UUID,
        actor: str | None,
        is_forced: bool,
        user_id: str | None,
        act: str,
    ) -> None:
        self.values = (erasure_id, kind, namespace, shard_key, ledger_key, actor, is_forced, user_id, act)


class EraseSessionRow(NamedTuple):
    status: str
    number: int | None
    ledger_key: UUID | None
    requested_at: datetime | None
    touched: list[UUID]


class EraseSession(Query[EraseSessionRow]):
    """Set the fence of a session, and forget it (erase_session_v1)."""

    __slots__ = ()
    name = "erase_session"
    row = EraseSessionRow

    def __init__(
        self,
        *,
        erasure_id: UUID,
        namespace: str,
        shard_key: UUID,
        session_key: UUID,
        directory_key: UUID,
        ledger_key: UUID,
        actor: str | None,
        is_forced: bool,
        user_id: str | None,
        act: str,
    ) -> None:
        self.values = (
            erasure_id,
            namespace,
            shard_key,
            session_key,
            directory_key,
            ledger_key,
            actor,
            is_forced,
            user_id,
            act,
        )


class ReadmitRow(NamedTuple):
    status: str
    number: int | None
    readmitted_at: datetime


class Readmit(Query[ReadmitRow]):
    """Lift the fence of an owner or a session (readmit_v1)."""

    __slots__ = ()
    name = "readmit"
    row = ReadmitRow

    def __init__(
        self,
        *,
        erasure_id: UUID,
        namespace: str,
        shard_key: UUID,
        scope_key: UUID,
        actor: str | None,
        user_id: str | None,
        act: str,
        erasures: list[UUID] | None,
    ) -> None:
        self.values = (erasure_id, namespace, shard_key, scope_key, actor, user_id, act, erasures)


class EraseRowsRow(NamedTuple):
    rows: int


class EraseRows(Query[EraseRowsRow]):
    """Delete a page of a table's rows of an owner, or of one of its sessions or scopes (erase_rows_v1)."""

    __slots__ = ()
    name = "erase_rows"
    row = EraseRowsRow

    def __init__(
        self, *, number: int, table: str, shard_key: UUID, column: str | None, key: UUID | None, limit: int
    ) -> None:
        self.values = (number, table, shard_key, column, key, limit)


class EraseSharedRow(NamedTuple):
    rows: int


class EraseShared(Query[EraseSharedRow]):
    """Delete a page of what an owner, or one of its sessions, shared with scopes (erase_shared_v1)."""

    __slots__ = ()
    name = "erase_shared"
    row = EraseSharedRow

    def __init__(self, *, number: int, owner_key: UUID, session_key: UUID | None, limit: int) -> None:
        self.values = (number, owner_key, session_key, limit)


class MoveCallsRow(NamedTuple):
    rows: int


class MoveCalls(Query[MoveCallsRow]):
    """Give a page of an owner's model calls the key of the erasure (move_calls_v1)."""

    __slots__ = ()
    name = "move_calls"
    row = MoveCallsRow

    def __init__(self, *, number: int, shard_key: UUID, ledger_key: UUID, limit: int) -> None:
        self.values = (number, shard_key, ledger_key, limit)


class MoveEntriesRow(NamedTuple):
    rows: int


class MoveEntries(Query[MoveEntriesRow]):
    """Give a page of an owner's acts in the audit trail the key of the erasure (move_entries_v1)."""

    __slots__ = ()
    name = "move_entries"
    row = MoveEntriesRow

    def __init__(self, *, number: int, shard_key: UUID, ledger_key: UUID, limit: int) -> None:
        self.values = (number, shard_key, ledger_key, limit)


class ErasedObjectsRow(NamedTuple):
    archive: str
    object_name: str | None
    is_shared: bool


class ErasedObjects(Query[ErasedObjectsRow]):
    """The objects in archives that hold messages of an owner, or of one of its sessions; each that is named
    may be there. One that a session which stays names as well (a fork, or what it is a fork of) is that
    session's too. A session that is erased at this moment does not stay. None once the erasure is
    finished.
    """

    __slots__ = ()
    name = "erased_objects"
    row = ErasedObjectsRow

    def __init__(self, *, session_key: UUID | None, shard_key: UUID, number: int) -> None:
        self.values = (session_key, shard_key, number)


class EraseDirectoryRow(NamedTuple):
    rows: int


class EraseDirectory(Query[EraseDirectoryRow]):
    """Delete a page of an owner's directory entries (erase_directory_v1)."""

    __slots__ = ()
    name = "erase_directory"
    row = EraseDirectoryRow

    def __init__(
        self,
        *,
        number: int,
        owner_key: UUID,
        directory_key: UUID | None,
        namespace: str,
        user_id: str | None,
        limit: int,
    ) -> None:
        self.values = (number, owner_key, directory_key, namespace, user_id, limit)


class EraseNamesRow(NamedTuple):
    rows: int


class EraseNames(Query[EraseNamesRow]):
    """Replace an owner's names where the rows of others hold them (erase_names_v1)."""

    __slots__ = ()
    name = "erase_names"
    row = EraseNamesRow

    def __init__(
        self,
        *,
        number: int,
        owner_key: UUID,
        namespace: str,
        user_id: str | None,
        session_id: str | None,
        mark: str,
    ) -> None:
        self.values = (number, owner_key, namespace, user_id, session_id, mark)


class KeptItemNamesRow(NamedTuple):
    key: str


class KeptItemNames(Query[KeptItemNamesRow]):
    """The next keys under a path at which an adapter keeps items of users, also of those whose time is over."""

    __slots__ = ()
    name = "kept_item_names"
    repeatable = True
    row = KeptItemNamesRow

    def __init__(self, *, shard_key: UUID, path: str, after: str, limit: int) -> None:
        self.values = (shard_key, path, after, limit)


class KeptItemsRow(NamedTuple):
    key: str
    version: str
    value: str


class KeptItems(Query[KeptItemsRow]):
    """Items of these keys, each with the transaction that wrote it."""

    __slots__ = ()
    name = "kept_items"
    repeatable = True
    row = KeptItemsRow
    marks = Marks(owner=1, opens=(Mark(2, "json", "item"),))

    def __init__(self, *, keys: list[str], shard_key: UUID, path: str) -> None:
        self.values = (keys, shard_key, path)


class EraseKeptItemsRow(NamedTuple):
    rows: int


class EraseKeptItems(Query[EraseKeptItemsRow]):
    """Delete items that an adapter kept of an owner (erase_kept_items_v1)."""

    __slots__ = ()
    name = "erase_kept_items"
    row = EraseKeptItemsRow

    def __init__(
        self, *, number: int, shard_key: UUID, paths: list[str], keys: list[str], versions: list[str | None]
    ) -> None:
        self.values = (number, shard_key, paths, keys, versions)


class EraseItemsRow(NamedTuple):
    rows: int


class EraseItems(Query[EraseItemsRow]):
    """Delete a page of a namespace's items below a path (erase_items_v1)."""

    __slots__ = ()
    name = "erase_items"
    row = EraseItemsRow

    def __init__(self, *, number: int, shard_key: UUID, path_from: str, path_before: str, limit: int) -> None:
        self.values = (number, shard_key, path_from, path_before, limit)


class ErasedRowsRow(NamedTuple):
    table_name: str
    rows: int


class ErasedRows(Query[ErasedRowsRow]):
    """What there is of owners and sessions that were erased, by table (erased_rows_v1)."""

    __slots__ = ()
    name = "erased_rows"
    row = ErasedRowsRow

    def __init__(self, *, shard_key: UUID | None, scope_key: UUID | None) -> None:
        self.values = (shard_key, scope_key)


class OwnerRowsRow(NamedTuple):
    table_name: str
    rows: int


class OwnerRows(Query[OwnerRowsRow]):
    """What there is of an owner, or of one of its sessions, by table (owner_rows_v1)."""

    __slots__ = ()
    name = "owner_rows"
    row = OwnerRowsRow

    def __init__(self, *, shard_key: UUID, scope_key: UUID) -> None:
        self.values = (shard_key, scope_key)


class ErasedOwnerNamesRow(NamedTuple):
    namespace: str
    session_id: str
    user_id: str | None


class ErasedOwnerNames(Query[ErasedOwnerNamesRow]):
    """The names of an owner whose key alone is known, as the directory has them: sessions, and the user if
    there is one; or as its facts have them, of a user who has no session.
    """

    __slots__ = ()
    name = "erased_owner_names"
    row = ErasedOwnerNamesRow

    def __init__(self, *, owner_key: UUID, limit: int | None) -> None:
        self.values = (owner_key, limit)


class OwnerDirectoryRow(NamedTuple):
    session_id: str
    kind: str
    created_at: datetime


class OwnerDirectory(Query[OwnerDirectoryRow]):
    """The next sessions of a user, of every kind."""

    __slots__ = ()
    name = "owner_directory"
    repeatable = True
    row = OwnerDirectoryRow

    def __init__(self, *, namespace: str, user_id: str, after_session: str, limit: int) -> None:
        self.values = (namespace, user_id, after_session, limit)


class FinishErasureRow(NamedTuple):
    number: int


class FinishErasure(Query[FinishErasureRow]):
    """Record the receipt of an erasure; no row if another process has done so, or the erasure is of another
    scope.
    """

    __slots__ = ()
    name = "finish_erasure"
    row = FinishErasureRow

    def __init__(self, *, receipt: str, number: int, owner_key: UUID, scope_key: UUID) -> None:
        self.values = (receipt, number, owner_key, scope_key)


class NoteMissed(Query[Never]):
    """Keep with an erasure what it could not reach, since another process may be the one that makes its
    receipt.
    """

    __slots__ = ()
    name = "note_missed"

    def __init__(self, *, missed: list[str], number: int) -> None:
        self.values = (missed, number)


class UnsettledErasuresRow(NamedTuple):
    number: int
    finding: str
    namespace: str | None
    owner_key: UUID | None
    scope_key: UUID | None


class UnsettledErasures(Query[UnsettledErasuresRow]):
    """What is wrong with the records of erasures, of which the first are given: one is 'unfinished'; one is
    done, and nothing has let the owner in again, and its fence is gone ('unfenced'); a fence stands
    without a record ('unrecorded'); the record of a number is gone ('removed').
    """

    __slots__ = ()
    name = "unsettled_erasures"
    repeatable = True
    row = UnsettledErasuresRow

    def __init__(self, *, limit: int) -> None:
        self.values = (limit,)


class UnfinishedErasureRow(NamedTuple):
    number: int


class UnfinishedErasure(Query[UnfinishedErasureRow]):
    """The erasure of an owner, or of the session (NULL: of any), that has no receipt yet."""

    __slots__ = ()
    name = "unfinished_erasure"
    repeatable = True
    row = UnfinishedErasureRow

    def __init__(self, *, owner_key: UUID, session_key: UUID | None) -> None:
        self.values = (owner_key, session_key)


class ReadmissionsAfterRow(NamedTuple):
    receipt: str


class ReadmissionsAfter(Query[ReadmissionsAfterRow]):
    """The receipts of readmissions of an owner, or of a session, after a time."""

    __slots__ = ()
    name = "readmissions_after"
    repeatable = True
    row = ReadmissionsAfterRow

    def __init__(self, *, owner_key: UUID, scope_key: UUID, after: datetime) -> None:
        self.values = (owner_key, scope_key, after)


class KeepReceipt(Query[Never]):
    """Record the receipt of a readmission, which is done in the moment that it is recorded."""

    __slots__ = ()
    name = "keep_receipt"

    def __init__(self, *, receipt: str, number: int) -> None:
        self.values = (receipt, number)


class FindErasureRow(NamedTuple):
    number: int
    erasure_id: UUID
    kind: str
    namespace: str
    owner_key: UUID
    scope_key: UUID
    ledger_key: UUID
    state: str
    steps: str
    actor: str | None
    receipt: str | None
    rows_erased: int
    requested_at: datetime
    fenced_at: datetime | None
    updated_at: datetime
    finished_at: datetime | None
    missed: list[str]


class FindErasure(Query[FindErasureRow]):
    """One erasure or readmission, by its number or its id."""

    __slots__ = ()
    name = "find_erasure"
    repeatable = True
    row = FindErasureRow

    def __init__(self, *, number: int | None, erasure_id: UUID | None) -> None:
        self.values = (number, erasure_id)


class ListErasuresRow(NamedTuple):
    number: int
    erasure_id: UUID
    kind: str
    namespace: str
    owner_key: UUID
    scope_key: UUID
    state: str
    actor: str | None
    rows_erased: int
    requested_at: datetime
    finished_at: datetime | None
    is_signed: bool


class ListErasures(Query[ListErasuresRow]):
    """Erasures and readmissions, newest first: of a namespace or (NULL) of all, of an owner or (NULL) of all,
    below a number.
    """

    __slots__ = ()
    name = "list_erasures"
    repeatable = True
    row = ListErasuresRow

    def __init__(self, *, namespace: str | None, owner_key: UUID | None, before: int, limit: int) -> None:
        self.values = (namespace, owner_key, before, limit)


class FindFenceRow(NamedTuple):
    number: int
    scope_key: UUID
    fenced_at: datetime


class FindFence(Query[FindFenceRow]):
    """The fence that stands of a session, or else of its owner."""

    __slots__ = ()
    name = "find_fence"
    repeatable = True
    row = FindFenceRow

    def __init__(self, *, shard_key: UUID, scope_key: UUID) -> None:
        self.values = (shard_key, scope_key)


class ErasedSinceRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    number: int


class ErasedSince(Query[ErasedSinceRow]):
    """The owners and sessions that were erased after an erasure, of which a process may have something in its
    caches.
    """

    __slots__ = ()
    name = "erased_since"
    repeatable = True
    row = ErasedSinceRow

    def __init__(self, *, number: int) -> None:
        self.values = (number,)


class FindErasedRow(NamedTuple):
    number: int
    fenced_at: datetime
    shard_key: UUID
    scope_key: UUID
    is_unfinished: bool


class FindErased(Query[FindErasedRow]):
    """The fence, that stands, of an owner or a session of which only the scope is known; one of an unfinished
    erasure first.
    """

    __slots__ = ()
    name = "find_erased"
    repeatable = True
    row = FindErasedRow

    def __init__(self, *, scope_keys: list[UUID]) -> None:
        self.values = (scope_keys,)


class VacuumErased(Query[Never]):
    """Make the space of what an erasure deleted free to be used again, in tables and indexes, one table after
    the other; and take new samples. A table that another vacuum works on is passed over.
    """

    __slots__ = ()
    name = "vacuum_erased"
