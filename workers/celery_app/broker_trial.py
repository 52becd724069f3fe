"""Uses a broker as a worker does, and consumes nothing: so ``doctor`` finds missing rights."""

from __future__ import annotations

from typing import Any

from kombu import Connection

from strandline.schemas.broker.settings import broker_kind
from strandline.schemas.values.lanes import STAGES
from strandline.workers.celery_app.app import worker_queues


def try_taking(connection: Connection, broker_url: str) -> None:
    """Raise, as the broker's client does, where a worker could not take hints of some stage."""
    queues = worker_queues(broker_url, STAGES)
    if broker_kind(broker_url) == "redis":
        _try_redis(connection.default_channel, [queue.name for queue in queues])
        return
    channel = connection.channel()
    try:
        for queue in queues:
            declared = queue(channel)
            declared.declare()
            # RabbitMQ puts an unacknowledged message back where it was, as the channel closes.
            declared.get(no_ack=False)
    finally:
        channel.close()


def _try_redis(channel: Any, names: list[str]) -> None:
    """Redis refuses a command as a transaction queues it; this transaction never runs."""
    client = channel.client
    taking = client.connection_pool.get_connection()
    try:
        for command in (("MULTI",), ("BRPOP", *names, 1)):
            taking.send_command(*command)
            taking.read_response()
    finally:
        taking.disconnect()
        client.connection_pool.release(taking)
    with client.pipeline() as together:
        for name in names:
            together.llen(name)
        together.execute()
