"""The statements of ``schemas/sql/audit.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
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
        data_key: int,
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
            data_key,
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


class UnsealedNamespacesRow(NamedTuple):
    namespace: str


class UnsealedNamespaces(Query[UnsealedNamespacesRow]):
    """Namespaces with acts that no seal covers yet."""

    __slots__ = ()
    name = "unsealed_namespaces"
    repeatable = True
    row = UnsealedNamespacesRow

    def __init__(self, *, limit: int) -> None:
        self.values = (limit,)


class OpenChains(Query[Never]):
    """Begin the chains of namespaces that have none yet."""

    __slots__ = ()
    name = "open_chains"
    repeatable = True

    def __init__(self, *, shard_keys: list[UUID], namespaces: list[str]) -> None:
        self.values = (shard_keys, namespaces)


class LockChainsRow(NamedTuple):
    shard_key: UUID


class LockChains(Query[LockChainsRow]):
    """Lock chains that are to be extended, without those that another sealer has."""

    __slots__ = ()
    name = "lock_chains"
    row = LockChainsRow

    def __init__(self, *, shard_keys: list[UUID]) -> None:
        self.values = (shard_keys,)


class ChainEndsRow(NamedTuple):
    shard_key: UUID
    seals: int
    entries: int
    mac: bytes | None
    sealed_at: datetime | None


class ChainEnds(Query[ChainEndsRow]):
    """Where chains end: how many seals and entries each has, and the MAC of its last seal."""

    __slots__ = ()
    name = "chain_ends"
    repeatable = True
    row = ChainEndsRow

    def __init__(self, *, shard_keys: list[UUID]) -> None:
        self.values = (shard_keys,)


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


class ReadUnsealed(Query[ReadUnsealedRow]):
    """Acts of namespaces that no seal covers yet, whatever their time, locked until they are under it; those
    that an erasure changes at this moment are left to a later seal.
    """

    __slots__ = ()
    name = "read_unsealed"
    row = ReadUnsealedRow

    def __init__(self, *, namespaces: list[str], limit: int) -> None:
        self.values = (namespaces, limit)


class SubjectSaltsRow(NamedTuple):
    subject: UUID
    salt: bytes


class SubjectSalts(Query[SubjectSaltsRow]):
    """The secrets of owners by their pseudonyms; none of one that was erased."""

    __slots__ = ()
    name = "subject_salts"
    repeatable = True
    row = SubjectSaltsRow

    def __init__(self, *, subjects: list[UUID]) -> None:
        self.values = (subjects,)


class AddSeals(Query[Never]):
    """The next seal of each chain."""

    __slots__ = ()
    name = "add_seals"

    def __init__(self, *, seals: str) -> None:
        self.values = (seals,)


class MoveSealedRow(NamedTuple):
    entries: int


class MoveSealed(Query[MoveSealedRow]):
    """Put acts under their seals, each at its place; returns how many there were. An origin without a digest,
    as of a user who was erased meanwhile, is left out.
    """

    __slots__ = ()
    name = "move_sealed"
    row = MoveSealedRow

    def __init__(
        self,
        *,
        shard_keys: list[UUID],
        entry_ids: list[UUID],
        chain_keys: list[UUID],
        seals: list[int],
        places: list[int],
        digests: list[bytes | None],
    ) -> None:
        self.values = (shard_keys, entry_ids, chain_keys, seals, places, digests)


class AdvanceChains(Query[Never]):
    """The new ends of chains."""

    __slots__ = ()
    name = "advance_chains"

    def __init__(self, *, shard_keys: list[UUID], seals: list[int], entries: list[int]) -> None:
        self.values = (shard_keys, seals, entries)


class ChainOfRow(NamedTuple):
    seals: int
    pruned_seals: int
    entries: int


class ChainOf(Query[ChainOfRow]):
    """How long a namespace's chain is, and how much of it was pruned."""

    __slots__ = ()
    name = "chain_of"
    repeatable = True
    row = ChainOfRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class ChainsOfNameRow(NamedTuple):
    shard_key: UUID
    namespace: str


