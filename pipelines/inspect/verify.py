"""Verification: proves from the tables that nothing was lost, doubled or made up, or lists the violations.

Every question is one set-based statement (``schemas/sql/verify.sql``), and all of them see one
snapshot: work under way is due, which is not a violation, so a running system verifies clean. Facts that the
tables do not hold cannot be proved, such as when a reset happened, so that an event of an older incarnation
counts as ended whether it was applied or void.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.inspect.sessions import session_state
from strandline.schemas.display.shown_text import quote
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.deadlines import MAINTENANCE_SECONDS
from strandline.schemas.postgres.paging import pages, query_with
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.inspection.verify import (
    VerifyBatches,
    VerifyCandidates,
    VerifyCaptures,
    VerifyChunks,
    VerifyContexts,
    VerifyCorrections,
    VerifyCoverage,
    VerifyDue,
    VerifyErased,
    VerifyEventContents,
    VerifyFactPage,
    VerifyFacts,
    VerifyGenerations,
    VerifyLetters,
    VerifyLimits,
    VerifyLog,
    VerifyNames,
    VerifyOrder,
    VerifyOwners,
    VerifyRanges,
    VerifyReceipts,
    VerifyRetention,
    VerifyRevisions,
    VerifySearchable,
    VerifySearchableRow,
    VerifyShared,
    VerifySharedCorrections,
    VerifySnapshot,
    VerifyStates,
    VerifyStrays,
    VerifyTotals,
    VerifyUnjudged,
    VerifyWork,
)
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.values.lanes import PIPELINES
from strandline.schemas.values.normal_form import fingerprint
from strandline.schemas.wire import report


class Violation(report.Report):
    """Something that is not as it must be: its kind, one sentence, and the ids to look for."""

    kind: str
    sentence: str
    namespace: str | None = None
    session_id: str | None = None
    session_key: UUID | None = None
    event_id: UUID | None = None
    fact_id: UUID | None = None
    batch_id: UUID | None = None
    revision: int | None = None
    generation: int | None = None
    stage: str | None = None
    from_seq: int | None = None
    through_seq: int | None = None
    found: int | None = None
    expected: int | None = None
    table: str | None = None


class Coverage(report.Report):
    """One kept generation: its last applied event, due work, and holes."""

    generation: int
    pipeline: str
    state: str
    applied: int
    due: int
    holes: int


class Unjudged(report.Report):
    """An owner whose rows were not checked: an erasure takes them table by table, and is not finished."""

    erasure: int
    namespace: str
    owner_key: UUID


class Report(report.Report):
    """The totals of the checks, the work under way, and the violations.

    Attributes:
        applications: receipts of (event, stage, generation) that say applied; ``voids`` say void.
        pending: due work; it is under way, and not a violation.
        holes: dead letters; ``dropped`` ones were given up for good.
        tombstones: facts that lost some of their sources to a reset with ``derived``.
        seconds: how long it took.
        generations: the coverage of each derivation that is kept.
        unjudged: the owners that were not checked.
    """

    messages: int
    events: int
    sessions: int
    facts: int
    applications: int
    voids: int
    pending: int
    holes: int
    dropped: int
    tombstones: int
    seconds: float
    generations: tuple[Coverage, ...]
    violations: tuple[Violation, ...]
    unjudged: tuple[Unjudged, ...] = ()


class ScopeParams(TypedDict):
    owners: list[UUID] | None
    session_key: UUID | None


class StageChain(TypedDict):
    """Each later stage with the one before it, as parallel arrays for the statements."""

    stages: list[str]
    stages_before: list[str]


class Scope(NamedTuple):
    """The scope of a check: everything, the owners of a namespace, or one session and its owner's facts."""

    owners: list[UUID] | None = None
    session_key: UUID | None = None

    @property
    def params(self) -> ScopeParams:
        return {"owners": self.owners, "session_key": self.session_key}


CHECKS: Mapping[str, type[Query[Any]]] = {
    "logs, marks and token counts": VerifyLog,
    "messages outside their log": VerifyStrays,
    "what retention removed": VerifyRetention,
    "coverage by flush events": VerifyRanges,
    "contents of flush events": VerifyEventContents,
    "corrections": VerifyCorrections,
    "generations that serve": VerifyGenerations,
    "work neither due nor received": VerifyWork,
    "order of stages": VerifyOrder,
    "due work": VerifyDue,
    "receipts": VerifyReceipts,
    "dead letters": VerifyLetters,
    "batches": VerifyBatches,
    "context of batches": VerifyContexts,
    "acts on capturing": VerifyCaptures,
    "candidates": VerifyCandidates,
    "chunks": VerifyChunks,
    "messages without chunks": VerifySearchable,
    "shared messages": VerifyShared,
    "shared messages that were corrected": VerifySharedCorrections,
    "states": VerifyStates,
    "facts": VerifyFacts,
    "provenance of facts": VerifyRevisions,
    "erased users and sessions": VerifyErased,
}


