"""Serves metrics of this process to Prometheus; its library is loaded where metrics are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.pipelines.engine.watch import Watch
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
        raise ConfigurationError(
            "Metrics need prometheus-client: pip install 'strandline[metrics]'."
        ) from None
