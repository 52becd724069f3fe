"""The doorbell: tells workers, through the broker, that lanes have work.

It never slows or fails whoever rings: hints go through a bounded queue to a thread that publishes them, and
are dropped when the broker is away.  The event rows are the outbox; the sweep rings for what nobody heard.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from strandline.producers.hint_publisher import HintPublisher
from strandline.schemas.lanes import Lane
from strandline.schemas.settings import Settings

logger = logging.getLogger("strandline.doorbell")

MAX_WAITING = 10_000

# Hints are gathered for so long: a lane that is rung for again and again, as while one session is filled
# fast, gets one hint.  Publishing takes Python's lock for about 0.3 ms a hint, which the putting threads
# of the process need: without gathering, the p99 of puts that flush at every third message was doubled.
GATHER_SECONDS = 0.01

# After so long without a hint the next one goes out at once: one is in nobody's way.
QUIET_SECONDS = 0.1

# After a failed publish nothing is tried for so long: each try may block for the connect time-out.
BACKOFF_SECONDS = 2.0

# A connection that has not been used for so long is closed.  It would need heartbeats otherwise, and the
# hint after a long silence would go into one that a firewall or a proxy has forgotten.
IDLE_SECONDS = 30.0


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
        publisher = HintPublisher(self._settings, self._broker_url)
        published_at = -QUIET_SECONDS
        while lanes := self._gather(publisher, published_at):
            try:
                publisher.publish(lanes)
                published_at = time.monotonic()
            except Exception as error:  # noqa: BLE001
                # The outermost edge of this thread: transports raise what they like, also for a wrong URL.
                logger.warning(
                    "broker away, hints dropped",
                    extra={"action": "hints_dropped", "lanes": len(lanes), "error": type(error).__name__},
                )
                if self._closing.wait(BACKOFF_SECONDS):
                    return
                self._take_waiting()
        publisher.close()

    def _gather(self, publisher: HintPublisher, published_at: float) -> Collection[Lane]:
        """Wait for a hint, and while they come thick a moment for more; each lane once.

        Nothing: the doorbell is closing.
        """
        try:
            lane = self._hints.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            publisher.close()
            lane = self._hints.get()
        if lane is None:
            return ()
        if time.monotonic() - published_at < QUIET_SECONDS:
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
