"""The part of a Celery worker that holds the connection to the broker, with some behaviour changed.

One change is how it treats a message.  Celery would run any task that it knows, its own among them, at any
time and with callbacks that are published to any queue, as the message says.  Here the body is read as a hint
(``schemas.broker.hints``), and Celery gets a message made only of that hint.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

from celery.exceptions import CPendingDeprecationWarning
from celery.worker.consumer import Consumer
from celery.worker.consumer.consumer import CONNECTION_RETRY
from celery.worker.state import maybe_shutdown
from kombu import Connection

from strandline.schemas.broker.hints import Hint, UnreadableHintError, read_hint, task_headers
from strandline.workers.celery_app.broker_watch import BrokerNotice

logger = logging.getLogger("strandline.workers")

# Between two tries to reach a broker that is away.  Celery's own waits grow to 30 s, and it gives up after
# a hundred: work would lie for as long after the broker's return, or until the workers are restarted.
FIRST_WAIT_SECONDS = 1
MAX_WAIT_SECONDS = 4

_DELAYED_DELIVERY = "celery.worker.consumer.delayed_delivery:DelayedDelivery"


class _SaidOnce(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (isinstance(record.args, tuple) and CONNECTION_RETRY in record.args)


logging.getLogger("celery.worker.consumer.consumer").addFilter(_SaidOnce())


class BrokerConsumer(Consumer):  # type: ignore[misc]  # Celery carries no types
    """Celery's consumer, named by its setting ``worker_consumer``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._notice = BrokerNotice(self.app)

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        """Where queues are quorum queues, Celery would declare 28 more, for tasks with a delay.

        Nothing here has a delay: work that is due later waits in Postgres.
        """

        default_steps = tuple(step for step in Consumer.Blueprint.default_steps if step != _DELAYED_DELIVERY)

    def ensure_connected(self, connection: Connection) -> Connection:
        """Connect, and retry until it succeeds.

        Raises:
            WorkerShutdown: the worker was told to end.
        """
        connected: Connection = connection.ensure_connection(
            lambda error, _wait_seconds: self._notice.away(error),
            interval_start=FIRST_WAIT_SECONDS,
            interval_step=1,
            interval_max=MAX_WAIT_SECONDS,
            callback=maybe_shutdown,
        )
        self.first_connection_attempt = False
        return connected

    def create_task_handler(self, *args: Any) -> Callable[[Any], None]:
        """Take up the lane that a message names; other messages are acknowledged, counted and dropped."""
        run = super().create_task_handler(*args)
        self._notice.back()  # now, as it begins to consume: a broker may take connections and no more

        def take(message: Any) -> None:
            try:
                hint = read_hint(message.body, self.app.stages)
            except UnreadableHintError as error:
                self._drop(message, str(error))
                return
            if hint.is_stale(time.time()):
                message.ack_log_error(logger, self.connection_errors)
                return
            run(_as_task(message, hint))

        return take

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop it as well; Celery would log all of its body."""
        self._drop(message, type(exc).__name__)

    def _drop(self, message: Any, reason: str) -> None:
        self.app.condition.drop_hint(reason)
        message.ack_log_error(logger, self.connection_errors)

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Log it once, and wait if the broker refused the user: Celery would try again at once."""
        self._notice.away(exc, is_refusal=self._is_refusal(exc))
        self._wait_if_refused(exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Log it once, and wait if the broker closed the channel, as it does for a queue of another type."""
        self._notice.away(exc, is_refusal=self._is_refusal(exc))
        with warnings.catch_warnings():
            # At each loss it warns of a later release's default for a setting of no use here.
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)
        self._wait_if_refused(exc)

    def _wait_if_refused(self, error: Exception) -> None:
        if self._is_refusal(error):
            time.sleep(FIRST_WAIT_SECONDS)

    def _is_refusal(self, error: Exception) -> bool:
        return isinstance(error, self.channel_errors)


def _as_task(message: Any, hint: Hint) -> Any:
    message.headers = task_headers(hint.lane)
    message.properties = {"correlation_id": message.headers["id"]}
    message.content_type, message.content_encoding = "application/json", "utf-8"
    return message
