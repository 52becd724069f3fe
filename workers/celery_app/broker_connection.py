"""A worker's connection to its broker: Kombu's, with a transport that reads bodies alone."""

from __future__ import annotations

from typing import Any

from kombu import Connection
from kombu.transport import pyamqp, redis

from strandline.schemas.broker.rabbit_connection import WorkerConnection
from strandline.schemas.broker.redis_channel import WorkerChannel


class BrokerConnection(Connection):
    """What a worker's Celery application connects with; another transport than the two stays as it is."""

    def create_transport(self) -> Any:
        """Made anew for each host that is tried, so this is where it is changed."""
        transport: Any = super().create_transport()  # type: ignore[no-untyped-call]
        if type(transport) is redis.Transport:
            transport.Channel = WorkerChannel
        elif isinstance(transport, pyamqp.Transport):
            transport.Connection = WorkerConnection
        return transport
