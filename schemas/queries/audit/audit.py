"""The statements of ``schemas/sql/audit.sql``.  Written by `make queries`."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    EntriesRow,
    EntryIdRow,
    IsRecordedRow,
    LevelRow,
    NamespaceRow,
    PseudonymRow,
    SettingRow,
    ShardKeyRow,
)


class AppendAct(Query[IsRecordedRow], name="append_act"):
    """Append an act to the trail, in this transaction, if the namespace's level has it recorded
    (append_act_v1).
    """

    shard_key: UUID
    has_owner: bool
    namespace: str
    user_id: str | None
    session_key: UUID | None
    act: str
    lazily: bool


class PutOneRecordedRow(NamedTuple):
    seq: int
    is_recorded: bool


class PutOneRecorded(Query[PutOneRecordedRow], name="put_one_recorded", repeatable=True):
    """As put_one, with the act in the audit trail if the namespace's level has it recorded. Without a row
    nothing was done, and put_v1 decides; it also makes the owner's pseudonym.
    """

    tokens: int
    bytes: int
    role: str
    shard_key: UUID
    session_key: UUID
    calls: str | None
    data_key: int
    id: str
    digest: builtins.bytes
    envelope: str
    metadata: str | None
    answers: str | None
    created_at: datetime | None
    labels: list[int] | None
    entry_id: UUID
    actor: str | None
    origin: str | None
    flags: list[str]
    level: str


class PutManyRecordedRow(NamedTuple):
    session_key: str
    seq: int
    is_recorded: bool


class PutManyRecorded(Query[PutManyRecordedRow], name="put_many_recorded", repeatable=True):
    """As put_many, with the acts in the audit trail; a message without an entry_id is left out where puts are
    recorded.
    """

    messages: str


class LevelOfNamespace(Query[LevelRow], name="level_of_namespace", repeatable=True):
    """The level of a namespace's trail."""

    namespace: str


class NamesOfOwnerRow(NamedTuple):
    namespace: str
    user_id: str | None


class NamesOfOwner(Query[NamesOfOwnerRow], name="names_of_owner", repeatable=True):
    """The names of an owner, from one of the sessions."""

    shard_key: UUID


class UnsealedNamespaces(Query[NamespaceRow], name="unsealed_namespaces", repeatable=True):
    """Namespaces with acts that no seal covers yet."""

    limit: int


class OpenChains(Query[Never], name="open_chains", repeatable=True):
    """Begin the chains of namespaces that have none yet."""

    shard_keys: list[UUID]
    namespaces: list[str]


class LockChains(Query[ShardKeyRow], name="lock_chains"):
    """Lock the chains to extend, except chains that another sealer has locked."""

    shard_keys: list[UUID]


class ChainEndsRow(NamedTuple):
    shard_key: UUID
    seals: int
    entries: int
    mac: bytes | None
    sealed_at: datetime | None


class ChainEnds(Query[ChainEndsRow], name="chain_ends", repeatable=True):
    """Where chains end: how many seals and entries each has, and the MAC of its last seal."""

    shard_keys: list[UUID]


class ReadUnsealedRow(NamedTuple):
    shard_key: UUID
    entry_id: UUID
    namespace: str
    act: str
    actor: str | None
    origin: str | None
    subject: UUID | None
    session: UUID | None
    seq: int | None
    amount: int | None
    detail: str | None
    flags: list[str]
    created_at: datetime


class ReadUnsealed(Query[ReadUnsealedRow], name="read_unsealed"):
    """Acts of namespaces that no seal covers yet, whatever their time, locked until they are under it; those
    that an erasure changes at this moment are left to a later seal.
    """

    namespaces: list[str]
    limit: int


class SubjectSalts(Query[PseudonymRow], name="subject_salts", repeatable=True):
    """The secrets of owners by their pseudonyms; none of one that was erased."""

    subjects: list[UUID]


class AddSeals(Query[Never], name="add_seals"):
    """The next seal of each chain."""

    seals: str


class MoveSealed(Query[EntriesRow], name="move_sealed"):
    """Put acts under their seals, each at its place; returns how many there were. An origin without a digest,
    as of a user who was erased in the meantime, is left out.
    """

    shard_keys: list[UUID]
    entry_ids: list[UUID]
    chain_keys: list[UUID]
    seals: list[int]
    places: list[int]
    digests: list[bytes | None]


class AdvanceChains(Query[Never], name="advance_chains"):
    """The new ends of chains."""

    shard_keys: list[UUID]
    seals: list[int]
    entries: list[int]


class ChainOfRow(NamedTuple):
    seals: int
    pruned_seals: int
    entries: int


class ChainOf(Query[ChainOfRow], name="chain_of", repeatable=True):
    """How long a namespace's chain is, and how much of it was pruned."""

    shard_key: UUID


class ChainsOfNameRow(NamedTuple):
    shard_key: UUID
    namespace: str


class ChainsOfName(Query[ChainsOfNameRow], name="chains_of_name", repeatable=True):
    """The chain under the key of a namespace, and each that gives this namespace as its own, whatever key it
    stands under.
    """

    shard_key: UUID
    namespace: str


class KeysOfTrails(Query[ShardKeyRow], name="keys_of_trails", repeatable=True):
    """The keys that chains, seals or sealed acts stand under."""


class UnsealedOf(Query[EntriesRow], name="unsealed_of", repeatable=True):
    """How many acts of a namespace no seal covers yet."""

    namespace: str


