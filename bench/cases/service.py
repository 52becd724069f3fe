"""The HTTP service against the same calls in process: puts, contexts, and what an overload does to others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from itertools import cycle
from typing import Any
from uuid import uuid4

from bench.cases.at_once import at_once
from bench.cases.reads import filled_session
from bench.cases.writes import NO_MARK
from bench.crowd import Crowd, crowd
from bench.environment import Ground, NotMeasuredError
from bench.figures import Figure, Goal, Pair, of_times, of_values
from bench.http_client import AsyncHttpConnection, HttpConnection
from bench.processes import ServiceProcess, service
from bench.size import Size
from bench.turns import async_pair, in_turns, pair

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
        yield from _overload_figures(*_overload(ground, running, size, session), size)


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
    """Both read what the session's pipelines derive, and search for its newest message."""
    memory = ground.memory(
        session_id=session, user_id=USER, token_limit=limits[0], token_flush_size=limits[1]
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


def _overload(
    ground: Ground, running: ServiceProcess, size: Size, session: str
) -> tuple[list[Pair], list[Crowd]]:
    """Puts alone, and then beside a crowd that asks for contexts, in turns."""
    connection = HttpConnection(running.port, running.other_key, USER)
    path = f"/v1/sessions/{uuid4().hex}/messages"
    messages = cycle(ground.some_pieces(size.puts))

    def put() -> None:
        answer = connection.post(path, {"messages": [next(messages)]})
        if answer.status != 201:
            raise NotMeasuredError(f"the service answered {answer.status}")

    pairs, crowds = [], []
    for _ in range(size.crowds):
        (alone,) = in_turns((put,), size.puts)
        with crowd(running, USER, session, size.readers) as readers:
            (beside,) = in_turns((put,), size.puts)
            pairs.append(Pair(beside, alone))
        crowds.append(readers)
    connection.close()
    return pairs, crowds


def _overload_figures(pairs: list[Pair], crowds: list[Crowd], size: Size) -> Iterator[Figure]:
    name = f"put beside {size.readers:,} readers"
    yield of_times("service", name, "put alone over HTTP", pairs, rank=99, against_rank=99, goal=Goal(3))
    longest = [(max(one.waits, default=math.nan), WAIT_SECONDS) for one in crowds]
    yield of_values("service", "longest answer to a reader", "the bound of its wait", "s", longest)
    shares = [(one.refused / max(1, len(one.waits)), 1.0) for one in crowds]
    yield of_values("service", f"refused of {size.readers:,} readers", "all", "", shares)
