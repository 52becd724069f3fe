"""Ends a worker process: it finishes batches within its grace time, and releases the rest.

Celery does not bound this if tasks are threads: its warm shutdown waits for as long as a task takes, a
second SIGTERM changes nothing, and its cold shutdown cannot end threads either.  So the signals are taken
here.  The first one lets Celery shut down warmly; a thread sees to it that the process has ended when the
grace time is over, or when a second signal comes, whatever Celery, a model or the broker do
(``workers.signal_pipe``).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

from celery.worker import state as celery_state

from strandline.schemas.display.shown_text import quantity
from strandline.workers.signal_pipe import SignalPipe
from strandline.workers.worker import Worker

logger = logging.getLogger("strandline.workers")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

# The exit code that supervisors take for a failure that passes (EX_TEMPFAIL).
LOST_EXIT = 75

# The time to leave when Postgres does not answer; then the heartbeat runs out by itself.
LEAVE_SECONDS = 2.0


class Shutdown:
    """Ends this process at a signal.

    Args:
        worker: the worker to stop, whose lanes are released.
        grace_seconds: how long running batches may continue after the first signal.
        close_bell: publishes the hints for released lanes.
        tell: called with one line when the process begins to stop, with the reason.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        grace_seconds: float,
        close_bell: Callable[[], None],
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._worker = worker
        self._grace_seconds = grace_seconds
        self._close_bell = close_bell
        self._tell = tell
        self._reason = ""

    def take_signals(self) -> None:
        """From now on SIGTERM, SIGINT, SIGHUP and SIGQUIT end the process; for the main thread.

        So does the loss of many threads, with exit code 75, for the supervisor to start another one.
        """
        self._signals = signals = SignalPipe(SIGNALS)
        self._worker.on_threads_lost = partial(self._stop_for_lost, signals)
        threading.Thread(target=self._end, args=(signals,), name="strandline-shutdown", daemon=True).start()

    def take_signals_again(self) -> None:
        """Take them back from Celery, whose worker installs its own handlers as it starts."""
        self._signals.take_again()

    def _stop_for_lost(self, signals: SignalPipe, count: int) -> None:
        if not (self._reason or self._worker.is_stopping):
            self._reason = f"code of custom blocks has not returned from {quantity(count, 'thread')}"
            signals.wake()

    def _end(self, signals: SignalPipe) -> None:
        first = signals.wait()
        ending = 0 if first else LOST_EXIT
        self._worker.begin_stopping()
        # Celery's loop looks at it about once a second, and shuts down warmly with this exit code.
        celery_state.should_stop = ending
        in_hand = len(self._worker.engine.active)
        logger.info("worker is stopping", extra={"action": "stopping", "in_hand": in_hand})
        why = signal.Signals(first).name if first else self._reason
        self._tell(f"stops ({why}); {quantity(in_hand, 'lane')} in hand, {self._grace_seconds:g} s at most")
        # Threads may be lost while it stops as well, and what ends in time is to end nevertheless.
        second = signals.wait(self._grace_seconds, until_woken=False)
        exit_code = 128 + second if second else ending
        leaving = threading.Thread(
            target=self._leave, args=(exit_code,), name="strandline-leave", daemon=True
        )
        leaving.start()
        third = signals.wait(LEAVE_SECONDS, until_woken=False)
        os._exit(128 + third if third else exit_code)

    def _leave(self, exit_code: int) -> None:
        try:
            lanes = self._worker.leave()
            logger.warning(
                "worker ends before its batches do",
                extra={"action": "lanes_released", "lanes": len(lanes)},
            )
            self._close_bell()
        except Exception:
            logger.exception("worker could not release its lanes; others take them when its lease runs out")
        finally:
            # Nothing gentler ends threads that wait for a model, and the interpreter would wait for them.
            # Their work becomes due again; their later writes would name a lost lease.
            os._exit(exit_code)
