"""Explanation: why something was remembered, or was not.

For a message, where it is now and what each stage made of it; for a fact, the way back to the messages.
Everything is read in one snapshot.  What models answered is not shown, only who answered, when, and at
what cost: the ledger stays when the answers' content goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Unpack, cast
from uuid import UUID

from strandline.pipelines.audit.appending import append_inspection
from strandline.pipelines.engine.batches import read_batch, stored_answers
from strandline.pipelines.facts.extract import is_capped
from strandline.pipelines.inspect.changes import corrections_of, policy_changes
from strandline.pipelines.inspect.directory import OfUser, Whose, check_known, find_session
from strandline.pipelines.inspect.explain_fact import Where, excerpt, explain_fact, model_calls, source_of
from strandline.pipelines.inspect.explain_reasons import (
    company_reasons,
    correction_reasons,
    message_reasons,
    part_reasons,
)
from strandline.pipelines.inspect.verify import stage_chain
from strandline.pipelines.transcript import load_transcript
from strandline.pipelines.vectors.chunks import MAX_INDEXED_CHARACTERS, indexed_characters
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, NotFoundError
from strandline.schemas.postgres.database import Database, Fetcher, Transaction
from strandline.schemas.queries.derived.generations import FindGeneration
from strandline.schemas.queries.inspection.explain import (
    ExplainCandidates,
    ExplainChunks,
    ExplainCited,
    ExplainContexts,
    ExplainFindMessages,
    ExplainFindMessagesRow,
    ExplainFindSeq,
    ExplainMessage,
    ExplainStages,
    ExplainStagesRow,
    ExplainStates,
    ExplainStatesRow,
)
from strandline.schemas.queries.inspection.verify import VerifySnapshot
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, SessionKeys, identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, SUMMARY_STAGE, VECTORS, Lane
from strandline.schemas.values.message import read_rows
from strandline.schemas.wire.explanations import (
    CandidateTrace,
    ChunkTrace,
    CitingFact,
    ContextTrace,
    FactExplanation,
    FlushTrace,
    MessageExplanation,
    ModelCall,
    Place,
    RemovedFactExplanation,
    StageState,
    StageTrace,
    StateTrace,
)


def explain(
    database: Database, subject: str, **whose: Unpack[Whose]
) -> MessageExplanation | FactExplanation | RemovedFactExplanation:
    """Explain a fact by its id, or a message by its id.

    An id that several sessions use needs ``session_id``; within one, the message that is in the log now
    is meant before one from before a reset.

    Raises:
        NotFoundError: no message and no fact has this id, or the namespace, session or user does not exist.
        ConfigurationError: the id names several messages.
        StrandlineError: as ``Database.fetch`` does.
    """
    with _look(database, whose) as (tx, where):
        fact = _find_fact(tx, subject, where)
        return _find_message(tx, subject, where) if fact is None else fact


def explain_seq(database: Database, session_id: str, seq: int, **whose: Unpack[OfUser]) -> MessageExplanation:
    """Explain a message by its number in a session.

    Raises:
        NotFoundError: there is no such session, or no message of this number in its log.
        StrandlineError: as ``Database.fetch`` does.
    """
    with _look(database, {**whose, "session_id": session_id}) as (tx, _where):
        identity = find_session(tx, session_id, **whose)
        if not tx.fetch(ExplainFindSeq(**identity.keys, seq=seq)):
            raise NotFoundError(
                f"Session {quote(session_id)} has no message {seq} in its log;"
                " `strandline sessions show` prints its first and last number, and its corrections."
            )
        return _explain_message(tx, identity.keys, seq)


def explain_message_alone(database: Database, message_id: str, **whose: Unpack[Whose]) -> MessageExplanation:
    """Explain a message by its id, and never a fact that happens to have the same; raises as ``explain``."""
    with _look(database, whose) as (tx, where):
        return _find_message(tx, message_id, where)


def explain_fact_alone(
    database: Database, fact_id: str, **whose: Unpack[Whose]
) -> FactExplanation | RemovedFactExplanation:
    """Explain a fact by its id, and never a message that happens to have the same.

    Raises:
        NotFoundError: no fact has this id, or the namespace, session or user does not exist.
        StrandlineError: as ``Database.fetch`` does.
    """
    with _look(database, whose) as (tx, where):
        fact = _find_fact(tx, fact_id, where)
    if fact is None:
        raise NotFoundError(
            f"Fact {quote(fact_id)} does not exist in namespace {quote(where['namespace'])};"
            " check the id, and the namespace, session and user given."
        )
    return fact


@contextmanager
def _look(database: Database, whose: Whose) -> Iterator[tuple[Transaction, Where]]:
    """One snapshot, in which these sessions are known; that an operator looks is in the audit trail."""
    where: Where = {
        "namespace": whose.get("namespace") or DEFAULT_NAMESPACE,
        "session_id": whose.get("session_id"),
        "user_id": whose.get("user_id"),
        "without_user": whose.get("without_user", False),
    }
    append_inspection(database, where["namespace"], "explain")
    with database.transaction() as tx:
        tx.fetch(VerifySnapshot())
        check_known(tx, **where)
        yield tx, where


def _find_fact(
    fetcher: Fetcher, fact_id: str, whose: Where
) -> FactExplanation | RemovedFactExplanation | None:
    try:
        id_ = UUID(fact_id)
    except ValueError:
        return None
    user_id = whose["user_id"]
    # A user may have facts and no session.
    owner_key = None if user_id is None else identify_user(whose["namespace"], user_id).shard_key
    return explain_fact(fetcher, whose, owner_key, id_)


def _find_message(fetcher: Fetcher, message_id: str, whose: Where) -> MessageExplanation:
    rows = fetcher.fetch(ExplainFindMessages(**whose, message_id=message_id))
    row = _only(rows, message_id, whose["namespace"])
    key = SessionKeys(shard_key=row.shard_key, session_key=row.session_key)
    return _explain_message(fetcher, key, row.seq)


def _only(rows: Sequence[ExplainFindMessagesRow], subject: str, namespace: str) -> ExplainFindMessagesRow:
    if not rows:
        raise NotFoundError(
            f"Namespace {quote(namespace)} has no message and no fact {quote(subject)};"
            " check the id, and the namespace, session and user given. Of a message that a correction took"
            " back no copy is kept: `strandline sessions show` lists the corrections of a session."
            " One that has left its log is in the archive at best: `strandline retention archived`."
        )
    sessions = sorted({row.session_id for row in rows})
    if len(sessions) > 1:
        raise ConfigurationError(
            f"Message id {quote(subject)} is used in several sessions ({', '.join(sessions[:5])}"
            f"{', …' if len(sessions) > 5 else ''}); name the one you mean with --session.",
            for_clients="Several sessions use this id, as forks do; name the one you mean in `session_id`.",
        )
    return rows[0]


def _explain_message(fetcher: Fetcher, key: SessionKeys, seq: int) -> MessageExplanation:
    shard_key, session_key = key["shard_key"], key["session_key"]
    (row,) = fetcher.fetch(ExplainMessage(**key, seq=seq))
    event = None if row.event_id is None else FlushTrace.of(row, at=row.flushed_at)
    stage_rows: list[ExplainStagesRow] = []
    if event is not None:
        of_event = {"shard_key": shard_key, "event_id": event.event_id}
        stage_rows = fetcher.fetch(ExplainStages(**of_event, **stage_chain(), pipelines=list(row.pipelines)))
    calls = model_calls(fetcher, shard_key, [one.batch_id for one in stage_rows])
    stages = tuple(_stage(one, calls) for one in stage_rows)
    candidates = [
        CandidateTrace.of(one, generation=one.generation_id, dropped_because=one.kind)
        for one in fetcher.fetch(ExplainCandidates(**key, seq=seq))
    ]
    facts = [
        CitingFact.of(one, generation=one.generation_id)
        for one in fetcher.fetch(ExplainCited(**key, seq=seq))
    ]
    contexts = fetcher.fetch(ExplainContexts(**key, seq=seq))
    chunks = fetcher.fetch(ExplainChunks(**key, seq=seq))
    states = fetcher.fetch(ExplainStates(**key, event_id=event.event_id)) if event else []
    corrections = corrections_of(
        fetcher,
        shard_key,
        session_key,
        from_seq=event.from_seq if event else seq,
        through_seq=event.through_seq if event else seq,
    )
    place = _locate(row.current, seq, row.pinned_through, row.window_from, stages)
    (message,) = read_rows([row])
    return MessageExplanation.of(
        row,
        message=source_of(message),
        place=place,
        event=event,
        stages=stages,
        candidates=tuple(candidates),
        facts=tuple(facts),
        contexts=tuple(ContextTrace.of(one, generation=one.generation_id) for one in contexts),
        chunks=tuple(ChunkTrace.of(one, generation=one.generation_id) for one in chunks),
        states=tuple(map(_state, states)),
        policy_changes=policy_changes(fetcher, shard_key, session_key),
        corrections=corrections,
        why=(
            *correction_reasons(seq, corrections),
            *company_reasons(stages),
            *message_reasons(place, message, row.fed, row.feeds, event, stages, candidates, facts),
            *(part_reasons(message, row.fed, _indexed_characters(fetcher, stages)) if event else ()),
            *_answer_reasons(fetcher, key, seq, stage_rows),
        ),
    )


def _locate(
    current: bool, seq: int, pinned_through: int, window_from: int, stages: Sequence[StageTrace]
) -> Place:
    if not current:
        return "reset"
    if seq <= pinned_through:
        return "pinned"
    if seq >= window_from:
        return "window"
    open_states = ("due", "dead", "waiting")
    serving = [trace for trace in stages if trace.generation_state == "serving"]
    uncovered = [t for t in serving if t.state in open_states and not _behind_an_end(t, serving)]
    return "tail" if uncovered else "covered"


def _behind_an_end(trace: StageTrace, stages: Sequence[StageTrace]) -> bool:
    """Whether it waits in vain, for a stage that was dropped, void or never fed."""
    return trace.state == "waiting" and any(
        before.generation == trace.generation and before.state in ("dropped", "void", "not_fed")
        for before in stages
    )


def _indexed_characters(fetcher: Fetcher, stages: Sequence[StageTrace]) -> int:
    numbers = {trace.generation for trace in stages if trace.pipeline == VECTORS}
    rows = [row for number in numbers for row in fetcher.fetch(FindGeneration(generation_id=number))]
    return min((indexed_characters(json.loads(row.config)) for row in rows), default=MAX_INDEXED_CHARACTERS)


def _answer_reasons(
    fetcher: Fetcher, key: SessionKeys, seq: int, rows: Sequence[ExplainStagesRow]
) -> Iterator[str]:
    """Whether it was left out, or extract reached its most facts; while answers are stored."""
    for row in rows:
        is_read = row.stage in (EXTRACT_STAGE, SUMMARY_STAGE)
        if not is_read or row.batch_id is None or row.outcome != "applied":
            continue
        lane = Lane(key["shard_key"], key["session_key"], row.generation_id, row.stage)
        batch = read_batch(fetcher, lane, row.batch_id, row.event_ids)
        transcript, answers = load_transcript(fetcher, batch), stored_answers(fetcher, batch)
        if answers and any(message.seq == seq for message in transcript.left_out(answers)):
            yield f"The model gave no answer for this message alone; stage {row.stage} left it out."
        if row.stage == EXTRACT_STAGE and is_capped(batch, transcript, answers):
            yield "Extract gave as many facts as one call may, so others may be left out."


def _stage(row: ExplainStagesRow, calls: Sequence[ModelCall]) -> StageTrace:
    return StageTrace.of(
        row,
        generation=row.generation_id,
        state=_stage_state(row),
        since=row.due_since if row.outcome is None else row.applied_at,
        context_seqs=tuple(row.context_seqs) if row.batch_stage == row.stage else (),
        failures=row.failures or 0,
        reason=row.reason or row.error,
        # Merge has nothing to do for an event without candidates: the batch was extract's, and so the call.
        calls=tuple(call for call in calls if call.batch_id == row.batch_id and row.batch_stage == row.stage),
    )


def _stage_state(row: ExplainStagesRow) -> StageState:
    if row.outcome == "dead":
        return "dead" if row.dropped_at is None else "dropped"
    if row.outcome is not None:
        return cast(StageState, row.outcome)
    if row.due_since is not None:
        return "due"
    return "waiting" if row.stage == MERGE_STAGE else "not_fed"


def _state(row: ExplainStatesRow) -> StateTrace:
    content = json.loads(row.state)
    text = content.get("text") if isinstance(content, dict) else None
    shown = excerpt(text if isinstance(text, str) else row.state)
    return StateTrace.of(row, generation=row.generation_id, at=row.created_at, excerpt=shown)
