"""Spans by OpenTelemetry, whose API is loaded where traces are wanted (``STRANDLINE_TRACES``).

The tracer provider decides which spans are recorded: the application's own, or in a worker or service, which
belongs to no application, a provider that sends to a collector.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING

from strandline.producers.execution import Measure
from strandline.producers.operations.facts import FactOwner
from strandline.producers.operations.session import Session
from strandline.schemas import tracing
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.schemas.tracing import Kind, Span, Values, traceparent_of
from strandline.schemas.values.flush_event import TRACEPARENT
from strandline.schemas.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import SpanContext, Tracer

    from strandline.wiring.early_sampling import EarlySampling

logger = logging.getLogger("strandline.traces")

# A collector that is away delays the end of a process for as long, for each 512 spans.
EXPORT_SECONDS = 2.0
_EXPORT_TIMEOUTS = {"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"}

SCOPE = ("strandline", VERSION)

# By the names of operations; other operations get no span.
MEMORY_OPERATIONS = {
    "update_memory": "put set replace add_run fork add settle feedback create_from instruct",
    "search_memory": "get get_all search history context_window run_history summarize_last choose",
    "delete_memory": "reset rewind pop delete clear forget_source erase_user erase_session",
}
_MEMORY_OPERATION = {name: kind for kind, names in MEMORY_OPERATIONS.items() for name in names.split()}


def trace_process(settings: Settings) -> None:
    """Trace a worker or service, if the settings ask for it; what ``opentelemetry-instrument`` set up stays.

    Raises:
        ConfigurationError: OpenTelemetry's API is missing, or its SDK or exporter.
    """
    if not settings.traces:
        return
    operation_spans()
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    with _needs("opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider()
    timeout = None if _EXPORT_TIMEOUTS & os.environ.keys() else EXPORT_SECONDS
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout)))
    trace.set_tracer_provider(provider)


@cache
def operation_spans() -> Measure:
    """Spans of a memory's operations; from the first call on, the whole process is traced.

    Raises:
        ConfigurationError: the extra ``traces`` is missing.
    """
    with _needs("opentelemetry-api"):
        from opentelemetry import trace
    tracer = OtelTracer(trace.get_tracer(*SCOPE))
    tracing.install(tracer)
    values = {name: {tracing.OPERATION: name, tracing.PROVIDER: "strandline"} for name in MEMORY_OPERATIONS}

    def measure(operation: str, subject: object) -> AbstractContextManager[object]:
        name = _MEMORY_OPERATION.get(operation)
        return tracing.NO_SPAN if name is None else tracer.span(name, "client", values[name], subject=subject)

    return measure


def _digests(subject: object) -> dict[str, str]:
    match subject:
        case Session(identity=identity):
            return {
                tracing.STORE: str(identity.shard_key),
                tracing.CONVERSATION: str(identity.session_key),
            }
        case FactOwner(owner=owner):
            return {tracing.STORE: str(owner.shard_key)}
    return {}


class OtelTracer:
    """Implements ``schemas.tracing.Tracer``."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import context, trace

        self.context, self.trace = context, trace
        self._use(tracer)
        self.kinds = {
            "client": trace.SpanKind.CLIENT,
            "producer": trace.SpanKind.PRODUCER,
            "consumer": trace.SpanKind.CONSUMER,
        }

    def span(
        self,
        name: str,
        kind: Kind,
        values: Values,
        *,
        causes: Sequence[str | None] = (),
        is_current: bool = True,
        subject: object = None,
    ) -> AbstractContextManager[Span]:
        try:
            span = self._start(name, kind, values, causes)
            if subject is not None and span.is_recording():
                span.set_attributes(_digests(subject))
        except Exception as error:  # noqa: BLE001
            _warn_of_loss(error)
            return tracing.NO_SPAN
        return _OtelSpan(self, span, is_current=is_current)

    def _start(self, name: str, kind: Kind, values: Values, causes: Sequence[str | None]) -> OtelSpan:
        if self._sampling is None and isinstance(self.tracer, self.trace.ProxyTracer):
            provider = self.trace.get_tracer_provider()
            if not isinstance(provider, self.trace.ProxyTracerProvider):
                self._use(provider.get_tracer(*SCOPE))
        contexts = [one for cause in causes if (one := self._read(cause)) is not None]
        context = self._parent(contexts) if contexts else self.context.get_current()
        links = [self.trace.Link(one) for one in contexts] if len(causes) > 1 else ()
        if self._sampling is not None:
            return self._sampling.start_span(name, context, self.kinds[kind], values, links)
        return self.tracer.start_span(
            name, context, self.kinds[kind], values, links,
            record_exception=False, set_status_on_exception=False,
        )  # fmt: skip

    def _use(self, tracer: Tracer) -> None:
        """Ask the sampler first if the tracer is the SDK's; another's decides when it starts a span."""
        self.tracer = tracer
        self._sampling: EarlySampling | None = None
        if type(tracer).__module__.startswith("opentelemetry.sdk."):
            from strandline.wiring.early_sampling import early_sampling

            self._sampling = early_sampling(tracer)

    @contextmanager
    def within(self, traceparent: str) -> Iterator[None]:
        sent = self._read(traceparent)
        if sent is None or self.trace.get_current_span().get_span_context().is_valid:
            yield
            return
        token = self.context.attach(self._as_parent(sent))
        try:
            yield
        finally:
            self.context.detach(token)

    def _parent(self, causes: Sequence[SpanContext]) -> Context:
        """The first sampled cause, as a batch is recorded if any of its events is; otherwise the first."""
        return self._as_parent(next((one for one in causes if one.trace_flags.sampled), causes[0]))

    def _as_parent(self, cause: SpanContext) -> Context:
        return self.trace.set_span_in_context(self.trace.NonRecordingSpan(cause))

    def _read(self, traceparent: str | None) -> SpanContext | None:
        if traceparent is None or not re.fullmatch(TRACEPARENT, traceparent):
            return None
        _, trace_id, span_id, flags = traceparent.split("-")
        context = self.trace.SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True,
            trace_flags=self.trace.TraceFlags(int(flags, 16)),
        )  # fmt: skip
        return context if context.is_valid else None


