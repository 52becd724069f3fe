"""The statements of ``schemas/sql/verify.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class VerifySnapshot(Query[Never]):
    """All questions see the same moment, so that a running system verifies clean."""

    __slots__ = ()
    name = "verify_snapshot"


class VerifyLimitsRow(NamedTuple):
    a: str
    b: str
    c: str
    d: str
    e: str
    f: str


class VerifyLimits(Query[VerifyLimitsRow]):
    """Big joins may take their time and memory here, and only here."""

    __slots__ = ()
    name = "verify_limits"
    row = VerifyLimitsRow


class VerifyOwnersRow(NamedTuple):
    shard_key: UUID


class VerifyOwners(Query[VerifyOwnersRow]):
    """The owners that have sessions in a namespace, or were given facts there."""

    __slots__ = ()
    name = "verify_owners"
    row = VerifyOwnersRow

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class VerifyFindSessionRow(NamedTuple):
    owner_key: UUID
    session_key: UUID


class VerifyFindSession(Query[VerifyFindSessionRow]):
    """The keys of a session by its name."""

    __slots__ = ()
    name = "verify_find_session"
    row = VerifyFindSessionRow

    def __init__(self, *, namespace: str, session_id: str) -> None:
        self.values = (namespace, session_id)


class VerifyUnjudgedRow(NamedTuple):
    erasure: int
    namespace: str
    owner_key: UUID


class VerifyUnjudged(Query[VerifyUnjudgedRow]):
    """Owners that are not checked, since an erasure of theirs, or of one of their sessions, is not finished."""

    __slots__ = ()
    name = "verify_unjudged"
    row = VerifyUnjudgedRow

    def __init__(self, *, namespace: str | None, session_key: UUID | None, owners: list[UUID] | None) -> None:
        self.values = (namespace, session_key, owners)


class VerifyNamesRow(NamedTuple):
    session_key: UUID
    namespace: str
    session_id: str


class VerifyNames(Query[VerifyNamesRow]):
    """The names of these sessions."""

    __slots__ = ()
    name = "verify_names"
    row = VerifyNamesRow

    def __init__(self, *, session_keys: list[UUID]) -> None:
        self.values = (session_keys,)


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


class VerifyTotals(Query[VerifyTotalsRow]):
    """Totals of what was checked."""

    __slots__ = ()
    name = "verify_totals"
    row = VerifyTotalsRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyLogRow(NamedTuple):
    kind: str
    place: str


class VerifyLog(Query[VerifyLogRow]):
    """Marks in order, no message missing between them but those popped, and counters that are the messages'
    sums.
    """

    __slots__ = ()
    name = "verify_log"
    row = VerifyLogRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyStraysRow(NamedTuple):
    kind: str
    place: str


class VerifyStrays(Query[VerifyStraysRow]):
    """Messages outside their session's log: without session, past its end, or of the wrong incarnation."""

    __slots__ = ()
    name = "verify_strays"
    row = VerifyStraysRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyRetentionRow(NamedTuple):
    kind: str
    place: str


class VerifyRetention(Query[VerifyRetentionRow]):
    """What retention took out of the log is gone, but for what is important; it was read back from its
    archive first; and it went from below, so that the log begins where it ended.
    """

    __slots__ = ()
    name = "verify_retention"
    row = VerifyRetentionRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyRangesRow(NamedTuple):
    kind: str
    place: str


class VerifyRanges(Query[VerifyRangesRow]):
    """Each seq between the marks in exactly one event: contiguous, in order, none beyond the marks."""

    __slots__ = ()
    name = "verify_ranges"
    row = VerifyRangesRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyEventContentsRow(NamedTuple):
    kind: str
    place: str


class VerifyEventContents(Query[VerifyEventContentsRow]):
    """An event's counts agree with its messages, and with those that corrections took out of it.  The
    incarnation is counted, not searched for: with it in the condition the index by id is taken, and each
    event reads its whole session.
    """

    __slots__ = ()
    name = "verify_event_contents"
    row = VerifyEventContentsRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyCorrectionsRow(NamedTuple):
    kind: str
    place: str


class VerifyCorrections(Query[VerifyCorrectionsRow]):
    """Corrections are numbered without a gap, each with what it superseded; what a rewind took is not in the
    log, and nothing that was derived of superseded words counts: no batch from before a correction is
    applied that read one of its messages, as such or as context.
    """

    __slots__ = ()
    name = "verify_corrections"
    row = VerifyCorrectionsRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyWorkRow(NamedTuple):
    kind: str
    place: str


