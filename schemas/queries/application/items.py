"""The statements of ``schemas/sql/items.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import ItemRow, KeyRow, LabelsRow, ShardKeyRow
from strandline.schemas.sealing.marks import Mark, Marks


class PutItems(Query[Never], name="put_items"):
    """Store items with their vectors, in place of those under the same path and key."""

    marks = Marks(owner=0, seals=(Mark(1, "within", "*.value=json:item"),))
    shard_key: UUID
    items: str


class ClaimItemRow(NamedTuple):
    value: str
    is_new: bool


class ClaimItem(Query[ClaimItemRow], name="claim_item"):
    """Store an item unless there is one under its path and key, and return what is stored then. No row:
    another transaction has just stored or deleted one; ask again.
    """

    marks = Marks(owner=0, seals=(Mark(3, "json", "item"),), opens=(Mark(0, "json", "item"),))
    shard_key: UUID
    path: str
    key: str
    value: str


class LockItems(Query[KeyRow], name="lock_items"):
    """Hold items by path and key until the transaction ends, in one order everywhere, so that two
    transactions that write the same ones do not wait for each other.
    """

    paths: list[str]
    keys: list[str]
    shard_key: UUID


class ItemsAfterRow(NamedTuple):
    key: str
    value: str


class ItemsAfter(Query[ItemsAfterRow], name="items_after", repeatable=True):
    """A page of the items under a path, in the order of their keys."""

    marks = Marks(owner=0, opens=(Mark(1, "json", "item"),))
    shard_key: UUID
    path: str
    after: str
    limit: int


class DeleteItems(Query[Never], name="delete_items", repeatable=True):
    """Delete items by path and key; a missing item is no error."""

    paths: list[str]
    keys: list[str]
    shard_key: UUID


class GetItems(Query[ItemRow], name="get_items", repeatable=True):
    """Items by path and key, except expired ones."""

    marks = Marks(owner=2, opens=(Mark(2, "json", "item"),))
    paths: list[str]
    keys: list[str]
    shard_key: UUID


class SearchItems(Query[ItemRow], name="search_items", repeatable=True):
    """Items below a path that match a filter, those written last first."""

    marks = Marks(owner=0, opens=(Mark(2, "json", "item"),))
    shard_key: UUID
    path_from: str
    path_before: str
    equal: str
    filter: str
    limit: int
    offset: int


class SearchItemsByVectorRow(NamedTuple):
    path: str
    key: str
    value: str
    ttl_minutes: float | None
    created_at: datetime
    updated_at: datetime
    score: float


class SearchItemsByVector(Query[SearchItemsByVectorRow], name="search_items_by_vector", repeatable=True):
    """Items below a path that match a filter and have vectors, by the nearest of these to the query's,
    nearest first. Vectors of another length are those of another embedder, and are not compared.
    """

    marks = Marks(owner=2, opens=(Mark(2, "json", "item"),))
    vector: str
    distance: str
    shard_key: UUID
    path_from: str
    path_before: str
    equal: str
    filter: str
    limit: int
    offset: int


class RefreshItems(Query[Never], name="refresh_items", repeatable=True):
    """Let items live on for their whole time. One that another transaction writes is left to that; none comes
    back.
    """

    paths: list[str]
    keys: list[str]
    shard_key: UUID


class ListItemPaths(Query[LabelsRow], name="list_item_paths", repeatable=True):
    """The different paths of items below a path, each cut off at a depth, of those that match all patterns."""

    max_depth: int
    shard_key: UUID
    path_from: str
    path_before: str
    patterns: list[str]
    limit: int
    offset: int


class ForgetExpiredItems(Query[ShardKeyRow], name="forget_expired_items"):
    """Delete a page of items whose time is over; reads do not show them as it is."""

    limit: int
