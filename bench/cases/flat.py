"""What puts and gets cost as things grow: history, sessions, facts, chunks; each point against the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from statistics import fmean

from bench.cases import filling
from bench.environment import Ground
from bench.figures import Figure, Goal, Pair, of_times, of_values
from bench.recall.exact import indexed_search, recall, vector_search
from bench.size import Size
from bench.turns import Call, in_turns
from strandline import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    Memory,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session

WINDOW = 100
MAX_FACTS = 10
QUESTION = "How long and how wide is the boat?"
FLAT = Goal(1.25)
SEARCH_MILLISECONDS = 60.0
RECALL = Goal(0.95, at_least=True)


def measure_flat(ground: Ground, size: Size) -> Iterator[Figure]:
    """Puts and gets from the near end to the far one of each axis, filled by COPY."""
    yield from _messages(ground, size)
    yield from _sessions(ground, size)
    yield from _facts(ground, size)
    yield from _chunks(ground, size)


def _messages(ground: Ground, size: Size) -> Iterator[Figure]:
    memories = [ground.memory(blocks=_derived()) for _ in size.messages]
    for memory, below in zip(memories, size.messages, strict=True):
        filling.history(ground, memory, below=below, window=WINDOW)
    ground.analyze()
    axis = "messages below the marks"
    yield from _line(size, f"put, {axis}", size.messages, [_put(ground, [one]) for one in memories])
    yield from _line(size, f"get, {axis}", size.messages, [one.get for one in memories])


def _sessions(ground: Ground, size: Size) -> Iterator[Figure]:
    with ExitStack() as stack:
        samples = []
        for number in size.sessions:
            own = stack.enter_context(ground.fresh())
            samples.append(_sampled(own, number, size.axis_calls))
        yield from _line(size, "put, sessions", size.sessions, [_put(ground, some) for some in samples])
        yield from _line(size, "get, sessions", size.sessions, [_get(some) for some in samples])


def _sampled(ground: Ground, number: int, wanted: int) -> list[Memory]:
    """Some of so many sessions, from all over."""
    like = ground.memory(blocks=_derived())
    like.put(ground.pieces[0])
    ids = filling.sessions(ground, like, number)
    ground.analyze()
    chosen = ids[:: max(1, number // wanted)][:wanted]
    return [ground.memory(session_id=session_id, blocks=_derived()) for session_id in chosen]


def _facts(ground: Ground, size: Size) -> Iterator[Figure]:
    memories = [ground.memory(blocks=_derived()) for _ in size.facts]
    for memory, number in zip(memories, size.facts, strict=True):
        filling.history(ground, memory, below=WINDOW, window=WINDOW)
        owner = identify_session(DEFAULT_NAMESPACE, memory.session_id, None).shard_key
        filling.facts(ground, owner, number)
    ground.analyze()
    yield from _line(size, "put, facts of the owner", size.facts, [_put(ground, [one]) for one in memories])
    yield from _line(size, "get, facts of the owner", size.facts, [one.get for one in memories])


def _chunks(ground: Ground, size: Size) -> Iterator[Figure]:
    memories = [ground.memory(blocks=[VectorMemoryBlock()]) for _ in size.chunks]
    for memory, number in zip(memories, size.chunks, strict=True):
        texts = filling.chunk_texts(ground, number)
        filling.history(ground, memory, below=number, window=WINDOW, texts=texts[1:])
        stored = filling.chunks(ground, memory, texts)
    ground.analyze()
    axis = "chunks of the scope"
    yield from _line(size, f"put, {axis}", size.chunks, [_put(ground, [one]) for one in memories])
    without = [ground.memory(session_id=one.session_id, blocks=_derived()) for one in memories]
    yield from _line(size, f"get, {axis}", size.chunks, [one.get for one in without])
    gets: list[Call] = [_searching(one) for one in memories]
    yield from _line(size, f"get with search, {axis}", size.chunks, gets)
    yield from _searches(ground, size, memories, stored)


def _searches(
    ground: Ground, size: Size, memories: Sequence[Memory], stored: filling.Chunks
) -> Iterator[Figure]:
    """At the far end: what a search costs, with words and without, and what it finds of the nearest."""
    chunks = f"{size.chunks[-1]:,} chunks"
    (asked,) = WordLlamaEmbedder().embed([QUESTION]).vectors
    with vector_search(ground, memories[-1]) as find:
        alone: dict[str, Call] = {
            f"search alone, {chunks}": _search(memories[-1]),
            f"vector search alone, {chunks}": lambda: find(asked),
        }
        rounds = [in_turns(list(alone.values()), size.gets) for _ in range(size.repetitions + 1)][1:]
        for at, name in enumerate(alone):
            pairs = [Pair(one[at], [SEARCH_MILLISECONDS / 1000]) for one in rounds]
            yield of_times("flat", name, "60 ms", pairs, goal=Goal(1))
        questions = ground.questions[: size.recall_queries]
        by_candidates = fmean(recall(find, stored.vectors, stored.lengths, questions))
    with indexed_search(ground, memories[-1]) as find:
        by_index = fmean(recall(find, stored.vectors, stored.lengths, questions))
    yield of_values("flat", f"recall, {chunks}", "exact", "", [(by_index, 1.0)], goal=RECALL)
    yield of_values(
        "flat", f"recall by candidates, {chunks}", "exact", "", [(by_candidates, 1.0)], goal=RECALL
    )


def _line(size: Size, axis: str, places: Sequence[int], calls: Sequence[Call]) -> Iterator[Figure]:
    """Each point of a line against the first, all taking turns."""
    rounds = [in_turns(calls, size.axis_calls) for _ in range(size.repetitions + 1)][1:]
    for at, place in enumerate(places[1:], start=1):
        pairs = [Pair(seconds[at], seconds[0]) for seconds in rounds]
        name = f"{axis}: {place:,}"
        yield of_times("flat", name, f"{places[0]:,}", pairs, goal=FLAT, axis=axis, place=place)


def _derived() -> list[BaseMemoryBlock]:
    return [FactExtractionMemoryBlock(max_facts=MAX_FACTS), SummaryMemoryBlock()]


def _put(ground: Ground, memories: Sequence[Memory]) -> Call:
    messages, turns = cycle(ground.pieces), cycle(memories)
    return lambda: next(turns).put(next(messages))


def _get(memories: Sequence[Memory]) -> Call:
    turns = cycle(memories)
    return lambda: next(turns).get()


def _searching(memory: Memory) -> Callable[[], object]:
    return lambda: memory.get(QUESTION)


def _search(memory: Memory) -> Callable[[], object]:
    return lambda: memory.search(QUESTION, include_window=False)
