"""The statements of ``schemas/sql/retention.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class RecordRetentionActRow(NamedTuple):
    number: int


class RecordRetentionAct(Query[RecordRetentionActRow]):
    """Record an act of a namespace; no row if another one took the number meanwhile."""

    __slots__ = ()
    name = "record_retention_act"
    row = RecordRetentionActRow

    def __init__(
        self,
        *,
        namespace: str,
        ttl_seconds: int | None,
        max_age_seconds: int | None,
        max_messages: int | None,
        forget_facts: bool | None,
        archive: str | None,
        keeps_important: bool | None,
        ages: str,
        actor: str | None,
    ) -> None:
        self.values = (
            namespace,
            ttl_seconds,
            max_age_seconds,
            max_messages,
            forget_facts,
            archive,
            keeps_important,
            ages,
            actor,
        )


class RecordSessionRetentionActRow(NamedTuple):
    number: int


class RecordSessionRetentionAct(Query[RecordSessionRetentionActRow]):
    """The same of one session, which may have no message yet."""

    __slots__ = ()
    name = "record_session_retention_act"
    repeatable = True
    row = RecordSessionRetentionActRow

    def __init__(
        self,
        *,
        namespace: str,
        ttl_seconds: int | None,
        shard_key: UUID,
        session_key: UUID,
        max_age_seconds: int | None,
        max_messages: int | None,
        forget_facts: bool | None,
        archive: str | None,
        tightened: list[str],
        actor: str | None,
    ) -> None:
        self.values = (
            namespace,
            ttl_seconds,
            shard_key,
            session_key,
            max_age_seconds,
            max_messages,
            forget_facts,
            archive,
            tightened,
            actor,
        )


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


class RetentionActs(Query[RetentionActsRow]):
    """The acts of a namespace, newest first."""

    __slots__ = ()
    name = "retention_acts"
    repeatable = True
    row = RetentionActsRow

    def __init__(self, *, namespace: str, limit: int) -> None:
        self.values = (namespace, limit)


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


class SessionRetentionActs(Query[SessionRetentionActsRow]):
    """The acts of a session, newest first."""

    __slots__ = ()
    name = "session_retention_acts"
    repeatable = True
    row = SessionRetentionActsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, limit: int) -> None:
        self.values = (shard_key, session_key, limit)


class RetentionIsSetRow(NamedTuple):
    is_set: bool


class RetentionIsSet(Query[RetentionIsSetRow]):
    """Whether any act was ever recorded: else nothing has to be looked at."""

    __slots__ = ()
    name = "retention_is_set"
    row = RetentionIsSetRow


class SessionsToRetainRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    is_concerned: bool


class SessionsToRetain(Query[SessionsToRetainRow]):
    """The next sessions in the order of their keys, each with whether something of it may be past its time:
    it expired, has a step or a life under way, or its oldest message behind the head is past its age, or
    there are more than are kept.
    """

    __slots__ = ()
    name = "sessions_to_retain"
    row = SessionsToRetainRow

    def __init__(
        self,
        *,
        after_shard: UUID,
        after_session: UUID,
        namespace: str | None,
        session_key: UUID | None,
        limit: int,
    ) -> None:
        self.values = (after_shard, after_session, namespace, session_key, limit)


class PastMessagesRow(NamedTuple):
    namespace: str
    session_id: str
    expired: int
    aged: int
    surplus: int
    waiting: int
    important: int


class PastMessages(Query[PastMessagesRow]):
    """How many messages of a session no read shows any more, by why; how many of them wait until all of their
    event is past its time, since events leave whole; and how many important ones stay.
    """

    __slots__ = ()
    name = "past_messages"
    row = PastMessagesRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class PlanRemovalRow(NamedTuple):
    status: str
    from_seq: int | None
    incarnation: UUID | None
    has_given_up: bool


class PlanRemoval(Query[PlanRemovalRow]):
    """The next step of a session's retention (plan_removal_v1)."""

    __slots__ = ()
    name = "plan_removal"
    row = PlanRemovalRow

    def __init__(
        self, *, shard_key: UUID, session_key: UUID, max_messages: int, max_bytes: int, busy_seconds: float
    ) -> None:
        self.values = (shard_key, session_key, max_messages, max_bytes, busy_seconds)


