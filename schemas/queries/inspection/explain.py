"""The statements of ``schemas/sql/explain.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import FactTextRow, SeqRow, ShardKeyRow, SourceMessageRow
from strandline.schemas.sealing.marks import Mark, Marks


class ExplainFindMessagesRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    seq: int
    session_id: str
    user_id: str | None
    current: bool


class ExplainFindMessages(Query[ExplainFindMessagesRow], name="explain_find_messages", repeatable=True):
    """Messages with this id, also from before a reset; within a session, or wherever the namespace has one."""

    message_id: str
    namespace: str
    session_id: str | None
    user_id: str | None
    without_user: bool


class ExplainFindSeq(Query[SeqRow], name="explain_find_seq", repeatable=True):
    """A message by its number in a session, if it is still in the log."""

    shard_key: UUID
    session_key: UUID
    seq: int


class ExplainFindFactsRow(NamedTuple):
    shard_key: UUID
    generation_id: int


class ExplainFindFacts(Query[ExplainFindFactsRow], name="explain_find_facts", repeatable=True):
    """Facts with this id."""

    namespace: str
    session_id: str | None
    user_id: str | None
    without_user: bool
    owner_key: UUID | None
    fact_id: UUID


class ExplainFindFactEvents(Query[ShardKeyRow], name="explain_find_fact_events", repeatable=True):
    """The owners who had this fact, by people's events or by its messages, even if it is gone."""

    namespace: str
    session_id: str | None
    user_id: str | None
    without_user: bool
    owner_key: UUID | None
    fact_id: UUID


class ExplainSuccessors(Query[FactTextRow], name="explain_successors", repeatable=True):
    """The facts of the serving derivation that come from the messages of a fact which that does not have."""

    marks = Marks(owner=0, opens=(Mark(1, "text", "fact"),))
    shard_key: UUID
    fact_id: UUID


class ExplainMessageRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    namespace: str
    session_id: str
    user_id: str | None
    pinned_through: int
    window_from: int
    current: bool
    pipelines: list[str]
    fed: list[str]
    feeds: list[str]
    event_id: UUID | None
    cause: str
    from_seq: int
    through_seq: int
    flushed_at: datetime


class ExplainMessage(Query[ExplainMessageRow], name="explain_message", repeatable=True):
    """A message, its session's marks, and the event that delivered it."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    session_key: UUID
    seq: int


class ExplainStagesRow(NamedTuple):
    pipeline: str
    generation_id: int
    generation_state: str
    stage: str
    outcome: str | None
    applied_at: datetime
    batch_id: UUID | None
    batch_stage: str | None
    batch_events: int
    event_ids: list[UUID]
    context_seqs: list[int]
    capture_number: int | None
    due_since: datetime | None
    reason: str | None
    dropped_at: datetime | None
    retry_at: datetime | None
    error: str | None
    failures: int | None
    postponements: int
    held: bool
    next_attempt_at: datetime
    ready_at: datetime | None
    waits_until: datetime | None
    waits_for: str | None
    is_used_up: bool


class ExplainStages(Query[ExplainStagesRow], name="explain_stages", repeatable=True):
    """The outcome of an event, stage by stage, in each generation of the session's pipelines. A lane that was
    not tried because its provider refuses everything has no error: the workers report it. A budget that a
    namespace waits for is used up; or it is not, and other workers hold slices of the rest.
    """

    pipelines: list[str]
    stages: list[str]
    stages_before: list[str]
    shard_key: UUID
    event_id: UUID


class ExplainCallsRow(NamedTuple):
    batch_id: UUID
    step: str
    model: str
    prompt_hash: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    created_at: datetime


class ExplainCalls(Query[ExplainCallsRow], name="explain_calls", repeatable=True):
    """The ledger of some batches: model, time, tokens and cost of each call."""

    shard_key: UUID
    batch_ids: list[UUID]


class ExplainCandidatesRow(NamedTuple):
    generation_id: int
    event_id: UUID
    text: str
    batch_id: UUID
    dropped_by: int | None
    withheld_by: int | None
    kind: str | None


class ExplainCandidates(Query[ExplainCandidatesRow], name="explain_candidates", repeatable=True):
    """The candidates that extract found in a message, and the person's event that dropped each, if any."""

    marks = Marks(owner=0, opens=(Mark(2, "text", "fact"),))
    shard_key: UUID
    session_key: UUID
    seq: int


class ExplainCitedRow(NamedTuple):
    fact_id: UUID
    generation_id: int
    text: str
    live: bool
    operations: list[str]


