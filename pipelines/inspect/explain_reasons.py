"""Reasons: sentences that say why a message was remembered, or was not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from strandline.pipelines.transcript import MAX_LINE_CHARACTERS, cut_pieces, full_text, plain_text
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.lanes import EXTRACT_STAGE, FACTS, MERGE_STAGE, SUMMARY, VECTORS
from strandline.schemas.values.message import Message
from strandline.schemas.wire.explanations import (
    CandidateTrace,
    CitingFact,
    CorrectionTrace,
    FlushTrace,
    Place,
    StageTrace,
)

_DONE = {"delete": "deleted that fact", "replace": "corrected that fact", "clear": "cleared all facts"}


def message_reasons(
    place: Place,
    message: Message,
    fed: Sequence[str],
    feeds: Sequence[str],
    event: FlushTrace | None,
    stages: Sequence[StageTrace],
    candidates: Sequence[CandidateTrace],
    facts: Sequence[CitingFact],
) -> Iterable[str]:
    """Why a message at ``place`` was remembered as a fact, or was not, by what each stage made of it."""
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


def company_reasons(stages: Iterable[StageTrace]) -> Iterable[str]:
    """A sentence on how long its turn waits for others to share its model calls, and what ends the wait."""
    if moments := [trace.ready_at for trace in stages if trace.ready_at is not None]:
        yield (
            f"Its turn waits until {_moment(max(moments))} at most for other turns to share its model calls;"
            " `flush`, `deliver` or a read with `wait_for` ends the wait at once."
        )


def correction_reasons(seq: int, corrections: Sequence[CorrectionTrace]) -> Iterable[str]:
    """The effect of corrections on a message that is in the log, or on others of its event."""
    own = [one for one in corrections if one.kind == "replace" and one.from_seq == seq]
    if own:
        yield f"Correction {own[-1].number} gave it this content; no copy of the earlier content is kept."
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


def part_reasons(message: Message, pipelines: Sequence[str], indexed_characters: int) -> Iterable[str]:
    """Sentences that say how a long message is read, and which part of it a search finds."""
    text = full_text(message)
    pieces = len(list(cut_pieces(text, MAX_LINE_CHARACTERS)))
    if pieces > 1 and {FACTS, SUMMARY}.intersection(pipelines):
        yield f"Facts and summary read it in {pieces} pieces of at most {MAX_LINE_CHARACTERS:,} characters."
    if len(text) > indexed_characters and VECTORS in pipelines:
        yield f"A search finds its first {indexed_characters:,} of {len(text):,} characters."


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
            return f"{waits}: {why}, so it waits until {_moment(trace.waits_until)}."
        if reason:
            often = f", {quantity(trace.failures, 'failure')} in a row" if trace.failures else ""
            return f"{waits}: its lane waits after an error ({reason}){often}."
        return f"{waits}." if trace.ready_at else f"{waits}: no worker has taken it up."
    by_hand = "`strandline dead-letters retry` tries again"
    tries = f"{by_hand}."
    if trace.retry_at is not None:
        tries = f"a worker tries again {_moment(trace.retry_at)}, and {by_hand} at once."
    return {
        "dead": f"stage {trace.stage} gave up on it ({reason}); {tries}",
        "dropped": f"stage {trace.stage} gave up on it ({reason}), and the dead letter was dropped.",
        "void": f"stage {trace.stage} skipped it, because of a reset or a removal before it.",
    }.get(trace.state, f"stage {trace.stage} did not receive it: this derivation is newer than the flush.")


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S %Z}"
