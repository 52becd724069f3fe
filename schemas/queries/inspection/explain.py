"""The statements of ``schemas/sql/explain.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class ExplainFindMessagesRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    seq: int
    session_id: str
    user_id: str | None
    current: bool


class ExplainFindMessages(Query[ExplainFindMessagesRow]):
    """Messages with this id, also from before a reset; within a session, or wherever the namespace has one."""

    __slots__ = ()
    name = "explain_find_messages"
    row = ExplainFindMessagesRow

    def __init__(
        self,
        *,
        message_id: str,
        namespace: str,
        session_id: str | None,
        user_id: str | None,
        without_user: bool,
    ) -> None:
        self.values = (message_id, namespace, session_id, user_id, without_user)


class ExplainFindFactsRow(NamedTuple):
    shard_key: UUID
    generation_id: int


class ExplainFindFacts(Query[ExplainFindFactsRow]):
    """Facts with this id."""

    __slots__ = ()
    name = "explain_find_facts"
    row = ExplainFindFactsRow

    def __init__(
        self,
        *,
        namespace: str,
        session_id: str | None,
        user_id: str | None,
        without_user: bool,
        owner_key: UUID | None,
        fact_id: UUID,
    ) -> None:
        self.values = (namespace, session_id, user_id, without_user, owner_key, fact_id)


class ExplainFindFactEventsRow(NamedTuple):
    shard_key: UUID


class ExplainFindFactEvents(Query[ExplainFindFactEventsRow]):
    """The owners whose events name this fact, which may be gone by now."""

    __slots__ = ()
    name = "explain_find_fact_events"
    row = ExplainFindFactEventsRow

    def __init__(
        self,
        *,
        namespace: str,
        session_id: str | None,
        user_id: str | None,
        without_user: bool,
        owner_key: UUID | None,
        fact_id: UUID,
    ) -> None:
        self.values = (namespace, session_id, user_id, without_user, owner_key, fact_id)


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


class ExplainMessage(Query[ExplainMessageRow]):
    """A message, its session's marks, and the event that delivered it."""

    __slots__ = ()
    name = "explain_message"
    row = ExplainMessageRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID, seq: int) -> None:
        self.values = (shard_key, session_key, seq)


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


class ExplainStages(Query[ExplainStagesRow]):
    """The outcome of an event, stage by stage, in each generation of the session's pipelines. A lane that was
    not tried because its provider refuses everything has no error: the workers report it. A budget that a
    namespace waits for is used up; or it is not, and other workers hold slices of the rest.
    """

    __slots__ = ()
    name = "explain_stages"
    row = ExplainStagesRow

    def __init__(
        self,
        *,
        pipelines: list[str],
        stages: list[str],
        stages_before: list[str],
        shard_key: UUID,
        event_id: UUID,
    ) -> None:
        self.values = (pipelines, stages, stages_before, shard_key, event_id)


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


class ExplainCalls(Query[ExplainCallsRow]):
    """The ledger of some batches: model, time, tokens and cost of each call."""

    __slots__ = ()
    name = "explain_calls"
    row = ExplainCallsRow

    def __init__(self, *, shard_key: UUID, batch_ids: list[UUID]) -> None:
        self.values = (shard_key, batch_ids)


class ExplainCandidatesRow(NamedTuple):
    generation_id: int
    event_id: UUID
    text: str
    batch_id: UUID
    dropped_by: int | None
    withheld_by: int | None
    kind: str | None


class ExplainCandidates(Query[ExplainCandidatesRow]):
    """The candidates that extract found in a message, and the person's event that dropped each, if any."""

    __slots__ = ()
    name = "explain_candidates"
    row = ExplainCandidatesRow
    marks = Marks(owner=0, opens=(Mark(2, "text", "fact"),))

    def __init__(self, *, shard_key: UUID, session_key: UUID, seq: int) -> None:
        self.values = (shard_key, session_key, seq)


class ExplainCitedRow(NamedTuple):
    fact_id: UUID
    generation_id: int
    text: str
    live: bool
    operations: list[str]


class ExplainCited(Query[ExplainCitedRow]):
    """The facts that cite a message, and the operation it led to in each."""

    __slots__ = ()
    name = "explain_cited"
    row = ExplainCitedRow
    marks = Marks(owner=0, opens=(Mark(2, "text", "fact"),))

    def __init__(self, *, shard_key: UUID, session_key: UUID, seq: int) -> None:
        self.values = (shard_key, session_key, seq)


