"""A worker's connection to its broker: Kombu's, with a transport that reads only bodies, and only small ones.

Properties, headers and envelopes are removed before anything decodes them: they would choose how a body is
decoded, decompressed and answered, and malformed ones would end the worker.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from itertools import count
from struct import pack, unpack_from
from typing import Any

from amqp.method_framing import frame_handler
from kombu import Connection
from kombu.transport import pyamqp, redis

from strandline.schemas.broker.hints import MAX_HINT_BYTES
from strandline.schemas.broker.kept_client import KeptClient

Frame = tuple[int, int, bytes]

_HEADER, _BODY = 2, 3
# Class, weight and size of the body; behind them stand the properties.
_NO_PROPERTIES = pack(">H", 0)


class WorkerConnection(pyamqp.Connection):
    """Kombu's connection to RabbitMQ with bare messages; a message that is too large gets an empty body."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, frame_handler=partial(bare_frames, frame_handler))


def bare_frames(
    make: Callable[..., Callable[[Frame], bool]], connection: Any, callback: Callable[..., Any]
) -> Callable[[Frame], bool]:
    """A frame reader for ``make``'s connection that drops the parts to ignore."""
    read = make(connection, callback)
    # By channel: bytes of a body that is too large and still to come.
    dropping: dict[int, int] = {}

    def read_bare(frame: Frame) -> bool:
        kind, channel, content = frame
        if kind == _HEADER:
            (size,) = unpack_from(">Q", content, 4)
            if size > MAX_HINT_BYTES:
                dropping[channel] = size
                size = 0
            return read((kind, channel, bytes(content[:4]) + pack(">Q", size) + _NO_PROPERTIES))
        if kind == _BODY and channel in dropping:
            dropping[channel] -= len(content)
            if dropping[channel] <= 0:
                del dropping[channel]
            return False
        return read(frame)

    return read_bare


# Around the body: Base64, and Kombu's properties, with names of queues in them.
MAX_ENVELOPE_BYTES = 4 * MAX_HINT_BYTES

_numbers = count(1)


class _BareEnvelopes(KeptClient):
    """One client; no hint is given back, since the sweep rings again.

    After a lost connection, Kombu would publish unacknowledged hints again; while Redis is away that fails,
    and Kombu writes them to a file.
    """

    do_restore = False

    def _create_client(self, asynchronous: bool = False) -> Any:
        client = super()._create_client(asynchronous)
        if asynchronous:
            client.set_response_callback("BRPOP", bare_envelope)
        return client


class _WorkerChannel(_BareEnvelopes, redis.Channel):
    pass


class _WorkerSentinelChannel(_BareEnvelopes, redis.SentinelChannel):
    pass


# By Kombu's transport.
WORKER_CHANNELS: dict[type, type] = {
    redis.Transport: _WorkerChannel,
    redis.SentinelTransport: _WorkerSentinelChannel,
}


def bare_envelope(answer: Any, **_options: Any) -> tuple[bytes, bytes] | None:
    """Redis's answer to BRPOP, the queue and one envelope, with only the body in the envelope."""
    if not answer:
        return None
    queue, envelope = answer
    properties = {"delivery_tag": str(next(_numbers)), "delivery_info": {}}
    return queue, json.dumps({"body": _body(envelope), "properties": properties, "headers": {}}).encode()


def _body(envelope: bytes) -> str:
    if len(envelope) > MAX_ENVELOPE_BYTES:
        return ""
    try:
        body = base64.b64decode(json.loads(envelope)["body"], validate=True)
        return body.decode("ascii")
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""


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
