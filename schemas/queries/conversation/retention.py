"""The statements of ``schemas/sql/retention.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    ArchiveRow,
    BatchIdRow,
    CallIdRow,
    EventsRow,
    FactIdRow,
    IsFirstRow,
    IsGivenUpRow,
    IsSetRow,
    IsUsedRow,
    MarkRow,
    NumberRow,
    RunIdRow,
    ShardKeyRow,
    StepIdRow,
)
from strandline.schemas.sealing.marks import Mark, Marks


class RecordRetentionAct(Query[NumberRow], name="record_retention_act"):
    """Record an act of a namespace; no row if another one took the number in the meantime."""

    namespace: str
    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    archive: str | None
    keeps_important: bool | None
    ages: str
    actor: str | None


class RecordSessionRetentionAct(Query[NumberRow], name="record_session_retention_act", repeatable=True):
    """The same of one session, which may have no message yet."""

    namespace: str
    ttl_seconds: int | None
    shard_key: UUID
    session_key: UUID
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    archive: str | None
    tightened: list[str]
    actor: str | None


class RetentionActsRow(NamedTuple):
    number: int
    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    archive: str | None
    keeps_important: bool | None
    ages: str
    actor: str | None
    created_at: datetime


class RetentionActs(Query[RetentionActsRow], name="retention_acts", repeatable=True):
    """The acts of a namespace, newest first."""

    namespace: str
    limit: int


class SessionRetentionActsRow(NamedTuple):
    number: int
    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    archive: str | None
    tightened: list[str]
    actor: str | None
    created_at: datetime


class SessionRetentionActs(Query[SessionRetentionActsRow], name="session_retention_acts", repeatable=True):
    """The acts of a session, newest first."""

    shard_key: UUID
    session_key: UUID
    limit: int


class RetentionIsSet(Query[IsSetRow], name="retention_is_set", repeatable=True):
    """Whether any act was ever recorded: else nothing has to be looked at."""


class SessionsToRetainRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    is_concerned: bool


class SessionsToRetain(Query[SessionsToRetainRow], name="sessions_to_retain", repeatable=True):
    """The next sessions in the order of their keys, each with whether something of it may be past its time:
    it expired, has a step or a life under way, or its oldest message behind the head is past its age, or
    there are more than are kept.
    """

    after_shard_key: UUID
    after_session_key: UUID
    namespace: str | None
    session_key: UUID | None
    limit: int


class PastMessagesRow(NamedTuple):
    namespace: str
    session_id: str
    expired: int
    aged: int
    surplus: int
    waiting: int
    important: int


class PastMessages(Query[PastMessagesRow], name="past_messages", repeatable=True):
    """How many messages of a session no read shows any more, by why; how many of them wait until all of their
    event is past its time, since events leave whole; and how many important ones stay.
    """

    session_key: UUID
    shard_key: UUID


class PlanRemovalRow(NamedTuple):
    status: str
    from_seq: int | None
    incarnation: UUID | None
    has_given_up: bool


class PlanRemoval(Query[PlanRemovalRow], name="plan_removal"):
    """The next step of a session's retention (plan_removal_v1)."""

    shard_key: UUID
    session_key: UUID
    max_messages: int
    max_bytes: int
    busy_seconds: float


class LeftObjectsRow(NamedTuple):
    step_id: UUID
    archive: str
    object_name: str


class LeftObjects(Query[LeftObjectsRow], name="left_objects", repeatable=True):
    """Objects that steps of a session which were given up may have left in archives; not those that a process
    tried to delete within some seconds.
    """

    shard_key: UUID
    session_key: UUID
    retry_seconds: float


class TryLeftObject(Query[Never], name="try_left_object"):
    """Record that an object which a given-up step left was deleted, or could not be."""

    is_deleted: bool
    shard_key: UUID
    session_key: UUID
    step_id: UUID


class IsStepGivenUp(Query[IsGivenUpRow], name="is_step_given_up", repeatable=True):
    """Whether a step was given up."""

    shard_key: UUID
    session_key: UUID
    step_id: UUID


class ExpiredWindowRow(NamedTuple):
    flushed_through: int
    token_flush_size: int
    entries: str


class ExpiredWindow(Query[ExpiredWindowRow], name="expired_window", repeatable=True):
    """What a life that expired has not delivered: its mark, and of each message [seq, role, tokens, calls,
    answers, bytes], in order; and by what size it is to be divided.
    """

    shard_key: UUID
    session_key: UUID
    incarnation: UUID


class DeliverExpired(Query[IsFirstRow], name="deliver_expired"):
    """Record events for it, and make them due (deliver_expired_v1)."""

    shard_key: UUID
    session_key: UUID
    incarnation: UUID
    old_flushed_through: int
    event_ids: list[UUID]
    from_seqs: list[int]
    through_seqs: list[int]
    tokens: list[int]
    messages: list[int]
    version: int


