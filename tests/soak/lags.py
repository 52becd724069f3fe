"""Lag by metric, by trace and by table: three measurements of the same thousand events agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.conftest import wait_until
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.support.servers.otlp_receiver import Receiver, receiving
from tests.support.workers.busy_workers import converse, environment
from tests.workers.test_metrics import LAGS, of, scrape

SESSIONS, EVENTS = 100, 10
MOST = 0.05
# Of a call, so that the milliseconds between the receipt's time and its commit are few beside it.
LATENCY_SECONDS = 0.5
EMBEDDINGS = {"STRANDLINE_EMBEDDING_BACKEND": "openai", "STRANDLINE_EMBEDDING_DIMENSIONS": "256"}


def run(ground: Ground) -> Iterator[Reading]:
    """One worker derives events of a traced producer."""
    model = ground.model()
    model.behave(latency=LATENCY_SECONDS)
    with receiving() as receiver:
        _trace_here(receiver)
        traced = receiver.environment
        worker = ground.worker(**environment(model, **EMBEDDINGS, **traced), STRANDLINE_METRICS_PORT="0")
        with ground.environment(**traced):
            converse(ground.memory, SESSIONS, EVENTS, broker_url=ground.broker_url)
        wait_until(ground.nothing_due, timeout=60, what="all events to be derived")
        by_table = {stage: seconds / events for stage, events, seconds in ground.rows(LAGS)}
        wait_until(lambda: _is_whole(_by_trace(receiver)), timeout=10, what="all spans")
        by_trace = {stage: sum(lags) / len(lags) for stage, lags in _by_trace(receiver).items()}
        address = re.search(r"serves metrics at (\S+)", "".join(worker.output))
        assert address is not None
        samples, _ = scrape(address[1])
    for stage, seconds in sorted(by_table.items()):
        total, count = (of(samples, f"apply_lag_seconds_{name}", stage) or 0.0 for name in ("sum", "count"))
        for way, other in (("metric", total / count), ("trace", by_trace[stage])):
            yield Reading(
                f"lag of {stage} by {way} beside that by table", abs(other / seconds - 1), MOST, "x"
            )


def _trace_here(receiver: Receiver) -> None:
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces"), schedule_delay_millis=100)
    )
    trace.set_tracer_provider(provider)


def _by_trace(receiver: Receiver) -> dict[str, list[float]]:
    """The seconds from each flush to the end of its batch, by stage."""
    spans = receiver.spans
    sent = {span.span_id: span.start_time_unix_nano for span in spans if span.name.startswith("send ")}
    lags: dict[str, list[float]] = {}
    for span in spans:
        operation, _, stage = span.name.partition(" ")
        if operation == "process" and stage != "merge":
            causes = [link.span_id for link in span.links] or [span.parent_span_id]
            began = [sent[cause] for cause in causes if cause in sent]
            lags.setdefault(stage, []).extend((span.end_time_unix_nano - at) / 1e9 for at in began)
    return lags


def _is_whole(lags: dict[str, list[float]]) -> bool:
    return len(lags) == 3 and all(len(of_stage) == SESSIONS * EVENTS for of_stage in lags.values())
