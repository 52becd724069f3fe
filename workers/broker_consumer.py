"""The part of a Celery worker that holds the connection to the broker, with three habits changed."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown
from kombu import Connection

from strandline.workers.redis_channel import keep_one_client

logger = logging.getLogger("strandline.workers")

# Between two tries to reach a broker that is away.  Celery's own waits grow to 30 s, and it gives up after
# a hundred: work would lie for as long after the broker's return, or until somebody restarts the workers.
FIRST_WAIT_SECONDS = 1
LONGEST_WAIT_SECONDS = 4

_DELAYED_DELIVERY = "celery.worker.consumer.delayed_delivery:DelayedDelivery"


class BrokerConsumer(Consumer):  # type: ignore[misc]  # Celery carries no types
    """Celery's consumer, named by its setting ``worker_consumer``."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        """Where queues are quorum queues, Celery would declare 28 more, for tasks with a delay.

        Nothing here has one: what is due later is so by its row in Postgres.
        """

        default_steps = tuple(step for step in Consumer.Blueprint.default_steps if step != _DELAYED_DELIVERY)

    def ensure_connected(self, connection: Connection) -> Connection:
        """Connect, and try again for as long as it takes.

        Raises:
            WorkerShutdown: the worker is told to end meanwhile.
        """
        keep_one_client(connection)
        connected: Connection = connection.ensure_connection(
            _note_absence,
            interval_start=FIRST_WAIT_SECONDS,
            interval_step=1,
            interval_max=LONGEST_WAIT_SECONDS,
            callback=maybe_shutdown,
        )
        self.first_connection_attempt = False
        return connected

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Log it, and wait where the broker refused the user, which Celery would ask again at once."""
        super().on_connection_error_before_connected(exc)
        self._wait_if_refused(exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Log it, and wait where the broker closed the channel, as for a queue that is of another type."""
        super().on_connection_error_after_connected(exc)
        self._wait_if_refused(exc)

    def _wait_if_refused(self, error: Exception) -> None:
        if isinstance(error, self.channel_errors):
            time.sleep(FIRST_WAIT_SECONDS)


def _note_absence(error: Exception, wait_seconds: float) -> None:
    extra: dict[str, Any] = {"action": "broker_away", "error": type(error).__name__}
    logger.warning("broker away", extra=extra | {"wait_seconds": wait_seconds})
