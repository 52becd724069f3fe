"""Whether a worker reaches its broker: noted in its condition, and logged once when that changes."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.bootsteps import StartStopStep

logger = logging.getLogger("strandline.workers")


class BrokerNotice:
    """Notes that the broker is away, and that it is back, for a ``WorkerApp``."""

    def __init__(self, app: Any) -> None:
        self._app = app
        # Seconds by ``time.monotonic``; None while the broker is there.
        self._away_since: float | None = None

    def away(self, error: BaseException) -> None:
        """Note that the broker does not answer, or the connection is lost; ``error`` is the symptom."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._app.condition.lose_broker(type(error).__name__)
            logger.warning("broker away", extra={"action": "broker_away", "error": type(error).__name__})

    def not_yet(self) -> None:
        """Note that messages cannot be consumed yet; not logged, since that is so at each start."""
        self._app.condition.lose_broker(ConnectionError.__name__)

    def back(self) -> None:
        """Note that messages can be consumed."""
        self._app.condition.find_broker()
        if self._away_since is not None:
            seconds = round(time.monotonic() - self._away_since, 1)
            self._away_since = None
            logger.warning("broker is back", extra={"action": "broker_back", "after_seconds": seconds})


class BrokerWatch(StartStopStep):  # type: ignore[misc]  # Celery carries no types
    """A step of Celery's own consumer, which it starts with each connection, and stops with it.

    Celery makes the step before it connects, and while it tries to connect, which it does without end, it
    tells no step of its failures.  So the worker has no broker until this step is started.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._notice = BrokerNotice(consumer.app)
        self._notice.not_yet()

    def start(self, consumer: Any) -> None:
        """Messages are consumed from now on."""
        self._notice.back()

    def stop(self, consumer: Any) -> None:
        """The connection is lost; or the worker stops, which has no need of a broker either."""
        if not consumer.app.is_stopping():
            self._notice.away(ConnectionError())