class VerifyWork(Query[VerifyWorkRow]):
    """Each event is due or received in the first stage of each generation it was fed to, and in a later stage
    once the one before it is applied.  A generation is owed what was flushed since it was fed; one that a
    replay has filled from the log, everything.
    """

    __slots__ = ()
    name = "verify_work"
    row = VerifyWorkRow

    def __init__(
        self,
        *,
        stages: list[str],
        stages_before: list[str],
        owners: list[UUID] | None,
        session_key: UUID | None,
    ) -> None:
        self.values = (stages, stages_before, owners, session_key)


class VerifyOrderRow(NamedTuple):
    kind: str
    place: str


class VerifyOrder(Query[VerifyOrderRow]):
    """Nothing is due or received in a later stage before the one before it is applied."""

    __slots__ = ()
    name = "verify_order"
    row = VerifyOrderRow

    def __init__(
        self,
        *,
        stages: list[str],
        stages_before: list[str],
        owners: list[UUID] | None,
        session_key: UUID | None,
    ) -> None:
        self.values = (stages, stages_before, owners, session_key)


class VerifyDueRow(NamedTuple):
    kind: str
    place: str


class VerifyDue(Query[VerifyDueRow]):
    """Due work belongs to an event, and to one that has not been received already."""

    __slots__ = ()
    name = "verify_due"
    row = VerifyDueRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyReceiptsRow(NamedTuple):
    kind: str
    place: str


class VerifyReceipts(Query[VerifyReceiptsRow]):
    """Each receipt stands for an event and for what it says: applied by its batch, void by a reset or since
    its messages were removed, or dead with its dead letter, which stays when it is dropped.
    """

    __slots__ = ()
    name = "verify_receipts"
    row = VerifyReceiptsRow

    def __init__(
        self,
        *,
        stages: list[str],
        stages_before: list[str],
        owners: list[UUID] | None,
        session_key: UUID | None,
    ) -> None:
        self.values = (stages, stages_before, owners, session_key)


class VerifyLettersRow(NamedTuple):
    kind: str
    place: str


class VerifyLetters(Query[VerifyLettersRow]):
    """Each dead letter has its event, and a receipt that says dead."""

    __slots__ = ()
    name = "verify_letters"
    row = VerifyLettersRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyBatchesRow(NamedTuple):
    kind: str
    place: str


class VerifyBatches(Query[VerifyBatchesRow]):
    """An open batch is still to be done, all of it; an applied one has the receipt of each of its events.
    Events that a reset with derived has deleted no longer concern batches that are over.
    """

    __slots__ = ()
    name = "verify_batches"
    row = VerifyBatchesRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyContextsRow(NamedTuple):
    kind: str
    place: str


class VerifyContexts(Query[VerifyContextsRow]):
    """The context of a batch is what its recipe makes of the log: the lines before its first event, without
    those that a person took back; and none if the event had failed before.  When a person did so is not
    asked: a line that was shown before it was taken back, or while it was, is not wrong.  A fork's batch
    of what it took over, which no worker began (its epoch is 0), shows none.
    """

    __slots__ = ()
    name = "verify_contexts"
    row = VerifyContextsRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyCapturesRow(NamedTuple):
    kind: str
    place: str


class VerifyCaptures(Query[VerifyCapturesRow]):
    """A batch of facts names an act on capturing that applied to each of its events, and what that act was."""

    __slots__ = ()
    name = "verify_captures"
    row = VerifyCapturesRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyCandidatesRow(NamedTuple):
    kind: str
    place: str


class VerifyCandidates(Query[VerifyCandidatesRow]):
    """Candidates come from the batch that their event's receipt names, and each was folded in once merged, or
    was dropped because of a person's event.
    """

    __slots__ = ()
    name = "verify_candidates"
    row = VerifyCandidatesRow

    def __init__(
        self,
        *,
        stages: list[str],
        stages_before: list[str],
        owners: list[UUID] | None,
        session_key: UUID | None,
    ) -> None:
        self.values = (stages, stages_before, owners, session_key)


class VerifyChunksRow(NamedTuple):
    kind: str
    place: str


class VerifyChunks(Query[VerifyChunksRow]):
    """Chunks come from the batch that their event's receipt names, and lie within their event; those of
    shared scopes are verify_shared's.
    """

    __slots__ = ()
    name = "verify_chunks"
    row = VerifyChunksRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifySearchableRow(NamedTuple):
    kind: str
    place: str
    shard_key: UUID
    id: str
    envelope: str | None


class VerifySearchable(Query[VerifySearchableRow]):
    """What an event brought to vectors can be found: each of its messages that has words has a chunk once the
    event is applied.  Messages are looked at where a session has fewer chunks than messages, and only
    contents of plain text.  Of sealed ones, if they are asked for, the envelope comes as well: only who
    has opened it can tell whether it has words.
    """

    __slots__ = ()
    name = "verify_searchable"
    row = VerifySearchableRow
    marks = Marks(owner=None, owner_column=2, opens=(Mark(4, "json", "message", 3),))

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None, with_sealed: bool) -> None:
        self.values = (owners, session_key, with_sealed)


