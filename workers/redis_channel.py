"""A worker's channel to Redis, which does less than Kombu's own.

When a connection is lost, Kombu would publish the hints in hand again; that fails while Redis is away, and
then it writes them to a file.
"""

from __future__ import annotations

from kombu import Connection
from kombu.transport import redis

from strandline.schemas.kept_client import KeptClient


class KeptClientChannel(KeptClient, redis.Channel):
    """Kombu's channel to Redis with one client; it gives no hint back, since the sweep rings again."""

    do_restore = False


def keep_one_client(connection: Connection) -> None:
    """Have the channels of a connection that is not yet open be such ones, if it is one to Redis."""
    if type(connection.transport) is redis.Transport:
        connection.transport.Channel = KeptClientChannel
