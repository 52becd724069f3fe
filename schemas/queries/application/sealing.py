"""The statements of ``schemas/sql/sealing.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
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
    has_vectors: bool


class FindDataKeys(Query[FindDataKeysRow]):
    """The wrapped keys of an owner, and whether any namespace of this database is sealed; one row at least."""

    __slots__ = ()
    name = "find_data_keys"
    repeatable = True
    row = FindDataKeysRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class FirstDataKeyRow(NamedTuple):
    number: int


class FirstDataKey(Query[FirstDataKeyRow]):
    """The number of the first data key of an owner's present life."""

    __slots__ = ()
    name = "first_data_key"
    repeatable = True
    row = FirstDataKeyRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class FindEncryptionRow(NamedTuple):
    kek_id: str
    probe: bytes
    vectors: str


class FindEncryption(Query[FindEncryptionRow]):
    """How a namespace's content is sealed; no row if it is not."""

    __slots__ = ()
    name = "find_encryption"
    repeatable = True
    row = FindEncryptionRow

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class AddDataKeyRow(NamedTuple):
    is_current: bool


class AddDataKey(Query[AddDataKeyRow]):
    """Give an owner its first keys (number is NULL) or a further one, unless another process has
    (add_data_key_v1); an owner without any rows has nothing to be sealed. is_current: false if the
    namespace has another key to wrap with by now.
    """

    __slots__ = ()
    name = "add_data_key"
    repeatable = True
    row = AddDataKeyRow

    def __init__(
        self, *, shard_key: UUID, number: int | None, namespace: str, kek_id: str, wrapped: bytes
    ) -> None:
        self.values = (shard_key, number, namespace, kek_id, wrapped)


class EnableEncryptionRow(NamedTuple):
    namespace: str


class EnableEncryption(Query[EnableEncryptionRow]):
    """Seal a namespace's content from now on; no row if it is already."""

    __slots__ = ()
    name = "enable_encryption"
    repeatable = True
    row = EnableEncryptionRow

    def __init__(self, *, namespace: str, kek_id: str, probe: bytes, vectors: str) -> None:
        self.values = (namespace, kek_id, probe, vectors)


class ChangeEncryption(Query[Never]):
    """Have a namespace's new owners wrapped by another key."""

    __slots__ = ()
    name = "change_encryption"
    repeatable = True

    def __init__(self, *, kek_id: str, probe: bytes, namespace: str) -> None:
        self.values = (kek_id, probe, namespace)


class SessionsToSealRow(NamedTuple):
    session_id: str
    user_id: str | None
    owner_key: UUID


class SessionsToSeal(Query[SessionsToSealRow]):
    """The next sessions of a namespace, of whatever kind, by their names."""

    __slots__ = ()
    name = "sessions_to_seal"
    repeatable = True
    row = SessionsToSealRow

    def __init__(self, *, namespace: str, after_session: str, limit: int) -> None:
        self.values = (namespace, after_session, limit)


class FactOwnersToSealRow(NamedTuple):
    shard_key: UUID


class FactOwnersToSeal(Query[FactOwnersToSealRow]):
    """The next owners of a namespace whom people gave facts."""

    __slots__ = ()
    name = "fact_owners_to_seal"
    repeatable = True
    row = FactOwnersToSealRow

    def __init__(self, *, namespace: str, after_owner: UUID, limit: int) -> None:
        self.values = (namespace, after_owner, limit)


class SealSessionsRow(NamedTuple):
    shared_key: UUID | None


class SealSessions(Query[SealSessionsRow]):
    """From now on these sessions take sealed messages only; returns the scopes that they share with."""

    __slots__ = ()
    name = "seal_sessions"
    repeatable = True
    row = SealSessionsRow

    def __init__(self, *, shard_keys: list[UUID], session_keys: list[UUID]) -> None:
        self.values = (shard_keys, session_keys)


class OwnersWithoutKeysRow(NamedTuple):
    shard_key: UUID


class OwnersWithoutKeys(Query[OwnersWithoutKeysRow]):
    """Which of some owners have no keys yet."""

    __slots__ = ()
    name = "owners_without_keys"
    repeatable = True
    row = OwnersWithoutKeysRow

    def __init__(self, *, shard_keys: list[UUID]) -> None:
        self.values = (shard_keys,)


class UnsettledOwnersRow(NamedTuple):
    shard_key: UUID
    number: int
    age_seconds: float


