"""Puts that cross the mark, and so plan and record a flush, with a worker busy beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.environment import MESSAGE_TOKENS, Ground
from bench.figures import Figure, Goal, Pair, of_times
from bench.processes import model_server, worker
from bench.size import Size
from strandline.schemas.values.policy import DEFAULT_FLUSH_SIZE, DEFAULT_HISTORY_RATIO, DEFAULT_TOKEN_LIMIT

# Seconds of the puts that crossed the mark, and of the others.
Round = tuple[list[float], list[float]]

# Which put recorded a flush: the last message accepted before its event.
CROSSING_SEQS = """
SELECT DISTINCT (SELECT max(m.seq) FROM strandline.message m
    WHERE m.shard_key = e.shard_key AND m.session_key = e.session_key AND m.created_at <= e.created_at)
FROM strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)
WHERE s.session_id = %s
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a session: the size at which it flushes, and how much it flushes at once."""

    token_limit: int
    flush_size: int

    @property
    def mark(self) -> int:
        return int(self.token_limit * DEFAULT_HISTORY_RATIO)


USUAL = Limits(DEFAULT_TOKEN_LIMIT, DEFAULT_FLUSH_SIZE)
# An event of four messages: a quarter of the puts crosses, and a worker is flooded.
SMALL = Limits(4_000, 120)


def measure_crossing(ground: Ground, size: Size) -> Iterator[Figure]:
    """Puts that cross the mark as fast as they go, beside a worker whose model takes a second."""
    with (
        model_server(size.call_seconds) as model,
        worker(ground, model.environment(), concurrency=16, processor=0),
    ):
        usual = _rounds(ground, USUAL, size.crossing_puts, size.repetitions)
        small = _rounds(ground, SMALL, size.crossing_puts // 10, size.repetitions)
    yield from _figures("crossing put, default limits", usual)
    yield from _figures("crossing put, small events", small)


def _figures(name: str, rounds: Sequence[Round]) -> Iterator[Figure]:
    crossings = [Pair(crossing, crossing) for crossing, _ in rounds]
    puts = [Pair(crossing, others) for crossing, others in rounds]
    yield of_times("crossing", name, name, crossings, rank=99, goal=Goal(3))
    yield of_times("crossing", name, "other puts", puts)
    yield of_times("crossing", name, "other puts", puts, rank=99, against_rank=99)


def _rounds(ground: Ground, limits: Limits, puts: int, repetitions: int) -> list[Round]:
    return [_put(ground, limits, puts) for _ in range(repetitions + 1)][1:]


def _put(ground: Ground, limits: Limits, puts: int) -> Round:
    memory = ground.memory(token_limit=limits.token_limit, token_flush_size=limits.flush_size, ringing=True)
    # Up to the mark at once; the first put of a session makes it, in three round trips.
    memory.put_messages(ground.some_pieces(limits.mark // MESSAGE_TOKENS - 2))
    seconds: dict[int, float] = {}
    for message in ground.some_pieces(puts):
        began = time.perf_counter()
        seq = memory.put(message)
        seconds[seq] = time.perf_counter() - began
    crossing = {row[0] for row in ground.rows(CROSSING_SEQS, memory.session_id)} & seconds.keys()
    return [seconds[seq] for seq in sorted(crossing)], [
        taken for seq, taken in seconds.items() if seq not in crossing
    ]
