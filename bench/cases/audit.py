"""Puts at each level of the audit trail, in turns, with a worker that seals beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from bench.cases.at_once import at_once
from bench.cases.writes import NO_MARK
from bench.environment import Ground
from bench.figures import Figure, Goal, Pair, of_times, of_values
from bench.processes import LOCAL, worker
from bench.size import Size
from bench.turns import in_turns
from strandline import Audit, Memory, acting
from strandline.schemas.values.acts.kinds import LEVELS, AuditLevel

GOALS: dict[AuditLevel, Goal] = {"changes": Goal(0.9, at_least=True), "all": Goal(0.7, at_least=True)}


def measure_audit(ground: Ground, size: Size) -> Iterator[Figure]:
    """Puts at the levels off, changes and all of the audit trail, in turns, while a worker seals."""
    for level in LEVELS:
        Audit.of_namespace(level, database_url=ground.url).set_level(level)
    with worker(ground, LOCAL, concurrency=1, processor=0), acting(actor="bench", origin="127.0.0.1"):
        singles = [_one_in_flight(ground, size) for _ in range(size.repetitions + 1)][1:]
        rounds = asyncio.run(_rounds(ground, size))[1:]
    off = LEVELS[0]
    for level, goal in GOALS.items():
        pairs = [Pair(times[level], times[off]) for times in singles]
        rates = [(one[level], one[off]) for one in rounds]
        yield of_times("audit", f"put at level {level}", f"at level {off}", pairs)
        in_flight = f"aput at level {level}, {size.in_flight} sessions in flight"
        yield of_values("audit", in_flight, f"at level {off}", "puts/s", rates, goal=goal)


def _memory(ground: Ground, level: AuditLevel) -> Memory:
    return ground.memory(user_id="bench", namespace=level, blocks=[], token_limit=NO_MARK)


def _one_in_flight(ground: Ground, size: Size) -> dict[AuditLevel, list[float]]:
    """Seconds of single puts, by level."""
    memories = [_memory(ground, level) for level in LEVELS]
    for memory in memories:
        memory.put(ground.pieces[0])
    calls = []
    for memory in memories:
        pieces = iter(ground.some_pieces(size.puts))
        calls.append(lambda put=memory.put, pieces=pieces: put(next(pieces)))
    return dict(zip(LEVELS, in_turns(calls, size.puts), strict=True))


async def _rounds(ground: Ground, size: Size) -> list[dict[AuditLevel, float]]:
    """Puts per second of many sessions at the same time, by level."""
    memories = {level: [_memory(ground, level) for _ in range(size.in_flight)] for level in LEVELS}
    for of_level in memories.values():
        for memory in of_level:
            await memory.aput(ground.pieces[0])
    pieces = ground.some_pieces(size.puts_each)
    rounds = []
    for _ in range(size.repetitions + 1):
        rates: dict[AuditLevel, float] = {}
        for level in LEVELS:
            rates[level] = (await at_once([memory.aput for memory in memories[level]], pieces)).rate
        rounds.append(rates)
    await memories[LEVELS[0]][0].aclose()
    return rounds
