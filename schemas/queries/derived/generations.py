"""The statements of ``schemas/sql/generations.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    BacklogRow,
    EventsRow,
    FactIdRow,
    GenerationIdRow,
    GenerationRow,
    LanesRow,
    NumberRow,
    PipelineRow,
    ShardKeyRow,
    StageRow,
)


class RegisterGeneration(Query[Never], name="register_generation"):
    """The first derivation of a pipeline in this database.  One that serves already stays as it was made;
    only if it has derived nothing yet does it take on what it is to be made with from now on.
    """

    config: str
    prompts: str
    pipeline: str
    version: str
    entry_scope: str
    entry_stage: str


class ServingGenerations(Query[GenerationRow], name="serving_generations", repeatable=True):
    """The default serving derivation of each pipeline; an owner may have another one."""


class FindGeneration(Query[GenerationRow], name="find_generation", repeatable=True):
    """One derivation, whatever its state."""

    generation_id: int


class KeptGenerations(Query[GenerationRow], name="kept_generations", repeatable=True):
    """The derivations that are fed: all but the pruned ones."""


class LockPipelineRow(NamedTuple):
    generation_id: int
    state: str
    served_until: datetime | None


class LockPipeline(Query[LockPipelineRow], name="lock_pipeline"):
    """Keep others from beginning, switching or pruning a derivation of this pipeline until the transaction
    ends.
    """

    pipeline: str


class BeginGeneration(Query[GenerationIdRow], name="begin_generation"):
    """A derivation next to the one that serves: fed by every flush that sees this row, closed to workers so
    far.
    """

    pipeline: str
    version: str
    entry_stage: str
    entry_scope: str
    config: str
    prompts: str


class TransactionsBegun(Query[NumberRow], name="transactions_begun", repeatable=True):
    """A number above those of all transactions that have written so far.  (The upper end of a snapshot will
    not do: it is the number after the last transaction that has ended, and higher ones may be under way.)
    """


class TransactionsUnderWay(Query[NumberRow], name="transactions_under_way", repeatable=True):
    """The number of the oldest transaction that has written and has not ended."""


class FeedGeneration(Query[Never], name="feed_generation"):
    """Mark that every flush feeds it from now on."""

    generation_id: int


class OwnersAfter(Query[ShardKeyRow], name="owners_after", repeatable=True):
    """Owners that have events to derive from, in order."""

    after: UUID
    limit: int


class LockOwnerLanes(Query[LanesRow], name="lock_owner_lanes", repeatable=True):
    """Keep retention from removing messages of an owner until this transaction ends: it locks lanes of
    theirs, in this order.
    """

    shard_key: UUID


class LanesToFillRow(NamedTuple):
    scope_key: UUID
    is_known: bool


class LanesToFill(Query[LanesToFillRow], name="lanes_to_fill", repeatable=True):
    """Lanes of an owner in which a derivation has not seen events that fit (missing), and whether it is to
    derive any.
    """

    shard_key: UUID
    last_stage: str
    generation_id: int
    namespace: str | None
    session_id: str | None
    user_id: str | None
    since: datetime | None
    until: datetime | None


class BackfillOwner(Query[BacklogRow], name="backfill_owner"):
    """Make due the matching events of an owner that a derivation has not seen, in one lane or in all: a page
    of them, or none if it has seen all. From before a reset, only events that the serving derivation still
    knows are derived again; the others are void.
    """

    shard_key: UUID
    last_stage: str
    generation_id: int
    namespace: str | None
    session_id: str | None
    user_id: str | None
    since: datetime | None
    until: datetime | None
    scope_key: UUID | None
    limit: int


class TruncatedEventRow(NamedTuple):
    session_id: str
    from_seq: int
    through_seq: int
    message_count: int
    remaining: int


class TruncatedEvent(Query[TruncatedEventRow], name="truncated_event", repeatable=True):
    """An event of an owner of which messages are gone from the log, if there is one. Those that a correction
    took back are not missed, nor those that retention removed: what they gave is the base of what is
    derived.
    """

    shard_key: UUID


class OpenBackfilled(Query[Never], name="open_backfilled"):
    """Workers may work on the owners up to this one."""

    through: UUID
    generation_id: int


class EndBackfill(Query[Never], name="end_backfill"):
    """Mark that everything flushed so far is due or done in it."""

    generation_id: int


class UncoveredOwnersRow(NamedTuple):
    shard_key: UUID
    events: int
    dead: int
    older: int
    is_settled: bool
    is_shared: bool


class UncoveredOwners(Query[UncoveredOwnersRow], name="uncovered_owners", repeatable=True):
    """A page of owners: how many of their events a derivation lacks, how many of those are dead letters, and
    how many are neither that nor were flushed since it was made; whether it serves them already, or a
    fence stands, so that nothing of them is derived; and whether what they search is shared with other
    owners.
    """

    generation_id: int
    after: UUID
    limit: int
    last_stage: str


class SwitchOwner(Query[ShardKeyRow], name="switch_owner"):
    """Let this derivation serve the owner, if it covers all that the earlier one covers: check and switch are
    one statement. Its row is locked, so that who retires it sees that it serves, or is waited for.
    """

    shard_key: UUID
    generation_id: int
    last_stage: str


class PauseOwner(Query[Never], name="pause_owner"):
    """For some seconds, the serving derivation takes up no more work of the owner, so that the other one can
    catch up.
    """

    shard_key: UUID
    seconds: float
    pipeline: str


class RingOwner(Query[Never], name="ring_owner"):
    """Ring for due work of this owner in the derivation that serves it now, as for any live work."""

    shard_key: UUID
    generation_id: int


class EndServing(Query[GenerationIdRow], name="end_serving"):
    """The derivation that served by default is still fed, so that it can be rolled back to."""

    pipeline: str
    generation_id: int


class BeginServing(Query[GenerationIdRow], name="begin_serving"):
    """Let this derivation serve all owners."""

    generation_id: int


class ForgetOwnersGenerations(Query[GenerationIdRow], name="forget_owners_generations"):
    """Remove the exceptions: all owners of a pipeline are served by the same derivation again."""

    pipeline: str


class RingGeneration(Query[Never], name="ring_generation"):
    """Ring for due work in the derivation that serves all owners now, as for any live work."""

    generation_id: int
    stages: list[str]


class ListGenerationsRow(NamedTuple):
    generation_id: int
    pipeline: str
    state: str
    version: str
    config: str
    created_at: datetime
    served_until: datetime | None
    is_filled: bool
    due: int
    dead: int
    owners: int


class ListGenerations(Query[ListGenerationsRow], name="list_generations", repeatable=True):
    """All derivations, newest last, with their contents and their backlog."""

    pipeline: str | None


class RetireGeneration(Query[PipelineRow], name="retire_generation"):
    """Retire it: it is no longer fed, and no worker works on it."""

    generation_id: int


class OwnersWithRows(Query[ShardKeyRow], name="owners_with_rows", repeatable=True):
    """Owners who may have rows of a derivation, in order."""

    after: UUID
    limit: int


class PruneLanes(Query[StageRow], name="prune_lanes"):
    """Take the lanes of an owner's derivation from their holders, and lock them: wait for a worker that is
    writing; a later one finds its lease gone.
    """

    shard_key: UUID
    generation_id: int


class LoneFacts(Query[FactIdRow], name="lone_facts", repeatable=True):
    """The facts of an owner's derivation whose id no other one has."""

    shard_key: UUID
    generation_id: int


class NoteFormer(Query[Never], name="note_former"):
    """Note facts of an owner's derivation before prune_owner, so that their ids are found later
    (note_former_v1).
    """

    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]


class PruneOwner(Query[EventsRow], name="prune_owner"):
    """Delete all rows of an owner's derivation, whose lanes are locked; the cost of its model calls stays in
    the ledger.
    """

    shard_key: UUID
    generation_id: int
