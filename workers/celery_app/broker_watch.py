"""Whether a worker reaches its broker: noted in its condition, and logged once when that changes."""

from __future__ import annotations

import threading
from typing import Any

from celery.bootsteps import StartStopStep

# A broker that refused to hand out messages takes connections all the same: it counts as back once it has not
# refused for so long.
SETTLE_SECONDS = 3.0


class BrokerNotice:
    """Notes that the broker is away, and that it is back, for a ``WorkerApp``."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._was_refused = False
        self._settling: threading.Timer | None = None

    def away(self, error: BaseException, *, is_refusal: bool = False) -> None:
        """Note that the broker does not answer, refuses, or is lost; ``error`` is the symptom."""
        if self._settling is not None:
            self._settling.cancel()
        self._was_refused = is_refusal
        self._app.condition.lose_broker("take", error)

    def not_yet(self) -> None:
        """Note that messages cannot be consumed yet; not logged, since that is so at each start."""
        self._app.condition.lose_broker("take", ConnectionError(), is_logged=False)

    def back(self) -> None:
        """Note that messages can be consumed."""
        if not self._was_refused:
            self._app.condition.find_broker("take")
            return
        self._settling = threading.Timer(SETTLE_SECONDS, self._app.condition.find_broker, ["take"])
        self._settling.daemon = True
        self._settling.start()


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