def stage_chain() -> StageChain:
    chains = (pairwise(pipeline.stages) for pipeline in PIPELINES.values())
    pairs = [(after, before) for chain in chains for before, after in chain]
    return {"stages": [pair[0] for pair in pairs], "stages_before": [pair[1] for pair in pairs]}


Progress = Callable[[str, int, int], None]

FACT_PAGE = 10_000

_WORK = "Event {event_id} of {session}, stage {stage} (generation {generation})"

SENTENCES: Mapping[str, str] = {
    "message_missing": "Messages {from_seq} to {through_seq} of {session} are missing from the log.",
    "message_stray": "Message {from_seq} of {session} lies outside its session's log.",
    "window_tokens_wrong": "{session} counts {found} tokens in its window; its messages have {expected}.",
    "window_messages_wrong": "{session} counts {found} messages in its window; it has {expected}.",
    "window_bytes_wrong": "{session} counts {found} bytes in its window; its messages have {expected}.",
    "pinned_tokens_wrong": "{session} counts {found} tokens in its head; its messages have {expected}.",
    "marks_out_of_order": (
        "The marks of {session} contradict each other (flushed through {found}, next {expected})."
    ),
    "removed_present": (
        "Messages {from_seq} to {through_seq} of {session} count as removed by its retention, but {found} of"
        " them are in the log and not important."
    ),
    "removed_unarchived": (
        "Messages {from_seq} to {through_seq} of {session} were removed before they were read back from"
        " their archive."
    ),
    "removed_out_of_order": (
        "Messages {from_seq} to {through_seq} of {session} are older than messages that its retention"
        " removed, and still in the log."
    ),
    "delivered_never": (
        "Messages {from_seq} to {through_seq} of {session} count as flushed, but no event covers them."
    ),
    "delivered_twice": (
        "Messages {from_seq} to {through_seq} of {session} are in event {event_id} and in an earlier one."
    ),
    "event_beyond_marks": (
        "Event {event_id} of {session} covers {from_seq} to {through_seq}, beyond the session's marks."
    ),
    "event_without_session": "Event {event_id} belongs to a session that does not exist ({session}).",
    "event_count_wrong": "Event {event_id} of {session} says {found} messages; the log holds {expected}.",
    "event_tokens_wrong": "Event {event_id} of {session} says {found} tokens; the log holds {expected}.",
    "correction_missing": (
        "{session} counts {expected} corrections; {found} are recorded, or their numbers have a gap."
    ),
    "superseded_stray": (
        "Message {from_seq} of {session} counts as superseded by correction {found}, which is not recorded or"
        " does not concern it."
    ),
    "superseded_shown": (
        "Message {from_seq} of {session} was taken back by correction {found}, and is in the log."
    ),
    "superseded_derived": (
        _WORK
        + " is in the applied batch {batch_id}, which read message {from_seq} before correction {found}."
    ),
    "work_missing": _WORK + " is neither due nor received: it would never be applied.",
    "work_ahead": _WORK + " is due or received before the stage before it was applied.",
    "due_without_event": _WORK + " is due, but no such event is recorded.",
    "work_of_no_pipeline": _WORK + " is due or received, but its session does not feed that pipeline.",
    "served_by_none": "Generation {generation} of {stage} is to serve owners, but it is not fed.",
    "served_by_nobody": "No generation of {stage} serves (the newest is {generation}).",
    "due_and_received": _WORK + " is due and received: it would be applied twice.",
    "receipt_without_event": (
        "A receipt in stage {stage} (generation {generation}) is for an unknown event, {event_id}."
    ),
    "applied_without_batch": _WORK + " counts as applied, but no applied batch covers it.",
    "dead_without_letter": _WORK + " counts as dead, but has neither a dead letter nor a record of its drop.",
    "void_without_reset": _WORK + " counts as void, but its session was not reset.",
    "letter_without_receipt": _WORK + " is a dead letter without its event or its receipt.",
    "open_batch_without_event": (
        "Batch {batch_id} in stage {stage} (generation {generation}) is open for an unknown event,"
        " {event_id}."
    ),
    "open_batch_not_due": _WORK + " is in the open batch {batch_id}, but is not due.",
    "applied_batch_without_receipt": (
        _WORK + " is in the applied batch {batch_id}, but its receipt is missing or names another batch."
    ),
    "context_wrong": (
        "Batch {batch_id} of {session}, stage {stage} (generation {generation}), shows {found} lines before"
        " its events as context; its recipe makes that {expected}, or other ones."
    ),
    "candidate_unreceipted": _WORK + " has a candidate of batch {batch_id}, which its receipt does not name.",
    "candidate_not_folded": _WORK + " has a candidate of batch {batch_id} that was merged and left no trace.",
    "candidate_dropped_by_nobody": (
        _WORK + " has a candidate of batch {batch_id} that was dropped, but no person's event dropped it."
    ),
    "candidate_withheld_by_nobody": (
        _WORK + " has a candidate of batch {batch_id} that was withheld, but no act on capturing does so."
    ),
    "capture_wrong": (
        _WORK + " is in batch {batch_id}, which names an act on capturing that did not apply to it."
    ),
    "chunk_unreceipted": (
        _WORK + " has chunk {from_seq} to {through_seq} of batch {batch_id}, which its receipt does not name."
    ),
    "chunk_outside_event": _WORK + " has chunk {from_seq} to {through_seq}, which lies outside the event.",
    "chunk_missing": (
        _WORK + " was applied by batch {batch_id}, but message {from_seq} has no chunk: no search finds it."
    ),
    "shared_without_consent": (
        "Messages {from_seq} to {through_seq} of {session} lie in a shared scope that it does not share with."
    ),
    "shared_forgotten": (
        "Messages {from_seq} to {through_seq} of {session} lie in a shared scope, though they were forgotten."
    ),
    "shared_outside_event": (
        "Messages {from_seq} to {through_seq} of {session} lie in a shared scope, but come from none of its"
        " events."
    ),
    "shared_missing": (
        "Messages {from_seq} to {through_seq} of {session} are searchable, but missing from its shared scope."
    ),
    "shared_superseded": (
        "Message {from_seq} of {session} lies in a shared scope in words that a correction took back."
    ),
    "state_unreceipted": (
        "The state of {session} through {through_seq}, stage {stage} (generation {generation}), comes from"
        " batch {batch_id}, which was not applied or does not end there."
    ),
    "state_doubled": (
        "The state of {session} through {through_seq}, stage {stage} (generation {generation}), is not the"
        " only one of batch {batch_id}."
    ),
    "fact_without_source": "Fact {fact_id} (generation {generation}) has no record of where it came from.",
    "fact_text_differs": "Fact {fact_id} (generation {generation}) does not say what its newest change says.",
    "fact_ended_by_nothing": "Fact {fact_id} (generation {generation}) ended, but nothing replaced it.",
    "fact_deleted_lives": (
        "Fact {fact_id} (generation {generation}) is live, though a person deleted it and no message has"
        " said it since."
    ),
    "fact_doubled": "Fact {fact_id} (generation {generation}) is live {found} times in the same words.",
    "fact_fingerprint_wrong": "Fact {fact_id} (generation {generation}) has the fingerprint of another text.",
    "revision_without_fact": "Revision {revision} of fact {fact_id} (generation {generation}) has no fact.",
    "revision_without_event": (
        "Revision {revision} of fact {fact_id} comes from event {event_id}, which does not exist."
    ),
    "revision_without_message": (
        "Revision {revision} of fact {fact_id} cites messages of {session} that do not exist."
    ),
    "revision_without_person": (
        "Revision {revision} of fact {fact_id} (generation {generation}) is a person's, but no event of"
        " theirs is recorded."
    ),
    "revision_not_condensed": (
        "Revision {revision} of fact {fact_id} comes from condensing in batch {batch_id}, which did not"
        " happen."
    ),
    "revision_unreceipted": (
        "Revision {revision} of fact {fact_id} comes from batch {batch_id}, which the receipts of event"
        " {event_id} do not name."
    ),
    "revision_outside_event": (
        "Revision {revision} of fact {fact_id} cites messages of {session} outside of batch {batch_id}."
    ),
    "erased_row": (
        "The table {table} holds {found} rows of users or sessions that were erased: the database was"
        " restored, or an earlier release writes. Repeat the erasures: strandline erasures reapply."
    ),
}