class ChainsOfName(Query[ChainsOfNameRow]):
    """The chain under the key of a namespace, and each that gives this namespace as its own, whatever key it
    stands under.
    """

    __slots__ = ()
    name = "chains_of_name"
    repeatable = True
    row = ChainsOfNameRow

    def __init__(self, *, shard_key: UUID, namespace: str) -> None:
        self.values = (shard_key, namespace)


class KeysOfTrailsRow(NamedTuple):
    shard_key: UUID


class KeysOfTrails(Query[KeysOfTrailsRow]):
    """The keys that chains, seals or sealed acts stand under."""

    __slots__ = ()
    name = "keys_of_trails"
    repeatable = True
    row = KeysOfTrailsRow


class UnsealedOfRow(NamedTuple):
    entries: int


class UnsealedOf(Query[UnsealedOfRow]):
    """How many acts of a namespace no seal covers yet."""

    __slots__ = ()
    name = "unsealed_of"
    repeatable = True
    row = UnsealedOfRow

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


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


class SealsAfter(Query[SealsAfterRow]):
    """A page of a chain."""

    __slots__ = ()
    name = "seals_after"
    repeatable = True
    row = SealsAfterRow

    def __init__(self, *, shard_key: UUID, after: int, limit: int) -> None:
        self.values = (shard_key, after, limit)


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


class SealedEntries(Query[SealedEntriesRow]):
    """The acts that a range of seals covers, in their order."""

    __slots__ = ()
    name = "sealed_entries"
    repeatable = True
    row = SealedEntriesRow

    def __init__(self, *, shard_key: UUID, from_seal: int, through_seal: int) -> None:
        self.values = (shard_key, from_seal, through_seal)


class StraySealedRow(NamedTuple):
    seal: int
    place: int
    entry_id: UUID


class StraySealed(Query[StraySealedRow]):
    """Acts under seals that do not exist, or that were pruned: of these the last one stays, without its acts."""

    __slots__ = ()
    name = "stray_sealed"
    repeatable = True
    row = StraySealedRow

    def __init__(self, *, shard_key: UUID, pruned_seals: int, limit: int) -> None:
        self.values = (shard_key, pruned_seals, limit)


class RecordedPruningsRow(NamedTuple):
    seal: int | None
    mac: str | None


class RecordedPrunings(Query[RecordedPruningsRow]):
    """The acts that say that a chain was pruned up to this seal, with the MAC that they give for it; seal is
    NULL for one that no seal covers yet.
    """

    __slots__ = ()
    name = "recorded_prunings"
    repeatable = True
    row = RecordedPruningsRow

    def __init__(self, *, shard_key: UUID, through_seal: int) -> None:
        self.values = (shard_key, through_seal)


class SetAuditLevel(Query[Never]):
    """Set the level of a namespace's trail."""

    __slots__ = ()
    name = "set_audit_level"

    def __init__(self, *, namespace: str, level: str) -> None:
        self.values = (namespace, level)


class AuditNamespacesRow(NamedTuple):
    namespace: str
    level: str
    seals: int
    pruned_seals: int
    entries: int
    mac: bytes | None
    sealed_at: datetime | None


class AuditNamespaces(Query[AuditNamespacesRow]):
    """Namespaces with a level of their own or a chain, with what is known of both; in the order of their
    names.
    """

    __slots__ = ()
    name = "audit_namespaces"
    repeatable = True
    row = AuditNamespacesRow

    def __init__(self, *, namespace: str | None) -> None:
        self.values = (namespace,)


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


class ListActs(Query[ListActsRow]):
    """Acts of a namespace, newest first: those that no seal covers yet, and the sealed ones from the end of
    the chain; each with the user that its pseudonym leads to. Filters that are NULL let all pass. Only
    what is behind a place of the list: before_at and before_id while it is among the unsealed (what was
    listed there may be sealed by now), before_seal and before_place in the chain.
    """

    __slots__ = ()
    name = "list_acts"
    repeatable = True
    row = ListActsRow

    def __init__(
        self,
        *,
        namespace: str,
        since: datetime | None,
        until: datetime | None,
        act: str | None,
        actor: str | None,
        subject: UUID | None,
        entry_id: UUID | None,
        before_at: datetime | None,
        before_id: UUID | None,
        before_seal: int | None,
        limit: int,
        shard_key: UUID,
        before_place: int | None,
    ) -> None:
        self.values = (
            namespace,
            since,
            until,
            act,
            actor,
            subject,
            entry_id,
            before_at,
            before_id,
            before_seal,
            limit,
            shard_key,
            before_place,
        )


