"""The doorbell: tells workers, through the broker, that a lane has work.

It never slows or fails a put: hints go through a bounded queue to a thread that publishes them, and are
dropped when the broker is away.  The event rows are the outbox; the sweep rings for what nobody heard.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterable
from contextlib import suppress

from celery import Celery
from kombu import Connection

from strandline.schemas.broker import EXPIRY_SECONDS, celery_settings
from strandline.schemas.lanes import Lane, queue_name
from strandline.schemas.settings import Settings

logger = logging.getLogger("strandline.doorbell")

MAX_WAITING = 10_000

# After a failed publish nothing is tried for so long: each try may block for the connect time-out.
BACKOFF_SECONDS = 2.0


class Doorbell:
    """Publishes hints from a daemon thread, started with the first one; a forked child has its own."""

    def __init__(self, settings: Settings, broker_url: str) -> None:
        self._settings = settings
        self._broker_url = broker_url
        self._open()

    def ring(self, lanes: Iterable[Lane]) -> None:
        """Hand lanes to the thread; returns at once, and drops what finds no room."""
        if os.getpid() != self._pid:
            self._open()
        for lane in lanes:
            try:
                self._hints.put_nowait(lane)
            except queue.Full:
                return
        if self._thread is None:
            self._start()

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Publish what is waiting, for at most ``timeout_seconds``, and end the thread."""
        if self._thread is None or os.getpid() != self._pid:
            return
        self._closing.set()
        with suppress(queue.Full):
            self._hints.put_nowait(None)
        self._thread.join(timeout_seconds)

    def _open(self) -> None:
        """All that belongs to one process: neither thread nor sockets nor locks survive a fork."""
        self._pid = os.getpid()
        self._app = Celery("strandline-doorbell", broker=self._broker_url, set_as_current=False)
        self._app.conf.update(celery_settings(self._settings))
        # Kombu's own retries would block for six seconds where a broker refuses the connection.
        self._app.conf.broker_transport_options["max_retries"] = 0
        self._hints: queue.Queue[Lane | None] = queue.Queue(MAX_WAITING)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="strandline-doorbell", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        connection: Connection | None = None
        while (lane := self._hints.get()) is not None:
            try:
                # A connection of the thread's own: Celery's pools are kept by URL, also across a fork.
                connection = connection or self._app.connection_for_write()
                self._publish(connection, lane)
            except Exception as error:  # noqa: BLE001
                # The outermost edge of this thread: transports raise what they like, also for a wrong URL.
                logger.warning(
                    "broker away, hints dropped",
                    extra={"action": "hints_dropped", "stage": lane.stage, "error": type(error).__name__},
                )
                _release(connection)
                connection = None
                if self._closing.wait(BACKOFF_SECONDS):
                    return
                self._drop_waiting()
        _release(connection)

    def _publish(self, connection: Connection, lane: Lane) -> None:
        name = queue_name(lane.stage)
        self._app.send_task(
            name,
            args=lane.to_args(),
            queue=name,
            retry=False,
            expires=EXPIRY_SECONDS,
            producer=self._app.amqp.Producer(connection),
        )

    def _drop_waiting(self) -> None:
        while not self._closing.is_set():
            try:
                self._hints.get_nowait()
            except queue.Empty:
                return


def _release(connection: Connection | None) -> None:
    """Close a connection that may be broken already."""
    if connection is not None:
        with suppress(Exception):
            connection.release()