class BeginAttemptRow(NamedTuple):
    step_id: UUID
    incarnation: UUID
    through_seq: int
    cause: str
    state: str
    archive: str | None
    object_name: str | None
    object_digest: str | None
    attempts: int
    namespace: str
    session_id: str
    user_id: str | None
    shared_key: UUID | None


class BeginAttempt(Query[BeginAttemptRow], name="begin_attempt"):
    """Take up a step that no other process has begun within some seconds; no row if one has."""

    shard_key: UUID
    session_key: UUID
    from_seq: int
    busy_seconds: float


class LeavingMessagesRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    byte_count: int
    digest: bytes
    calls: str | None
    answers: str | None
    labels: list[int | None] | None
    is_important: bool
    rows_digest: str


class LeavingMessages(Query[LeavingMessagesRow], name="leaving_messages", repeatable=True):
    """The messages of a step as they are stored, in order, each with a digest of all of them."""

    session_key: UUID
    shard_key: UUID
    from_seq: int
    through_seq: int


class NameObject(Query[StepIdRow], name="name_object"):
    """Write down under which name the messages of a step will be in the archive, before they are; no row if
    another process has taken it up. In a transaction that has looked at the fence: until it commits, none
    is set.
    """

    object_name: str | None
    shard_key: UUID
    session_key: UUID
    from_seq: int
    step_id: UUID


class ArchiveIsUsed(Query[IsUsedRow], name="archive_is_used", repeatable=True):
    """Whether messages of anybody were ever put into an archive."""

    archive: str


class ArchiveFolders(Query[ArchiveRow], name="archive_folders", repeatable=True):
    """The folders that were ever named as archives."""


class DatabaseMark(Query[MarkRow], name="database_mark", repeatable=True):
    """What names this database in the names of archived objects: a restored copy has another.  One that is
    recovered from a base backup keeps the server's number, and has the target that it was recovered to.
    """


class ArchivesWithObjects(Query[ArchiveRow], name="archives_with_objects", repeatable=True):
    """The archives that may hold objects which this database names."""


class MarkArchived(Query[StepIdRow], name="mark_archived"):
    """Record that the messages of a step are in the archive; not of an owner who is being erased."""

    object_digest: str | None
    rows_digest: str
    messages: int
    shard_key: UUID
    session_key: UUID
    from_seq: int
    step_id: UUID


class MarkReadBack(Query[StepIdRow], name="mark_read_back"):
    """Record that the archived object was read, and is as it was written."""

    shard_key: UUID
    session_key: UUID
    from_seq: int
    step_id: UUID


class RemoveMessagesRow(NamedTuple):
    status: str
    removed: int
    touched: list[UUID]


class RemoveMessages(Query[RemoveMessagesRow], name="remove_messages"):
    """Take the messages of a step out of the log (remove_messages_v1)."""

    shard_key: UUID
    session_key: UUID
    from_seq: int
    step_id: UUID


class GiveUpAttempt(Query[Never], name="give_up_attempt"):
    """Record why an attempt failed; it is repeated after a while, or at once."""

    reason: str
    at_once: bool
    shard_key: UUID
    session_key: UUID
    from_seq: int
    step_id: UUID


class DropStep(Query[Never], name="drop_step"):
    """Remove a step of which nothing has left the log."""

    shard_key: UUID
    session_key: UUID
    from_seq: int
    step_id: UUID


class ArchivedObjectsRow(NamedTuple):
    session_key: UUID
    session_id: str
    from_seq: int
    through_seq: int
    step_id: UUID
    cause: str
    state: str
    archive: str | None
    object_name: str | None
    object_digest: str | None
    messages: int
    removed: int
    kept_seqs: list[int]
    last_error: str | None
    planned_at: datetime
    removed_at: datetime | None


class ArchivedObjects(Query[ArchivedObjectsRow], name="archived_objects", repeatable=True):
    """Archived ranges of an owner, or of one of its sessions, in order: those that left the log, and those on
    their way.
    """

    shard_key: UUID
    session_key: UUID | None


class RestoreRangeRow(NamedTuple):
    status: str
    messages: int


class RestoreRange(Query[RestoreRangeRow], name="restore_range"):
    """Put archived messages into a session of their own (restore_session_v1)."""

    shard_key: UUID
    session_key: UUID
    old_key: UUID
    policy: str
    event_id: UUID
    before_id: UUID | None
    from_seq: int
    through_seq: int
    messages: str


class OpenArchivedRow(NamedTuple):
    shard_key: UUID
    id: str
    envelope: str
    metadata: str | None


