"""Spans of this process, if ``strandline.wiring.traces`` has installed a tracer.

Names follow OpenTelemetry's semantic conventions for messaging (1.45) and for generative AI (0.1).
No span holds content or names: sessions and owners appear as the digests that are their keys, errors as
their class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol
from uuid import UUID

Kind = Literal["client", "producer", "consumer"]
Values = Mapping[str, str | int]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
STORE = "gen_ai.memory.store.id"
CONVERSATION = "gen_ai.conversation.id"


class Span:
    """Takes additions to a span, and drops them.

    ``traceparent``: of the span, as W3C Trace Context writes it; None where nothing is traced.
    """

    traceparent: str | None = None

    def note_tokens(self, read: int, written: int = 0) -> None:
        """Add the tokens of a model call."""

    def fail(self, error: BaseException) -> None:
        """Mark the span as failed, with the class of an error that is handled within it."""


class Tracer(Protocol):
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
        """A span; an error that leaves it fails it.

        ``causes``: traceparents of what led to it; the first sampled one is its parent, or else the first.
        ``is_current``: whether spans within are its children.
        ``subject``: the session or the owner of facts whose keys it bears.
        """
        ...

    def within(self, traceparent: str) -> AbstractContextManager[object]:
        """Make a caller's span the parent of those within, unless there is one already."""
        ...


NO_SPAN = nullcontext(Span())

_tracer: Tracer | None = None


def install(tracer: Tracer | None) -> None:
    """Trace this process from now on; None: no longer."""
    global _tracer  # noqa: PLW0603  # one for the process, as OpenTelemetry has it
    _tracer = tracer


def send_span(shard_key: UUID, session_key: UUID, events: int) -> AbstractContextManager[Span]:
    """The span of a flush.  Not current, since a generator may be suspended in it."""
    if _tracer is None or not events:
        return NO_SPAN
    values = _of_messages("send", "flush_event", events, shard_key)
    values[CONVERSATION] = str(session_key)
    return _tracer.span("send flush_event", "producer", values, is_current=False)


def process_span(
    stage: str, shard_key: UUID, generation_id: int, causes: Sequence[str | None]
) -> AbstractContextManager[Span]:
    """The span of a batch, with the traceparents of its events."""
    if _tracer is None:
        return NO_SPAN
    values = _of_messages("process", stage, len(causes), shard_key)
    values["strandline.generation"] = generation_id
    return _tracer.span(f"process {stage}", "consumer", values, causes=causes)


def call_span(
    operation: Literal["chat", "embeddings"], model: str, provider: str
) -> AbstractContextManager[Span]:
    """The span of a call of a model."""
    if _tracer is None:
        return NO_SPAN
    values = {OPERATION: operation, PROVIDER: provider, "gen_ai.request.model": model}
    return _tracer.span(f"{operation} {model}", "client", values)


def caller_context(headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[object]:
    """Continue the trace of a request, by its header ``traceparent``."""
    if _tracer is None:
        return NO_SPAN
    return _tracer.within(dict(headers).get(b"traceparent", b"").decode("latin-1"))


def current_traceparent() -> str | None:
    """Of the present span, which may be the application's own; None without a span or OpenTelemetry."""
    # Another thread may be importing it.
    get_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    return None if get_span is None else traceparent_of(get_span().get_span_context())


def traceparent_of(context: Any) -> str | None:
    """A span context of OpenTelemetry as text; None if it is not valid."""
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def _of_messages(operation: str, destination: str, events: int, shard_key: UUID) -> dict[str, str | int]:
    return {
        STORE: str(shard_key),
        "messaging.system": "strandline",
        "messaging.destination.name": destination,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.batch.message_count": events,
    }
