"""Which spans are dropped, by whom that is decided, and what a dropped span hands on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes

from strandline.schemas import tracing
from strandline.schemas.settings import load_settings
from strandline.wiring.traces import OtelTracer, operation_spans
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.messages import user
from tests.support.workers.draining import drain_everything

LIMIT = TraceIdRatioBased.TRACE_ID_LIMIT


class Ids(IdGenerator):
    """Gives the trace ids that it is told, and counts the spans' ids."""

    def __init__(self, trace_ids: Sequence[int]) -> None:
        self._trace_ids = iter(trace_ids)
        self.spans = 0

    def generate_trace_id(self) -> int:
        return next(self._trace_ids)

    def generate_span_id(self) -> int:
        self.spans += 1
        return self.spans


class Asked(Sampler):
    """A third party's: takes one in two, with an attribute of its own, and notes what it is asked."""

    def __init__(self, taking: Decision = Decision.RECORD_AND_SAMPLE) -> None:
        self.taking = taking
        self.asked: list[tuple[str, object]] = []

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        self.asked.append((name, attributes))
        decision = Decision.DROP if len(self.asked) % 2 else self.taking
        return SamplingResult(decision, {**(attributes or {}), "turn": len(self.asked)})

    def get_description(self) -> str:
        return "Asked"


class Preferring(TraceIdRatioBased):
    """Takes the deletions whatever their trace id; of itself it says what the ratio alone says."""

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if name == "delete_memory":
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return super().should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)


class Provided(SpanProcessor):
    """A provider, and the spans that it recorded."""

    def __init__(self, sampler: Sampler, ids: IdGenerator | None = None) -> None:
        self.kept: list[ReadableSpan] = []
        self.provider = TracerProvider(sampler=sampler, id_generator=ids)
        self.provider.add_span_processor(self)

    def on_end(self, span: ReadableSpan) -> None:
        self.kept.append(span)

    @property
    def tracer(self) -> OtelTracer:
        return OtelTracer(self.provider.get_tracer("strandline"))

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.kept]


Provide = Callable[..., Provided]


@pytest.fixture
def provide(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provide]:
    """Memories are traced by that provider from then on."""

    def provide(sampler: Sampler, ids: IdGenerator | None = None) -> Provided:
        provided = Provided(sampler, ids)
        monkeypatch.setenv("STRANDLINE_TRACES", "true")
        monkeypatch.setattr(trace, "get_tracer", provided.provider.get_tracer)
        operation_spans.cache_clear()
        return provided

    yield provide
    operation_spans.cache_clear()
    tracing.install(None)


def shown(span: ReadableSpan) -> tuple[object, ...]:
    return span.context.trace_id, span.context.trace_flags, span.parent, dict(span.attributes or {})


@given(
    rate=st.sampled_from([0.0, 1e-9, 0.01, 0.5, 1.0]),
    near=st.lists(st.integers(-3, 3), max_size=4),
    far=st.lists(st.integers(1, (1 << 128) - 1), max_size=8),
    wrap=st.sampled_from([ParentBased, lambda sampler: sampler]),
)
def test_the_same_spans_are_recorded_as_the_sdk_records(
    rate: float, near: list[int], far: list[int], wrap: Callable[[Sampler], Sampler]
) -> None:
    bound = TraceIdRatioBased.get_bound_for_rate(rate)
    ids = [*far, *(max(1, bound + one) for one in near)] * 2
    sampler = wrap(TraceIdRatioBased(rate))
    mine, own = Provided(sampler, Ids(ids)), Provided(sampler, Ids(ids))
    tracer, other = mine.tracer, own.provider.get_tracer("strandline")
    contexts = []
    for _ in ids:
        with tracer.span("update_memory", "client", {"a": 1}) as span:
            contexts.append(trace.get_current_span().get_span_context())
            assert span.traceparent == tracing.traceparent_of(contexts[-1])
        sdk = other.start_span("update_memory", kind=trace.SpanKind.CLIENT, attributes={"a": 1})
        sdk.end()
        assert (contexts[-1].trace_id, contexts[-1].trace_flags) == (
            sdk.get_span_context().trace_id,
            sdk.get_span_context().trace_flags,
        )
    assert [shown(span) for span in mine.kept] == [shown(span) for span in own.kept]


def test_a_sampler_is_asked_once_for_each_span_and_its_attributes_are_taken(
    make_memory: MakeMemory, provide: Provide
) -> None:
    provided = provide(sampler := Asked())
    memory = make_memory("s")
    for number in range(4):
        memory.put(user(f"I sail {number}."))
    values = {"gen_ai.operation.name": "update_memory", "gen_ai.provider.name": "strandline"}
    assert sampler.asked == [("update_memory", values)] * 4
    recorded = provided.kept
    assert [(span.attributes or {})["turn"] for span in recorded] == [2, 4]


def test_a_dropped_put_that_hands_nothing_on_has_no_context_made(
    make_memory: MakeMemory, provide: Provide
) -> None:
    ids = Ids([5, *[LIMIT] * 3])
    provided = provide(ParentBased(TraceIdRatioBased(0.01)), ids)
    memory = make_memory("s")
    for number in range(4):
        memory.put(user(f"I sail {number}."))
    assert (provided.names, ids.spans) == (["update_memory"], 1)


