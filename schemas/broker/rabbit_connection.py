"""A worker's connection to RabbitMQ, which reads only bodies, and only small ones.

Properties and headers are removed from each message before anything decodes them: they would choose how its
body is decoded, decompressed and answered, and one date that Python cannot represent would end the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import pack, unpack_from
from typing import Any

from amqp.method_framing import frame_handler
from kombu.transport import pyamqp

from strandline.schemas.broker.hints import MAX_HINT_BYTES

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
