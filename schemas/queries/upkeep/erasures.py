"""The statements of ``schemas/sql/erasures.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    ErasureRow,
    KeyRow,
    NumberRow,
    ReceiptRow,
    RowsRow,
    SessionEntryRow,
    TableRowsRow,
)
from strandline.schemas.sealing.marks import Mark, Marks


class LookAtFence(Query[ErasureRow], name="look_at_fence", repeatable=True):
    """The erasure that keeps an owner or a session away (look_at_fence_v1); until the transaction ends, none
    is begun.
    """

    shard_key: UUID
    scope_key: UUID


class FenceOwnerRow(NamedTuple):
    status: str
    number: int
    ledger_key: UUID | None
    requested_at: datetime | None


class FenceOwner(Query[FenceOwnerRow], name="fence_owner"):
    """Set the fence of an owner, and end all that can write for it (fence_v1)."""

    erasure_id: UUID
    kind: str
    namespace: str
    shard_key: UUID
    ledger_key: UUID
    actor: str | None
    is_forced: bool
    user_id: str | None
    act: str


class EraseSessionRow(NamedTuple):
    status: str
    number: int | None
    ledger_key: UUID | None
    requested_at: datetime | None
    touched: list[UUID]


class EraseSession(Query[EraseSessionRow], name="erase_session"):
    """Set the fence of a session, and forget it (erase_session_v1)."""

    erasure_id: UUID
    namespace: str
    shard_key: UUID
    session_key: UUID
    directory_key: UUID
    ledger_key: UUID
    actor: str | None
    is_forced: bool
    user_id: str | None
    act: str


class ReadmitRow(NamedTuple):
    status: str
    number: int | None
    readmitted_at: datetime


class Readmit(Query[ReadmitRow], name="readmit"):
    """Lift the fence of an owner or a session (readmit_v1)."""

    erasure_id: UUID
    namespace: str
    shard_key: UUID
    scope_key: UUID
    actor: str | None
    user_id: str | None
    act: str
    erasures: list[UUID] | None


class EraseRows(Query[RowsRow], name="erase_rows"):
    """Delete a page of a table's rows of an owner, or of one of its sessions or scopes (erase_rows_v1)."""

    number: int
    table: str
    shard_key: UUID
    column: str | None
    key: UUID | None
    limit: int


class EraseShared(Query[RowsRow], name="erase_shared"):
    """Delete a page of the copies that an owner, or one of its sessions, shared with scopes
    (erase_shared_v1).
    """

    number: int
    owner_key: UUID
    session_key: UUID | None
    limit: int


class MoveRows(Query[RowsRow], name="move_rows"):
    """Give a page of an owner's rows of a table the key of the erasure (move_rows_v1)."""

    number: int
    table: str
    shard_key: UUID
    ledger_key: UUID
    limit: int


class ErasedObjectsRow(NamedTuple):
    archive: str
    object_name: str | None
    is_shared: bool


class ErasedObjects(Query[ErasedObjectsRow], name="erased_objects", repeatable=True):
    """The objects in archives that hold messages of an owner, or of one of its sessions; each that is named
    may be there. One that a session which stays names as well (a fork, or what it is a fork of) is that
    session's too. A session that is erased at this moment does not stay. None once the erasure is
    finished.
    """

    session_key: UUID | None
    shard_key: UUID
    number: int


class EraseDirectory(Query[RowsRow], name="erase_directory"):
    """Delete a page of an owner's directory entries (erase_directory_v1)."""

    number: int
    owner_key: UUID
    directory_key: UUID | None
    namespace: str
    user_id: str | None
    limit: int


class EraseNames(Query[RowsRow], name="erase_names"):
    """Replace an owner's names where the rows of others hold them (erase_names_v1)."""

    number: int
    owner_key: UUID
    namespace: str
    user_id: str | None
    session_id: str | None
    mark: str


class KeptItemNames(Query[KeyRow], name="kept_item_names", repeatable=True):
    """The next keys under a path at which an adapter keeps items of users, also of those whose time is over."""

    shard_key: UUID
    path: str
    after: str
    limit: int


class KeptItemsRow(NamedTuple):
    key: str
    version: str
    value: str


class KeptItems(Query[KeptItemsRow], name="kept_items", repeatable=True):
    """Items of these keys, each with the transaction that wrote it."""

    marks = Marks(owner=1, opens=(Mark(2, "json", "item"),))
    keys: list[str]
    shard_key: UUID
    path: str


