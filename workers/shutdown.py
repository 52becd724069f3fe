"""How a worker process ends: it finishes what it can within its grace time, and hands the rest back.

Celery does not bound this where tasks are threads: its warm shutdown waits for as long as a task takes, a
second SIGTERM changes nothing, and its cold shutdown cannot end threads either.  So the signals are taken
here.  The first one lets Celery shut down warmly; a thread beside it sees to it that the process has ended
when the grace time is over, or when a second signal comes, whatever Celery, a model or the broker do.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from celery.worker import state as celery_state

from strandline.workers.consumer import Consumer

logger = logging.getLogger("strandline.workers")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# What handing back may take when Postgres does not answer; then the heartbeat runs out by itself.
HAND_BACK_SECONDS = 2.0


class Shutdown:
    """Ends this process at a signal.

    Args:
        consumer: what is stopped and whose lanes are handed back.
        grace_seconds: how long batches in hand may go on after the first signal.
        close_bell: publishes the hints for what was handed back.
    """

    def __init__(self, consumer: Consumer, *, grace_seconds: float, close_bell: Callable[[], None]) -> None:
        self._consumer = consumer
        self._grace_seconds = grace_seconds
        self._close_bell = close_bell
        self._exit_code = 0
        self._hurry = threading.Event()
        self._watching: threading.Thread | None = None

    def take_signals(self) -> None:
        """From now on SIGTERM, SIGINT and SIGHUP end the process; for the main thread."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._watching is None:
            self._begin()
        elif not self._hurry.is_set():
            self._exit_code = 128 + number
            self._hurry.set()
        else:
            os._exit(128 + number)

    def _begin(self) -> None:
        self._consumer.begin_stopping()
        self._watching = threading.Thread(target=self._end_in_time, name="strandline-shutdown", daemon=True)
        self._watching.start()
        # Celery's loop looks at it about once a second; 0 is the exit code of its warm shutdown.
        celery_state.should_stop = 0

    def _end_in_time(self) -> None:
        logger.info(
            "worker is stopping", extra={"action": "stopping", "in_hand": len(self._consumer.engine.active)}
        )
        self._hurry.wait(self._grace_seconds)
        handing_back = threading.Thread(target=self._hand_back, name="strandline-hand-back", daemon=True)
        handing_back.start()
        handing_back.join(HAND_BACK_SECONDS)
        # Nothing gentler ends threads that wait for a model, and the interpreter would wait for them.
        # What they hold is due again; what they write from now on would name a lease that is gone.
        os._exit(self._exit_code)

    def _hand_back(self) -> None:
        handed_back = self._consumer.leave()
        logger.warning(
            "worker ends before its batches do",
            extra={"action": "handed_back", "lanes": len(handed_back)},
        )
        self._close_bell()
