"""Puts where facts are extracted: in the put itself, or behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import cycle
from statistics import fmean
from typing import Any

from bench.environment import MESSAGE_TOKENS, Ground
from bench.figures import Figure, Pair, of_times, of_values
from bench.peers.ground import LLAMAINDEX, full_window, peer_memory
from bench.processes import model_server, worker
from bench.size import Size
from bench.turns import async_timed
from strandline.schemas.values.policy import DEFAULT_FLUSH_SIZE

PUTS_PER_FLUSH = DEFAULT_FLUSH_SIZE // MESSAGE_TOKENS


def measure_facts(ground: Ground, size: Size, memory: Any, llms: Any) -> Iterator[Figure]:
    """LlamaIndex's block asks the model in the put that flushes; our worker asks it beside the puts.

    Args:
        memory: the module ``llama_index.core.memory``.
        llms: the module ``llama_index.core.llms``.
    """
    with (
        model_server(size.call_seconds) as model,
        worker(ground, model.environment(), concurrency=16),
    ):
        pairs = asyncio.run(_pairs(ground, size, memory, llms))
    name, ours = f"{LLAMAINDEX}: aput, facts extracted", "aput, facts extracted"
    means = [(1000 * fmean(one.measured), 1000 * fmean(one.against)) for one in pairs]
    yield of_values("peers", f"{name}, mean", f"{ours}, mean", "ms", means, more_is_better=True)
    yield of_times("peers", name, ours, pairs, rank=99, against_rank=99, more_is_better=True)


async def _pairs(ground: Ground, size: Size, memory: Any, llms: Any) -> list[Pair]:
    block = memory.FactExtractionMemoryBlock(llm=_model(llms, size.call_seconds))
    theirs = peer_memory(ground, memory.Memory, memory_blocks=[block])
    ours = ground.memory(ringing=True)
    window = full_window(ground)
    await theirs.aput_messages([llms.ChatMessage(**message) for message in window])
    await ours.aput_messages(window)
    messages = cycle(ground.pieces)
    count = PUTS_PER_FLUSH * size.peer_flushes
    pairs = []
    for _ in range(size.repetitions + 1):
        # One after the other: ours would wait in the middle of theirs, and its worker go idle.
        measured = await async_timed(lambda: theirs.aput(llms.ChatMessage(**next(messages))), count)
        pairs.append(Pair(measured, await async_timed(lambda: ours.aput(next(messages)), count)))
    await theirs.sql_store._async_engine.dispose()
    await ours.aclose()
    return pairs[1:]


def _model(llms: Any, seconds: float) -> Any:
    """A model that takes as long as ours, without a server: what is left of it is its answer."""
    numbers = iter(range(1, 1_000_000))

    class Slow(llms.MockLLM):  # type: ignore[misc]  # the library may be absent
        async def achat(self, *_: object, **__: object) -> Any:
            await asyncio.sleep(seconds)
            fact = f"<facts><fact>The harbour was visited {next(numbers)} times.</fact></facts>"
            return llms.ChatResponse(message=llms.ChatMessage(role="assistant", content=fact))

    return Slow()
