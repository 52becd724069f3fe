"""The statements of ``schemas/sql/replay.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    AppliedRow,
    BacklogRow,
    CallsPerSecondRow,
    ChunkDigestRow,
    DueRow,
    EventIdRow,
    LaneRow,
    LeaseEpochRow,
    OrdinalRow,
    ReplayIdRow,
    ReplayRow,
    ShardKeyRow,
    StopAskedRow,
    WaitSecondsRow,
)
from strandline.schemas.sealing.marks import Mark, Marks


class ReplayLanes(Query[LaneRow], name="replay_lanes", repeatable=True):
    """Lanes with work of derivations that do not serve, free to be taken, from an owner on: so many of each
    stage.
    """

    stages: list[str]
    from_shard: UUID
    dead_after_seconds: Decimal | float
    limit: int


class TakeReplayCall(Query[WaitSecondsRow], name="take_replay_call"):
    """Take one model call from what replays may ask for in the owner's namespace: the seconds to wait, 0 for
    none. The allowance fills up by the second, to one second's worth (and at least one call).
    """

    shard_key: UUID
    calls_per_second: float


class ReplayRate(Query[CallsPerSecondRow], name="replay_rate", repeatable=True):
    """How many model calls a second the replay of a derivation was begun with; NULL: as the settings say."""

    generation_id: int


class BeginReplay(Query[ReplayIdRow], name="begin_replay"):
    """Record that a replay begins."""

    kind: str
    pipeline: str
    generation_id: int
    selection: str
    held: bool
    calls_per_second: float | None


class FindReplays(Query[ReplayRow], name="find_replays", repeatable=True):
    """Replays, newest last; alive are those whose process has reported lately."""

    replay_id: int | None
    pipeline: str | None
    unfinished: bool


class ReplaysBefore(Query[ReplayRow], name="replays_before", repeatable=True):
    """The next replays, newest first; alive are those whose process has reported lately."""

    before: int | None
    limit: int


class TakeReplay(Query[ReplayIdRow], name="take_replay"):
    """Resume a replay that is not running elsewhere."""

    replay_id: int


class AskReplayToStop(Query[ReplayIdRow], name="ask_replay_to_stop"):
    """Ask whichever process carries a replay on to stop; one that no process carries on is stopped by this."""

    replay_id: int


class ReportReplay(Query[StopAskedRow], name="report_replay"):
    """Record a replay's progress, which also shows that its process lives; the row says whether it was asked
    to stop.
    """

    state: str
    position: UUID | None
    counts: str
    replay_id: int


class GenerationBacklogRow(NamedTuple):
    stage: str
    due: int


class GenerationBacklog(Query[GenerationBacklogRow], name="generation_backlog", repeatable=True):
    """The due work in a derivation, by stage."""

    generation_id: int


class OwnersBacklog(Query[DueRow], name="owners_backlog", repeatable=True):
    """How much is due in a derivation for some owners."""

    shard_keys: list[UUID]
    generation_id: int


class OlderBacklogRow(NamedTuple):
    due: int
    moment: datetime


class OlderBacklog(Query[OlderBacklogRow], name="older_backlog", repeatable=True):
    """How much is due in a derivation from flushes before a moment (NULL: now), of owners whom no fence keeps
    away; and that moment.
    """

    before: datetime | None
    generation_id: int


class SelectedOwners(Query[ShardKeyRow], name="selected_owners", repeatable=True):
    """Owners with matching sessions, in order."""

    after: UUID
    namespace: str | None
    session_id: str | None
    user_id: str | None
    limit: int


class SelectedBatchesRow(NamedTuple):
    batch_id: UUID
    scope_key: UUID
    event_ids: list[UUID]
    is_removed: bool


class SelectedBatches(Query[SelectedBatchesRow], name="selected_batches", repeatable=True):
    """The batches that a derivation applied from an owner's matching events, in order, each with its lane and
    events; is_removed: retention has removed messages of it, so it cannot be derived again, and stays as
    it is.
    """

    shard_key: UUID
    generation_id: int
    stage: str
    namespace: str | None
    session_id: str | None
    user_id: str | None
    since: datetime | None
    until: datetime | None


class OpenLane(Query[Never], name="open_lane"):
    """A lane that no worker has taken yet, so that it can be locked."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class LaneStatesRow(NamedTuple):
    ordinal: int
    through_seq: int
    state: str
    batch_id: UUID
    event_ids: list[UUID]
    is_removed: bool


class LaneStates(Query[LaneStatesRow], name="lane_states", repeatable=True):
    """The states of an ordered lane in order, each with the batch that made it; is_removed: retention has
    removed messages of it, so it is taken as it is: the base of those after it.
    """

    marks = Marks(owner=0, opens=(Mark(2, "json", "state"),))
    shard_key: UUID
    scope_key: UUID
    generation_id: int


class RewriteState(Query[OrdinalRow], name="rewrite_state"):
    """The state of a batch as it is derived again."""

    marks = Marks(owner=1, seals=(Mark(0, "json", "state"),))
    state: str
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    batch_id: UUID


class DigestChunks(Query[ChunkDigestRow], name="digest_chunks", repeatable=True):
    """A digest of the stored chunks of a batch."""

    shard_key: UUID
    generation_id: int
    batch_id: UUID


