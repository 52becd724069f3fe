"""``strandline explain``: why a message was remembered or not, and where a fact came from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import namespace_option
from strandline.cli.servers.targets import opened_database
from strandline.pipelines.inspect.changes import change_line, correction_line
from strandline.pipelines.inspect.explain_message import explain, explain_seq
from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.explanations import (
    FactEventTrace,
    FactExplanation,
    MessageExplanation,
    ModelCall,
    RemovedFactExplanation,
    RemovedSource,
    Source,
    StageTrace,
    SuccessorTrace,
)

_PLACES = {
    "pinned": "in the pinned head, always shown",
    "window": "in the window, shown as it is",
    "tail": "delivered, not covered yet, and read from the tail",
    "covered": "covered by what was derived from it",
    "reset": "from before a reset",
}

_KINDS = (MessageExplanation, FactExplanation, RemovedFactExplanation)


@cli_command("explain", opened_database, *_KINDS)
@click.argument("subject", metavar="[MESSAGE_ID|FACT_ID]", required=False)
@namespace_option
@click.option(
    "--session", "session_id", metavar="ID", help="Its session; needed if several sessions use the same id."
)
@click.option("--seq", type=click.IntRange(1), metavar="N", help="The message of this number in --session.")
@click.option("--user", "user_id", metavar="ID", help="The user whose session or fact it is.")
def command(
    database: Database, subject: str | None, seq: int | None, session_id: str | None, **whose: Any
) -> Output:
    """Follow a message to the memory derived from it, or a fact back to its messages.

    A message is named by its id, or by --session and --seq. The last lines name the next commands.
    """
    explanation: MessageExplanation | FactExplanation | RemovedFactExplanation
    if subject is not None and seq is None:
        explanation = explain(database, subject, session_id=session_id, **whose)
    elif subject is None and seq is not None and session_id is not None:
        explanation = explain_seq(database, session_id, seq, **whose)
    else:
        raise click.UsageError("Name an id, or a message by --session ID --seq N.")
    return Output(explanation, _lines(explanation))


def _lines(explanation: MessageExplanation | FactExplanation | RemovedFactExplanation) -> Iterator[str]:
    if isinstance(explanation, MessageExplanation):
        yield from _message(explanation)
    elif isinstance(explanation, FactExplanation):
        yield from _fact(explanation)
    else:
        yield gone_line(explanation.fact_id, explanation.events)
        yield from _events(explanation.events)
        yield from successor_lines(explanation.successors)


def gone_line(fact_id: UUID, events: Sequence[FactEventTrace]) -> str:
    by_people = any(event.kind in ("delete", "clear") for event in events)
    return f"fact {fact_id} is gone: {'a person removed it' if by_people else 'its messages were corrected'}"


def successor_lines(successors: Sequence[SuccessorTrace]) -> Iterator[str]:
    for fact in successors:
        yield f"its messages give now {fact.fact_id}: {fact.text}"


def _message(explanation: MessageExplanation) -> Iterator[str]:
    owner = f" of {explanation.user_id}" if explanation.user_id else ""
    size = f"seq {explanation.message.seq}, {quantity(explanation.tokens, 'token')}"
    yield f"message {explanation.message.id} ({size}), session {explanation.session_id}{owner}"
    yield f"  {_source(explanation.message)}"
    yield f"where: {_PLACES[explanation.place]}"
    for sentence in explanation.why:
        yield f"why: {sentence}"
    if explanation.event is not None:
        event = explanation.event
        yield (
            f"flush event {event.event_id}: {event.cause}, messages {event.from_seq} to {event.through_seq},"
            f" {time_text(event.at)}"
        )
    yield from map(change_line, explanation.policy_changes)
    yield from map(correction_line, explanation.corrections)
    for trace in explanation.stages:
        yield from _stage(trace)
    for candidate in explanation.candidates:
        dropped = f" (dropped: {candidate.dropped_because})" if candidate.dropped_by else ""
        if candidate.withheld_by is not None:
            dropped = f" (withheld by act {candidate.withheld_by} on capturing)"
        yield f"candidate{dropped}: {candidate.text}"
    for fact in explanation.facts:
        ended = "" if fact.live else ", ended"
        yield f"fact {fact.fact_id} ({', '.join(fact.operations)}{ended}): {fact.text}"
    for context in explanation.contexts:
        shown_before = f"messages {context.from_seq} to {context.through_seq}"
        yield f"context: shown before {shown_before}, in batch {context.batch_id}"
    for chunk in explanation.chunks:
        yield f"chunk: messages {chunk.from_seq} to {chunk.through_seq}, {quantity(chunk.pieces, 'piece')}"
    for state in explanation.states:
        yield f"state through message {state.through_seq} ({time_text(state.at)}): {state.excerpt}"
    yield from _steps_after_message(explanation)


def _stage(trace: StageTrace) -> Iterator[str]:
    state = {"not_fed": "not fed", "due": "due, being done" if trace.held else "due"}.get(
        trace.state, trace.state
    )
    line = f"{trace.stage}: {state}"
    if trace.generation_state != "serving":
        line += f" (generation {trace.generation}, {trace.generation_state})"
    if trace.since is not None:
        line += f" since {time_text(trace.since)}"
    if trace.ready_at is not None:
        line += f", waits for others until {time_text(trace.ready_at)}"
    if trace.batch_id is not None:
        line += f", batch {trace.batch_id} of {quantity(trace.batch_events or 0, 'event')}"
    yield line
    if trace.context_seqs:
        yield f"  context: {_span(trace.context_seqs)}"
    if trace.capture_number is not None:
        yield f"  captured by act {trace.capture_number}"
    if trace.reason:
        yield f"  reason: {trace.reason}"
    for call in trace.calls:
        yield f"  {_call(call)}"


def _fact(explanation: FactExplanation) -> Iterator[str]:
    yield f"fact {explanation.fact_id}: {explanation.text}"
    by = f" by {explanation.said_by}" if explanation.said_by else ""
    until = f" until {time_text(explanation.valid_until)}" if explanation.valid_until else ""
    yield f"said {time_text(explanation.said_at)}{by}, true from {time_text(explanation.valid_from)}{until}"
    yield f"generation {explanation.generation}"
    if explanation.topics:
        yield f"topics: {', '.join(explanation.topics)}"
    if not explanation.live:
        yield _ending_line(explanation)
    if explanation.feedback:
        yield f"feedback: {explanation.feedback}"
    yield from _doubt_lines(explanation)
    yield from _events(explanation.events)
    for revision in explanation.revisions:
        yield f"{revision.revision}. {revision.operation} {time_text(revision.at)}: {revision.text}"
        if revision.fact_event is not None:
            yield f"   by {revision.actor or 'a person'}, event {revision.fact_event}"
            continue
        for source in revision.messages:
            yield f"   message {source.id} (seq {source.seq}) of session {revision.session_id}"
            yield f"     {_source(source)}"
        for gone in revision.removed:
            yield f"   source archived: {_removed_text(gone)} of session {revision.session_id}"
        if revision.carried_from is not None:
            yield f"   taken over from generation {revision.carried_from}, since its messages are gone"
        if revision.context:
            yield f"   context: {_span([source.seq for source in revision.context])}"
        flushed = f" ({revision.cause}, {time_text(revision.flushed_at)})" if revision.flushed_at else ""
        yield f"   flush event {revision.event_id}{flushed}"
        yield f"   extract batch {revision.extract_batch_id}, merge batch {revision.merge_batch_id}"
        if revision.condense_batch_id is not None:
            yield f"   condensed in batch {revision.condense_batch_id}"
        yield f"   model {revision.model}, prompt {revision.prompt_hash}"
        for call in revision.calls:
            yield f"   {_call(call)}"
    yield from successor_lines(explanation.successors)
    yield from _steps_after_fact(explanation)


def _removed_text(gone: RemovedSource) -> str:
    seqs = str(gone.from_seq)
    if gone.through_seq != gone.from_seq:
        seqs += f" to {gone.through_seq}"
    where = "without an archive" if gone.archive is None else f"to {gone.archive}"
    named = f", object {gone.object_name}" if gone.object_name else ""
    return f"messages {seqs} left the log {time_text(gone.removed_at)} ({gone.cause}) {where}{named},"


def _steps_after_message(explanation: MessageExplanation) -> Iterator[str]:
    namespace = explanation.namespace
    if explanation.event is None:
        if explanation.place == "window":
            flush = _command("flush", "--all", namespace=namespace, name=explanation.session_id)
            yield f"next: `{flush}` delivers it now"
        return
    live = [trace for trace in explanation.stages if trace.generation_state != "retired"]
    if any(trace.ready_at is not None for trace in live):
        flush = _command("flush", namespace=namespace, name=explanation.session_id)
        yield f"next: `{flush}` ends the wait for others"
    elif any(trace.state == "due" for trace in live):
        yield "next: `strandline status` says whether a worker is at work, and what work waits for"
    for trace in live:
        if trace.state == "dead":
            letter = f"{explanation.event.event_id}/{trace.stage}"
            yield f"next: `strandline dead-letters retry {letter}` tries it again"
    for fact in [fact for fact in explanation.facts if fact.live][:1]:
        follow = _command("explain", namespace=namespace, user=explanation.user_id, name=str(fact.fact_id))
        yield f"next: `{follow}` follows the fact back to its messages"


def _steps_after_fact(explanation: FactExplanation) -> Iterator[str]:
    if explanation.is_doubtful:
        yield f"next: `strandline facts settle {explanation.fact_id} new` (or old, or both) ends the doubt"
    cited = [revision for revision in explanation.revisions if revision.session_id and revision.messages]
    for revision in cited[-1:]:
        session = ("--session", shlex.quote(revision.session_id or ""))
        namespace = revision.namespace or DEFAULT_NAMESPACE
        follow = _command("explain", *session, namespace=namespace, name=revision.messages[-1].id)
        yield f"next: `{follow}` shows what else was made of its message"


def _command(command: str, *options: str, namespace: str, name: str, user: str | None = None) -> str:
    words = ["strandline", command, *options]
    if namespace != DEFAULT_NAMESPACE:
        words += ["--namespace", shlex.quote(namespace)]
    if user is not None:
        words += ["--user", shlex.quote(user)]
    return " ".join([*words, *(["--"] if name.startswith("-") else []), shlex.quote(name)])


def _ending_line(explanation: FactExplanation) -> str:
    if explanation.condensed_into is not None:
        return f"condensed into {explanation.condensed_into}: {explanation.replacement}"
    ended = time_text(explanation.invalidated_at) if explanation.invalidated_at else "at an unknown time"
    return f"ended {ended}" + (
        f", replaced by {explanation.invalidated_by}: {explanation.replacement}"
        if explanation.replacement
        else ""
    )


def _doubt_lines(explanation: FactExplanation) -> Iterator[str]:
    if doubt := explanation.doubt:
        state = "doubtful" if explanation.is_doubtful else "was doubtful"
        yield f"{state}: it may contradict fact {doubt.fact_id}: {doubt.text or '(gone)'}"
        yield f"  refused: {doubt.operation}. {doubt.reason}"
    for fact_id in explanation.doubted_by:
        yield f"doubtful fact {fact_id} may contradict it"


def _events(events: Sequence[FactEventTrace]) -> Iterator[str]:
    for event in events:
        yield f"event {event.number}: {event.kind} {time_text(event.at)} by {event.actor or 'a person'}"


def _span(seqs: Sequence[int]) -> str:
    first, last = min(seqs), max(seqs)
    if first == last:
        return f"message {first}, said before its batch"
    return f"{quantity(len(seqs), 'message')}, {first} to {last}, said before its batch"


def _source(source: Source) -> str:
    return f"{source.said_by}, {time_text(source.at)}: {source.excerpt}"


def _call(call: ModelCall) -> str:
    prompt = f", prompt {call.prompt_hash}" if call.prompt_hash else ""
    cost = "" if call.cost_usd is None else f", ${call.cost_usd:.6f}"
    return (
        f"{call.step} answered by {call.model}{prompt}, {call.input_tokens}+{call.output_tokens} tokens"
        f"{cost}, {call.seconds:.2f} s, {time_text(call.at)}"
    )
