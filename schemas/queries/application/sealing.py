"""The statements of ``schemas/sql/sealing.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query


class FindDataKeysRow(NamedTuple):
    is_in_use: bool
    number: int | None
    namespace: str
    kek_id: str
    wrapped: bytes
    is_settled: bool


class FindDataKeys(Query[FindDataKeysRow]):
    """The wrapped keys of an owner, and whether any namespace of this database is sealed; one row at least."""

    __slots__ = ()
    name = "find_data_keys"
    repeatable = True
    row = FindDataKeysRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class FindEncryptionRow(NamedTuple):
    kek_id: str
    vectors: str


class FindEncryption(Query[FindEncryptionRow]):
    """How a namespace's content is sealed; no row if it is not."""

    __slots__ = ()
    name = "find_encryption"
    repeatable = True
    row = FindEncryptionRow

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class AddDataKey(Query[Never]):
    """Give an owner its first keys, unless another process has; an owner without any rows has nothing to be
    sealed.
    """

    __slots__ = ()
    name = "add_data_key"
    repeatable = True

    def __init__(self, *, shard_key: UUID, namespace: str, kek_id: str, wrapped: bytes) -> None:
        self.values = (shard_key, namespace, kek_id, wrapped)
