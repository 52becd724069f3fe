"""The statements of ``schemas/sql/sealing.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import IsCurrentRow, NamespaceRow, NumberRow, ShardKeyRow, SharedKeyRow


class FindDataKeysRow(NamedTuple):
    is_in_use: bool
    number: int | None
    namespace: str
    kek_id: str
    wrapped: bytes
    is_settled: bool
    has_vectors: bool


class FindDataKeys(Query[FindDataKeysRow], name="find_data_keys", repeatable=True):
    """The wrapped keys of an owner, and whether any namespace of this database is sealed; one row at least."""

    shard_key: UUID


class FirstDataKey(Query[NumberRow], name="first_data_key", repeatable=True):
    """The number of the first data key of an owner's present life."""

    shard_key: UUID


class FindEncryptionRow(NamedTuple):
    kek_id: str
    probe: bytes
    vectors: str


class FindEncryption(Query[FindEncryptionRow], name="find_encryption", repeatable=True):
    """How a namespace's content is sealed; no row if it is not."""

    namespace: str


class AddDataKey(Query[IsCurrentRow], name="add_data_key", repeatable=True):
    """Give an owner its first keys (number is NULL) or a further one, unless another process has
    (add_data_key_v1); an owner without any rows has nothing to be sealed. is_current: false if the
    namespace has another key to wrap with.
    """

    shard_key: UUID
    number: int | None
    namespace: str
    kek_id: str
    wrapped: bytes


class EnableEncryption(Query[NamespaceRow], name="enable_encryption", repeatable=True):
    """Seal a namespace's content from now on; no row if it is already."""

    namespace: str
    kek_id: str
    probe: bytes
    vectors: str


class ChangeEncryption(Query[Never], name="change_encryption", repeatable=True):
    """Have a namespace's new owners wrapped by another key."""

    kek_id: str
    probe: bytes
    namespace: str


class SessionsToSealRow(NamedTuple):
    session_id: str
    user_id: str | None
    owner_key: UUID


class SessionsToSeal(Query[SessionsToSealRow], name="sessions_to_seal", repeatable=True):
    """The next sessions of a namespace, of whatever kind, by their names."""

    namespace: str
    after_session_id: str
    limit: int


class FactOwnersToSeal(Query[ShardKeyRow], name="fact_owners_to_seal", repeatable=True):
    """The next owners of a namespace whom people gave facts."""

    namespace: str
    after_shard_key: UUID
    limit: int


class SealSessions(Query[SharedKeyRow], name="seal_sessions", repeatable=True):
    """From now on these sessions take sealed messages only; returns the scopes that they share with."""

    shard_keys: list[UUID]
    session_keys: list[UUID]


class OwnersWithoutKeys(Query[ShardKeyRow], name="owners_without_keys", repeatable=True):
    """Which of some owners have no keys yet."""

    shard_keys: list[UUID]


class UnsettledOwnersRow(NamedTuple):
    shard_key: UUID
    number: int
    age_seconds: float


class UnsettledOwners(Query[UnsettledOwnersRow], name="unsettled_owners", repeatable=True):
    """The next owners of a namespace with rows that may not be sealed under their newest data key, which has
    this number.
    """

    namespace: str
    after_shard_key: UUID
    limit: int


class SettleOwner(Query[Never], name="settle_owner", repeatable=True):
    """All of an owner's rows are sealed under this data key, or were when another process gave it a newer
    one.
    """

    shard_key: UUID
    number: int


class RetireDataKeys(Query[NumberRow], name="retire_data_keys", repeatable=True):
    """Delete the data keys of an owner before this one, under which nothing is sealed any more; unless
    something of the owner is in an archive, which is kept as it was sealed.
    """

    shard_key: UUID
    number: int


class OwnersWithOldKeysRow(NamedTuple):
    shard_key: UUID
    number: int


class OwnersWithOldKeys(Query[OwnersWithOldKeysRow], name="owners_with_old_keys", repeatable=True):
    """The next owners of a namespace with data keys before the newest one, which is settled since so many
    seconds. What is in an archive stays sealed as it was, and keeps all keys of its owner.
    """

    namespace: str
    after_shard_key: UUID
    settled_seconds: float
    limit: int


class KeysOfNamespaceRow(NamedTuple):
    shard_key: UUID
    number: int
    kek_id: str
    wrapped: bytes
    is_newest: bool
    is_settled: bool


class KeysOfNamespace(Query[KeysOfNamespaceRow], name="keys_of_namespace", repeatable=True):
    """The next data keys of a namespace."""

    namespace: str
    after_shard_key: UUID
    after_number: int
    limit: int


class RewrapDataKey(Query[Never], name="rewrap_data_key", repeatable=True):
    """Store a data key as the namespace's key wraps it, if it is still wrapped by the one before, and the
    namespace has not got another key in the meantime.
    """

    namespace: str
    kek_id: str
    wrapped: bytes
    shard_key: UUID
    number: int
    old_kek_id: str


class EncryptionStatusRow(NamedTuple):
    namespace: str
    kek_id: str
    vectors: str
    enabled_at: datetime
    owners: int
    unsettled: int
    old_keys: int


class EncryptionStatus(Query[EncryptionStatusRow], name="encryption_status", repeatable=True):
    """How far each sealed namespace, or one of them, is sealed: how many owners have keys, how many of these
    have rows that may not be sealed under their newest one, and how many keys are old.
    """

    namespace: str | None


class KeksInUseRow(NamedTuple):
    kek_id: str
    namespace: str
    data_keys: int


class KeksInUse(Query[KeksInUseRow], name="keks_in_use", repeatable=True):
    """Which keys wrap data keys, or are to wrap those of new owners, in which namespaces."""

    namespace: str | None


class KekSamplesRow(NamedTuple):
    shard_key: UUID
    namespace: str
    wrapped: bytes


class KekSamples(Query[KekSamplesRow], name="kek_samples", repeatable=True):
    """Some of what a key has wrapped for a namespace, to be unwrapped again: the probe of a namespace, and
    one data key.
    """

    namespace: str
    kek_id: str


class ResealFact(Query[Never], name="reseal_fact", repeatable=True):
    """Store facts in the form that they are to have. One whose words another live fact has got in its keyed
    form in between ends in favour of that one.
    """

    generation_id: list[int]
    fact_id: list[UUID]
    version: list[str]
    text: list[str]
    fingerprint: list[bytes]
    lexemes: list[str]
    topics: list[str]
    said_by: list[str | None]
    input: list[str | None]
    feedback: list[str | None]
    shard_key: UUID


class ResealChunk(Query[Never], name="reseal_chunk", repeatable=True):
    """Store pieces with keyed words; with vectors off, without their vectors."""

    shard_key: UUID
    has_vectors: bool
    generation_id: list[int]
    session_key: list[UUID]
    from_seq: list[int]
    piece: list[int]
    version: list[str]
    lexemes: list[str]
    speaker: list[str]
