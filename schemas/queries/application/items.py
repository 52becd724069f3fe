"""The statements of ``schemas/sql/items.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class PutItems(Query[Never]):
    """Store items with their vectors, in place of those under the same path and key."""

    __slots__ = ()
    name = "put_items"
    marks = Marks(owner=0, seals=(Mark(1, "within", "*.value=json:item"),))

    def __init__(self, *, shard_key: UUID, items: str) -> None:
        self.values = (shard_key, items)


class ClaimItemRow(NamedTuple):
    value: str
    is_new: bool


class ClaimItem(Query[ClaimItemRow]):
    """Store an item unless there is one under its path and key, and return what is stored then. No row:
    another transaction has just stored or deleted one; ask again.
    """

    __slots__ = ()
    name = "claim_item"
    row = ClaimItemRow
    marks = Marks(owner=0, seals=(Mark(3, "json", "item"),), opens=(Mark(0, "json", "item"),))

    def __init__(self, *, shard_key: UUID, path: str, key: str, value: str) -> None:
        self.values = (shard_key, path, key, value)


class LockItemsRow(NamedTuple):
    key: str


class LockItems(Query[LockItemsRow]):
    """Hold items by path and key until the transaction ends, in one order everywhere, so that two
    transactions that write the same ones do not wait for each other.
    """

    __slots__ = ()
    name = "lock_items"
    row = LockItemsRow

    def __init__(self, *, paths: list[str], keys: list[str], shard_key: UUID) -> None:
        self.values = (paths, keys, shard_key)


class ItemsAfterRow(NamedTuple):
    key: str
    value: str


class ItemsAfter(Query[ItemsAfterRow]):
    """A page of the items under a path, in the order of their keys."""

    __slots__ = ()
    name = "items_after"
    repeatable = True
    row = ItemsAfterRow
    marks = Marks(owner=0, opens=(Mark(1, "json", "item"),))

    def __init__(self, *, shard_key: UUID, path: str, after: str, limit: int) -> None:
        self.values = (shard_key, path, after, limit)


class DeleteItems(Query[Never]):
    """Delete items by path and key; one that is not there is no error."""

    __slots__ = ()
    name = "delete_items"
    repeatable = True

    def __init__(self, *, paths: list[str], keys: list[str], shard_key: UUID) -> None:
        self.values = (paths, keys, shard_key)


class GetItemsRow(NamedTuple):
    path: str
    key: str
    value: str
    ttl_minutes: float | None
    created_at: datetime
    updated_at: datetime


class GetItems(Query[GetItemsRow]):
    """Items by path and key, without those that have expired."""

    __slots__ = ()
    name = "get_items"
    repeatable = True
    row = GetItemsRow
    marks = Marks(owner=2, opens=(Mark(2, "json", "item"),))

    def __init__(self, *, paths: list[str], keys: list[str], shard_key: UUID) -> None:
        self.values = (paths, keys, shard_key)


class SearchItemsRow(NamedTuple):
    path: str
    key: str
    value: str
    ttl_minutes: float | None
    created_at: datetime
    updated_at: datetime


class SearchItems(Query[SearchItemsRow]):
    """Items below a path that match a filter, those written last first."""

    __slots__ = ()
    name = "search_items"
    repeatable = True
    row = SearchItemsRow
    marks = Marks(owner=0, opens=(Mark(2, "json", "item"),))

    def __init__(
        self,
        *,
        shard_key: UUID,
        path_from: str,
        path_before: str,
        equal: str,
        filter: str,
        limit: int,
        offset: int,
    ) -> None:
        self.values = (shard_key, path_from, path_before, equal, filter, limit, offset)


class SearchItemsByVectorRow(NamedTuple):
    path: str
    key: str
    value: str
    ttl_minutes: float | None
    created_at: datetime
    updated_at: datetime
    score: float


class SearchItemsByVector(Query[SearchItemsByVectorRow]):
    """Items below a path that match a filter and have vectors, by the nearest of these to the query's,
    nearest first. Vectors of another length are those of another embedder, and are not compared.
    """

    __slots__ = ()
    name = "search_items_by_vector"
    repeatable = True
    row = SearchItemsByVectorRow
    marks = Marks(owner=2, opens=(Mark(2, "json", "item"),))

    def __init__(
        self,
        *,
        vector: str,
        distance: str,
        shard_key: UUID,
        path_from: str,
        path_before: str,
        equal: str,
        filter: str,
        limit: int,
        offset: int,
    ) -> None:
        self.values = (vector, distance, shard_key, path_from, path_before, equal, filter, limit, offset)


class RefreshItems(Query[Never]):
    """Let items live on for their whole time. One that another transaction writes is left to that; none comes
    back.
    """

    __slots__ = ()
    name = "refresh_items"
    repeatable = True

    def __init__(self, *, paths: list[str], keys: list[str], shard_key: UUID) -> None:
        self.values = (paths, keys, shard_key)


class ListItemPathsRow(NamedTuple):
    labels: list[str]


class ListItemPaths(Query[ListItemPathsRow]):
    """The different paths of items below a path, each cut off at a depth, of those that match all patterns."""

    __slots__ = ()
    name = "list_item_paths"
    repeatable = True
    row = ListItemPathsRow

    def __init__(
        self,
        *,
        max_depth: int,
        shard_key: UUID,
        path_from: str,
        path_before: str,
        patterns: list[str],
        limit: int,
        offset: int,
    ) -> None:
        self.values = (max_depth, shard_key, path_from, path_before, patterns, limit, offset)


class ForgetExpiredItemsRow(NamedTuple):
    shard_key: UUID


class ForgetExpiredItems(Query[ForgetExpiredItemsRow]):
    """Delete a page of items whose time is over; reads do not show them as it is."""

    __slots__ = ()
    name = "forget_expired_items"
    row = ForgetExpiredItemsRow

    def __init__(self, *, limit: int) -> None:
        self.values = (limit,)