class UnsettledOwners(Query[UnsettledOwnersRow]):
    """The next owners of a namespace with rows that may not be sealed under their newest data key, which has
    this number.
    """

    __slots__ = ()
    name = "unsettled_owners"
    repeatable = True
    row = UnsettledOwnersRow

    def __init__(self, *, namespace: str, after_owner: UUID, limit: int) -> None:
        self.values = (namespace, after_owner, limit)


class SettleOwner(Query[Never]):
    """All of an owner's rows are sealed under this data key, or were when another process gave it a newer
    one.
    """

    __slots__ = ()
    name = "settle_owner"
    repeatable = True

    def __init__(self, *, shard_key: UUID, number: int) -> None:
        self.values = (shard_key, number)


class RetireDataKeysRow(NamedTuple):
    number: int


class RetireDataKeys(Query[RetireDataKeysRow]):
    """Delete the data keys of an owner before this one, under which nothing is sealed any more; unless
    something of the owner is in an archive, which is kept as it was sealed.
    """

    __slots__ = ()
    name = "retire_data_keys"
    repeatable = True
    row = RetireDataKeysRow

    def __init__(self, *, shard_key: UUID, number: int) -> None:
        self.values = (shard_key, number)


class OwnersWithOldKeysRow(NamedTuple):
    shard_key: UUID
    number: int


class OwnersWithOldKeys(Query[OwnersWithOldKeysRow]):
    """The next owners of a namespace with data keys before the newest one, which is settled since so many
    seconds. What is in an archive stays sealed as it was, and keeps all keys of its owner.
    """

    __slots__ = ()
    name = "owners_with_old_keys"
    repeatable = True
    row = OwnersWithOldKeysRow

    def __init__(self, *, namespace: str, after_owner: UUID, settled_seconds: float, limit: int) -> None:
        self.values = (namespace, after_owner, settled_seconds, limit)


class KeysOfNamespaceRow(NamedTuple):
    shard_key: UUID
    number: int
    kek_id: str
    wrapped: bytes
    is_newest: bool
    is_settled: bool


class KeysOfNamespace(Query[KeysOfNamespaceRow]):
    """The next data keys of a namespace."""

    __slots__ = ()
    name = "keys_of_namespace"
    repeatable = True
    row = KeysOfNamespaceRow

    def __init__(self, *, namespace: str, after_owner: UUID, after_number: int, limit: int) -> None:
        self.values = (namespace, after_owner, after_number, limit)


class RewrapDataKey(Query[Never]):
    """Store a data key as the namespace's key wraps it, if it is still wrapped by the one before, and the
    namespace has not got another key meanwhile.
    """

    __slots__ = ()
    name = "rewrap_data_key"
    repeatable = True

    def __init__(
        self, *, namespace: str, kek_id: str, wrapped: bytes, shard_key: UUID, number: int, old_kek_id: str
    ) -> None:
        self.values = (namespace, kek_id, wrapped, shard_key, number, old_kek_id)


class EncryptionStatusRow(NamedTuple):
    namespace: str
    kek_id: str
    vectors: str
    enabled_at: datetime
    owners: int
    unsettled: int
    old_keys: int


class EncryptionStatus(Query[EncryptionStatusRow]):
    """How far each sealed namespace, or one of them, is sealed: how many owners have keys, how many of these
    have rows that may not be sealed under their newest one, and how many keys are old.
    """

    __slots__ = ()
    name = "encryption_status"
    row = EncryptionStatusRow

    def __init__(self, *, namespace: str | None) -> None:
        self.values = (namespace,)


class KeksInUseRow(NamedTuple):
    kek_id: str
    namespace: str
    data_keys: int


class KeksInUse(Query[KeksInUseRow]):
    """Which keys wrap data keys, or are to wrap those of new owners, in which namespaces."""

    __slots__ = ()
    name = "keks_in_use"
    row = KeksInUseRow

    def __init__(self, *, namespace: str | None) -> None:
        self.values = (namespace,)


class KekSamplesRow(NamedTuple):
    shard_key: UUID
    namespace: str
    wrapped: bytes


class KekSamples(Query[KekSamplesRow]):
    """Some of what a key has wrapped for a namespace, to be unwrapped again: the probe of a namespace, and
    one data key.
    """

    __slots__ = ()
    name = "kek_samples"
    repeatable = True
    row = KekSamplesRow

    def __init__(self, *, namespace: str, kek_id: str) -> None:
        self.values = (namespace, kek_id)
