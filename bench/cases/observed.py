"""Puts and reads with metrics, and with traces of which one in a hundred is recorded, against neither."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from bench.cases.reads import filled_session, memory_of
from bench.cases.writes import NO_MARK
from bench.environment import Given, Ground
from bench.figures import Figure, Goal, Pair, of_times
from bench.size import Size
from bench.turns import Call, in_turns
from strandline import Memory

SAMPLED = 0.01
# By what is measured, the setting that turns it on.
SETTINGS = {"metrics": "STRANDLINE_OPERATION_METRICS", "traces": "STRANDLINE_TRACES"}
GOALS = {"metrics": Goal(1.03), "traces": Goal(1.05)}


def measure_observed(ground: Ground, size: Size) -> Iterator[Figure]:
    """A put and a read again with metrics, and with one trace in a hundred recorded, against neither."""
    with _sampling():
        session_id, limits = filled_session(ground, size)
        puts = _by_setting(lambda: ground.memory(blocks=[], token_limit=NO_MARK))
        gets = _by_setting(lambda: memory_of(ground, session_id, limits))
        for memory in puts:
            memory.put(ground.pieces[0])  # the session's first put claims it
        pieces = iter(ground.some_pieces(len(puts) * (size.repetitions + 1) * size.puts))
        calls: dict[str, tuple[list[Call], int]] = {
            "put": ([partial(_put_next, memory, pieces) for memory in puts], size.puts),
            "get": ([memory.get for memory in gets], size.gets * 3),
        }
        for act, (measured, count) in calls.items():
            rounds = [in_turns(measured, count) for _ in range(size.repetitions + 1)][1:]
            for place, (name, goal) in enumerate(GOALS.items(), start=1):
                pairs = [Pair(times[place], times[0]) for times in rounds]
                yield of_times("observed", f"{act} with {name}", f"{act} without", pairs, goal=goal)


def _put_next(memory: Memory, pieces: Iterator[Given]) -> None:
    memory.put(next(pieces))


def _by_setting(make: Callable[[], Memory]) -> list[Memory]:
    """A memory without either, and one with each; a memory reads the settings when it is made."""
    memories = [make()]
    for setting in SETTINGS.values():
        with patch.dict(os.environ, {setting: "true"}):
            memories.append(make())
    return memories


class Dropping(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@contextmanager
def _sampling() -> Iterator[None]:
    """A tracer provider that records one trace in a hundred, and drops its spans when they have ended."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SAMPLED)))
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()
