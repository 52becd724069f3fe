"""The demo's checks and figures, from the messages put, read back and observed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from strandline.cli.demo.observer import Look
from strandline.cli.demo.play import Played, percentile
from strandline.cli.demo.reports import DemoCheck, DemoFigures
from strandline.cli.servers.models_used import ModelsUsed
from strandline.producers.facts.listing import Fact
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that is known once the play is over.

    Attributes:
        consumed_after: seconds from the last put until all was consumed; None: the demo gave up waiting.
        worker_ends: how often a worker ended by itself.
    """

    sent: Sequence[Message]
    stored: Sequence[Message]
    facts: Sequence[Fact]
    look: Look
    played: Played
    pipelines: Sequence[str]
    token_limit: int
    consumed_after: float | None
    worker_ends: int
    models: ModelsUsed

    @property
    def applications(self) -> int:
        outcomes = (outcome for event in self.look.events for outcome in event.outcomes.values())
        return sum(outcome == "applied" for outcome in outcomes)


def figures(outcome: Outcome) -> DemoFigures:
    """The demo's figures."""
    samples = outcome.played.samples
    lags = [seconds for event in outcome.look.events for seconds in event.consumed.values()]
    return DemoFigures(
        messages=len(outcome.sent),
        play_seconds=round(outcome.played.seconds, 3),
        put_p50_ms=round(percentile(samples.put_ms, 0.5), 3),
        put_p99_ms=round(percentile(samples.put_ms, 0.99), 3),
        put_max_ms=round(max(samples.put_ms), 3),
        gets=len(samples.get_ms),
        get_p50_ms=round(percentile(samples.get_ms, 0.5), 3),
        get_p99_ms=round(percentile(samples.get_ms, 0.99), 3),
        get_tokens_max=max(samples.get_tokens, default=0),
        token_limit=outcome.token_limit,
        gets_over_budget=samples.over_budget,
        events=len(outcome.look.events),
        events_by_cause=dict(Counter(event.cause for event in outcome.look.events)),
        pipelines=list(outcome.pipelines),
        applications=outcome.applications,
        consume_lag_median_seconds=round(percentile(lags, 0.5), 3),
        consume_lag_max_seconds=round(max(lags, default=0.0), 3),
        consumed_after_seconds=None if outcome.consumed_after is None else round(outcome.consumed_after, 3),
        facts=len(outcome.facts),
        worker_ends=outcome.worker_ends,
        text_model=outcome.models.text,
        embedding_model=outcome.models.embedding,
    )


def checks(outcome: Outcome) -> list[DemoCheck]:
    """Each promise, whether it was kept, and what was found."""
    return [
        _nothing_lost(outcome),
        _each_in_one_flush(outcome),
        _all_consumed(outcome),
        _facts_once(outcome),
        _facts_have_provenance(outcome),
        _within_limit(outcome),
    ]


def _nothing_lost(outcome: Outcome) -> DemoCheck:
    problem = next(_differences(outcome.sent, outcome.stored), None)
    finding = f"all {len(outcome.sent)} read back in order, with the same ids and contents"
    return DemoCheck(name="no message lost", ok=problem is None, found=problem or finding)


def _differences(sent: Sequence[Message], stored: Sequence[Message]) -> Iterator[str]:
    if len(sent) != len(stored):
        yield f"{len(sent)} put, {len(stored)} read back"
    for number, (put, read) in enumerate(zip(sent, stored, strict=False), start=1):
        same = put.role == read.role and put.to_dict() == read.to_dict()
        if (
            not same
            or (put.id is not None and put.id != read.id)
            or dict(put.metadata) != dict(read.metadata)
        ):
            yield f"message {number} came back different"


def _each_in_one_flush(outcome: Outcome) -> DemoCheck:
    events = outcome.look.events
    gaps = [after.from_seq for before, after in pairwise(events) if after.from_seq != before.through_seq + 1]
    finding = f"{quantity(len(events), 'flush event')}, one after the other" if events else "nothing flushed"
    if gaps:
        finding = f"the ranges do not join at message {gaps[0]}"
    return DemoCheck(name="each message in one flush", ok=not gaps, found=finding)


def _all_consumed(outcome: Outcome) -> DemoCheck:
    events, pipelines = len(outcome.look.events), len(outcome.pipelines)
    expected = events * pipelines
    after = outcome.consumed_after
    ended = "then nothing more came" if after is None else f"the last {after:.1f} s after the last put"
    finding = (
        f"{quantity(events, 'event')} x {quantity(pipelines, 'pipeline')}: {outcome.applications} applied,"
        f" {ended}"
    )
    ok = after is not None and outcome.applications == expected
    return DemoCheck(name="every event consumed", ok=ok, found=finding)


def _facts_once(outcome: Outcome) -> DemoCheck:
    """No fact stands twice, and no candidate was taken in twice."""
    texts = Counter(fact.text for fact in outcome.facts if fact.invalidated_at is None)
    taken = Counter(
        (revision.event_id, revision.seqs, revision.text)
        for fact in outcome.facts
        for revision in fact.revisions
        if revision.operation == "add"
    )
    twice = [text for text, count in texts.items() if count > 1]
    twice += [key[2] for key, count in taken.items() if count > 1]
    finding = f"twice: {twice[0]}" if twice else f"{quantity(len(texts), 'fact')}, all different"
    return DemoCheck(name="no fact twice", ok=not twice, found=finding)


def _facts_have_provenance(outcome: Outcome) -> DemoCheck:
    events = {event.event_id for event in outcome.look.events}
    stored_ids = {message.id for message in outcome.stored}
    bare = [fact for fact in outcome.facts if not _is_traceable(fact, events, stored_ids)]
    finding = f"without: {bare[0].text}" if bare else "each names its messages, flush, prompt and model"
    return DemoCheck(name="facts have provenance", ok=not bare, found=finding)


def _is_traceable(fact: Fact, events: set[UUID], stored_ids: set[str | None]) -> bool:
    return bool(fact.revisions) and all(
        revision.event_id in events
        and revision.message_ids
        and set(revision.message_ids) <= stored_ids
        and revision.model
        and revision.prompt_hash
        for revision in fact.revisions
    )


def _within_limit(outcome: Outcome) -> DemoCheck:
    samples = outcome.played.samples
    largest = max(samples.get_tokens, default=0)
    reads = quantity(len(samples.get_tokens), "read")
    finding = f"{reads}, the largest {largest:,} of {outcome.token_limit:,} tokens"
    if samples.over_budget:
        finding += f"; {samples.over_budget} said to be over budget"
    return DemoCheck(name="reads within the limit", ok=not samples.unexplained, found=finding)