class OpenArchived(Query[OpenArchivedRow], name="open_archived", repeatable=True):
    """Messages of an owner as an archive holds them, for the drivers to open."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(2, "json", "message", 1),
            Mark(3, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    ids: list[str]
    envelopes: list[str]
    metadata: list[str | None]


class InsertArchivedInput(Query[Never], name="insert_archived_input"):
    """Messages from the archive, as the input of a derivation; existing rows stay."""

    shard_key: UUID
    session_key: UUID
    generation_id: int
    messages: str


class ForgetArchivedInput(Query[Never], name="forget_archived_input"):
    """The derivation is made: messages that it was made of are in the archive alone."""

    shard_key: UUID
    generation_id: int


class OwnersWithInput(Query[ShardKeyRow], name="owners_with_input", repeatable=True):
    """Owners for whom messages were taken from the archive for a derivation."""

    generation_id: int
    after: UUID
    limit: int


class CarryBase(Query[EventsRow], name="carry_base"):
    """Begin a derivation of an owner with what the one that serves keeps of removed messages (carry_base_v1)."""

    shard_key: UUID
    generation_id: int
    old_id: int
    stages: list[str]


class RemovedEvents(Query[EventsRow], name="removed_events", repeatable=True):
    """How many events of an owner have lost their messages to retention, of those that a derivation has
    applied.
    """

    shard_key: UUID
    generation_id: int


class BeginRun(Query[RunIdRow], name="begin_run"):
    """Begin a pass over all sessions, of a namespace or all, unless one is under way or has just been."""

    namespace: str | None
    interval_seconds: float


class TakeRunRow(NamedTuple):
    run_id: int
    position_shard: UUID | None
    position_session: UUID | None


class TakeRun(Query[TakeRunRow], name="take_run"):
    """The pass that is under way, locked, so that each of its pages is taken once."""

    namespace: str | None


class AdvanceRun(Query[Never], name="advance_run"):
    """How far a pass is; done if there are no more sessions."""

    position_shard: UUID | None
    position_session: UUID | None
    is_done: bool
    run_id: int


class CountRun(Query[Never], name="count_run"):
    """Add to the counts of a pass."""

    counts: str
    run_id: int


class RetentionRunsRow(NamedTuple):
    run_id: int
    namespace: str | None
    state: str
    counts: str
    started_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class RetentionRuns(Query[RetentionRunsRow], name="retention_runs", repeatable=True):
    """The last passes, newest first."""

    limit: int


class ForgetRuns(Query[Never], name="forget_runs"):
    """Passes of longer ago than a month need not be known."""


class OpenStepsRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    from_seq: int
    through_seq: int
    state: str
    archive: str | None
    attempts: int
    last_error: str | None
    planned_at: datetime
    attempted_at: datetime | None
    namespace: str
    session_id: str


class OpenSteps(Query[OpenStepsRow], name="open_steps", repeatable=True):
    """Steps under way, those longest first that nobody works on."""

    namespace: str | None
    limit: int


class RetentionTotalsRow(NamedTuple):
    removed: int
    kept: int
    archived: int
    open_steps: int
    failing_steps: int
    waiting_lives: int


class RetentionTotals(Query[RetentionTotalsRow], name="retention_totals", repeatable=True):
    """Ranges of a namespace or of all that have left the log, are under way, or wait."""

    namespace: str | None


class RetainedNamespacesRow(NamedTuple):
    namespace: str
    ages: str


class RetainedNamespaces(Query[RetainedNamespacesRow], name="retained_namespaces", repeatable=True):
    """Namespaces whose newest act names ages of the tables that grow next to the log."""


class AgedOwners(Query[ShardKeyRow], name="aged_owners", repeatable=True):
    """The next owners of a namespace, for what grows next to their logs; also those who have facts and no
    session.
    """

    namespace: str
    after_shard_key: UUID
    limit: int


class ForgetOldAnswers(Query[BatchIdRow], name="forget_old_answers"):
    """Answers of batches that ended so long ago. A replay in place asks a model again for what it lacks, and
    leaves facts as they are.
    """

    shard_key: UUID
    age_seconds: float
    limit: int


class ForgetOldCalls(Query[CallIdRow], name="forget_old_calls"):
    """The ledger of calls so long ago."""

    shard_key: UUID
    age_seconds: float
    limit: int


class ForgetOldTraces(Query[NumberRow], name="forget_old_traces"):
    """What tombstones recognise by: after so long, the words of what a person took away are new knowledge if
    a replay finds them.
    """

    shard_key: UUID
    age_seconds: float
    limit: int


class ForgetEndedFacts(Query[FactIdRow], name="forget_ended_facts"):
    """Facts that ended so long ago because of another, with their revisions, and the candidates that only
    these were made of. Lanes and facts are locked first, as an edit locks them: one that a correction or
    an edit revives in the meantime stays.
    """

    shard_key: UUID
    age_seconds: float
    limit: int