class ExplainContextsRow(NamedTuple):
    generation_id: int
    batch_id: UUID
    from_seq: int
    through_seq: int


class ExplainContexts(Query[ExplainContextsRow]):
    """The batches that a message was shown to as context, and the messages that they were made of."""

    __slots__ = ()
    name = "explain_contexts"
    row = ExplainContextsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, seq: int) -> None:
        self.values = (shard_key, session_key, seq)


class ExplainChunksRow(NamedTuple):
    generation_id: int
    from_seq: int
    through_seq: int
    pieces: int


class ExplainChunks(Query[ExplainChunksRow]):
    """The searchable pieces that hold a message."""

    __slots__ = ()
    name = "explain_chunks"
    row = ExplainChunksRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, seq: int) -> None:
        self.values = (shard_key, session_key, seq)


class ExplainStatesRow(NamedTuple):
    generation_id: int
    through_seq: int
    state: str
    batch_id: UUID
    created_at: datetime


class ExplainStates(Query[ExplainStatesRow]):
    """The first state of each folding pipeline that a message went into."""

    __slots__ = ()
    name = "explain_states"
    row = ExplainStatesRow
    marks = Marks(owner=1, opens=(Mark(2, "json", "state"),))

    def __init__(self, *, event_id: UUID, shard_key: UUID, session_key: UUID) -> None:
        self.values = (event_id, shard_key, session_key)


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
    created_at: datetime
    updated_at: datetime


class ExplainFact(Query[ExplainFactRow]):
    """A fact as it is, and, if it ended, the fact that replaced or condensed it."""

    __slots__ = ()
    name = "explain_fact"
    row = ExplainFactRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "text", "fact"),
            Mark(4, "name", "topic"),
            Mark(5, "name", "said_by"),
            Mark(14, "text", "fact"),
            Mark(15, "text", "feedback"),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_id: UUID) -> None:
        self.values = (shard_key, generation_id, fact_id)


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


class ExplainRevisions(Query[ExplainRevisionsRow]):
    """A fact's history, each step with its session and its flush event."""

    __slots__ = ()
    name = "explain_revisions"
    row = ExplainRevisionsRow
    marks = Marks(owner=0, opens=(Mark(2, "text", "fact"),))

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_id: UUID) -> None:
        self.values = (shard_key, generation_id, fact_id)


class ExplainFactEventsRow(NamedTuple):
    number: int
    kind: str
    created_at: datetime
    actor: str | None


class ExplainFactEvents(Query[ExplainFactEventsRow]):
    """People's events on a fact, by its id or by the events that worded it; for a deleted fact, clearings
    too.
    """

    __slots__ = ()
    name = "explain_fact_events"
    row = ExplainFactEventsRow

    def __init__(self, *, shard_key: UUID, fact_id: UUID, generation_id: int | None) -> None:
        self.values = (shard_key, fact_id, generation_id)


class ExplainSourcesRow(NamedTuple):
    revision: int
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class ExplainSources(Query[ExplainSourcesRow]):
    """The messages that a fact's history cites, the newest first, up to the one that fills a page."""

    __slots__ = ()
    name = "explain_sources"
    row = ExplainSourcesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_id: UUID, page_bytes: int) -> None:
        self.values = (shard_key, generation_id, fact_id, page_bytes)


class ExplainRemovedSourcesRow(NamedTuple):
    revision: int
    from_seq: int
    through_seq: int
    cause: str
    removed_at: datetime
    archive: str | None
    object_name: str | None


class ExplainRemovedSources(Query[ExplainRemovedSourcesRow]):
    """The messages that a fact's history cites and that retention has removed: by range, and where they are
    archived.
    """

    __slots__ = ()
    name = "explain_removed_sources"
    row = ExplainRemovedSourcesRow

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_id: UUID) -> None:
        self.values = (shard_key, generation_id, fact_id)


class ExplainContextSourcesRow(NamedTuple):
    revision: int
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class ExplainContextSources(Query[ExplainContextSourcesRow]):
    """The messages that extract saw as context when it found what each step of a fact's history says, as far
    as they fill a page.
    """

    __slots__ = ()
    name = "explain_context_sources"
    row = ExplainContextSourcesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, fact_id: UUID, page_bytes: int) -> None:
        self.values = (shard_key, generation_id, fact_id, page_bytes)
