"""Serves metrics of this process to Prometheus; its library is loaded where metrics are wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from strandline.pipelines.engine.engine import Watch
from strandline.producers.execution import Measure
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@contextmanager
def watch_worker(settings: Settings, tell: Callable[[str], None]) -> Iterator[Watch]:
    """A worker's metrics, served while this lasts, if the settings name a port.

    Raises:
        ConfigurationError: the extra ``metrics`` is missing, or nothing can listen there.
    """
    if settings.metrics_port is None:
        yield Watch()
        return
    with needing_prometheus():
        from strandline.workers.metrics import ProcessMetrics
    metrics = ProcessMetrics()
    with serve_registry(metrics.registry, settings.metrics_host, settings.metrics_port) as url:
        tell(f"serves metrics at {url}")
        yield metrics


@contextmanager
def measure_service(settings: Settings, tell: Callable[[str], None]) -> Iterator[Settings]:
    """The settings of a service that measures operations, and serves that, if they name a port.

    Raises: as ``watch_worker``.
    """
    if settings.metrics_port is None:
        yield settings
        return
    with needing_prometheus():
        from prometheus_client import REGISTRY
    with serve_registry(REGISTRY, settings.metrics_host, settings.metrics_port) as url:
        tell(f"metrics: {url}")
        yield settings.model_copy(update={"operation_metrics": True})


@cache
def operation_metrics() -> Measure:
    """Measures operations in the default registry of prometheus-client, which its multiprocess mode sums up.

    Raises:
        ConfigurationError: the extra ``metrics`` is missing.
    """
    with needing_prometheus():
        from prometheus_client import REGISTRY, Histogram

        from strandline.workers.metrics import BreakerCollector
    REGISTRY.register(BreakerCollector())
    seconds = Histogram(
        "strandline_operation_seconds",
        "Time of the operations of memories, facts and sessions; outcome: ok, or the error's class.",
        ["operation", "outcome"],
        buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    )

    # A series by its labels: to look one up takes the library longer than to count in it.
    series: dict[tuple[str, str], Histogram] = {}

    class Timed:
        """Written out, since a generator takes several times as long."""

        __slots__ = ("_began", "_operation")

        def __init__(self, operation: str, _subject: object) -> None:
            self._operation = operation

        def __enter__(self) -> None:
            self._began = time.perf_counter()

        def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
            took = time.perf_counter() - self._began
            labels = (self._operation, "ok" if error is None else error.__name__)
            if (one := series.get(labels)) is None:
                one = series[labels] = seconds.labels(*labels)
            one.observe(took)

    return Timed


@contextmanager
def serve_registry(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Serve a registry while this lasts; yields the URL.

    Raises:
        ConfigurationError: nothing can listen there.
    """
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(
            f"Metrics cannot be served at {host}:{port}: {error.strerror}. Choose another address."
        ) from None
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def needing_prometheus() -> Iterator[None]:
    """Name the extra where an import within finds no prometheus-client."""
    try:
        yield
    except ImportError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigurationError("Metrics need prometheus-client: pip install prometheus-client.") from None