class EraseKeptItems(Query[RowsRow], name="erase_kept_items"):
    """Delete items that an adapter kept of an owner (erase_kept_items_v1)."""

    number: int
    shard_key: UUID
    paths: list[str]
    keys: list[str]
    versions: list[str | None]


class EraseItems(Query[RowsRow], name="erase_items"):
    """Delete a page of a namespace's items below a path (erase_items_v1)."""

    number: int
    shard_key: UUID
    path_from: str
    path_before: str
    limit: int


class ErasedRows(Query[TableRowsRow], name="erased_rows"):
    """Rows of erased owners and sessions, counted by table (erased_rows_v1)."""

    shard_key: UUID | None
    scope_key: UUID | None


class OwnerRows(Query[TableRowsRow], name="owner_rows"):
    """Rows of an owner, or of one of its sessions, counted by table (owner_rows_v1)."""

    shard_key: UUID
    scope_key: UUID


class ErasedOwnerNames(Query[SessionEntryRow], name="erased_owner_names", repeatable=True):
    """The names of an owner whose key alone is known, as the directory has them: sessions, and the user if
    there is one; or as its facts have them, of a user who has no session.
    """

    owner_key: UUID
    limit: int | None


class OwnerDirectoryRow(NamedTuple):
    session_id: str
    kind: str
    created_at: datetime


class OwnerDirectory(Query[OwnerDirectoryRow], name="owner_directory", repeatable=True):
    """The next sessions of a user, of every kind."""

    namespace: str
    user_id: str
    after_session_id: str
    limit: int


class FinishErasure(Query[NumberRow], name="finish_erasure"):
    """Record the receipt of an erasure; no row if another process has done so, or the erasure is of another
    scope.
    """

    receipt: str
    number: int
    owner_key: UUID
    scope_key: UUID


class NoteMissed(Query[Never], name="note_missed"):
    """Keep with an erasure the places that it could not reach, since another process may make its receipt."""

    missed: list[str]
    number: int


class UnsettledErasuresRow(NamedTuple):
    number: int
    finding: str
    namespace: str | None
    owner_key: UUID | None
    scope_key: UUID | None


class UnsettledErasures(Query[UnsettledErasuresRow], name="unsettled_erasures", repeatable=True):
    """What is wrong with the records of erasures, of which the first are given: one is 'unfinished'; one is
    done, and nothing has let the owner in again, and its fence is gone ('unfenced'); a fence stands
    without a record ('unrecorded'); the record of a number is gone ('removed').
    """

    limit: int


class UnfinishedErasure(Query[NumberRow], name="unfinished_erasure", repeatable=True):
    """The erasure of an owner, or of the session (NULL: of any), that has no receipt yet."""

    owner_key: UUID
    session_key: UUID | None


class ReadmissionsAfter(Query[ReceiptRow], name="readmissions_after", repeatable=True):
    """The receipts of readmissions of an owner, or of a session, after a time."""

    owner_key: UUID
    scope_key: UUID
    after: datetime


class KeepReceipt(Query[Never], name="keep_receipt"):
    """Record the receipt of a readmission, which is done in the moment that it is recorded."""

    receipt: str
    number: int


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


class FindErasure(Query[FindErasureRow], name="find_erasure", repeatable=True):
    """One erasure or readmission, by its number or its id."""

    number: int | None
    erasure_id: UUID | None


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


class ListErasures(Query[ListErasuresRow], name="list_erasures", repeatable=True):
    """Erasures and readmissions, newest first: of a namespace or (NULL) of all, of an owner or (NULL) of all,
    below a number.
    """

    namespace: str | None
    owner_key: UUID | None
    before: int
    limit: int


class FindFenceRow(NamedTuple):
    number: int
    scope_key: UUID
    fenced_at: datetime


class FindFence(Query[FindFenceRow], name="find_fence", repeatable=True):
    """The fence that stands of a session, or else of its owner."""

    shard_key: UUID
    scope_key: UUID


class ErasedSinceRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    number: int


class ErasedSince(Query[ErasedSinceRow], name="erased_since", repeatable=True):
    """The owners and sessions that were erased after an erasure, of which a process may have something in its
    caches.
    """

    number: int


class FindErasedRow(NamedTuple):
    number: int
    fenced_at: datetime
    shard_key: UUID
    scope_key: UUID
    is_unfinished: bool


class FindErased(Query[FindErasedRow], name="find_erased", repeatable=True):
    """The fence, that stands, of an owner or a session of which only the scope is known; one of an unfinished
    erasure first.
    """

    scope_keys: list[UUID]
