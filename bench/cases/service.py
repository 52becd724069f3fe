"""The HTTP service against the same calls in process: puts, contexts, and what an overload does to others."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from uuid import uuid4

from bench.cases.at_once import at_once
from bench.cases.reads import filled_session
from bench.cases.writes import NO_MARK
from bench.environment import Ground, NotMeasuredError
from bench.figures import Figure, Goal, Pair, of_times, of_values
from bench.http_client import AsyncHttpConnection, HttpConnection
from bench.processes import ServiceProcess, service
from bench.size import Size
from bench.turns import async_pair, pair
from strandline import FactExtractionMemoryBlock, SummaryMemoryBlock

USER = "ana"
POLICY = {"token_limit": NO_MARK, "blocks": []}
# The bound of a request's wait for its turn, as the service has it by default.
WAIT_SECONDS = 1.0


def measure_service(ground: Ground, size: Size) -> Iterator[Figure]:
    """A put one in flight and many, a context, and puts beside a thousand readers."""
    with service(ground) as running:
        pairs = [_puts(ground, running, size) for _ in range(size.repetitions + 1)][1:]
        yield of_times("service", "put over HTTP", "put", pairs, goal=Goal(2.5))
        yield of_times("service", "put over HTTP", "put", pairs, rank=99, against_rank=99)
        rounds = asyncio.run(_rounds(ground, running, size))[1:]
        name = f"puts over HTTP, {size.in_flight} in flight"
        yield of_values("service", name, "aput in process", "puts/s", rounds, goal=Goal(0.4, at_least=True))
        session, limits = filled_session(ground, size, user_id=USER)
        contexts = asyncio.run(_contexts(ground, running, size, session, limits))[1:]
        yield of_times("service", "context over HTTP", "aget", contexts, goal=Goal(2))
        overload = asyncio.run(_overload(ground, running, size, session))
        yield from _overload_figures(overload, size)


def _puts(ground: Ground, running: ServiceProcess, size: Size) -> Pair:
    memory = ground.memory(blocks=[], token_limit=NO_MARK, user_id=USER)
    ours, theirs = iter(ground.some_pieces(size.puts + 1)), iter(ground.some_pieces(size.puts + 1))
    connection = HttpConnection(running.port, running.key, USER)
    path = f"/v1/sessions/{uuid4().hex}/messages"

    def put() -> None:
        answer = connection.post(path, {"messages": [next(ours)]})
        if answer.status != 201:
            raise NotMeasuredError(f"the service answered {answer.status}")

    answer = connection.post(path, {"messages": [next(ours)], "policy": POLICY})
    memory.put(next(theirs))
    if answer.status != 201:
        raise NotMeasuredError(f"the service answered {answer.status}: {answer.body!r}")
    result = pair(put, lambda: memory.put(next(theirs)), size.puts)
    connection.close()
    return result


async def _rounds(ground: Ground, running: ServiceProcess, size: Size) -> list[tuple[float, float]]:
    rounds = []
    messages = ground.some_pieces(size.puts_each)
    memories: list[Any] = []
    for _ in range(size.repetitions + 1):
        connections = [
            await AsyncHttpConnection.open(running.port, running.key, USER) for _ in range(size.in_flight)
        ]
        over_http = await at_once([_http_put(one) for one in connections], messages)
        for one in connections:
            one.close()
        memories = [
            ground.memory(blocks=[], token_limit=NO_MARK, user_id=USER) for _ in range(size.in_flight)
        ]
        in_process = await at_once([one.aput for one in memories], messages)
        rounds.append((over_http.rate, in_process.rate))
    await memories[0].aclose()
    return rounds


def _http_put(connection: AsyncHttpConnection) -> Any:
    path = f"/v1/sessions/{uuid4().hex}/messages"
    policy: dict[str, Any] = {"policy": POLICY}

    async def put(message: Any) -> None:
        answer = await connection.post(path, {"messages": [message], **policy})
        if answer.status != 201:
            raise NotMeasuredError(f"the service answered {answer.status}: {answer.body!r}")
        policy.clear()

    return put


async def _contexts(
    ground: Ground, running: ServiceProcess, size: Size, session: str, limits: tuple[int, int]
) -> list[Pair]:
    memory = ground.memory(
        session_id=session,
        user_id=USER,
        blocks=[FactExtractionMemoryBlock(), SummaryMemoryBlock()],
        token_limit=limits[0],
        token_flush_size=limits[1],
    )
    connection = await AsyncHttpConnection.open(running.port, running.key, USER)
    path = f"/v1/sessions/{session}/context"

    async def read() -> None:
        answer = await connection.post(path, {})
        if answer.status != 200:
            raise NotMeasuredError(f"the service answered {answer.status}")

    pairs = [await async_pair(read, memory.aget, size.gets) for _ in range(size.repetitions + 1)]
    connection.close()
    await memory.aclose()
    return pairs


@dataclass(frozen=True, slots=True)
class Overload:
    """Seconds of puts alone, and beside many readers; the readers' waits, and how many were refused."""

    alone: list[float]
    beside: list[float]
    waits: list[float]
    refused: int


async def _overload(ground: Ground, running: ServiceProcess, size: Size, session: str) -> Overload:
    putting = await AsyncHttpConnection.open(running.port, running.other_key, USER)
    path = f"/v1/sessions/{uuid4().hex}/messages"
    messages = cycle(ground.some_pieces(size.puts))
    alone = await _timed_puts(putting, path, messages, size.puts)
    readers = [await AsyncHttpConnection.open(running.port, running.key, USER) for _ in range(size.readers)]
    waits: list[float] = []
    refused = 0
    stop = asyncio.Event()

    async def read(connection: AsyncHttpConnection) -> None:
        nonlocal refused
        while not stop.is_set():
            began = time.perf_counter()
            answer = await connection.post(f"/v1/sessions/{session}/context", {})
            waits.append(time.perf_counter() - began)
            if answer.status in (429, 503):
                refused += 1
                await asyncio.sleep(1.0)  # as Retry-After says
            elif answer.status != 200:
                raise NotMeasuredError(f"the service answered {answer.status}: {answer.body!r}")

    reading = [asyncio.create_task(read(one)) for one in readers]
    await asyncio.sleep(min(2.0, size.steady_seconds))
    beside = await _timed_puts(putting, path, messages, size.puts)
    stop.set()
    await asyncio.gather(*reading)
    for one in (*readers, putting):
        one.close()
    return Overload(alone, beside, waits, refused)


async def _timed_puts(connection: AsyncHttpConnection, path: str, messages: Any, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        answer = await connection.post(path, {"messages": [next(messages)]})
        if answer.status != 201:
            raise NotMeasuredError(f"the service answered {answer.status}")
        taken.append(time.perf_counter() - began)
    return taken


def _overload_figures(overload: Overload, size: Size) -> Iterator[Figure]:
    name = f"put beside {size.readers:,} readers"
    pairs = [Pair(overload.beside, overload.alone)]
    yield of_times("service", name, "put alone over HTTP", pairs, rank=99, against_rank=99, goal=Goal(3))
    longest = (max(overload.waits, default=math.nan), WAIT_SECONDS)
    yield of_values("service", "longest answer to a reader", "the bound of its wait", "s", [longest])
    share = (overload.refused / max(1, len(overload.waits)), 1.0)
    yield of_values("service", f"refused of {size.readers:,} readers", "all", "", [share])
