"""The statements of ``schemas/sql/generations.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query


class RegisterGeneration(Query[Never]):
    """The first derivation of a pipeline in this database.  One that serves already stays as it was made;
    only if it has derived nothing yet does it take on what it is to be made with from now on.
    """

    __slots__ = ()
    name = "register_generation"

    def __init__(
        self, *, config: str, prompts: str, pipeline: str, version: str, entry_scope: str, entry_stage: str
    ) -> None:
        self.values = (config, prompts, pipeline, version, entry_scope, entry_stage)


class ServingGenerationsRow(NamedTuple):
    generation_id: int
    pipeline: str
    version: str
    state: str
    entry_scope: str
    config: str
    prompts: str


class ServingGenerations(Query[ServingGenerationsRow]):
    """The default serving derivation of each pipeline; an owner may have another one."""

    __slots__ = ()
    name = "serving_generations"
    repeatable = True
    row = ServingGenerationsRow


class FindGenerationRow(NamedTuple):
    generation_id: int
    pipeline: str
    version: str
    state: str
    entry_scope: str
    config: str
    prompts: str


class FindGeneration(Query[FindGenerationRow]):
    """One derivation, whatever its state."""

    __slots__ = ()
    name = "find_generation"
    row = FindGenerationRow

    def __init__(self, *, generation_id: int) -> None:
        self.values = (generation_id,)


class KeptGenerationsRow(NamedTuple):
    generation_id: int
    pipeline: str
    version: str
    state: str
    entry_scope: str
    config: str
    prompts: str


class KeptGenerations(Query[KeptGenerationsRow]):
    """The derivations that are fed: all but those that were pruned."""

    __slots__ = ()
    name = "kept_generations"
    row = KeptGenerationsRow


class LockPipelineRow(NamedTuple):
    generation_id: int
    state: str
    served_until: datetime | None


class LockPipeline(Query[LockPipelineRow]):
    """Keep others from beginning, switching or pruning a derivation of this pipeline until the transaction
    ends.
    """

    __slots__ = ()
    name = "lock_pipeline"
    row = LockPipelineRow

    def __init__(self, *, pipeline: str) -> None:
        self.values = (pipeline,)


class BeginGenerationRow(NamedTuple):
    generation_id: int


class BeginGeneration(Query[BeginGenerationRow]):
    """A derivation beside the one that serves: fed by every flush that sees this row, closed to workers so
    far.
    """

    __slots__ = ()
    name = "begin_generation"
    row = BeginGenerationRow

    def __init__(
        self, *, pipeline: str, version: str, entry_stage: str, entry_scope: str, config: str, prompts: str
    ) -> None:
        self.values = (pipeline, version, entry_stage, entry_scope, config, prompts)


class TransactionsBegunRow(NamedTuple):
    number: int


class TransactionsBegun(Query[TransactionsBegunRow]):
    """A number above those of all transactions that have written so far.  (The upper end of a snapshot will
    not do: it is the number after the last transaction that has ended, and higher ones may be under way.)
    """

    __slots__ = ()
    name = "transactions_begun"
    row = TransactionsBegunRow


class TransactionsUnderWayRow(NamedTuple):
    number: int


class TransactionsUnderWay(Query[TransactionsUnderWayRow]):
    """The number of the oldest transaction that has written and has not ended."""

    __slots__ = ()
    name = "transactions_under_way"
    row = TransactionsUnderWayRow


class FeedGeneration(Query[Never]):
    """Mark that every flush feeds it from now on."""

    __slots__ = ()
    name = "feed_generation"

    def __init__(self, *, generation_id: int) -> None:
        self.values = (generation_id,)


class OwnersAfterRow(NamedTuple):
    shard_key: UUID


class OwnersAfter(Query[OwnersAfterRow]):
    """Owners that have events to derive from, in order."""

    __slots__ = ()
    name = "owners_after"
    row = OwnersAfterRow

    def __init__(self, *, after: UUID, limit: int) -> None:
        self.values = (after, limit)


class LockOwnerLanesRow(NamedTuple):
    lanes: int


class LockOwnerLanes(Query[LockOwnerLanesRow]):
    """Keep retention from removing messages of an owner until this transaction ends: it locks lanes of
    theirs, in this order.
    """

    __slots__ = ()
    name = "lock_owner_lanes"
    repeatable = True
    row = LockOwnerLanesRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class LanesToFillRow(NamedTuple):
    scope_key: UUID
    is_known: bool


class LanesToFill(Query[LanesToFillRow]):
    """Lanes of an owner in which a derivation has not seen events that fit (missing), and whether it is to
    derive any.
    """

    __slots__ = ()
    name = "lanes_to_fill"
    row = LanesToFillRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        last_stage: str,
        generation_id: int,
        namespace: str | None,
        session_id: str | None,
        user_id: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> None:
        self.values = (shard_key, last_stage, generation_id, namespace, session_id, user_id, since, until)


class BackfillOwnerRow(NamedTuple):
    events: int
    tokens: int


class BackfillOwner(Query[BackfillOwnerRow]):
    """Make due the matching events of an owner that a derivation has not seen, in one lane or in all: a page
    of them, or none if it has seen all. From before a reset, only events that the serving derivation still
    knows are derived again; the others are void.
    """

    __slots__ = ()
    name = "backfill_owner"
    row = BackfillOwnerRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        last_stage: str,
        generation_id: int,
        namespace: str | None,
        session_id: str | None,
        user_id: str | None,
        since: datetime | None,
        until: datetime | None,
        scope_key: UUID | None,
        limit: int,
    ) -> None:
        self.values = (
            shard_key,
            last_stage,
            generation_id,
            namespace,
            session_id,
            user_id,
            since,
            until,
            scope_key,
            limit,
        )


class TruncatedEventRow(NamedTuple):
    session_id: str
    from_seq: int
    through_seq: int
    message_count: int
    remaining: int


class TruncatedEvent(Query[TruncatedEventRow]):
    """An event of an owner of which messages are gone from the log, if there is one. Those that a correction
    took back are not missed, nor those that retention removed: what they gave is the base of what is
    derived.
    """

    __slots__ = ()
    name = "truncated_event"
    row = TruncatedEventRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class OpenBackfilled(Query[Never]):
    """Workers may work on the owners up to this one."""

    __slots__ = ()
    name = "open_backfilled"

    def __init__(self, *, through: UUID, generation_id: int) -> None:
        self.values = (through, generation_id)


class EndBackfill(Query[Never]):
    """Mark that everything flushed so far is due or done in it."""

    __slots__ = ()
    name = "end_backfill"

    def __init__(self, *, generation_id: int) -> None:
        self.values = (generation_id,)


class UncoveredOwnersRow(NamedTuple):
    shard_key: UUID
    events: int
    dead: int
    older: int
    is_settled: bool
    is_shared: bool


class UncoveredOwners(Query[UncoveredOwnersRow]):
    """A page of owners: how many of their events a derivation lacks, how many of those are dead letters, and
    how many are neither that nor were flushed since it was made; whether it serves them already, or a
    fence stands, so that nothing of them is derived; and whether what they search is shared with other
    owners.
    """

    __slots__ = ()
    name = "uncovered_owners"
    row = UncoveredOwnersRow

    def __init__(self, *, generation_id: int, after: UUID, limit: int, last_stage: str) -> None:
        self.values = (generation_id, after, limit, last_stage)


class SwitchOwnerRow(NamedTuple):
    shard_key: UUID


class SwitchOwner(Query[SwitchOwnerRow]):
    """Let this derivation serve the owner, if it covers all that the earlier one covers: check and switch are
    one statement. Its row is locked, so that who retires it sees that it serves, or is waited for.
    """

    __slots__ = ()
    name = "switch_owner"
    row = SwitchOwnerRow

    def __init__(self, *, shard_key: UUID, generation_id: int, last_stage: str) -> None:
        self.values = (shard_key, generation_id, last_stage)


class PauseOwner(Query[Never]):
    """For some seconds, the serving derivation takes up no more work of the owner, so that the other one can
    catch up.
    """

    __slots__ = ()
    name = "pause_owner"

    def __init__(self, *, shard_key: UUID, seconds: float, pipeline: str) -> None:
        self.values = (shard_key, seconds, pipeline)


class RingOwner(Query[Never]):
    """Ring for due work of this owner in the derivation that serves it now, as for any live work."""

    __slots__ = ()
    name = "ring_owner"

    def __init__(self, *, shard_key: UUID, generation_id: int) -> None:
        self.values = (shard_key, generation_id)


class EndServingRow(NamedTuple):
    generation_id: int


class EndServing(Query[EndServingRow]):
    """The derivation that served by default is still fed, so that it can be rolled back to."""

    __slots__ = ()
    name = "end_serving"
    row = EndServingRow

    def __init__(self, *, pipeline: str, generation_id: int) -> None:
        self.values = (pipeline, generation_id)


class BeginServingRow(NamedTuple):
    generation_id: int


class BeginServing(Query[BeginServingRow]):
    """Let this derivation serve all owners."""

    __slots__ = ()
    name = "begin_serving"
    row = BeginServingRow

    def __init__(self, *, generation_id: int) -> None:
        self.values = (generation_id,)


class ForgetOwnersGenerationsRow(NamedTuple):
    generation_id: int


class ForgetOwnersGenerations(Query[ForgetOwnersGenerationsRow]):
    """Remove the exceptions: all owners of a pipeline are served by the same derivation again."""

    __slots__ = ()
    name = "forget_owners_generations"
    row = ForgetOwnersGenerationsRow

    def __init__(self, *, pipeline: str) -> None:
        self.values = (pipeline,)


class RingGeneration(Query[Never]):
    """Ring for due work in the derivation that serves all owners now, as for any live work."""

    __slots__ = ()
    name = "ring_generation"

    def __init__(self, *, generation_id: int, stages: list[str]) -> None:
        self.values = (generation_id, stages)


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


class ListGenerations(Query[ListGenerationsRow]):
    """All derivations, newest last, with what they hold and what they lack."""

    __slots__ = ()
    name = "list_generations"
    row = ListGenerationsRow

    def __init__(self, *, pipeline: str | None) -> None:
        self.values = (pipeline,)


class RetireGenerationRow(NamedTuple):
    pipeline: str


class RetireGeneration(Query[RetireGenerationRow]):
    """Retire it: it is no longer fed, and no worker works on it."""

    __slots__ = ()
    name = "retire_generation"
    row = RetireGenerationRow

    def __init__(self, *, generation_id: int) -> None:
        self.values = (generation_id,)


class OwnersWithRowsRow(NamedTuple):
    shard_key: UUID


class OwnersWithRows(Query[OwnersWithRowsRow]):
    """Owners who may have rows of a derivation, in order."""

    __slots__ = ()
    name = "owners_with_rows"
    row = OwnersWithRowsRow

    def __init__(self, *, after: UUID, limit: int) -> None:
        self.values = (after, limit)


class PruneLanesRow(NamedTuple):
    stage: str


class PruneLanes(Query[PruneLanesRow]):
    """Take the lanes of an owner's derivation from their holders, and lock them: wait for a worker that is
    writing; a later one finds its lease gone.
    """

    __slots__ = ()
    name = "prune_lanes"
    row = PruneLanesRow

    def __init__(self, *, shard_key: UUID, generation_id: int) -> None:
        self.values = (shard_key, generation_id)


class PruneOwnerRow(NamedTuple):
    events: int


class PruneOwner(Query[PruneOwnerRow]):
    """Delete all rows of an owner's derivation, whose lanes are locked; the cost of its model calls stays in
    the ledger.
    """

    __slots__ = ()
    name = "prune_owner"
    row = PruneOwnerRow

    def __init__(self, *, shard_key: UUID, generation_id: int) -> None:
        self.values = (shard_key, generation_id)
