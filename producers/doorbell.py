"""The doorbell: tells workers, through the broker, that lanes have work.

It never slows or fails whoever rings: hints go through a bounded queue to a thread that publishes them, and
are dropped when the broker is away.  The event rows are the outbox; the sweep rings for what nobody heard.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from uuid import uuid4

from celery import Celery
from kombu import Connection, Producer

from strandline.schemas.broker import EXPIRY_SECONDS, celery_settings
from strandline.schemas.lanes import Lane, queue_name
from strandline.schemas.settings import Settings

logger = logging.getLogger("strandline.doorbell")

MAX_WAITING = 10_000

# Hints are gathered for so long: a lane that is rung for again and again, as while one session is filled
# fast, gets one hint.  Publishing takes Python's lock for about 0.3 ms a hint, which the putting threads
# of the process need: without gathering, the p99 of puts that flush at every third message was doubled.
GATHER_SECONDS = 0.01

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
        while lanes := self._gather():
            try:
                # A connection of the thread's own: Celery's pools are kept by URL, also across a fork.
                connection = connection or self._app.connection_for_write()
                self._publish(connection, lanes)
            except Exception as error:  # noqa: BLE001
                # The outermost edge of this thread: transports raise what they like, also for a wrong URL.
                logger.warning(
                    "broker away, hints dropped",
                    extra={"action": "hints_dropped", "lanes": len(lanes), "error": type(error).__name__},
                )
                _release(connection)
                connection = None
                if self._closing.wait(BACKOFF_SECONDS):
                    return
                self._take_waiting()
        _release(connection)

    def _gather(self) -> Collection[Lane]:
        """Wait for a hint, then a moment for more; each lane once.  Nothing: the doorbell is closing."""
        if (lane := self._hints.get()) is None:
            return ()
        self._closing.wait(GATHER_SECONDS)
        return dict.fromkeys([lane, *self._take_waiting()])

    def _take_waiting(self) -> list[Lane]:
        taken: list[Lane] = []
        with suppress(queue.Empty):
            while True:
                if (lane := self._hints.get_nowait()) is None:
                    # For the next look: it ends the thread.
                    self._hints.put_nowait(None)
                    break
                taken.append(lane)
        return taken

    def _publish(self, connection: Connection, lanes: Iterable[Lane]) -> None:
        producer = Producer(connection)
        for lane in lanes:
            name = queue_name(lane.stage)
            # What Celery's send_task makes as well, without what it looks up for each message.
            message = self._app.amqp.as_task_v2(
                uuid4().hex, name, lane.to_args(), {}, expires=EXPIRY_SECONDS, argsrepr="", kwargsrepr=""
            )
            producer.publish(
                message.body,
                headers=message.headers,
                routing_key=name,
                serializer="json",
                delivery_mode="transient",
                **message.properties,
            )


def _release(connection: Connection | None) -> None:
    """Close a connection that may be broken already."""
    if connection is not None:
        with suppress(Exception):
            connection.release()