def _warn_of_loss(error: Exception) -> None:
    """A sampler or processor of the application fails no work that it watches."""
    logger.warning("span lost", extra={"action": "span_lost", "error": type(error).__name__})


@contextmanager
def _needs(packages: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigurationError(f"Traces need OpenTelemetry: pip install {packages}.") from None


class _OtelSpan(Span):
    """A span from its start on: written out, since a generator takes several times as long."""

    __slots__ = ("_is_current", "_span", "_token", "_tracer")

    def __init__(self, tracer: OtelTracer, span: OtelSpan, *, is_current: bool) -> None:
        self._tracer, self._span, self._is_current = tracer, span, is_current

    def __enter__(self) -> Span:
        if self._is_current:
            current = self._tracer.trace.set_span_in_context(self._span)
            self._token = self._tracer.context.attach(current)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            if error is not None:
                self.fail(error)
            if self._is_current:
                self._tracer.context.detach(self._token)
            self._span.end()
        except Exception as lost:  # noqa: BLE001
            _warn_of_loss(lost)

    @property
    def traceparent(self) -> str | None:  # type: ignore[override]
        return traceparent_of(self._span.get_span_context())

    def note_tokens(self, read: int, written: int = 0) -> None:
        self._span.set_attribute("gen_ai.usage.input_tokens", read)
        if written:
            self._span.set_attribute("gen_ai.usage.output_tokens", written)

    def fail(self, error: BaseException) -> None:
        self._span.set_attribute("error.type", type(error).__name__)
        self._span.set_status(self._tracer.trace.StatusCode.ERROR)