class LeftObjectsRow(NamedTuple):
    step_id: UUID
    archive: str
    object_name: str


class LeftObjects(Query[LeftObjectsRow]):
    """Objects that steps of a session which were given up may have left in archives; not those that a process
    tried to delete within some seconds.
    """

    __slots__ = ()
    name = "left_objects"
    repeatable = True
    row = LeftObjectsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, retry_seconds: float) -> None:
        self.values = (shard_key, session_key, retry_seconds)


class TryLeftObject(Query[Never]):
    """Record that an object which a given-up step left was deleted, or could not be."""

    __slots__ = ()
    name = "try_left_object"

    def __init__(self, *, is_deleted: bool, shard_key: UUID, session_key: UUID, step_id: UUID) -> None:
        self.values = (is_deleted, shard_key, session_key, step_id)


class IsStepGivenUpRow(NamedTuple):
    is_given_up: bool


class IsStepGivenUp(Query[IsStepGivenUpRow]):
    """Whether a step was given up."""

    __slots__ = ()
    name = "is_step_given_up"
    repeatable = True
    row = IsStepGivenUpRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, step_id: UUID) -> None:
        self.values = (shard_key, session_key, step_id)


class ExpiredWindowRow(NamedTuple):
    flushed_through: int
    token_flush_size: int
    entries: str


class ExpiredWindow(Query[ExpiredWindowRow]):
    """What a life that expired has not delivered: its mark, and of each message [seq, role, tokens, calls,
    answers, bytes], in order; and by what size it is to be divided.
    """

    __slots__ = ()
    name = "expired_window"
    row = ExpiredWindowRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, incarnation: UUID) -> None:
        self.values = (shard_key, session_key, incarnation)


class DeliverExpiredRow(NamedTuple):
    is_first: bool


class DeliverExpired(Query[DeliverExpiredRow]):
    """Record events for it, and make them due (deliver_expired_v1)."""

    __slots__ = ()
    name = "deliver_expired"
    row = DeliverExpiredRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        incarnation: UUID,
        old_flushed_through: int,
        event_ids: list[UUID],
        from_seqs: list[int],
        through_seqs: list[int],
        tokens: list[int],
        messages: list[int],
        version: int,
    ) -> None:
        self.values = (
            shard_key,
            session_key,
            incarnation,
            old_flushed_through,
            event_ids,
            from_seqs,
            through_seqs,
            tokens,
            messages,
            version,
        )


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


class BeginAttempt(Query[BeginAttemptRow]):
    """Take up a step that no other process has begun within some seconds; no row if one has."""

    __slots__ = ()
    name = "begin_attempt"
    row = BeginAttemptRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, from_seq: int, busy_seconds: float) -> None:
        self.values = (shard_key, session_key, from_seq, busy_seconds)


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


class LeavingMessages(Query[LeavingMessagesRow]):
    """The messages of a step as they are stored, in order, each with a digest of all of them."""

    __slots__ = ()
    name = "leaving_messages"
    row = LeavingMessagesRow

    def __init__(self, *, session_key: UUID, shard_key: UUID, from_seq: int, through_seq: int) -> None:
        self.values = (session_key, shard_key, from_seq, through_seq)


class NameObjectRow(NamedTuple):
    step_id: UUID


class NameObject(Query[NameObjectRow]):
    """Write down under which name the messages of a step will be in the archive, before they are; no row if
    another process has taken it up. In a transaction that has looked at the fence: until it commits, none
    is set.
    """

    __slots__ = ()
    name = "name_object"
    row = NameObjectRow

    def __init__(
        self, *, object_name: str | None, shard_key: UUID, session_key: UUID, from_seq: int, step_id: UUID
    ) -> None:
        self.values = (object_name, shard_key, session_key, from_seq, step_id)


