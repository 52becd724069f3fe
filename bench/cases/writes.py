"""Puts against bare INSERTs: one in flight, and many sessions at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import psycopg
from psycopg_pool import AsyncConnectionPool

from bench.cases.at_once import AtOnce, Put, at_once
from bench.cases.bare import BARE_INSERT, BareSession, make_bare_table
from bench.environment import Given, Ground
from bench.figures import Figure, Goal, Pair, of_times, of_values
from bench.size import Size
from bench.turns import async_pair, pair
from strandline import Memory

# A mark that no put of these comes near.
NO_MARK = 10_000_000
POOL_SIZE = 16


def measure_put(ground: Ground, size: Size) -> Iterator[Figure]:
    """One put in flight, a message of 40 tokens, far below the mark; sync and async."""
    make_bare_table(ground)
    sync_pairs = [_sync_pair(ground, size) for _ in range(size.repetitions + 1)][1:]
    async_pairs = asyncio.run(_async_pairs(ground, size))[1:]
    yield of_times("put", "put", "bare INSERT", sync_pairs, goal=Goal(1.8))
    yield of_times("put", "put", "bare INSERT", sync_pairs, rank=99, against_rank=99)
    yield of_times("put", "aput", "bare async INSERT", async_pairs, goal=Goal(1.8))


def measure_concurrent(ground: Ground, size: Size) -> Iterator[Figure]:
    """Many sessions in flight in one process, against single-row INSERTs through a pool of 16."""
    make_bare_table(ground)
    rounds = asyncio.run(_rounds(ground, size))[1:]
    sessions = f"{size.in_flight} sessions in flight"
    rates = [(ours.rate, bare.rate) for ours, bare in rounds]
    costs = [(1e6 * ours.processor_seconds, 1e6 * bare.processor_seconds) for ours, bare in rounds]
    against = f"bare INSERTs, pool of {POOL_SIZE}"
    yield of_values("concurrent", f"aput, {sessions}", against, "puts/s", rates, goal=Goal(3, at_least=True))
    yield of_values("concurrent", "the process's time on a processor, per put", against, "µs", costs)


def _sync_pair(ground: Ground, size: Size) -> Pair:
    memory = ground.memory(blocks=[], token_limit=NO_MARK)
    messages = iter(ground.some_pieces(size.puts + 1))
    others = iter(ground.some_pieces(size.puts))
    bare = BareSession()
    memory.put(next(messages))  # the session's first put claims it
    with ground.connection() as connection:
        return pair(
            lambda: memory.put(next(messages)),
            lambda: connection.execute(BARE_INSERT, bare.row(next(others)), prepare=True),
            size.puts,
        )


async def _async_pairs(ground: Ground, size: Size) -> list[Pair]:
    connection = await psycopg.AsyncConnection.connect(ground.url, autocommit=True)
    async with connection:
        pairs = []
        for _ in range(size.repetitions + 1):
            memory = ground.memory(blocks=[], token_limit=NO_MARK)
            pairs.append(await _async_pair(ground, size, memory, connection))
        await memory.aclose()
        return pairs


async def _async_pair(
    ground: Ground, size: Size, memory: Memory, connection: psycopg.AsyncConnection[tuple[object, ...]]
) -> Pair:
    messages = iter(ground.some_pieces(size.puts + 1))
    others = iter(ground.some_pieces(size.puts))
    bare = BareSession()
    await memory.aput(next(messages))
    return await async_pair(
        lambda: memory.aput(next(messages)),
        lambda: connection.execute(BARE_INSERT, bare.row(next(others)), prepare=True),
        size.puts,
    )


async def _rounds(ground: Ground, size: Size) -> list[tuple[AtOnce, AtOnce]]:
    memories = [ground.memory(blocks=[], token_limit=NO_MARK) for _ in range(size.in_flight)]
    for memory in memories:
        await memory.aput(ground.pieces[0])
    sessions = [BareSession() for _ in range(size.in_flight)]
    pieces = ground.some_pieces(size.puts_each)
    pool = AsyncConnectionPool(
        ground.url, kwargs={"autocommit": True}, min_size=POOL_SIZE, max_size=POOL_SIZE, open=False
    )

    async def insert(bare: BareSession, message: Given) -> None:
        async with pool.connection() as connection:
            await connection.execute(BARE_INSERT, bare.row(message), prepare=True)

    puts = [memory.aput for memory in memories]
    inserts = [_bound(insert, bare) for bare in sessions]
    async with pool:
        rounds = [
            (await at_once(puts, pieces), await at_once(inserts, pieces)) for _ in range(size.repetitions + 1)
        ]
    await memories[0].aclose()
    return rounds


def _bound(insert: Callable[[BareSession, Given], Awaitable[None]], bare: BareSession) -> Put:
    return lambda message: insert(bare, message)