def verify(
    database: Database,
    *,
    namespace: str | None = None,
    session_id: str | None = None,
    deep: bool = False,
    progress: Progress = lambda _name, _number, _total: None,
) -> Report:
    """Check the whole database, one namespace, or one session.

    Args:
        namespace: only the owners that have sessions in it; with ``session_id``, where to find that one.
        session_id: only this session, and the facts of its owner.
        deep: also recompute each fact's fingerprint (about 10 µs a fact), and look into sealed messages
            that a search would not find.
        progress: called before each check with its name, its number from 1, and the number of checks.

    Raises:
        NotFoundError: the namespace is empty, or the session does not exist.
        StrandlineError: as ``Database.fetch`` does.
    """
    began = time.monotonic()
    with database.transaction(within_seconds=MAINTENANCE_SECONDS) as tx:
        tx.fetch(VerifySnapshot())
        tx.fetch(VerifyLimits())
        scope = _scope(tx, namespace, session_id)
        findings = list(_findings(tx, scope, deep, progress))
        names = _names(tx, findings)
        (totals,) = tx.fetch(VerifyTotals(**scope.params))
        coverage = tx.fetch(VerifyCoverage(**scope.params, **stage_chain()))
        unjudged = tx.fetch(VerifyUnjudged(**scope.params, namespace=namespace))
    return Report.of(
        totals,
        seconds=round(time.monotonic() - began, 3),
        generations=tuple(Coverage.of(row, generation=row.generation_id) for row in coverage),
        violations=tuple(_violation(kind, place, names) for kind, place in findings),
        unjudged=tuple(map(Unjudged.of, unjudged)),
    )