class ArchiveIsUsedRow(NamedTuple):
    is_used: bool


class ArchiveIsUsed(Query[ArchiveIsUsedRow]):
    """Whether messages of anybody were ever put into an archive."""

    __slots__ = ()
    name = "archive_is_used"
    repeatable = True
    row = ArchiveIsUsedRow

    def __init__(self, *, archive: str) -> None:
        self.values = (archive,)


class ArchiveFoldersRow(NamedTuple):
    archive: str


class ArchiveFolders(Query[ArchiveFoldersRow]):
    """The folders that were ever named as archives."""

    __slots__ = ()
    name = "archive_folders"
    row = ArchiveFoldersRow


class MarkArchivedRow(NamedTuple):
    step_id: UUID


class MarkArchived(Query[MarkArchivedRow]):
    """Record that the messages of a step are in the archive; not of an owner who is being erased."""

    __slots__ = ()
    name = "mark_archived"
    row = MarkArchivedRow

    def __init__(
        self,
        *,
        object_digest: str | None,
        rows_digest: str,
        messages: int,
        shard_key: UUID,
        session_key: UUID,
        from_seq: int,
        step_id: UUID,
    ) -> None:
        self.values = (object_digest, rows_digest, messages, shard_key, session_key, from_seq, step_id)


class MarkReadBackRow(NamedTuple):
    step_id: UUID


class MarkReadBack(Query[MarkReadBackRow]):
    """Record that what is in the archive was read, and is what was written."""

    __slots__ = ()
    name = "mark_read_back"
    row = MarkReadBackRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, from_seq: int, step_id: UUID) -> None:
        self.values = (shard_key, session_key, from_seq, step_id)


class RemoveMessagesRow(NamedTuple):
    status: str
    removed: int
    touched: list[UUID]


class RemoveMessages(Query[RemoveMessagesRow]):
    """Take the messages of a step out of the log (remove_messages_v1)."""

    __slots__ = ()
    name = "remove_messages"
    row = RemoveMessagesRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, from_seq: int, step_id: UUID) -> None:
        self.values = (shard_key, session_key, from_seq, step_id)


class GiveUpAttempt(Query[Never]):
    """Record why an attempt failed; it is repeated after a while, or at once."""

    __slots__ = ()
    name = "give_up_attempt"

    def __init__(
        self, *, reason: str, at_once: bool, shard_key: UUID, session_key: UUID, from_seq: int, step_id: UUID
    ) -> None:
        self.values = (reason, at_once, shard_key, session_key, from_seq, step_id)


class DropStep(Query[Never]):
    """Remove a step of which nothing has left the log."""

    __slots__ = ()
    name = "drop_step"

    def __init__(self, *, shard_key: UUID, session_key: UUID, from_seq: int, step_id: UUID) -> None:
        self.values = (shard_key, session_key, from_seq, step_id)


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


class ArchivedObjects(Query[ArchivedObjectsRow]):
    """What an owner, or one of its sessions, has in archives: ranges that left the log, in order, and those
    on their way.
    """

    __slots__ = ()
    name = "archived_objects"
    repeatable = True
    row = ArchivedObjectsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID | None) -> None:
        self.values = (shard_key, session_key)


class RestoreRangeRow(NamedTuple):
    status: str
    messages: int


class RestoreRange(Query[RestoreRangeRow]):
    """Put archived messages into a session of their own (restore_session_v1)."""

    __slots__ = ()
    name = "restore_range"
    row = RestoreRangeRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        old_key: UUID,
        policy: str,
        event_id: UUID,
        before_id: UUID | None,
        from_seq: int,
        through_seq: int,
        messages: str,
    ) -> None:
        self.values = (
            shard_key,
            session_key,
            old_key,
            policy,
            event_id,
            before_id,
            from_seq,
            through_seq,
            messages,
        )


class OpenArchivedRow(NamedTuple):
    shard_key: UUID
    id: str
    envelope: str
    metadata: str | None


