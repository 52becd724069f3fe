"""A channel to Redis that forgets a hint also where acknowledging it failed.

Kombu counts a message as in hand until its acknowledgement got through.  While Redis is away none does; once
as many have failed as the worker may have in hand, Kombu stops to listen for more, and so does not even
notice that the connection is lost: the worker would beat, and never consume again.
"""

from __future__ import annotations

from typing import Any

from kombu import Connection
from kombu.transport import redis, virtual

from strandline.schemas.kept_client import KeptClient


class ForgettingQoS(redis.QoS):
    """Makes room also when Redis could not be told; it gives the hint out again then, which does no harm."""

    def ack(self, delivery_tag: Any) -> None:
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]  # Kombu carries no types
        except self.channel.connection_errors:
            virtual.QoS.ack(self, delivery_tag)
            raise


class ForgettingChannel(KeptClient, redis.Channel):
    """Kombu's channel to Redis with the above, and with one client."""

    QoS = ForgettingQoS


def forget_what_cannot_be_acknowledged(connection: Connection) -> None:
    """Have the channels of a connection that is not yet open be such ones, if it is one to Redis."""
    if isinstance(connection.transport, redis.Transport):
        connection.transport.Channel = ForgettingChannel
