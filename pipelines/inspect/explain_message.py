"""Explanation: why something was remembered, or was not.

For a message, where it is now and what each stage made of it; for a fact, the way back to the messages.
Everything is read in one snapshot.  What models answered is not shown, only who answered, when, and at
what cost: the ledger stays when the answers' content goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import cast
from uuid import UUID

from strandline.pipelines.audit.appending import append_inspection
from strandline.pipelines.inspect.corrections import CorrectionTrace, corrections_of
from strandline.pipelines.inspect.directory import check_known
from strandline.pipelines.inspect.explain_fact import Where, explain_fact
from strandline.pipelines.inspect.explanation import (
    CandidateTrace,
    CitingFact,
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
from strandline.pipelines.inspect.policy_history import policy_changes
from strandline.pipelines.inspect.rows import (
    candidate_trace,
    chunk_trace,
    citing_fact,
    context_trace,
    event_trace,
    excerpt,
    model_calls,
    source_of,
)
from strandline.pipelines.inspect.verify_checks import stage_chain
from strandline.pipelines.transcript import MAX_LINE_CHARACTERS, full_text, plain_text
from strandline.pipelines.vectors.chunks import MAX_INDEXED_CHARACTERS
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import ConfigurationError, NotFoundError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.inspection.explain import (
    ExplainCandidates,
    ExplainChunks,
    ExplainCited,
    ExplainContexts,
    ExplainFindMessages,
    ExplainFindMessagesRow,
    ExplainMessage,
    ExplainStages,
    ExplainStagesRow,
    ExplainStates,
    ExplainStatesRow,
)
from strandline.schemas.queries.inspection.verify import VerifySnapshot
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, SessionKeys, identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, FACTS, MERGE_STAGE, SUMMARY, VECTORS
from strandline.schemas.values.message import Message, read_rows

_DONE = {"delete": "deleted that fact", "replace": "corrected that fact", "clear": "cleared all facts"}


def explain(
    database: Database,
    subject: str,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    session_id: str | None = None,
    user_id: str | None = None,
) -> MessageExplanation | FactExplanation | RemovedFactExplanation:
    """Explain a fact by its id, or a message by its id.

    An id that several sessions use needs ``session_id``; within one, the message that is in the log now
    is meant before one from before a reset.

    Raises:
        NotFoundError: no message and no fact has this id, or the namespace, session or user does not exist.
        ConfigurationError: the id names several messages.
        StrandlineError: as ``Database.fetch`` does.
    """
    key = _owner_key(namespace, user_id)
    where = Where(namespace=namespace, session_id=session_id, user_id=user_id, owner_key=key)
    append_inspection(database, namespace, "explain")
    with database.transaction() as tx:
        tx.fetch(VerifySnapshot())
        check_known(tx, namespace=namespace, session_id=session_id, user_id=user_id)
        fact_id = _as_uuid(subject)
        if fact_id is not None:
            fact = explain_fact(tx, where, fact_id)
            if fact is not None:
                return fact
        rows = tx.fetch(
            ExplainFindMessages(
                namespace=namespace, session_id=session_id, user_id=user_id, message_id=subject
            )
        )
        return _explain_message(tx, _only(rows, subject, namespace))


def explain_message_alone(
    database: Database,
    message_id: str,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    session_id: str | None = None,
    user_id: str | None = None,
) -> MessageExplanation:
    """Explain a message by its id, and never a fact that happens to have the same.

    Raises: as ``explain``.
    """
    with database.transaction() as tx:
        tx.fetch(VerifySnapshot())
        check_known(tx, namespace=namespace, session_id=session_id, user_id=user_id)
        rows = tx.fetch(
            ExplainFindMessages(
                namespace=namespace, session_id=session_id, user_id=user_id, message_id=message_id
            )
        )
        return _explain_message(tx, _only(rows, message_id, namespace))


def explain_fact_alone(
    database: Database,
    fact_id: str,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    session_id: str | None = None,
    user_id: str | None = None,
) -> FactExplanation | RemovedFactExplanation:
    """Explain a fact by its id, and never a message that happens to have the same.

    Raises:
        NotFoundError: no fact has this id, or the namespace, session or user does not exist.
        StrandlineError: as ``Database.fetch`` does.
    """
    key = _owner_key(namespace, user_id)
    where = Where(namespace=namespace, session_id=session_id, user_id=user_id, owner_key=key)
    append_inspection(database, namespace, "explain")
    with database.transaction() as tx:
        tx.fetch(VerifySnapshot())
        check_known(tx, namespace=namespace, session_id=session_id, user_id=user_id)
        id_ = _as_uuid(fact_id)
        fact = None if id_ is None else explain_fact(tx, where, id_)
    if fact is None:
        raise NotFoundError(
            f"There is no fact {quote(fact_id)} in namespace {quote(namespace)};"
            " check the id, and the namespace, session and user given."
        )
    return fact


def _owner_key(namespace: str, user_id: str | None) -> UUID | None:
    """A user may have facts and no session."""
    return None if user_id is None else identify_user(namespace, user_id).shard_key


def _as_uuid(subject: str) -> UUID | None:
    try:
        return UUID(subject)
    except ValueError:
        return None


def _only(rows: Sequence[ExplainFindMessagesRow], subject: str, namespace: str) -> ExplainFindMessagesRow:
    if not rows:
        raise NotFoundError(
            f"There is no message and no fact {quote(subject)} in namespace {quote(namespace)};"
            " check the id, and the namespace, session and user given. Of a message that a correction took"
            " back no copy is kept: `strandline sessions show` lists the corrections of a session."
            " One that has left its log is in the archive at best: `strandline retention archived`."
        )
    sessions = sorted({row.session_id for row in rows})
    if len(sessions) > 1:
        raise ConfigurationError(
            f"Message id {quote(subject)} is used in several sessions ({', '.join(sessions[:5])}"
            f"{', …' if len(sessions) > 5 else ''}); name the one you mean with --session."
        )
    return rows[0]


def _explain_message(fetcher: Fetcher, position: ExplainFindMessagesRow) -> MessageExplanation:
    shard_key, session_key, seq = position.shard_key, position.session_key, position.seq
    key = SessionKeys(shard_key=shard_key, session_key=session_key)
    (row,) = fetcher.fetch(ExplainMessage(**key, seq=seq))
    event = event_trace(row)
    stages = _stages(fetcher, shard_key, event.event_id, row.pipelines) if event else ()
    candidates = [candidate_trace(one) for one in fetcher.fetch(ExplainCandidates(**key, seq=seq))]
    facts = [citing_fact(one) for one in fetcher.fetch(ExplainCited(**key, seq=seq))]
    contexts = [context_trace(one) for one in fetcher.fetch(ExplainContexts(**key, seq=seq))]
    chunks = [chunk_trace(one) for one in fetcher.fetch(ExplainChunks(**key, seq=seq))]
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
    return MessageExplanation(
        namespace=row.namespace,
        session_id=row.session_id,
        user_id=row.user_id,
        message=source_of(message),
        tokens=row.tokens,
        place=place,
        event=event,
        stages=stages,
        candidates=tuple(candidates),
        facts=tuple(facts),
        contexts=tuple(contexts),
        chunks=tuple(chunks),
        states=tuple(map(_state, states)),
        policy_changes=policy_changes(fetcher, shard_key, session_key),
        corrections=corrections,
        why=(
            *_correction_reasons(seq, corrections),
            *_reasons(place, message, row.fed, row.feeds, event, stages, candidates, facts),
            *(_left_out(message, row.fed) if event else ()),
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
    """Whether it waits for a stage that was dropped, void or never fed, and so waits in vain."""
    return trace.state == "waiting" and any(
        before.generation == trace.generation and before.state in ("dropped", "void", "not_fed")
        for before in stages
    )


def _stages(
    fetcher: Fetcher, shard_key: UUID, event_id: UUID, pipelines: Sequence[str]
) -> tuple[StageTrace, ...]:
    rows = fetcher.fetch(
        ExplainStages(shard_key=shard_key, event_id=event_id, **stage_chain(), pipelines=list(pipelines))
    )
    calls = model_calls(fetcher, shard_key, [row.batch_id for row in rows])
    return tuple(_stage(row, calls) for row in rows)


def _stage(row: ExplainStagesRow, calls: Sequence[ModelCall]) -> StageTrace:
    return StageTrace(
        pipeline=row.pipeline,
        generation=row.generation_id,
        generation_state=row.generation_state,
        stage=row.stage,
        state=_stage_state(row),
        since=row.due_since if row.outcome is None else row.applied_at,
        batch_id=row.batch_id,
        batch_events=row.batch_events,
        context_seqs=tuple(row.context_seqs) if row.batch_stage == row.stage else (),
        capture_number=row.capture_number,
        held=row.held,
        failures=row.failures or 0,
        next_attempt_at=row.next_attempt_at,
        waits_until=row.waits_until,
        waits_for=row.waits_for,
        is_used_up=row.is_used_up,
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


def _reasons(
    place: Place,
    message: Message,
    fed: Sequence[str],
    feeds: Sequence[str],
    event: FlushTrace | None,
    stages: Sequence[StageTrace],
    candidates: Sequence[CandidateTrace],
    facts: Sequence[CitingFact],
) -> Iterable[str]:
    if place == "reset":
        yield "Its session has been reset since, so it is no longer part of the conversation."
    if place == "pinned":
        yield "It belongs to the pinned head: always shown, never flushed, so nothing is derived from it."
        return
    if event is None:
        yield "It has not been flushed: nothing is derived from a message before a flush delivers it."
        return
    if FACTS not in fed and all(t.stage != EXTRACT_STAGE or t.state == "not_fed" for t in stages):
        yield _unfed_reason(feeds)
        return
    if facts:
        live = sum(fact.live for fact in facts)
        cite = "cites" if len(facts) == 1 else "cite"
        yield f"It was remembered: {quantity(len(facts), 'fact')} {cite} it, {live} of them live."
    by_generation: dict[int, dict[str, StageTrace]] = {}
    for trace in stages:
        if trace.pipeline == FACTS and trace.generation_state != "retired":
            by_generation.setdefault(trace.generation, {})[trace.stage] = trace
    for generation, traces in by_generation.items():
        cited = any(fact.generation == generation for fact in facts)
        own = [candidate for candidate in candidates if candidate.generation == generation]
        yield from _facts_reason(traces, message, candidates=own, cited=cited)


def _correction_reasons(seq: int, corrections: Sequence[CorrectionTrace]) -> Iterable[str]:
    """What corrections did to a message that is in the log, or to others of its event."""
    own = [one for one in corrections if one.kind == "replace" and one.from_seq == seq]
    if own:
        yield f"Correction {own[-1].number} gave it this content; of what it said before no copy is kept."
    if others := [one for one in corrections if one not in own and one.messages]:
        numbers = ", ".join(str(one.number) for one in others)
        yield (
            f"Other messages of its flush were taken back or replaced (correction {numbers}), so memory"
            " is derived from it again."
        )


def _unfed_reason(feeds: Sequence[str]) -> str:
    if FACTS not in feeds:
        return "Its session does not feed the pipeline 'facts', so no facts are extracted."
    return (
        "Its session fed no facts when it was flushed, but does now: `strandline replay --pipeline facts`"
        " with --session also derives facts from earlier flushes."
    )


def _left_out(message: Message, pipelines: Sequence[str]) -> Iterable[str]:
    """Sentences that say which part of a long message is used."""
    size = len(full_text(message))
    if size > MAX_LINE_CHARACTERS and {FACTS, SUMMARY}.intersection(pipelines):
        yield f"Facts and summary are made from its first {MAX_LINE_CHARACTERS:,} of {size:,} characters."
    if size > MAX_INDEXED_CHARACTERS and VECTORS in pipelines:
        yield f"A search finds its first {MAX_INDEXED_CHARACTERS:,} of {size:,} characters."


def _facts_reason(
    traces: dict[str, StageTrace], message: Message, *, candidates: Sequence[CandidateTrace], cited: bool
) -> Iterable[str]:
    extract, merge = traces[EXTRACT_STAGE], traces.get(MERGE_STAGE)
    if extract.state != "applied":
        yield _halt_reason(extract)
    elif merge is not None and candidates and merge.state != "applied":
        yield f"Extract found something in it; {_halt_reason(merge)}"
    elif not plain_text(message):
        yield "It has no text that extract could read."
    elif not candidates:
        yield "Extract read it and found no fact in it."
    elif not cited and (kinds := [c.dropped_because for c in candidates if c.dropped_because is not None]):
        yield f"Extract found something in it, and a person has since {_DONE.get(kinds[-1], kinds[-1])}."
    elif not cited:
        yield "Extract found something in it, but the resulting fact is gone."


def _halt_reason(trace: StageTrace) -> str:
    reason = (trace.reason or "").rstrip(".")
    if trace.state == "due":
        waits = f"stage {trace.stage} has not processed it yet"
        if trace.held:
            after = f", after an error ({reason})" if reason else ""
            return f"{waits}: a worker is working on its lane now{after}."
        if trace.waits_until is not None:
            why = (
                f"its namespace has used up its budget of {trace.waits_for}"
                if trace.is_used_up
                else f"workers hold the rest of its namespace's budget of {trace.waits_for}"
            )
            return f"{waits}: {why}, so it waits until {trace.waits_until:%Y-%m-%d %H:%M:%S %Z}."
        if reason:
            return f"{waits}: its lane waits after an error ({reason})."
        return f"{waits}: no worker has taken it up."
    return {
        "dead": f"stage {trace.stage} gave up on it ({reason}); `strandline dead-letters retry` tries again.",
        "dropped": f"stage {trace.stage} gave up on it ({reason}), and the dead letter was dropped.",
        "void": f"stage {trace.stage} skipped it, because the session was reset first.",
    }.get(trace.state, f"stage {trace.stage} did not receive it: this derivation is newer than the flush.")


def _state(row: ExplainStatesRow) -> StateTrace:
    content = json.loads(row.state)
    text = content.get("text") if isinstance(content, dict) else None
    return StateTrace(
        generation=row.generation_id,
        through_seq=row.through_seq,
        batch_id=row.batch_id,
        at=row.created_at,
        excerpt=excerpt(text if isinstance(text, str) else row.state),
    )
