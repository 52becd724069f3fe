"""A worker's connection to its broker: Kombu's, with a transport that reads bodies alone."""

from __future__ import annotations

from typing import Any

from kombu import Connection
from kombu.transport import pyamqp, redis

from strandline.schemas.broker.rabbit_connection import WorkerConnection
from strandline.schemas.broker.redis_channel import WorkerChannel


class BrokerConnection(Connection):
    """The connection of a worker's Celery application; transports other than the two stay as they are."""

    def create_transport(self) -> Any:
        """Kombu makes a new transport for each host that it tries, so the change is applied here."""
        transport: Any = super().create_transport()  # type: ignore[no-untyped-call]
        if type(transport) is redis.Transport:
            transport.Channel = WorkerChannel
        elif isinstance(transport, pyamqp.Transport):
            transport.Connection = WorkerConnection
        return transport
