"""Many sessions that put at the same time, each its next message as soon as the one before is accepted."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

Put = Callable[[Any], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Puts per second, and seconds on a processor that this process took for each."""

    rate: float
    processor_seconds: float


async def at_once(puts: Sequence[Put], messages: Sequence[Any]) -> AtOnce:
    """Each of ``puts`` takes all ``messages``, one after the other."""

    async def converse(put: Put) -> None:
        for message in messages:
            await put(message)

    processor, began = _processor_seconds(), time.perf_counter()
    await asyncio.gather(*map(converse, puts))
    taken = time.perf_counter() - began
    done = len(puts) * len(messages)
    return AtOnce(done / taken, (_processor_seconds() - processor) / done)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
