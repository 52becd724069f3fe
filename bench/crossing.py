"""Puts that cross the mark, and so plan and record a flush, with a worker busy beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.figures import Figure, Goal, Pair, of_times
from bench.ground import Ground
from bench.processes import model_server, worker
from bench.size import Size

# Which put recorded a flush: the last message accepted before its event.
CROSSING_SEQS = """
SELECT DISTINCT (SELECT max(m.seq) FROM strandline.message m
    WHERE m.shard_key = e.shard_key AND m.session_key = e.session_key AND m.created_at <= e.created_at)
FROM strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)
WHERE s.session_id = %s
"""
TOKEN_LIMIT, FLUSH_SIZE = 4_000, 120


def measure_crossing(ground: Ground, size: Size) -> Iterator[Figure]:
    """Puts that cross the mark as fast as they go, beside a worker whose model takes a second."""
    with (
        model_server(size.call_seconds) as model,
        worker(ground, model.environment(), concurrency=16, processor=0),
    ):
        rounds = [_put(ground, size) for _ in range(size.repetitions + 1)][1:]
    crossings = [Pair(crossing, crossing) for crossing, _ in rounds]
    puts = [Pair(crossing, others) for crossing, others in rounds]
    name = "put that crosses the mark"
    yield of_times("crossing", name, name, crossings, rank=99, goal=Goal(3))
    yield of_times("crossing", name, "other puts", puts)
    yield of_times("crossing", name, "other puts", puts, rank=99, against_rank=99)


def _put(ground: Ground, size: Size) -> tuple[list[float], list[float]]:
    """Seconds of the puts that crossed the mark, and of the others."""
    memory = ground.memory(token_limit=TOKEN_LIMIT, token_flush_size=FLUSH_SIZE, ringing=True)
    # Up to the mark at once; the first put of a session makes it, in three round trips.
    memory.put_messages(ground.some_pieces(int(TOKEN_LIMIT * 0.7) // 40 - 2))
    seconds: dict[int, float] = {}
    for message in ground.some_pieces(size.crossing_puts):
        began = time.perf_counter()
        seq = memory.put(message)
        seconds[seq] = time.perf_counter() - began
    crossing = {row[0] for row in ground.rows(CROSSING_SEQS, memory.session_id)} & seconds.keys()
    return [seconds[seq] for seq in sorted(crossing)], [
        taken for seq, taken in seconds.items() if seq not in crossing
    ]