class OpenArchived(Query[OpenArchivedRow]):
    """Messages of an owner as an archive holds them, for the drivers to open."""

    __slots__ = ()
    name = "open_archived"
    repeatable = True
    row = OpenArchivedRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(2, "json", "message", 1),
            Mark(3, "json", "metadata", 1),
        ),
    )

    def __init__(
        self, *, shard_key: UUID, ids: list[str], envelopes: list[str], metadata: list[str | None]
    ) -> None:
        self.values = (shard_key, ids, envelopes, metadata)


class InsertArchivedInput(Query[Never]):
    """Messages from the archive for a derivation to be made of; those that are there stay."""

    __slots__ = ()
    name = "insert_archived_input"

    def __init__(self, *, shard_key: UUID, session_key: UUID, generation_id: int, messages: str) -> None:
        self.values = (shard_key, session_key, generation_id, messages)


class ForgetArchivedInput(Query[Never]):
    """The derivation is made: messages that it was made of are in the archive alone."""

    __slots__ = ()
    name = "forget_archived_input"

    def __init__(self, *, shard_key: UUID, generation_id: int) -> None:
        self.values = (shard_key, generation_id)


class OwnersWithInputRow(NamedTuple):
    shard_key: UUID


class OwnersWithInput(Query[OwnersWithInputRow]):
    """Owners for whom messages were taken from the archive for a derivation."""

    __slots__ = ()
    name = "owners_with_input"
    row = OwnersWithInputRow

    def __init__(self, *, generation_id: int, after: UUID, limit: int) -> None:
        self.values = (generation_id, after, limit)


class CarryBaseRow(NamedTuple):
    events: int


class CarryBase(Query[CarryBaseRow]):
    """Begin a derivation of an owner with what the one that serves keeps of removed messages (carry_base_v1)."""

    __slots__ = ()
    name = "carry_base"
    row = CarryBaseRow

    def __init__(self, *, shard_key: UUID, generation_id: int, old_id: int, stages: list[str]) -> None:
        self.values = (shard_key, generation_id, old_id, stages)


class RemovedEventsRow(NamedTuple):
    events: int


class RemovedEvents(Query[RemovedEventsRow]):
    """How many events of an owner have lost their messages to retention, of those that a derivation has
    applied.
    """

    __slots__ = ()
    name = "removed_events"
    row = RemovedEventsRow

    def __init__(self, *, shard_key: UUID, generation_id: int) -> None:
        self.values = (shard_key, generation_id)


class BeginRunRow(NamedTuple):
    run_id: int


class BeginRun(Query[BeginRunRow]):
    """Begin a pass over all sessions, of a namespace or all, unless one is under way or has just been."""

    __slots__ = ()
    name = "begin_run"
    row = BeginRunRow

    def __init__(self, *, namespace: str | None, interval_seconds: float) -> None:
        self.values = (namespace, interval_seconds)


class TakeRunRow(NamedTuple):
    run_id: int
    position_shard: UUID | None
    position_session: UUID | None


class TakeRun(Query[TakeRunRow]):
    """The pass that is under way, locked, so that each of its pages is taken once."""

    __slots__ = ()
    name = "take_run"
    row = TakeRunRow

    def __init__(self, *, namespace: str | None) -> None:
        self.values = (namespace,)


class AdvanceRun(Query[Never]):
    """How far a pass is; done if there are no more sessions."""

    __slots__ = ()
    name = "advance_run"

    def __init__(
        self, *, position_shard: UUID | None, position_session: UUID | None, is_done: bool, run_id: int
    ) -> None:
        self.values = (position_shard, position_session, is_done, run_id)


class CountRun(Query[Never]):
    """Add to what a pass has done."""

    __slots__ = ()
    name = "count_run"

    def __init__(self, *, counts: str, run_id: int) -> None:
        self.values = (counts, run_id)


