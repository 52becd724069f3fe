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

from celery import Celery

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
        try:
            self._hints.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(timeout_seconds)

    def _open(self) -> None:
        """All that belongs to one process: neither thread nor sockets nor locks survive a fork."""
        self._pid = os.getpid()
        self._app = Celery("strandline-doorbell", broker=self._broker_url, set_as_current=False)
        self._app.conf.update(celery_settings(self._settings))
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
        while (lane := self._hints.get()) is not None:
            name = queue_name(lane.stage)
            try:
                self._app.send_task(
                    name, args=lane.to_args(), queue=name, retry=False, expires=EXPIRY_SECONDS
                )
            except Exception as error:  # noqa: BLE001
                # The outermost edge of this thread: transports raise what they like, also for a wrong URL.
                logger.warning(
                    "broker away, hints dropped",
                    extra={"action": "hints_dropped", "queue": name, "error": type(error).__name__},
                )
                self._closing.wait(BACKOFF_SECONDS)
                self._drop_waiting()

    def _drop_waiting(self) -> None:
        while not self._closing.is_set():
            try:
                self._hints.get_nowait()
            except queue.Empty:
                return