class SubjectOfRow(NamedTuple):
    subject: UUID
    salt: bytes


class SubjectOf(Query[SubjectOfRow]):
    """The pseudonym of an owner, and the secret of its sessions' pseudonyms."""

    __slots__ = ()
    name = "subject_of"
    repeatable = True
    row = SubjectOfRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class LockChainRow(NamedTuple):
    seals: int
    pruned_seals: int


class LockChain(Query[LockChainRow]):
    """Lock a namespace's chain, with how long it is and how much of it was pruned."""

    __slots__ = ()
    name = "lock_chain"
    row = LockChainRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class PrunableThroughRow(NamedTuple):
    number: int
    mac: bytes


class PrunableThrough(Query[PrunableThroughRow]):
    """The last of the first seals, at most as many seals and acts as given, that were all made before a time;
    one seal at least, however many acts it has. With its MAC.
    """

    __slots__ = ()
    name = "prunable_through"
    repeatable = True
    row = PrunableThroughRow

    def __init__(
        self, *, before: datetime, shard_key: UUID, pruned_seals: int, limit: int, max_acts: int
    ) -> None:
        self.values = (before, shard_key, pruned_seals, limit, max_acts)


class PrunableRow(NamedTuple):
    entries: int
    through_seal: int | None


class Prunable(Query[PrunableRow]):
    """How many seals, with how many acts, pruning up to a time would take, and the last of them; as
    prunable_through goes.
    """

    __slots__ = ()
    name = "prunable"
    repeatable = True
    row = PrunableRow

    def __init__(self, *, before: datetime, shard_key: UUID) -> None:
        self.values = (before, shard_key)


class PruneEntriesRow(NamedTuple):
    entries: int


class PruneEntries(Query[PruneEntriesRow]):
    """Delete the acts of the seals up to a number."""

    __slots__ = ()
    name = "prune_entries"
    row = PruneEntriesRow

    def __init__(self, *, shard_key: UUID, through_seal: int) -> None:
        self.values = (shard_key, through_seal)


class PruneSeals(Query[Never]):
    """Delete the seals before a number; that one stays, so that the next can be seen to follow it."""

    __slots__ = ()
    name = "prune_seals"

    def __init__(self, *, shard_key: UUID, through_seal: int) -> None:
        self.values = (shard_key, through_seal)


class MarkPruned(Query[Never]):
    """Note up to which seal a chain was pruned."""

    __slots__ = ()
    name = "mark_pruned"

    def __init__(self, *, through_seal: int, shard_key: UUID) -> None:
        self.values = (through_seal, shard_key)


class ForgetUnsealedOriginsRow(NamedTuple):
    entry_id: UUID


class ForgetUnsealedOrigins(Query[ForgetUnsealedOriginsRow]):
    """Take the origins out of an owner's acts that no seal covers yet."""

    __slots__ = ()
    name = "forget_unsealed_origins"
    row = ForgetUnsealedOriginsRow

    def __init__(self, *, shard_key: UUID, subject: UUID) -> None:
        self.values = (shard_key, subject)


class ForgetSealedOriginsRow(NamedTuple):
    entry_id: UUID


class ForgetSealedOrigins(Query[ForgetSealedOriginsRow]):
    """Take the origins out of so many sealed acts of an owner by the pseudonym; the seals cover their
    digests.
    """

    __slots__ = ()
    name = "forget_sealed_origins"
    row = ForgetSealedOriginsRow

    def __init__(self, *, chain_key: UUID, subject: UUID, limit: int) -> None:
        self.values = (chain_key, subject, limit)


class CommitDurablyRow(NamedTuple):
    setting: str


class CommitDurably(Query[CommitDurablyRow]):
    """Have the commit of this transaction wait for the disk, whatever the connection's default is."""

    __slots__ = ()
    name = "commit_durably"
    row = CommitDurablyRow