def test_a_sampler_that_prefers_some_is_asked_for_these(make_memory: MakeMemory, provide: Provide) -> None:
    provided = provide(ParentBased(Preferring(0.01)), Ids([LIMIT] * 9))
    memory = make_memory("s")
    for _ in range(2):
        memory.put(user("I sail."))
        memory.reset()
    assert provided.names == ["delete_memory"] * 2


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(TraceIdRatioBased(0.01))])
def test_a_dropped_put_drops_what_follows_from_it(rig: Rig, provide: Provide, sampler: Sampler) -> None:
    provided = provide(sampler, Ids([LIMIT, LIMIT - 1, 1, 2]))
    memory = rig.memory("s", user_id="u", memory_blocks=["facts"], deliver="turn")
    memory.put(user("My boat is blue."))
    memory.put({"role": "assistant", "content": "Noted."})
    ((sent,),) = rows_of(rig.url, "SELECT traceparent FROM strandline.flush_event")
    assert sent.startswith(f"00-{LIMIT - 1:032x}-") and sent.endswith("-00")
    drain_everything(rig.database, rig.url, load_settings(text_backend="local"), ["extract"])
    assert provided.names == []


def test_spans_of_others_within_a_dropped_one_are_dropped_with_it() -> None:
    provided = Provided(ParentBased(TraceIdRatioBased(0.01)), Ids([1, LIMIT, 2]))
    tracer, other = provided.tracer, provided.provider.get_tracer("psycopg")
    with tracer.span("update_memory", "client", {}):
        pass
    with tracer.span("update_memory", "client", {}) as dropped:
        inner = other.start_span("INSERT")
        inner.end()
        assert tracing.current_traceparent() == dropped.traceparent
    assert inner.get_span_context().trace_id == LIMIT
    assert provided.names == ["update_memory"]


def test_async_puts_at_once_keep_their_traces_apart() -> None:
    provided = Provided(ParentBased(TraceIdRatioBased(0.01)), Ids([1, LIMIT, LIMIT - 1]))
    tracer = provided.tracer
    with tracer.span("update_memory", "client", {}):
        pass

    async def put() -> tuple[str | None, str | None]:
        with tracer.span("update_memory", "client", {}) as span:
            await asyncio.sleep(0)
            return tracing.current_traceparent(), span.traceparent

    async def both() -> list[tuple[str | None, str | None]]:
        return list(await asyncio.gather(put(), put()))

    seen = asyncio.run(both())
    assert [current for current, _ in seen] == [own for _, own in seen]
    assert [(own or "").split("-")[1] for _, own in seen] == [f"{LIMIT:032x}", f"{LIMIT - 1:032x}"]


class Failing(Ids):
    def generate_span_id(self) -> int:
        raise RuntimeError


def test_ids_that_fail_fail_no_put(rig: Rig, provide: Provide) -> None:
    provide(ParentBased(TraceIdRatioBased(0.01)), Failing([LIMIT] * 9))
    memory = rig.memory("s", user_id="u", memory_blocks=["facts"])
    memory.put(user("My boat is blue."))
    memory.flush(all=True)
    assert rows_of(rig.url, "SELECT traceparent FROM strandline.flush_event") == [(None,)]


class OtherTracer(trace.Tracer):
    """A third party's, with a ``sampler`` that is something else."""

    sampler = "always"

    def __init__(self) -> None:
        self.started: list[str] = []

    def start_span(self, name: str, *_arguments: Any, **_more: Any) -> trace.Span:
        self.started.append(name)
        return trace.INVALID_SPAN

    def start_as_current_span(self, *_arguments: Any, **_more: Any) -> Any:
        raise NotImplementedError


def test_a_tracer_of_another_starts_its_spans_itself() -> None:
    tracer = OtherTracer()
    for _ in range(2):
        with OtelTracer(tracer).span("update_memory", "client", {}) as span:
            assert span.traceparent is None
    assert tracer.started == ["update_memory"] * 2


def test_without_a_provider_nothing_is_begun() -> None:
    with OtelTracer(trace.NoOpTracerProvider().get_tracer("x")).span("put", "client", {}) as span:
        assert (span.traceparent, tracing.current_traceparent()) == (None, None)


def test_a_provider_that_is_set_later_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = OtelTracer(trace.ProxyTracerProvider().get_tracer("strandline"))
    with tracer.span("update_memory", "client", {}) as span:
        assert span.traceparent is None
    provided = Provided(sampler := Asked())
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provided.provider)
    for _ in range(2):
        with tracer.span("update_memory", "client", {}):
            pass
    assert (len(sampler.asked), provided.names) == (2, ["update_memory"])


def test_a_span_may_be_recorded_and_hand_on_that_it_is_not() -> None:
    provided = Provided(Asked(Decision.RECORD_ONLY))
    for _ in range(2):
        with provided.tracer.span("update_memory", "client", {}) as span:
            assert (span.traceparent or "").endswith("-00")
    assert provided.names == ["update_memory"]


def test_a_sampler_that_takes_all_takes_all() -> None:
    provided = Provided(ParentBased(ALWAYS_ON))
    for _ in range(3):
        with provided.tracer.span("update_memory", "client", {}):
            pass
    assert provided.names == ["update_memory"] * 3