class ExplainCited(Query[ExplainCitedRow], name="explain_cited", repeatable=True):
    """The facts that cite a message, and the operation it led to in each."""

    marks = Marks(owner=0, opens=(Mark(2, "text", "fact"),))
    shard_key: UUID
    session_key: UUID
    seq: int


class ExplainContextsRow(NamedTuple):
    generation_id: int
    batch_id: UUID
    from_seq: int
    through_seq: int


class ExplainContexts(Query[ExplainContextsRow], name="explain_contexts", repeatable=True):
    """The batches that a message was shown to as context, and the messages that they were made of."""

    shard_key: UUID
    session_key: UUID
    seq: int


class ExplainChunksRow(NamedTuple):
    generation_id: int
    from_seq: int
    through_seq: int
    pieces: int


class ExplainChunks(Query[ExplainChunksRow], name="explain_chunks", repeatable=True):
    """The searchable pieces that hold a message."""

    shard_key: UUID
    session_key: UUID
    seq: int


class ExplainStatesRow(NamedTuple):
    generation_id: int
    through_seq: int
    state: str
    batch_id: UUID
    created_at: datetime


class ExplainStates(Query[ExplainStatesRow], name="explain_states", repeatable=True):
    """The first state of each folding pipeline that a message went into."""

    marks = Marks(owner=1, opens=(Mark(2, "json", "state"),))
    event_id: UUID
    shard_key: UUID
    session_key: UUID


class ExplainFactRow(NamedTuple):
    fact_id: UUID
    generation_id: int
    state: str
    text: str
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    live: bool
    invalidated_at: datetime | None
    invalidated_by: UUID | None
    condensed_into: UUID | None
    replacement: str | None
    feedback: str | None
    is_doubtful: bool
    doubt_operation: str | None
    doubt_reason: str | None
    doubt_fact_id: UUID | None
    doubted: str | None
    doubted_by: list[UUID]
    created_at: datetime
    updated_at: datetime


class ExplainFact(Query[ExplainFactRow], name="explain_fact", repeatable=True):
    """A fact as it is; if it ended, the fact that replaced or condensed it; if it is doubtful, the fact that
    it may contradict; and the doubtful facts that may contradict it.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "text", "fact"),
            Mark(4, "name", "topic"),
            Mark(5, "name", "said_by"),
            Mark(14, "text", "fact"),
            Mark(15, "text", "feedback"),
            Mark(20, "text", "fact"),
        ),
    )
    shard_key: UUID
    generation_id: int
    fact_id: UUID


class ExplainRevisionsRow(NamedTuple):
    revision: int
    operation: str
    text: str
    created_at: datetime
    model: str | None
    prompt_hash: str | None
    extract_batch_id: UUID | None
    merge_batch_id: UUID | None
    condense_batch_id: UUID | None
    event_id: UUID | None
    cause: str | None
    flushed_at: datetime
    namespace: str | None
    session_id: str
    fact_event: int | None
    actor: str | None
    carried_from: int | None


class ExplainRevisions(Query[ExplainRevisionsRow], name="explain_revisions", repeatable=True):
    """A fact's history, each step with its session and its flush event."""

    marks = Marks(owner=0, opens=(Mark(2, "text", "fact"),))
    shard_key: UUID
    generation_id: int
    fact_id: UUID


class ExplainFactEventsRow(NamedTuple):
    number: int
    kind: str
    created_at: datetime
    actor: str | None


class ExplainFactEvents(Query[ExplainFactEventsRow], name="explain_fact_events", repeatable=True):
    """People's events on a fact, by its id or by the events that worded it; for a deleted fact, clearings
    too.
    """

    shard_key: UUID
    fact_id: UUID
    generation_id: int | None


class ExplainSources(Query[SourceMessageRow], name="explain_sources", repeatable=True):
    """The messages that a fact's history cites, the newest first, up to the one that fills a page."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    page_bytes: int


class ExplainRemovedSourcesRow(NamedTuple):
    revision: int
    from_seq: int
    through_seq: int
    cause: str
    removed_at: datetime
    archive: str | None
    object_name: str | None


class ExplainRemovedSources(Query[ExplainRemovedSourcesRow], name="explain_removed_sources", repeatable=True):
    """The messages that a fact's history cites and that retention has removed: by range, and where they are
    archived.
    """

    shard_key: UUID
    generation_id: int
    fact_id: UUID


class ExplainContextSources(Query[SourceMessageRow], name="explain_context_sources", repeatable=True):
    """The messages that extract saw as context when it found what each step of a fact's history says, as far
    as they fill a page.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    page_bytes: int
