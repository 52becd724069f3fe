"""The statements of ``schemas/sql/replay.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class ReplayLanesRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class ReplayLanes(Query[ReplayLanesRow]):
    """Lanes with work of derivations that do not serve, free to be taken, from an owner on: so many of each
    stage.
    """

    __slots__ = ()
    name = "replay_lanes"
    row = ReplayLanesRow

    def __init__(
        self, *, stages: list[str], from_shard: UUID, dead_after_seconds: Decimal | float, limit: int
    ) -> None:
        self.values = (stages, from_shard, dead_after_seconds, limit)


class TakeReplayCallRow(NamedTuple):
    wait_seconds: float


class TakeReplayCall(Query[TakeReplayCallRow]):
    """Take one model call from what replays may ask for in the owner's namespace: the seconds to wait, 0 for
    none. The allowance fills up by the second, to one second's worth (and at least one call).
    """

    __slots__ = ()
    name = "take_replay_call"
    row = TakeReplayCallRow

    def __init__(self, *, shard_key: UUID, calls_per_second: float) -> None:
        self.values = (shard_key, calls_per_second)


class ReplayRateRow(NamedTuple):
    calls_per_second: float | None


class ReplayRate(Query[ReplayRateRow]):
    """How many model calls a second the replay of a derivation was begun with; NULL: as the settings say."""

    __slots__ = ()
    name = "replay_rate"
    row = ReplayRateRow

    def __init__(self, *, generation_id: int) -> None:
        self.values = (generation_id,)


class BeginReplayRow(NamedTuple):
    replay_id: int


class BeginReplay(Query[BeginReplayRow]):
    """Record that a replay begins."""

    __slots__ = ()
    name = "begin_replay"
    row = BeginReplayRow

    def __init__(
        self,
        *,
        kind: str,
        pipeline: str,
        generation_id: int,
        selection: str,
        held: bool,
        calls_per_second: float | None,
    ) -> None:
        self.values = (kind, pipeline, generation_id, selection, held, calls_per_second)


class FindReplaysRow(NamedTuple):
    replay_id: int
    kind: str
    pipeline: str
    generation_id: int
    selection: str
    state: str
    held: bool
    position: UUID | None
    calls_per_second: float | None
    counts: str
    started_at: datetime
    updated_at: datetime
    is_alive: bool


class FindReplays(Query[FindReplaysRow]):
    """Replays, newest last; alive are those whose process has reported lately."""

    __slots__ = ()
    name = "find_replays"
    row = FindReplaysRow

    def __init__(self, *, replay_id: int | None, pipeline: str | None, unfinished: bool) -> None:
        self.values = (replay_id, pipeline, unfinished)


class ReplaysBeforeRow(NamedTuple):
    replay_id: int
    kind: str
    pipeline: str
    generation_id: int
    selection: str
    state: str
    held: bool
    position: UUID | None
    calls_per_second: float | None
    counts: str
    started_at: datetime
    updated_at: datetime
    is_alive: bool


class ReplaysBefore(Query[ReplaysBeforeRow]):
    """The next replays, newest first; alive are those whose process has reported lately."""

    __slots__ = ()
    name = "replays_before"
    row = ReplaysBeforeRow

    def __init__(self, *, before: int | None, limit: int) -> None:
        self.values = (before, limit)


class TakeReplayRow(NamedTuple):
    replay_id: int


class TakeReplay(Query[TakeReplayRow]):
    """Resume a replay that is not running elsewhere."""

    __slots__ = ()
    name = "take_replay"
    row = TakeReplayRow

    def __init__(self, *, replay_id: int) -> None:
        self.values = (replay_id,)


class AskReplayToStopRow(NamedTuple):
    replay_id: int


class AskReplayToStop(Query[AskReplayToStopRow]):
    """Ask whichever process carries a replay on to stop; one that no process carries on is stopped by this."""

    __slots__ = ()
    name = "ask_replay_to_stop"
    row = AskReplayToStopRow

    def __init__(self, *, replay_id: int) -> None:
        self.values = (replay_id,)


class ReportReplayRow(NamedTuple):
    stop_asked: bool


class ReportReplay(Query[ReportReplayRow]):
    """Record a replay's progress, which also shows that its process lives; the row says whether it was asked
    to stop.
    """

    __slots__ = ()
    name = "report_replay"
    row = ReportReplayRow

    def __init__(self, *, state: str, position: UUID | None, counts: str, replay_id: int) -> None:
        self.values = (state, position, counts, replay_id)


class GenerationBacklogRow(NamedTuple):
    stage: str
    due: int


class GenerationBacklog(Query[GenerationBacklogRow]):
    """The due work in a derivation, by stage."""

    __slots__ = ()
    name = "generation_backlog"
    row = GenerationBacklogRow

    def __init__(self, *, generation_id: int) -> None:
        self.values = (generation_id,)


class OwnersBacklogRow(NamedTuple):
    due: int


class OwnersBacklog(Query[OwnersBacklogRow]):
    """How much is due in a derivation for some owners."""

    __slots__ = ()
    name = "owners_backlog"
    row = OwnersBacklogRow

    def __init__(self, *, shard_keys: list[UUID], generation_id: int) -> None:
        self.values = (shard_keys, generation_id)


class OlderBacklogRow(NamedTuple):
    due: int
    moment: datetime


class OlderBacklog(Query[OlderBacklogRow]):
    """How much is due in a derivation from flushes before a moment (NULL: now), of owners whom no fence keeps
    away; and that moment.
    """

    __slots__ = ()
    name = "older_backlog"
    row = OlderBacklogRow

    def __init__(self, *, before: datetime | None, generation_id: int) -> None:
        self.values = (before, generation_id)


class SelectedOwnersRow(NamedTuple):
    shard_key: UUID


class SelectedOwners(Query[SelectedOwnersRow]):
    """Owners who have sessions that fit, in order."""

    __slots__ = ()
    name = "selected_owners"
    row = SelectedOwnersRow

    def __init__(
        self, *, after: UUID, namespace: str | None, session_id: str | None, user_id: str | None, limit: int
    ) -> None:
        self.values = (after, namespace, session_id, user_id, limit)


class SelectedBatchesRow(NamedTuple):
    batch_id: UUID
    scope_key: UUID
    event_ids: list[UUID]
    is_removed: bool


class SelectedBatches(Query[SelectedBatchesRow]):
    """The batches that a derivation applied from an owner's matching events, in order, each with its lane and
    events; is_removed: retention has removed messages of it, so it cannot be derived again, and stays as
    it is.
    """

    __slots__ = ()
    name = "selected_batches"
    row = SelectedBatchesRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        stage: str,
        namespace: str | None,
        session_id: str | None,
        user_id: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> None:
        self.values = (shard_key, generation_id, stage, namespace, session_id, user_id, since, until)


class OpenLane(Query[Never]):
    """A lane that no worker has taken yet, so that it can be locked."""

    __slots__ = ()
    name = "open_lane"

    def __init__(self, *, shard_key: UUID, scope_key: UUID, generation_id: int, stage: str) -> None:
        self.values = (shard_key, scope_key, generation_id, stage)


class LaneStatesRow(NamedTuple):
    ordinal: int
    through_seq: int
    state: str
    batch_id: UUID
    event_ids: list[UUID]
    is_removed: bool


class LaneStates(Query[LaneStatesRow]):
    """The states of an ordered lane in order, each with the batch that made it; is_removed: retention has
    removed messages of it, so it is taken as it is: the base of those after it.
    """

    __slots__ = ()
    name = "lane_states"
    row = LaneStatesRow
    marks = Marks(owner=0, opens=(Mark(2, "json", "state"),))

    def __init__(self, *, shard_key: UUID, scope_key: UUID, generation_id: int) -> None:
        self.values = (shard_key, scope_key, generation_id)


class RewriteStateRow(NamedTuple):
    ordinal: int


class RewriteState(Query[RewriteStateRow]):
    """The state of a batch as it is derived again."""

    __slots__ = ()
    name = "rewrite_state"
    row = RewriteStateRow
    marks = Marks(owner=1, seals=(Mark(0, "json", "state"),))

    def __init__(
        self, *, state: str, shard_key: UUID, scope_key: UUID, generation_id: int, batch_id: UUID
    ) -> None:
        self.values = (state, shard_key, scope_key, generation_id, batch_id)


class DigestChunksRow(NamedTuple):
    pieces: int
    digest: str


class DigestChunks(Query[DigestChunksRow]):
    """A digest of the stored chunks of a batch."""

    __slots__ = ()
    name = "digest_chunks"
    row = DigestChunksRow

    def __init__(self, *, shard_key: UUID, generation_id: int, batch_id: UUID) -> None:
        self.values = (shard_key, generation_id, batch_id)


class DigestDerivedChunksRow(NamedTuple):
    pieces: int
    digest: str


class DigestDerivedChunks(Query[DigestDerivedChunksRow]):
    """The same digest of the chunks that `insert_chunks` would write."""

    __slots__ = ()
    name = "digest_derived_chunks"
    row = DigestDerivedChunksRow

    def __init__(
        self,
        *,
        session_keys: list[UUID],
        from_seqs: list[int],
        pieces: list[int],
        through_seqs: list[int],
        event_ids: list[UUID],
        lengths: list[int],
        lexemes: list[str],
        embeddings: list[str | None],
        roles: list[str],
        speakers: list[str],
        tones: list[int],
        said_on: list[date | None],
    ) -> None:
        self.values = (
            session_keys,
            from_seqs,
            pieces,
            through_seqs,
            event_ids,
            lengths,
            lexemes,
            embeddings,
            roles,
            speakers,
            tones,
            said_on,
        )


class DeleteChunks(Query[Never]):
    """Delete the pieces of a batch, which are written again."""

    __slots__ = ()
    name = "delete_chunks"

    def __init__(self, *, shard_key: UUID, generation_id: int, batch_id: UUID) -> None:
        self.values = (shard_key, generation_id, batch_id)


class StoredCandidatesRow(NamedTuple):
    event_id: UUID
    ordinal: int
    session_key: UUID
    text: str
    seqs: list[int]
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    model: str
    prompt_hash: str


class StoredCandidates(Query[StoredCandidatesRow]):
    """The candidates of a batch as extract made them; edits of facts do not change these columns."""

    __slots__ = ()
    name = "stored_candidates"
    row = StoredCandidatesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "text", "fact"),
            Mark(5, "name", "topic"),
            Mark(6, "name", "said_by"),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, batch_id: UUID) -> None:
        self.values = (shard_key, generation_id, batch_id)


class StoredAnswersRow(NamedTuple):
    step: str
    model: str
    prompt_hash: str
    body: bytes


class StoredAnswers(Query[StoredAnswersRow]):
    """The answers of a batch."""

    __slots__ = ()
    name = "stored_answers"
    row = StoredAnswersRow
    marks = Marks(owner=0, opens=(Mark(3, "bytes", "answer"),))

    def __init__(self, *, shard_key: UUID, batch_id: UUID) -> None:
        self.values = (shard_key, batch_id)


class LockLaneForReplayRow(NamedTuple):
    lease_epoch: int


class LockLaneForReplay(Query[LockLaneForReplayRow]):
    """Lock a lane, so that no worker, and no reset that forgets, writes in it until the transaction ends."""

    __slots__ = ()
    name = "lock_lane_for_replay"
    row = LockLaneForReplayRow

    def __init__(self, *, shard_key: UUID, scope_key: UUID, generation_id: int, stage: str) -> None:
        self.values = (shard_key, scope_key, generation_id, stage)


class IsAppliedRow(NamedTuple):
    applied: int


class IsApplied(Query[IsAppliedRow]):
    """Whether a batch still counts as applied: one that a reset has touched does not."""

    __slots__ = ()
    name = "is_applied"
    row = IsAppliedRow

    def __init__(self, *, shard_key: UUID, batch_id: UUID) -> None:
        self.values = (shard_key, batch_id)


class RedoBatchRow(NamedTuple):
    event_id: UUID


class RedoBatch(Query[RedoBatchRow]):
    """Its answers are gone: make its events due again, so that the model is called again.  What was derived
    from before a reset is due in its session's present incarnation, as in unfold_v1.
    """

    __slots__ = ()
    name = "redo_batch"
    row = RedoBatchRow

    def __init__(
        self, *, shard_key: UUID, batch_id: UUID, generation_id: int, stage: str, scope_key: UUID
    ) -> None:
        self.values = (shard_key, batch_id, generation_id, stage, scope_key)


class UnfoldFromRow(NamedTuple):
    event_id: UUID


class UnfoldFrom(Query[UnfoldFromRow]):
    """Take an ordered lane back to before one of its states (NULL: only drop its open batch)."""

    __slots__ = ()
    name = "unfold_from"
    row = UnfoldFromRow

    def __init__(
        self, *, shard_key: UUID, scope_key: UUID, generation_id: int, stage: str, ordinal: int | None
    ) -> None:
        self.values = (shard_key, scope_key, generation_id, stage, ordinal)


class ReplaySizeRow(NamedTuple):
    events: int
    tokens: int


class ReplaySize(Query[ReplaySizeRow]):
    """The work of a replay in place: the matching events of a pipeline, and their tokens."""

    __slots__ = ()
    name = "replay_size"
    row = ReplaySizeRow

    def __init__(
        self,
        *,
        pipeline: str,
        namespace: str | None,
        session_id: str | None,
        user_id: str | None,
        since: datetime | None,
        until: datetime | None,
        only_dead: bool,
        generation_id: int,
    ) -> None:
        self.values = (pipeline, namespace, session_id, user_id, since, until, only_dead, generation_id)


class EventSizesRow(NamedTuple):
    event_id: UUID
    tokens: int


class EventSizes(Query[EventSizesRow]):
    """Events with the sizes that a batch is limited by, in the order of a lane."""

    __slots__ = ()
    name = "event_sizes"
    row = EventSizesRow

    def __init__(self, *, shard_key: UUID, event_ids: list[UUID]) -> None:
        self.values = (shard_key, event_ids)


class DerivableEventsRow(NamedTuple):
    session_key: UUID
    event_id: UUID
    tokens: int


class DerivableEvents(Query[DerivableEventsRow]):
    """The events of an owner that a new derivation of a pipeline would derive (as backfill_owner makes them
    due), in the order of its lanes: by session, or by time.
    """

    __slots__ = ()
    name = "derivable_events"
    row = DerivableEventsRow

    def __init__(self, *, pipeline: str, shard_key: UUID, last_stage: str, by_owner: bool) -> None:
        self.values = (pipeline, shard_key, last_stage, by_owner)


class DerivedCandidatesRow(NamedTuple):
    event_id: UUID
    tokens: int
    all_texts: list[str]
    texts: list[str]


class DerivedCandidates(Query[DerivedCandidatesRow]):
    """The candidates of the derivation that serves an owner, by event, in the order of the flushes: the
    tokens of the event, all texts, and those that neither a person nor an act has dropped.
    """

    __slots__ = ()
    name = "derived_candidates"
    row = DerivedCandidatesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(2, "text", "fact"),
            Mark(3, "text", "fact"),
        ),
    )

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class LedgerAveragesRow(NamedTuple):
    stage: str
    calls: float
    input_tokens: float
    output_tokens: float
    tokens: float


class LedgerAverages(Query[LedgerAveragesRow]):
    """Per stage of a pipeline, over the latest calls: how many there were for how many tokens of events, and
    their size.
    """

    __slots__ = ()
    name = "ledger_averages"
    row = LedgerAveragesRow

    def __init__(self, *, pipeline: str) -> None:
        self.values = (pipeline,)


class CompareFactsRow(NamedTuple):
    change: str
    before: str | None
    after: str | None


class CompareFacts(Query[CompareFactsRow]):
    """The live facts of two derivations of an owner, matched by their words, or else by a message they both
    come from.
    """

    __slots__ = ()
    name = "compare_facts"
    row = CompareFactsRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(2, "text", "fact"),
        ),
    )

    def __init__(self, *, shard_key: UUID, old: int, new: int) -> None:
        self.values = (shard_key, old, new)


class CompareStatesRow(NamedTuple):
    session_id: str
    before: str | None
    after: str | None


class CompareStates(Query[CompareStatesRow]):
    """The newest states of two derivations of an owner's lanes, side by side."""

    __slots__ = ()
    name = "compare_states"
    row = CompareStatesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "json", "state"),
            Mark(2, "json", "state"),
        ),
    )

    def __init__(self, *, shard_key: UUID, old: int, new: int) -> None:
        self.values = (shard_key, old, new)


class OwnerNamesRow(NamedTuple):
    shard_key: UUID
    namespace: str
    user_id: str | None
    session_id: str


class OwnerNames(Query[OwnerNamesRow]):
    """The names of an owner: a namespace, and the user or the session."""

    __slots__ = ()
    name = "owner_names"
    row = OwnerNamesRow

    def __init__(self, *, shard_keys: list[UUID]) -> None:
        self.values = (shard_keys,)


class CitedMessagesRow(NamedTuple):
    session_key: UUID
    seq: int


class CitedMessages(Query[CitedMessagesRow]):
    """The messages that facts of a derivation come from."""

    __slots__ = ()
    name = "cited_messages"
    row = CitedMessagesRow

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_ids: list[UUID]) -> None:
        self.values = (shard_key, generation_id, fact_ids)
