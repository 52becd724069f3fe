"""A worker whose model takes its time: the calls it keeps in flight, and what it adds to theirs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from bench.cases.backlog import close, fill
from bench.environment import Ground
from bench.figures import Figure, Goal, of_values, percentile
from bench.processes import ModelProcess, Process, model_server, wait_until, worker
from bench.size import Size
from strandline import FactExtractionMemoryBlock, Memory

CALLS_PER_SESSION = 4  # extract, merge, summary and the embedding
WANTED_IN_FLIGHT = 100
WANTED_MEGABYTES = 200.0
# How often, within the time of a call, those that the model has are counted.
LOOKS = 10
OVERHEAD_SECONDS = 0.1
# Between two flushes that are timed, which then rarely meet on the processor.
SPACING_SECONDS = 0.2
# For the last ones, when not all threads have work any more, and for the first.
MARGIN_SECONDS = 4.0
OWN_TIME = """
SELECT sum(c.seconds) FROM strandline.model_call c JOIN strandline.session s USING (shard_key)
WHERE s.session_id = %s AND c.stage IN ('extract', 'merge')
"""


def measure_calls(ground: Ground, size: Size) -> Iterator[Figure]:
    """Calls in flight of one worker process on one processor, with a model that takes a second."""
    for concurrency in size.concurrencies:
        with (
            ground.fresh(registered=False) as own,
            model_server(size.call_seconds) as model,
            worker(own, model.environment(), concurrency=concurrency, processor=0) as process,
        ):
            yield from _calls(own, size, model, process, concurrency)


def measure_delay(ground: Ground, size: Size) -> Iterator[Figure]:
    """From the end of a flush until its facts can be read, against the model calls' own time."""
    repetitions = []
    with (
        model_server(size.call_seconds) as model,
        worker(ground, model.environment(), concurrency=16, processor=0),
    ):
        for _ in range(size.repetitions + 1):
            repetitions.append(_delays(ground, size))
    rounds = [
        (percentile([total for total, _ in one], 50), percentile([calls for _, calls in one], 50))
        for one in repetitions[1:]
    ]
    beside = [
        (1000 * percentile([total - calls for total, calls in one], 50), 1000 * OVERHEAD_SECONDS)
        for one in repetitions[1:]
    ]
    yield of_values("delay", "flush to readable facts, p50", "its model calls' own time", "s", rounds)
    yield of_values(
        "delay", "flush to readable facts without the calls, p50", "100 ms", "ms", beside, goal=Goal(1)
    )


def _calls(
    ground: Ground, size: Size, model: ModelProcess, process: Process, concurrency: int
) -> Iterator[Figure]:
    needed = concurrency * (size.steady_seconds + MARGIN_SECONDS) / size.call_seconds
    memories = fill(ground, sessions=math.ceil(needed / CALLS_PER_SESSION), events_each=1)
    wait_until(lambda: model.requests() >= 2 * concurrency, seconds=60)
    in_flight: list[tuple[float, float]] = []
    spent: list[tuple[float, float]] = []
    for _ in range(math.ceil(size.steady_seconds / size.call_seconds)):
        before, used = model.requests(), process.processor_seconds()
        open_now = [_open_soon(model, size.call_seconds / LOOKS) for _ in range(LOOKS)]
        in_flight.append((percentile(open_now, 50), WANTED_IN_FLIGHT))
        calls = model.requests() - before
        spent.append((1000 * (process.processor_seconds() - used) / max(1, calls), 1000 * size.call_seconds))
    close(memories)
    threads = f"worker of {concurrency} threads"
    # Fewer threads than that cannot reach it.
    goal = Goal(1, at_least=True) if concurrency >= WANTED_IN_FLIGHT else None
    against = f"{WANTED_IN_FLIGHT} calls"
    name = f"calls in flight, {threads}"
    yield of_values("calls", name, against, "calls", in_flight, goal=goal, more_is_better=True)
    yield of_values("calls", f"processor per call, {threads}", "the call's own time", "ms", spent)
    held = [(process.resident_megabytes(), WANTED_MEGABYTES)]
    yield of_values("calls", f"resident memory, {threads}", "200 MB", "MB", held)


def _open_soon(model: ModelProcess, seconds: float) -> float:
    time.sleep(seconds)
    return float(model.open_requests())


def _delays(ground: Ground, size: Size) -> list[tuple[float, float]]:
    """Of sessions flushed one soon after the other: seconds until facts can be read, and of their calls."""
    memories = [
        ground.memory(blocks=[FactExtractionMemoryBlock()], ringing=True) for _ in range(size.flushes)
    ]
    flushed: dict[int, float] = {}
    seqs = [memory.put_messages(ground.some_messages(6))[-1] for memory in memories]
    for number, memory in enumerate(memories):
        memory.flush(all=True)
        flushed[number] = time.monotonic()
        time.sleep(SPACING_SECONDS)
    taken: dict[int, float] = {}

    def are_readable() -> bool:
        for number in flushed.keys() - taken.keys():
            if _covers(memories[number], seqs[number]):
                taken[number] = time.monotonic() - flushed[number]
        return len(taken) == len(memories)

    # Looked at seldom, so that looking takes no processor from those that are looked at.
    wait_until(are_readable, seconds=60, pause=0.02)
    own = [ground.rows(OWN_TIME, memory.session_id)[0][0] for memory in memories]
    close(memories)
    return [(taken[number], float(calls)) for number, calls in enumerate(own)]


def _covers(memory: Memory, seq: int) -> bool:
    return memory.get().covered_through["facts"] >= seq