class VerifySharedRow(NamedTuple):
    kind: str
    place: str


class VerifyShared(Query[VerifySharedRow]):
    """Rows of a shared scope come from the events of sessions that share with it, of incarnations that were
    not forgotten; and nothing that such a session has received is missing there.
    """

    __slots__ = ()
    name = "verify_shared"
    row = VerifySharedRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifySharedCorrectionsRow(NamedTuple):
    kind: str
    place: str


class VerifySharedCorrections(Query[VerifySharedCorrectionsRow]):
    """No copy in a shared scope is of a message that a correction took back or replaced, unless its event is
    due for vectors: the worker that derives it removes the copy.
    """

    __slots__ = ()
    name = "verify_shared_corrections"
    row = VerifySharedCorrectionsRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyStatesRow(NamedTuple):
    kind: str
    place: str


class VerifyStates(Query[VerifyStatesRow]):
    """A state stands for one applied batch of its lane, and ends where that batch ends."""

    __slots__ = ()
    name = "verify_states"
    row = VerifyStatesRow

    def __init__(self, *, owners: list[UUID] | None, session_key: UUID | None) -> None:
        self.values = (owners, session_key)


class VerifyFactsRow(NamedTuple):
    kind: str
    place: str


class VerifyFacts(Query[VerifyFactsRow]):
    """A fact begins with an addition, says what its newest change says, is live once, and if it ended, then
    because of another.  Where a session of the owner was reset, corrected or erased, sources may be gone:
    those are tombstones. A person may have deleted the fact that replaced another; a fact that a person
    deleted is not live.
    """

    __slots__ = ()
    name = "verify_facts"
    row = VerifyFactsRow

    def __init__(self, *, owners: list[UUID] | None) -> None:
        self.values = (owners,)


class VerifyRevisionsRow(NamedTuple):
    kind: str
    place: str


class VerifyRevisions(Query[VerifyRevisionsRow]):
    """Where a fact comes from can be followed: its event, its messages, and the batches that made it."""

    __slots__ = ()
    name = "verify_revisions"
    row = VerifyRevisionsRow

    def __init__(
        self,
        *,
        stages: list[str],
        stages_before: list[str],
        owners: list[UUID] | None,
        session_key: UUID | None,
    ) -> None:
        self.values = (stages, stages_before, owners, session_key)


class VerifyGenerationsRow(NamedTuple):
    kind: str
    place: str


class VerifyGenerations(Query[VerifyGenerationsRow]):
    """A derivation that serves some owners apart is fed for them; and each pipeline has one that serves the
    rest.
    """

    __slots__ = ()
    name = "verify_generations"
    row = VerifyGenerationsRow

    def __init__(self, *, owners: list[UUID] | None) -> None:
        self.values = (owners,)


class VerifyCoverageRow(NamedTuple):
    generation_id: int
    pipeline: str
    state: str
    applied: int
    due: int
    holes: int


class VerifyCoverage(Query[VerifyCoverageRow]):
    """Per derivation that is kept: what it has applied to the end, what is due, and its holes."""

    __slots__ = ()
    name = "verify_coverage"
    row = VerifyCoverageRow

    def __init__(
        self,
        *,
        stages: list[str],
        stages_before: list[str],
        owners: list[UUID] | None,
        session_key: UUID | None,
    ) -> None:
        self.values = (stages, stages_before, owners, session_key)


class VerifyFactPageRow(NamedTuple):
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    text: str
    fingerprint: bytes


class VerifyFactPage(Query[VerifyFactPageRow]):
    """Facts with their texts and fingerprints, page by page: Python decides when two texts are the same."""

    __slots__ = ()
    name = "verify_fact_page"
    row = VerifyFactPageRow
    marks = Marks(
        owner=None,
        owner_column=0,
        opens=(
            Mark(3, "text", "fact"),
            Mark(4, "fingerprint", "", 3),
        ),
    )

    def __init__(
        self,
        *,
        owners: list[UUID] | None,
        after_shard: UUID,
        after_generation: int,
        after_fact: UUID,
        page_size: int,
    ) -> None:
        self.values = (owners, after_shard, after_generation, after_fact, page_size)


class VerifyErasedRow(NamedTuple):
    kind: str
    place: str


class VerifyErased(Query[VerifyErasedRow]):
    """Rows of users and sessions that were erased, by table (erased_rows_v1)."""

    __slots__ = ()
    name = "verify_erased"
    row = VerifyErasedRow