class RetentionRunsRow(NamedTuple):
    run_id: int
    namespace: str | None
    state: str
    counts: str
    started_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class RetentionRuns(Query[RetentionRunsRow]):
    """The last passes, newest first."""

    __slots__ = ()
    name = "retention_runs"
    row = RetentionRunsRow

    def __init__(self, *, limit: int) -> None:
        self.values = (limit,)


class ForgetRuns(Query[Never]):
    """Passes of longer ago than a month need not be known."""

    __slots__ = ()
    name = "forget_runs"


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


class OpenSteps(Query[OpenStepsRow]):
    """Steps under way, those longest first that nobody works on."""

    __slots__ = ()
    name = "open_steps"
    row = OpenStepsRow

    def __init__(self, *, namespace: str | None, limit: int) -> None:
        self.values = (namespace, limit)


class RetentionTotalsRow(NamedTuple):
    removed: int
    kept: int
    archived: int
    open_steps: int
    failing_steps: int
    waiting_lives: int


class RetentionTotals(Query[RetentionTotalsRow]):
    """Of a namespace or all: what has left the log, what is under way, and what waits."""

    __slots__ = ()
    name = "retention_totals"
    row = RetentionTotalsRow

    def __init__(self, *, namespace: str | None) -> None:
        self.values = (namespace,)


class RetainedNamespacesRow(NamedTuple):
    namespace: str
    ages: str


class RetainedNamespaces(Query[RetainedNamespacesRow]):
    """Namespaces whose newest act names ages of what grows beside the log."""

    __slots__ = ()
    name = "retained_namespaces"
    row = RetainedNamespacesRow


class AgedOwnersRow(NamedTuple):
    shard_key: UUID


class AgedOwners(Query[AgedOwnersRow]):
    """The next owners of a namespace, for what grows beside their logs; also those who have facts and no
    session.
    """

    __slots__ = ()
    name = "aged_owners"
    row = AgedOwnersRow

    def __init__(self, *, namespace: str, after: UUID, limit: int) -> None:
        self.values = (namespace, after, limit)


class ForgetOldAnswersRow(NamedTuple):
    batch_id: UUID


class ForgetOldAnswers(Query[ForgetOldAnswersRow]):
    """Answers of batches that ended so long ago. A replay in place asks a model again for what it lacks, and
    leaves facts as they are.
    """

    __slots__ = ()
    name = "forget_old_answers"
    row = ForgetOldAnswersRow

    def __init__(self, *, shard_key: UUID, age_seconds: float, limit: int) -> None:
        self.values = (shard_key, age_seconds, limit)


class ForgetOldCallsRow(NamedTuple):
    call_id: UUID


class ForgetOldCalls(Query[ForgetOldCallsRow]):
    """The ledger of calls so long ago."""

    __slots__ = ()
    name = "forget_old_calls"
    row = ForgetOldCallsRow

    def __init__(self, *, shard_key: UUID, age_seconds: float, limit: int) -> None:
        self.values = (shard_key, age_seconds, limit)


class ForgetOldTracesRow(NamedTuple):
    number: int


class ForgetOldTraces(Query[ForgetOldTracesRow]):
    """What tombstones recognise by: after so long, the words of what a person took away are new knowledge if
    a replay finds them.
    """

    __slots__ = ()
    name = "forget_old_traces"
    row = ForgetOldTracesRow

    def __init__(self, *, shard_key: UUID, age_seconds: float, limit: int) -> None:
        self.values = (shard_key, age_seconds, limit)


class ForgetEndedFactsRow(NamedTuple):
    fact_id: UUID


class ForgetEndedFacts(Query[ForgetEndedFactsRow]):
    """Facts that ended so long ago because of another, with their revisions, and the candidates that only
    these were made of. Lanes and facts are locked first, as an edit locks them: one that a correction or
    an edit revives meanwhile stays.
    """

    __slots__ = ()
    name = "forget_ended_facts"
    row = ForgetEndedFactsRow

    def __init__(self, *, shard_key: UUID, age_seconds: float, limit: int) -> None:
        self.values = (shard_key, age_seconds, limit)
