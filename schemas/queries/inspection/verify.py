"""The statements of ``schemas/sql/verify.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import FindingRow, ShardKeyRow
from strandline.schemas.sealing.marks import Mark, Marks


class VerifySnapshot(Query[Never], name="verify_snapshot"):
    """All questions see the same moment, so that a running system verifies clean."""


class VerifyLimitsRow(NamedTuple):
    a: str
    b: str
    c: str
    d: str
    e: str
    f: str


class VerifyLimits(Query[VerifyLimitsRow], name="verify_limits"):
    """Big joins may take their time and memory here, and only here."""


class VerifyOwners(Query[ShardKeyRow], name="verify_owners", repeatable=True):
    """The owners that have sessions in a namespace, or were given facts there."""

    namespace: str


class VerifyUnjudgedRow(NamedTuple):
    erasure: int
    namespace: str
    owner_key: UUID


class VerifyUnjudged(Query[VerifyUnjudgedRow], name="verify_unjudged", repeatable=True):
    """Owners that are not checked, since an erasure of theirs, or of one of their sessions, is not finished."""

    namespace: str | None
    session_key: UUID | None
    owners: list[UUID] | None


class VerifyNamesRow(NamedTuple):
    session_key: UUID
    namespace: str
    session_id: str


class VerifyNames(Query[VerifyNamesRow], name="verify_names", repeatable=True):
    """The names of these sessions."""

    session_keys: list[UUID]


class VerifyTotalsRow(NamedTuple):
    sessions: int
    messages: int
    events: int
    facts: int
    pending: int
    holes: int
    applications: int
    voids: int
    dropped: int
    tombstones: int


class VerifyTotals(Query[VerifyTotalsRow], name="verify_totals", repeatable=True):
    """Totals of the checked rows."""

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyLog(Query[FindingRow], name="verify_log", repeatable=True):
    """Marks in order, no message missing between them but those popped, and counters that are the messages'
    sums.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyStrays(Query[FindingRow], name="verify_strays", repeatable=True):
    """Messages outside their session's log: without session, past its end, or of the wrong incarnation."""

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyRetention(Query[FindingRow], name="verify_retention", repeatable=True):
    """What retention took out of the log is gone, but for what is important; it was read back from its
    archive first; and it went from below, so that the log begins where it ended.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyRanges(Query[FindingRow], name="verify_ranges", repeatable=True):
    """Each seq between the marks in exactly one event: contiguous, in order, none beyond the marks."""

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyEventContents(Query[FindingRow], name="verify_event_contents", repeatable=True):
    """An event's counts agree with its messages, and with those that corrections took out of it.  The
    incarnation is counted, not searched for: with it in the condition the index by id is taken, and each
    event reads its whole session.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyCorrections(Query[FindingRow], name="verify_corrections", repeatable=True):
    """Corrections are numbered without a gap, each with what it superseded; what a rewind took is not in the
    log, and nothing that was derived of superseded words counts: no batch from before a correction is
    applied that read one of its messages, as such or as context.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyWork(Query[FindingRow], name="verify_work", repeatable=True):
    """Each event is due or received in the first stage of each generation it was fed to, and in a later stage
    once the one before it is applied.  A generation is owed what was flushed since it was fed; one that a
    replay has filled from the log, everything.
    """

    stages: list[str]
    stages_before: list[str]
    owners: list[UUID] | None
    session_key: UUID | None


class VerifyOrder(Query[FindingRow], name="verify_order", repeatable=True):
    """Nothing is due or received in a later stage before the one before it is applied."""

    stages: list[str]
    stages_before: list[str]
    owners: list[UUID] | None
    session_key: UUID | None


class VerifyDue(Query[FindingRow], name="verify_due", repeatable=True):
    """Due work belongs to an event, and to one that has not been received already."""

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyReceipts(Query[FindingRow], name="verify_receipts", repeatable=True):
    """Each receipt stands for an event and for what it says: applied by its batch, void by a reset or since
    its messages were removed, or dead with its dead letter, which stays when it is dropped.
    """

    stages: list[str]
    stages_before: list[str]
    owners: list[UUID] | None
    session_key: UUID | None


class VerifyLetters(Query[FindingRow], name="verify_letters", repeatable=True):
    """Each dead letter has its event, and a receipt that says dead."""

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyBatches(Query[FindingRow], name="verify_batches", repeatable=True):
    """An open batch is still to be done, all of it; an applied one has the receipt of each of its events.
    Events that a reset with derived has deleted no longer concern batches that are over.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyContexts(Query[FindingRow], name="verify_contexts", repeatable=True):
    """The context of a batch is what its recipe makes of the log: the lines before its first event, without
    those that a person took back; and none if the event had failed before.  When a person did so is not
    asked: a line that was shown before it was taken back, or while it was, is not wrong.  A fork's batch
    of what it took over, which no worker began (its epoch is 0), shows none.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyCaptures(Query[FindingRow], name="verify_captures", repeatable=True):
    """A batch of facts names an act on capturing that applied to each of its events, and what that act was."""

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyCandidates(Query[FindingRow], name="verify_candidates", repeatable=True):
    """Candidates come from the batch that their event's receipt names, and each was folded in once merged, or
    was dropped because of a person's event.
    """

    stages: list[str]
    stages_before: list[str]
    owners: list[UUID] | None
    session_key: UUID | None


class VerifyChunks(Query[FindingRow], name="verify_chunks", repeatable=True):
    """Chunks come from the batch that their event's receipt names, and lie within their event; those of
    shared scopes are verify_shared's.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifySearchableRow(NamedTuple):
    kind: str
    place: str
    shard_key: UUID
    id: str
    envelope: str | None


