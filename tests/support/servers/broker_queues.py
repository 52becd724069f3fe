"""The broker's queues seen from outside, on Redis and RabbitMQ alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from kombu import Connection, Exchange, Queue

from strandline.schemas.broker.settings import queue_arguments
from strandline.schemas.values.lanes import STAGES, queue_name


class BrokerQueues:
    """Declares the queues of ``stages`` as a worker does; deletes them at the beginning and in the end."""

    def __init__(self, url: str, stages: Sequence[str] = STAGES) -> None:
        self._connection = Connection(url, connect_timeout=60)
        self._arguments = queue_arguments(url)
        self._stages = stages

    def __enter__(self) -> BrokerQueues:
        self._connection.connect()
        self.delete()
        for stage in self._stages:
            self._queue(stage).declare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()
        self._connection.release()

    def waiting(self, stage: str) -> int:
        """Hints that wait for a worker."""
        return int(self._queue(stage).queue_declare().message_count)

    def take(self, stage: str) -> tuple[list[Any], bytes] | None:
        """The arguments of the next hint, and all of its message as bytes; None where none waits."""
        message = self._queue(stage).get(no_ack=True)
        if message is None:
            return None
        body = message.body if isinstance(message.body, bytes) else message.body.encode()
        whole = json.dumps([message.headers, message.properties], default=str).encode() + body
        arguments: list[Any] = json.loads(body)[0]
        return arguments, whole

    def delete(self) -> None:
        """Delete the queues, with what waits in them."""
        for stage in self._stages:
            self._queue(stage).delete()

    def _queue(self, stage: str) -> Any:
        name = queue_name(stage)
        queue = Queue(name, Exchange(""), routing_key=name, queue_arguments=self._arguments)
        return queue(self._connection.default_channel)
