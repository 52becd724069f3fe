"""Serving: runs one worker process, from settings to a Celery worker that consumes until it is stopped."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from celery.platforms import SecurityWarning

from strandline.pipelines.engine.engine import Watch
from strandline.producers.doorbell.doorbell import Doorbell
from strandline.schemas.errors import BrokerUnavailableError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import queue_name
from strandline.wiring.archives import open_archive
from strandline.wiring.assembly import prepare_stages, stop_points
from strandline.workers.celery_app.app import WorkerApp, make_app, serve
from strandline.workers.celery_app.shutdown import Shutdown
from strandline.workers.startup import Patience
from strandline.workers.without_broker import WithoutBroker
from strandline.workers.worker import Worker


def run_worker(
    settings: Settings,
    *,
    database_url: str,
    broker_url: str,
    stages: Sequence[str],
    concurrency: int | None = None,
    sweep: bool = True,
    log_level: str = "WARNING",
    tell: Callable[[str], None] = lambda _line: None,
    watch: Watch | None = None,
) -> int:
    """Consume until SIGTERM, SIGINT, SIGHUP or SIGQUIT; returns the exit code, 0 after such a signal.

    If the grace time is over before its batches are done, the process ends here, with code 0; a second signal
    ends it at once, with 128 plus the signal's number.  ``tell`` receives the line that says why it stops;
    ``watch`` counts its work.

    Raises:
        StrandlineError: before consuming, if the database, its tables, the broker or a model cannot be used
            as configured; the call waits ``startup_wait_seconds`` for servers that are away.
    """
    if concurrency is not None:
        settings = settings.model_copy(update={"worker_concurrency": concurrency})
    patience = Patience(settings.startup_wait_seconds)
    options = ConnectionOptions.from_settings(database_url, settings, durable=False, planned_once=True)
    database = Database.connect(options, sealed_content(settings))
    try:
        built = patience.for_postgres(lambda: prepare_stages(database, settings, stages))
        app = make_app(settings, broker_url, list(built))
        alone = WithoutBroker(threads=settings.worker_concurrency)
        bell = Doorbell(
            broker_url,
            level=logging.INFO,
            public_apis_only=settings.public_apis_only,
            on_refusal=alone.take_back,
        )
        worker = Worker(
            database,
            built,
            settings,
            ring=alone.ring,
            ring_found=alone.ring_found,
            with_sweep=sweep,
            reach=(reach := stop_points()),
            reach_step=reach,
            open_archive=open_archive,
            watch=watch,
        )
        alone.work_for(worker, list(built), bell.ring)
        serve(app, worker, list(built))
        # Celery warns that root may be handed pickled code; only JSON is accepted here.
        warnings.filterwarnings("ignore", category=SecurityWarning)
        celery_worker = app.Worker(
            pool="threads",
            concurrency=settings.worker_concurrency,
            queues=[queue_name(stage) for stage in built],
            loglevel=log_level,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        shutdown = Shutdown(
            worker, grace_seconds=settings.shutdown_grace_seconds, close_bell=bell.close, tell=tell
        )
        shutdown.take_signals()
        app.on_worker_start = shutdown.take_signals_again
        _work(worker, celery_worker, app, patience)
        bell.close()
        return int(celery_worker.exitcode or 0)
    finally:
        database.close()


def _work(worker: Worker, celery_worker: Any, app: WorkerApp, patience: Patience) -> None:
    """Work until the process is to end; while its broker is away at its start, without it."""
    # Before the first hint comes: a lease is worth nothing without a heartbeat.
    patience.for_postgres(worker.start)
    try:
        patience.for_broker(app)
    except BrokerUnavailableError:
        worker.stop()
        raise
    if worker.is_stopping:
        worker.stop()
    else:
        # Modules and settings stay for good: a full collection need not look at them.
        gc.freeze()
        celery_worker.start()
