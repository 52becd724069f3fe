"""Metrics of one worker process, for Prometheus: how late work is applied, and what models were asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from strandline.pipelines.engine.engine import Watch
from strandline.pipelines.engine.stage import Batch, RawAnswer
from strandline.pipelines.models.provided.breaker import breaker_states

LAG_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3_600, 21_600)
CALL_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 100, 300)


class BreakerCollector(Collector):
    """Which roles of models this process may not call now, by the class of the error."""

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "strandline_breaker_open",
            "1 while no model of a role is called; reason: the class of the provider's error.",
            labels=["role", "reason"],
        )
        for role, reason in breaker_states().items():
            family.add_metric((role, reason or "none"), float(bool(reason)))
        yield family


class ProcessMetrics(Watch):
    """Counts the work of this process in a registry of its own; no label names a namespace or a user."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(BreakerCollector())
        self._lag = Histogram(
            "strandline_apply_lag_seconds",
            "From the flush of an event to its effect, retries included.",
            ["stage"],
            buckets=LAG_BUCKETS,
            registry=self.registry,
        )
        self._calls = Histogram(
            "strandline_model_call_seconds",
            "Time of answered model calls.",
            ["stage", "model"],
            buckets=CALL_BUCKETS,
            registry=self.registry,
        )
        self._tokens = self._counter("model_tokens", "Tokens of model calls.", "stage", "model", "direction")
        self._cost = self._counter("model_cost_usd", "Cost of model calls with a price.", "stage", "model")
        self._postponed = self._counter("postponed", "Lanes given back after an error.", "stage", "error")
        self._died = self._counter("died", "Events that became dead letters.", "stage")

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"strandline_{name}", help_text, labels, registry=self.registry)

    def note_batch(self, batch: Batch) -> None:
        lag, now = self._lag.labels(batch.lane.stage), datetime.now(UTC)
        for event in batch.events:
            lag.observe(max(0.0, (now - event.created_at).total_seconds()))

    def note_call(self, stage: str, answer: RawAnswer, seconds: float, cost_usd: Decimal | None) -> None:
        self._calls.labels(stage, answer.model).observe(seconds)
        self._tokens.labels(stage, answer.model, "input").inc(answer.input_tokens)
        self._tokens.labels(stage, answer.model, "output").inc(answer.output_tokens)
        if cost_usd is not None:
            self._cost.labels(stage, answer.model).inc(float(cost_usd))

    def note_failure(self, stage: str, error: Exception) -> None:
        self._postponed.labels(stage, type(error).__name__).inc()

    def note_dead_letter(self, batch: Batch) -> None:
        self._died.labels(batch.lane.stage).inc()
