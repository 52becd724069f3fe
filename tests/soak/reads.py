"""Reads wait for no model and for no slow code, and no longer than they are told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from strandline import Memory, VectorMemoryBlock
from strandline.producers.search.hits import Hit
from strandline.schemas.settings import load_settings
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.soak.measuring.timing import seconds_of
from tests.support.workers.draining import drain_everything

CONFIG = '{"embedder": "text-embedding-3-small", "dimensions": 256}'


def run(ground: Ground) -> Iterator[Reading]:
    """Reads beside work that is not done, slow application code, and an embedder that never answers."""
    yield from _waiting(ground)
    yield from _slow_code(ground)
    yield from _silent_embedder(ground)


def _waiting(ground: Ground) -> Iterator[Reading]:
    memory = _flushed(ground, "waiting", VectorMemoryBlock())
    took = seconds_of(partial(memory.get, wait_for=1, timeout=0.4))
    yield Reading("a read that is told to wait 0.4 s for what no worker does", took, 2.0)
    yield Reading("it waits as long", took, 0.4, at_least=True)


def _slow_code(ground: Ground) -> Iterator[Reading]:
    block = VectorMemoryBlock(postprocessors=[_sleeps] * 5)
    memory = _flushed(ground, "slow", block)
    local = load_settings(database_url=ground.database_url, embedding_backend="local", text_backend="local")
    drain_everything(ground.database(), ground.database_url, local)
    memory.search("warms up")
    took = seconds_of(partial(memory.get, "What do I like?"))
    yield Reading("a read with five postprocessors of 3 s each", took, 3.0)


def _sleeps(_query: str, hits: Sequence[Hit]) -> Sequence[Hit]:
    time.sleep(3)
    return hits


def _silent_embedder(ground: Ground) -> Iterator[Reading]:
    model = ground.model()
    with ground.environment(OPENAI_BASE_URL=model.base_url):
        ground.rows(
            "UPDATE strandline.generation SET config = %s WHERE pipeline = 'vectors' RETURNING 1", CONFIG
        )
        memory = _flushed(ground, "silent", VectorMemoryBlock())
        memory.get("What do I like?")  # opens connections, loads the client
        model.behave(hang=True)
        first, *later = (seconds_of(partial(memory.get, "What do I like?")) for _ in range(3))
    yield Reading("the first read beside an embedder that never answers", first, 1.5)
    yield Reading("the next ones", max(later), 0.3)


def _flushed(ground: Ground, name: str, block: VectorMemoryBlock) -> Memory:
    memory = ground.memory(name, memory_blocks=[block])
    memory.put({"role": "user", "content": "Herring is what I like."})
    memory.flush(all=True)
    return memory
