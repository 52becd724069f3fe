"""Other memory libraries on the same Postgres, with the same messages and the same limits."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from uuid import uuid4

import psycopg

from bench.cases.at_once import at_once
from bench.cases.bare import BARE_INSERT, BareSession, make_bare_table
from bench.environment import Given, Ground, NotMeasuredError
from bench.figures import Figure, Goal, Pair, of_times, of_values
from bench.peers.facts import measure_facts
from bench.peers.ground import LLAMAINDEX, full_window, peer_memory
from bench.size import Size
from bench.turns import async_pair, pair


def measure_peers(ground: Ground, size: Size) -> Iterator[Figure]:
    """LlamaIndex's Memory with its default limits and a full window, held against ours with the same."""
    try:
        memory = importlib.import_module("llama_index.core.memory")
        llms = importlib.import_module("llama_index.core.llms")
    except ImportError as error:
        raise NotMeasuredError(
            "llama-index-core is not installed; the extra 'bench' brings it: pip install 'strandline[bench]'"
        ) from error
    make_bare_table(ground)
    sync_puts = _sync_puts(ground, size, memory.Memory, llms.ChatMessage)
    yield of_times("peers", f"{LLAMAINDEX}: put", "put", sync_puts, goal=Goal(50, at_least=True))
    found = asyncio.run(_beside_llamaindex(ground, size, memory.Memory, llms.ChatMessage))
    yield of_times("peers", f"{LLAMAINDEX}: aput", "aput", found.puts, goal=Goal(50, at_least=True))
    yield of_times("peers", f"{LLAMAINDEX}: aput", "bare async INSERT", found.bare, more_is_better=True)
    yield of_times("peers", f"{LLAMAINDEX}: aget", "aget", found.gets, goal=Goal(10, at_least=True))
    name = f"aput, {size.peer_sessions} sessions in flight"
    yield of_values("peers", name, LLAMAINDEX, "puts/s", found.rates, goal=Goal(50, at_least=True))
    yield from measure_facts(ground, size, memory, llms)


@dataclass(frozen=True, slots=True)
class _Found:
    """Repetitions: their puts beside ours and beside bare INSERTs, their gets; our rate and theirs."""

    puts: list[Pair]
    bare: list[Pair]
    gets: list[Pair]
    rates: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Theirs:
    """Makes memories of theirs that share one store."""

    memory_class: Any
    message_class: Any
    store: Any

    def message(self, given: Given) -> Any:
        return self.message_class(**given)

    async def filled(self, window: list[Given]) -> Any:
        made = self.memory_class.from_defaults(session_id=uuid4().hex, chat_store=self.store)
        await made.aput_messages([self.message(message) for message in window])
        return made


def _sync_puts(ground: Ground, size: Size, memory_class: Any, message_class: Any) -> list[Pair]:
    """Theirs runs an event loop for each put."""
    theirs = peer_memory(ground, memory_class)
    ours = ground.memory(blocks=[])
    window = full_window(ground)
    theirs.put_messages([message_class(**message) for message in window])
    ours.put_messages(window)
    theirs_next = (message_class(**message) for message in cycle(ground.pieces))
    ours_next = cycle(ground.pieces)
    return [
        pair(lambda: theirs.put(next(theirs_next)), lambda: ours.put(next(ours_next)), size.peer_calls)
        for _ in range(size.repetitions + 1)
    ][1:]


async def _beside_llamaindex(ground: Ground, size: Size, memory_class: Any, message_class: Any) -> _Found:
    first = peer_memory(ground, memory_class)
    library = _Theirs(memory_class, message_class, first.sql_store)
    window = full_window(ground)
    ours = ground.memory(blocks=[])  # the limits are its defaults as well
    await ours.aput_messages(window)
    theirs = await library.filled(window)
    puts, bare, gets = [], [], []
    async with await psycopg.AsyncConnection.connect(ground.url, autocommit=True) as connection:
        our_messages, session = cycle(ground.pieces), BareSession()
        their_messages = map(library.message, cycle(ground.pieces))

        def insert() -> Awaitable[object]:
            return connection.execute(BARE_INSERT, session.row(next(our_messages)), prepare=True)

        def their_put() -> Awaitable[object]:
            put: Awaitable[object] = theirs.aput(next(their_messages))
            return put

        for _ in range(size.repetitions + 1):
            calls = size.peer_calls
            puts.append(await async_pair(their_put, lambda: ours.aput(next(our_messages)), calls))
            bare.append(await async_pair(their_put, insert, calls))
            gets.append(await async_pair(theirs.aget, ours.aget, calls))
    rates = await _rates(ground, size, library, window)
    await first.sql_store._async_engine.dispose()
    await ours.aclose()
    return _Found(puts[1:], bare[1:], gets[1:], rates[1:])


async def _rates(
    ground: Ground, size: Size, library: _Theirs, window: list[Given]
) -> list[tuple[float, float]]:
    """Puts per second of as many sessions at once, ours and theirs, all with full windows."""
    ours = [ground.memory(blocks=[]) for _ in range(size.peer_sessions)]
    for memory in ours:
        await memory.aput_messages(window)
    theirs = [await library.filled(window) for _ in range(size.peer_sessions)]
    few = ground.some_pieces(1)
    many = ground.some_pieces(size.peer_calls)
    rates = []
    for _ in range(size.repetitions + 1):
        rate = (await at_once([memory.aput for memory in ours], many)).rate
        their_rate = (await at_once([one.aput for one in theirs], list(map(library.message, few)))).rate
        rates.append((rate, their_rate))
    return rates