class VerifySearchable(Query[VerifySearchableRow], name="verify_searchable", repeatable=True):
    """What an event brought to vectors can be found: each of its messages that has words has a chunk once the
    event is applied.  Messages are looked at where a session has fewer chunks than messages, and only
    contents of plain text.  Of sealed ones, if they are asked for, the envelope comes as well: only who
    has opened it can tell whether it has words.
    """

    marks = Marks(owner=None, owner_column=2, opens=(Mark(4, "json", "message", 3),))
    owners: list[UUID] | None
    session_key: UUID | None
    with_sealed: bool


class VerifyShared(Query[FindingRow], name="verify_shared", repeatable=True):
    """Rows of a shared scope come from the events of sessions that share with it, of incarnations that were
    not forgotten; and nothing that such a session has received is missing there.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifySharedCorrections(Query[FindingRow], name="verify_shared_corrections", repeatable=True):
    """No copy in a shared scope is of a message that a correction took back or replaced, unless its event is
    due for vectors: the worker that derives it removes the copy.
    """

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyStates(Query[FindingRow], name="verify_states", repeatable=True):
    """A state stands for one applied batch of its lane, and ends where that batch ends."""

    owners: list[UUID] | None
    session_key: UUID | None


class VerifyFacts(Query[FindingRow], name="verify_facts", repeatable=True):
    """A fact begins with an addition, says what its newest change says, is live once, and if it ended, then
    because of another.  Where a session of the owner was reset, corrected or erased, sources may be gone:
    those are tombstones. A person may have deleted the fact that replaced another; a fact that a person
    deleted is not live.
    """

    owners: list[UUID] | None


class VerifyRevisions(Query[FindingRow], name="verify_revisions", repeatable=True):
    """Where a fact comes from can be followed: its event, its messages, and the batches that made it."""

    stages: list[str]
    stages_before: list[str]
    owners: list[UUID] | None
    session_key: UUID | None


class VerifyGenerations(Query[FindingRow], name="verify_generations", repeatable=True):
    """A derivation that serves some owners apart is fed for them; and each pipeline has one that serves the
    rest.
    """

    owners: list[UUID] | None


class VerifyCoverageRow(NamedTuple):
    generation_id: int
    pipeline: str
    state: str
    applied: int
    due: int
    holes: int


class VerifyCoverage(Query[VerifyCoverageRow], name="verify_coverage", repeatable=True):
    """Per derivation that is kept: what it has applied to the end, what is due, and its holes."""

    stages: list[str]
    stages_before: list[str]
    owners: list[UUID] | None
    session_key: UUID | None


class VerifyFactPageRow(NamedTuple):
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    text: str
    fingerprint: bytes


class VerifyFactPage(Query[VerifyFactPageRow], name="verify_fact_page", repeatable=True):
    """Facts with their texts and fingerprints, page by page: Python decides when two texts are the same."""

    marks = Marks(
        owner=None,
        owner_column=0,
        opens=(
            Mark(3, "text", "fact"),
            Mark(4, "fingerprint", "", 3),
        ),
    )
    owners: list[UUID] | None
    after_shard_key: UUID
    after_generation_id: int
    after_fact_id: UUID
    page_size: int


class VerifyErased(Query[FindingRow], name="verify_erased"):
    """Rows of users and sessions that were erased, by table (erased_rows_v1)."""