def _scope(fetcher: Fetcher, namespace: str | None, session_id: str | None) -> Scope:
    if session_id is not None:
        identity = find_session(fetcher, session_id, namespace=namespace)
        session_state(fetcher, identity)  # whose id may be claimed, and nothing put
        return Scope([identity.shard_key], identity.session_key)
    check_known(fetcher, namespace=namespace)
    if namespace is not None:
        return Scope([row.shard_key for row in fetcher.fetch(VerifyOwners(namespace=namespace))])
    return Scope()


def _findings(
    fetcher: Fetcher, scope: Scope, deep: bool, progress: Progress
) -> Iterator[tuple[str, dict[str, Any]]]:
    total = len(CHECKS) + deep
    # Sealed content is opened only for a deep check.
    values = {**scope.params, **stage_chain(), "with_sealed": deep}
    for number, (name, check) in enumerate(CHECKS.items(), 1):
        progress(name, number, total)
        for finding in fetcher.fetch(query_with(check, values)):
            if not (isinstance(finding, VerifySearchableRow) and _is_wordless(finding.envelope)):
                yield finding.kind, json.loads(finding.place)
    if deep:
        progress("fingerprints", total, total)
        yield from _wrong_fingerprints(fetcher, scope)


def _is_wordless(envelope: str | None) -> bool:
    if envelope is None:
        return False
    content = json.loads(envelope).get("content")
    return not (isinstance(content, str) and any(map(str.isalnum, content)))


def _wrong_fingerprints(fetcher: Fetcher, scope: Scope) -> Iterator[tuple[str, dict[str, Any]]]:
    for page in pages(fetcher, VerifyFactPage, owners=scope.owners, page_size=FACT_PAGE):
        for fact in page:
            if fingerprint(fact.text) != fact.fingerprint:
                place = {"fact_id": str(fact.fact_id), "generation": fact.generation_id}
                yield "fact_fingerprint_wrong", place


def _names(fetcher: Fetcher, findings: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, tuple[str, str]]:
    keys = {UUID(place["session_key"]) for _kind, place in findings if place.get("session_key")}
    rows = fetcher.fetch(VerifyNames(session_keys=sorted(keys))) if keys else []
    return {str(row.session_key): (row.namespace, row.session_id) for row in rows}


def _violation(kind: str, place: Mapping[str, Any], names: Mapping[str, tuple[str, str]]) -> Violation:
    key = place.get("session_key")
    namespace, session_id = names.get(key or "", (None, None))
    session = f"session {quote(session_id)}" if session_id is not None else f"session key {key or 'unknown'}"
    if namespace not in (None, DEFAULT_NAMESPACE):
        session += f" in namespace {namespace!r}"
    sentence = SENTENCES[kind].format_map({"session": session, **place})
    return Violation(
        kind=kind,
        sentence=sentence[0].upper() + sentence[1:],
        namespace=namespace,
        session_id=session_id,
        **{name: value for name, value in place.items() if value is not None},
    )
