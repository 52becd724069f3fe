"""Starts a worker while its servers may still be starting: it waits for them, and says for which.

A machine or a cluster starts everything at once, and a server that is restarted is away for a moment.  A
running worker waits for both; without this, a worker that has just been started would end, and its supervisor
would start it again and again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kombu.exceptions import OperationalError

from strandline.schemas.broker.troubles import describe_trouble
from strandline.schemas.errors import BrokerUnavailableError, DatabaseUnavailableError
from strandline.workers.celery_app.app import WorkerApp

logger = logging.getLogger("strandline.workers")

T = TypeVar("T")

PAUSE_SECONDS = 0.5


class Patience:
    """The rest of the time that a worker waits for all its servers together; with 0 each is asked once."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._deadline = clock() + seconds
        self._waited_for: set[str] = set()

    def for_postgres(self, start: Callable[[], T]) -> T:
        """Return the result of ``start``, which is called again while Postgres is away.

        Raises:
            DatabaseUnavailableError: Postgres was still away when the time was over.
        """
        pause = threading.Event()
        while True:
            try:
                return start()
            except DatabaseUnavailableError as error:
                if self._seconds_left() <= 0:
                    raise DatabaseUnavailableError(f"{self._gave_up('Postgres')} {error}") from error
                self._say("Postgres", str(error))
            pause.wait(min(PAUSE_SECONDS, self._seconds_left()))

    def for_broker(self, app: WorkerApp) -> None:
        """Return once the application's broker takes a connection, or its worker stops; it has begun already.

        Raises:
            BrokerUnavailableError: it still did not take one when the time was over.
        """
        while not app.is_stopping():
            try:
                with app.connection_for_read() as connection:
                    # Each host of the URL once.
                    connection.ensure_connection(max_retries=max(0, len(connection.alt or ()) - 1))
            except (OperationalError, OSError) as error:
                app.condition.lose_broker("take", error, is_logged=False)
                # Its own sentence may quote the URL.
                cause = describe_trouble(error) or type(error.__cause__ or error).__name__
                if self._seconds_left() <= 0:
                    raise BrokerUnavailableError(
                        f"{self._gave_up('The broker')} Check that it runs and that STRANDLINE_BROKER_URL is"
                        f" right ({cause}); `strandline doctor` says more."
                    ) from None
                self._say("the broker", cause)
            else:
                return  # it is found again once Celery consumes
            threading.Event().wait(min(PAUSE_SECONDS, self._seconds_left()))

    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - self._clock())

    def _gave_up(self, server: str) -> str:
        return (
            f"{server} did not answer within {self._seconds:g} seconds of the worker's start"
            " (STRANDLINE_STARTUP_WAIT_SECONDS)."
        )

    def _say(self, server: str, reason: str) -> None:
        if server in self._waited_for:
            return
        self._waited_for.add(server)
        logger.warning(
            "worker waits for a server",
            extra={
                "action": "startup_wait",
                "server": server,
                "reason": reason,
                "at_most_seconds": round(self._seconds_left(), 1),
            },
        )
