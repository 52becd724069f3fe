"""A worker's channel to Redis."""

from __future__ import annotations

from kombu import Connection
from kombu.transport import redis

from strandline.schemas.kept_client import KeptClient


class KeptClientChannel(KeptClient, redis.Channel):
    """Kombu's channel to Redis with one client."""


def keep_one_client(connection: Connection) -> None:
    """Have the channels of a connection that is not yet open be such ones, if it is one to Redis."""
    if isinstance(connection.transport, redis.Transport):
        connection.transport.Channel = KeptClientChannel
