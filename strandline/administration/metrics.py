"""Metrics of one database, for Prometheus: the numbers of ``strandline status``, without totals of tables.

No label names a namespace, a user or a session, so the number of series depends on stages and generations
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from strandline.schemas.errors import StrandlineError
from strandline.schemas.wire.work import StageReport, Standing

_STAGE_LABELS = ("pipeline", "stage", "generation", "state")
_OF_STAGES: dict[str, tuple[str, Callable[[StageReport], float]]] = {
    "strandline_due": ("Flush events that wait for a stage.", lambda stage: stage.due),
    "strandline_due_oldest_age_seconds": (
        "Age of the oldest event that waits for a stage, and for no budget.",
        lambda stage: stage.lag_seconds,
    ),
    "strandline_leased_lanes": ("Lanes that live workers hold.", lambda stage: stage.leased),
    "strandline_dead_letters": (
        "Dead letters, without those dropped.",
        lambda stage: stage.dead,
    ),
    "strandline_stage_waits": (
        "1 if a live worker names a reason why due work of a stage waits.",
        lambda stage: stage.reason is not None,
    ),
}


class DatabaseCollector(Collector):
    """Reads a database once per scrape."""

    def __init__(self, read: Callable[[], Standing]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        try:
            standing = self._read()
        except StrandlineError:
            yield _gauge("strandline_database_up", "1 if the database answered.", 0)
            return
        yield _gauge("strandline_database_up", "1 if the database answered.", 1)
        yield from _of_stages(standing)
        yield from _of_workers(standing)

    def describe(self) -> list[Metric]:
        """Nothing: registering must not ask the database."""
        return []


def _of_stages(standing: Standing) -> Iterator[Metric]:
    for name, (help_text, value_of) in _OF_STAGES.items():
        family = GaugeMetricFamily(name, help_text, labels=_STAGE_LABELS)
        for pipeline in standing.pipelines:
            for stage in pipeline.stages:
                labels = (pipeline.name, stage.name, str(pipeline.generation), pipeline.state)
                family.add_metric(labels, value_of(stage))
        yield family
    unserved = GaugeMetricFamily(
        "strandline_pipeline_unserved",
        "1 if sessions feed it, and no live worker runs it.",
        labels=["pipeline"],
    )
    for name in standing.unserved:
        unserved.add_metric((name,), 1)
    yield unserved


def _of_workers(standing: Standing) -> Iterator[Metric]:
    workers = standing.workers
    by_stage = GaugeMetricFamily("strandline_workers", "Live workers of a stage.", labels=["stage"])
    for name in sorted({stage for worker in workers for stage in worker.stages}):
        by_stage.add_metric((name,), sum(name in worker.stages for worker in workers))
    yield by_stage
    yield _gauge(
        "strandline_workers_without_broker",
        "Live workers that do not reach their broker.",
        sum(worker.no_broker is not None for worker in workers),
    )
    yield _gauge(
        "strandline_worker_lost_threads",
        "Threads of live workers whose block did not return in time.",
        sum(worker.lost_threads for worker in workers),
    )
    yield _gauge("strandline_replays_unfinished", "Replays that have not ended.", len(standing.replays))
    yield _gauge(
        "strandline_namespaces_waiting",
        "Namespaces whose work waits for a budget.",
        sum(one.waits_until is not None for one in standing.limits),
    )
    yield _gauge(
        "strandline_key_waiting_events",
        "Flush events of encrypted namespaces that no worker could open.",
        sum(wait.events for wait in standing.waiting_for_keys),
    )
    yield _gauge(
        "strandline_audit_unchained_age_seconds",
        "Age of the oldest act that no worker has chained into the audit trail.",
        standing.unchained_seconds,
    )


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)