class SealsAfterRow(NamedTuple):
    number: int
    entries: int
    entries_before: int
    entry_ids: list[UUID]
    leaves: bytes
    root: bytes
    previous: bytes
    key_id: str
    mac: bytes
    sealed_at: datetime


class SealsAfter(Query[SealsAfterRow], name="seals_after", repeatable=True):
    """A page of a chain."""

    shard_key: UUID
    after: int
    limit: int


class SealedEntriesRow(NamedTuple):
    seal: int
    place: int
    entry_id: UUID
    act: str
    actor: str | None
    origin: str | None
    origin_digest: bytes | None
    subject: UUID | None
    session: UUID | None
    seq: int | None
    amount: int | None
    detail: str | None
    flags: list[str]
    created_at: datetime
    salt: bytes | None


class SealedEntries(Query[SealedEntriesRow], name="sealed_entries", repeatable=True):
    """The acts that a range of seals covers, in their order."""

    shard_key: UUID
    from_seal: int
    through_seal: int


class StraySealedRow(NamedTuple):
    seal: int
    place: int
    entry_id: UUID


class StraySealed(Query[StraySealedRow], name="stray_sealed", repeatable=True):
    """Acts under seals that do not exist, or that were pruned: of these the last one stays, without its acts."""

    shard_key: UUID
    pruned_seals: int
    limit: int


class RecordedPruningsRow(NamedTuple):
    seal: int | None
    mac: str | None


class RecordedPrunings(Query[RecordedPruningsRow], name="recorded_prunings", repeatable=True):
    """The acts that say that a chain was pruned up to this seal, with the MAC that they give for it; seal is
    NULL for one that no seal covers yet.
    """

    shard_key: UUID
    through_seal: int


class SetAuditLevel(Query[Never], name="set_audit_level"):
    """Set the level of a namespace's trail."""

    namespace: str
    level: str


class AuditNamespacesRow(NamedTuple):
    namespace: str
    level: str
    seals: int
    pruned_seals: int
    entries: int
    mac: bytes | None
    sealed_at: datetime | None


class AuditNamespaces(Query[AuditNamespacesRow], name="audit_namespaces", repeatable=True):
    """Namespaces with a level of their own or a chain, with what is known of both; in the order of their
    names.
    """

    namespace: str | None


class ListActsRow(NamedTuple):
    entry_id: UUID
    seal: int | None
    place: int | None
    act: str
    actor: str | None
    origin: str | None
    subject: UUID | None
    user_id: str | None
    session: UUID | None
    seq: int | None
    amount: int | None
    detail: str | None
    flags: list[str]
    created_at: datetime


class ListActs(Query[ListActsRow], name="list_acts", repeatable=True):
    """Acts of a namespace, newest first: those that no seal covers yet, and the sealed ones from the end of
    the chain; each with the user that its pseudonym leads to. Filters that are NULL let all pass. Only
    what is behind a place of the list: before_at and before_id while it is among the unsealed (what was
    listed there may be sealed), before_seal and before_place in the chain.
    """

    namespace: str
    since: datetime | None
    until: datetime | None
    act: str | None
    actor: str | None
    subject: UUID | None
    entry_id: UUID | None
    before_at: datetime | None
    before_id: UUID | None
    before_seal: int | None
    limit: int
    shard_key: UUID
    before_place: int | None


class SubjectOf(Query[PseudonymRow], name="subject_of", repeatable=True):
    """The pseudonym of an owner, and the secret of its sessions' pseudonyms."""

    shard_key: UUID


class LockChainRow(NamedTuple):
    seals: int
    pruned_seals: int


class LockChain(Query[LockChainRow], name="lock_chain"):
    """Lock a namespace's chain, with how long it is and how much of it was pruned."""

    shard_key: UUID


class PrunableThroughRow(NamedTuple):
    number: int
    mac: bytes


class PrunableThrough(Query[PrunableThroughRow], name="prunable_through", repeatable=True):
    """The last of the first seals, at most as many seals and acts as given, that were all made before a time;
    one seal at least, however many acts it has. With its MAC.
    """

    before: datetime
    shard_key: UUID
    pruned_seals: int
    limit: int
    max_acts: int


class PrunableRow(NamedTuple):
    entries: int
    through_seal: int | None


class Prunable(Query[PrunableRow], name="prunable", repeatable=True):
    """How many seals, with how many acts, pruning up to a time would take, and the last of them; as
    prunable_through goes.
    """

    before: datetime
    shard_key: UUID


class PruneEntries(Query[EntriesRow], name="prune_entries"):
    """Delete the acts of the seals up to a number."""

    shard_key: UUID
    through_seal: int


class PruneSeals(Query[Never], name="prune_seals"):
    """Delete the seals before a number; that one stays, so that the next can be seen to follow it."""

    shard_key: UUID
    through_seal: int


class MarkPruned(Query[Never], name="mark_pruned"):
    """Note up to which seal a chain was pruned."""

    through_seal: int
    shard_key: UUID


class ForgetUnsealedOrigins(Query[EntryIdRow], name="forget_unsealed_origins"):
    """Take the origins out of an owner's acts that no seal covers yet."""

    shard_key: UUID
    subject: UUID


class ForgetSealedOrigins(Query[EntryIdRow], name="forget_sealed_origins"):
    """Take the origins out of so many sealed acts of an owner by the pseudonym; the seals cover their
    digests.
    """

    chain_key: UUID
    subject: UUID
    limit: int


class CommitDurably(Query[SettingRow], name="commit_durably"):
    """Have the commit of this transaction wait for the disk, whatever the connection's default is."""
