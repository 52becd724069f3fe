"""Work that waits: sessions with events due, made through the public face."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from bench.environment import Ground
from bench.processes import wait_until
from strandline import Memory

# Messages of one event.
TURN_MESSAGES = 4
PIPELINES = 3


def fill(ground: Ground, *, sessions: int, events_each: int, ringing: bool = True) -> list[Memory]:
    """Sessions with so many events each; whoever serves them is rung for each event."""
    memories = [ground.memory(ringing=ringing) for _ in range(sessions)]
    pieces = ground.some_pieces(sessions * events_each * TURN_MESSAGES)
    given = iter(pieces)

    def converse(memory: Memory, messages: list[dict[str, str]]) -> None:
        memory.put_messages(messages)
        memory.flush(all=True)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(events_each):
            turns = [list(islice(given, TURN_MESSAGES)) for _ in memories]
            list(threads.map(converse, memories, turns))
    return memories


def wait_until_applied(ground: Ground, *, seconds: float) -> None:
    """Until nothing is due any more."""
    with ground.connection() as connection:
        wait_until(
            lambda: connection.execute("SELECT EXISTS (SELECT FROM strandline.due)").fetchall() == [(False,)],
            seconds=seconds,
            pause=0.1,
        )


def close(memories: list[Memory]) -> None:
    """They share pool and bell; the bell publishes what waits."""
    time.sleep(0.1)
    memories[0].close()