class DigestDerivedChunks(Query[ChunkDigestRow], name="digest_derived_chunks"):
    """The same digest of the chunks that `insert_chunks` would write."""

    session_keys: list[UUID]
    from_seqs: list[int]
    pieces: list[int]
    through_seqs: list[int]
    event_ids: list[UUID]
    lengths: list[int]
    lexemes: list[str]
    embeddings: list[str | None]
    roles: list[str]
    speakers: list[str]
    tones: list[int]
    said_on: list[date | None]


class DeleteChunks(Query[Never], name="delete_chunks"):
    """Delete the pieces of a batch, which are written again."""

    shard_key: UUID
    generation_id: int
    batch_id: UUID


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


class StoredCandidates(Query[StoredCandidatesRow], name="stored_candidates", repeatable=True):
    """The candidates of a batch as extract made them; edits of facts do not change these columns."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "text", "fact"),
            Mark(5, "name", "topic"),
            Mark(6, "name", "said_by"),
        ),
    )
    shard_key: UUID
    generation_id: int
    batch_id: UUID


class StoredAnswersRow(NamedTuple):
    step: str
    model: str
    prompt_hash: str
    body: bytes


class StoredAnswers(Query[StoredAnswersRow], name="stored_answers", repeatable=True):
    """The answers of a batch."""

    marks = Marks(owner=0, opens=(Mark(3, "bytes", "answer"),))
    shard_key: UUID
    batch_id: UUID


class LockLaneForReplay(Query[LeaseEpochRow], name="lock_lane_for_replay"):
    """Lock a lane, so that no worker, and no reset that forgets, writes in it until the transaction ends."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class IsApplied(Query[AppliedRow], name="is_applied", repeatable=True):
    """Whether a batch still counts as applied: one that a reset has touched does not."""

    shard_key: UUID
    batch_id: UUID


class RedoBatch(Query[EventIdRow], name="redo_batch"):
    """Its answers are gone: make its events due again, so that the model is called again.  What was derived
    from before a reset is due in its session's present incarnation, as in unfold_v1.
    """

    shard_key: UUID
    batch_id: UUID
    generation_id: int
    stage: str
    scope_key: UUID


class UnfoldFrom(Query[EventIdRow], name="unfold_from"):
    """Take an ordered lane back to before one of its states (NULL: only drop its open batch)."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    ordinal: int | None


class ReplaySize(Query[BacklogRow], name="replay_size", repeatable=True):
    """The work of a replay in place: the matching events of a pipeline, and their tokens."""

    pipeline: str
    namespace: str | None
    session_id: str | None
    user_id: str | None
    since: datetime | None
    until: datetime | None
    only_dead: bool
    generation_id: int


class EventSizesRow(NamedTuple):
    event_id: UUID
    tokens: int


class EventSizes(Query[EventSizesRow], name="event_sizes", repeatable=True):
    """Events with the sizes that a batch is limited by, in the order of a lane."""

    shard_key: UUID
    event_ids: list[UUID]


class DerivableEventsRow(NamedTuple):
    session_key: UUID
    event_id: UUID
    tokens: int


class DerivableEvents(Query[DerivableEventsRow], name="derivable_events", repeatable=True):
    """The events of an owner that a new derivation of a pipeline would derive (as backfill_owner makes them
    due), in the order of its lanes: by session, or by time.
    """

    pipeline: str
    shard_key: UUID
    last_stage: str
    by_owner: bool


class DerivedCandidatesRow(NamedTuple):
    event_id: UUID
    tokens: int
    all_texts: list[str]
    texts: list[str]


class DerivedCandidates(Query[DerivedCandidatesRow], name="derived_candidates", repeatable=True):
    """The candidates of the derivation that serves an owner, by event, in the order of the flushes: the
    tokens of the event, all texts, and those that neither a person nor an act has dropped.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(2, "text", "fact"),
            Mark(3, "text", "fact"),
        ),
    )
    shard_key: UUID


class LedgerAveragesRow(NamedTuple):
    stage: str
    calls: float
    input_tokens: float
    output_tokens: float
    tokens: float


class LedgerAverages(Query[LedgerAveragesRow], name="ledger_averages", repeatable=True):
    """Per stage of a pipeline, over the latest calls: how many there were for how many tokens of events, and
    their size.
    """

    pipeline: str


class CompareFactsRow(NamedTuple):
    change: str
    before: str | None
    after: str | None


class CompareFacts(Query[CompareFactsRow], name="compare_facts", repeatable=True):
    """The live facts of two derivations of an owner, matched by their words, or else by a message they both
    come from.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(2, "text", "fact"),
        ),
    )
    shard_key: UUID
    old: int
    new: int


class CompareStatesRow(NamedTuple):
    session_id: str
    before: str | None
    after: str | None


class CompareStates(Query[CompareStatesRow], name="compare_states", repeatable=True):
    """The newest states of two derivations of an owner's lanes, side by side."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "json", "state"),
            Mark(2, "json", "state"),
        ),
    )
    shard_key: UUID
    old: int
    new: int


class OwnerNamesRow(NamedTuple):
    shard_key: UUID
    namespace: str
    user_id: str | None
    session_id: str


class OwnerNames(Query[OwnerNamesRow], name="owner_names", repeatable=True):
    """The names of an owner: a namespace, and the user or the session."""

    shard_keys: list[UUID]


class CitedMessagesRow(NamedTuple):
    session_key: UUID
    seq: int


class CitedMessages(Query[CitedMessagesRow], name="cited_messages", repeatable=True):
    """The messages that facts of a derivation come from."""

    shard_key: UUID
    generation_id: int
    fact_ids: list[UUID]
