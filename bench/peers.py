"""Other memory libraries on the same Postgres, with the same messages and the same limits."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from itertools import chain, cycle
from typing import Any
from uuid import uuid4

from bench.figures import Figure, Goal, Pair, of_times
from bench.ground import Given, Ground, NotMeasuredError
from bench.size import Size
from bench.turns import async_pair
from strandline import Memory
from strandline.schemas.policy import DEFAULT_HISTORY_RATIO, DEFAULT_TOKEN_LIMIT
from strandline.schemas.tokens import count_default

LLAMAINDEX = "LlamaIndex Memory"
SCHEMA = "llamaindex"


def measure_peers(ground: Ground, size: Size) -> Iterator[Figure]:
    """LlamaIndex's Memory with its default limits and a full window, held against ours with the same."""
    try:
        memory = importlib.import_module("llama_index.core.memory")
        llms = importlib.import_module("llama_index.core.llms")
    except ImportError as error:
        raise NotMeasuredError(
            "llama-index-core is not installed; the extra 'bench' brings it: pip install 'strandline[bench]'"
        ) from error
    puts, gets = asyncio.run(_beside_llamaindex(ground, size, memory.Memory, llms.ChatMessage))
    yield of_times("peers", f"{LLAMAINDEX}: aput", "aput", puts, goal=Goal(50, at_least=True))
    yield of_times("peers", f"{LLAMAINDEX}: aget", "aget", gets, goal=Goal(10, at_least=True))


async def _beside_llamaindex(
    ground: Ground, size: Size, memory_class: Any, message_class: Any
) -> tuple[list[Pair], list[Pair]]:
    theirs = memory_class.from_defaults(
        session_id=uuid4().hex,
        async_database_uri=ground.url.replace("postgresql://", "postgresql+psycopg://", 1),
        db_schema=SCHEMA,
    )
    ours = ground.memory(blocks=[])  # the limits are its defaults as well
    window = _full_window(ground)
    await ours.aput_messages(window)
    await theirs.aput_messages([message_class(**message) for message in window])
    our_messages, their_messages = cycle(ground.pieces), map(_into(message_class), cycle(ground.pieces))
    puts, gets = [], []
    for _ in range(size.repetitions + 1):
        puts.append(
            await async_pair(
                lambda: theirs.aput(next(their_messages)),
                lambda: ours.aput(next(our_messages)),
                size.peer_calls,
            )
        )
        gets.append(await async_pair(theirs.aget, ours.aget, size.peer_calls))
    await _close(theirs, ours)
    return puts[1:], gets[1:]


def _full_window(ground: Ground) -> list[Given]:
    """As many messages as stay in the window: the puts that are timed cross the mark in between."""
    room = int(DEFAULT_TOKEN_LIMIT * DEFAULT_HISTORY_RATIO)
    window: list[Given] = []
    for message in chain.from_iterable([ground.pieces] * (room // 20)):
        room -= count_default(message["content"])
        if room < 0:
            break
        window.append(message)
    return window


def _into(message_class: Any) -> Callable[[Given], Any]:
    return lambda message: message_class(**message)


async def _close(theirs: Any, ours: Memory) -> None:
    await theirs.sql_store._async_engine.dispose()
    await ours.aclose()
