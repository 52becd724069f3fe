"""A worker's connection to its broker: Kombu's, with a transport that reads bodies alone."""

from __future__ import annotations

from typing import Any

from kombu import Connection
from kombu.transport import pyamqp

from strandline.schemas.broker.rabbit_connection import WorkerConnection
from strandline.schemas.broker.redis_channel import WORKER_CHANNELS


class BrokerConnection(Connection):
    """The connection of a worker's Celery application."""

    def create_transport(self) -> Any:
        """Kombu makes a new transport for each host that it tries, so the change is applied here."""
        transport: Any = super().create_transport()  # type: ignore[no-untyped-call]
        if (channel := WORKER_CHANNELS.get(type(transport))) is not None:
            transport.Channel = channel
        elif isinstance(transport, pyamqp.Transport):
            transport.Connection = WorkerConnection
        return transport
