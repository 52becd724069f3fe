"""Spans of OpenTelemetry's SDK, whose sampler is asked before anything else is done for a span.

The SDK makes an id, flags and a context for each span, also for most of them, which its sampler drops.
Here a dropped span has these made when they are first asked for: most puts hand none on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from copy import copy

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    get_current_span,
)
from opentelemetry.trace import Tracer as AnyTracer

from strandline.schemas.tracing import Values

logger = logging.getLogger("strandline.traces")

_DROP = SamplingResult(Decision.DROP)
# What decides on a span without a parent, where that is known to look at nothing but the trace id.
_BY_TRACE_ID = re.compile(r"(?:ParentBased\{root:)?TraceIdRatioBased\{([0-9.e-]+)\}")
_TRACE_ID_BITS = TraceIdRatioBased.TRACE_ID_LIMIT
_NO_BOUND = _TRACE_ID_BITS + 1


def early_sampling(tracer: AnyTracer) -> EarlySampling | None:
    """None for a tracer of another make, or derived from the SDK's: it decides as it starts a span."""
    return EarlySampling(tracer) if type(tracer) is Tracer else None


class EarlySampling:
    """Starts the spans of one tracer as that tracer does."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        # By a span's name, the trace ids that its sampler drops if it has no parent: these and greater ones.
        self._bounds: dict[str, int] = {}

    def start_span(
        self, name: str, context: Context, kind: SpanKind, values: Values, links: Sequence[Link]
    ) -> Span:
        parent = get_current_span(context).get_span_context() if context else INVALID_SPAN_CONTEXT
        if parent.is_valid:
            trace_id = parent.trace_id
        else:
            trace_id = self.tracer.id_generator.generate_trace_id()
            if trace_id & _TRACE_ID_BITS >= self._bounds.get(name, _NO_BOUND):
                return _DroppedSpan(self, _DROP, trace_id, name, context)
            self._bounds[name] = self._find_bound(name, kind, values)
        result = self.tracer.sampler.should_sample(context, trace_id, name, kind, values, links)
        if result.decision is Decision.DROP:
            return _DroppedSpan(self, result, trace_id, name, context)
        return self.start_decided(result, trace_id, name, context, kind, links)

    def start_decided(
        self,
        result: SamplingResult,
        trace_id: int,
        name: str,
        context: Context,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> Span:
        """Start a span on which the sampler has decided, for this trace id."""
        decided = copy(self.tracer)
        decided.sampler = decided.id_generator = _Decided(result, trace_id, self.tracer.id_generator)
        return decided.start_span(
            name, context, kind, links=links, record_exception=False, set_status_on_exception=False
        )

    def _find_bound(self, name: str, kind: SpanKind, values: Values) -> int:
        """To ask a sampler takes a third of the time of a span, so a known one is asked for few.

        It says itself which share it takes, and is tried on both sides of that, by this span.
        """
        sampler = self.tracer.sampler
        if type(sampler) not in (ParentBased, TraceIdRatioBased):
            return _NO_BOUND
        share = _BY_TRACE_ID.match(sampler.get_description())
        bound = TraceIdRatioBased.get_bound_for_rate(float(share[1])) if share else 0
        if not 0 < bound < _NO_BOUND:
            return _NO_BOUND
        is_dropped = [
            sampler.should_sample(Context(), one, name, kind, values, ()).decision is Decision.DROP
            for one in (bound - 1, bound, _TRACE_ID_BITS)
        ]
        return bound if is_dropped == [False, True, True] else _NO_BOUND


class _Decided(Sampler, IdGenerator):
    """Tells one span what its sampler has decided, for the trace id that it saw."""

    def __init__(self, result: SamplingResult, trace_id: int, ids: IdGenerator) -> None:
        self._result, self._trace_id, self._ids = result, trace_id, ids

    def should_sample(self, *_arguments: object, **_more: object) -> SamplingResult:
        return self._result

    def get_description(self) -> str:
        return "Decided"

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._ids.generate_span_id()

    def is_trace_id_random(self) -> bool:
        return self._ids.is_trace_id_random()


class _DroppedSpan(NonRecordingSpan):
    def __init__(
        self, sampling: EarlySampling, result: SamplingResult, trace_id: int, name: str, context: Context
    ) -> None:
        self._sampling, self._decided = sampling, (result, trace_id, name, context)
        self._contexts: list[SpanContext] = []

    def get_span_context(self) -> SpanContext:
        if not self._contexts:
            self._contexts.append(self._make())
        # Of two threads that ask at once, both take the first answer.
        return self._contexts[0]

    def _make(self) -> SpanContext:
        try:
            return self._sampling.start_decided(*self._decided).get_span_context()
        except Exception as error:  # noqa: BLE001  # as of any span: it fails no work
            logger.warning("span lost", extra={"action": "span_lost", "error": type(error).__name__})
            return INVALID_SPAN_CONTEXT
