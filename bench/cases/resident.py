"""The memory that a worker holds, early and late in its life."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from string import ascii_lowercase

from bench.cases.backlog import TURN_MESSAGES, close, fill, wait_until_applied
from bench.environment import Ground
from bench.figures import Figure, Goal, of_values
from bench.processes import Process, model_server, worker
from bench.size import Size

# What such a worker may hold, in megabytes.
BOUNDS = {"http": ("models over HTTP", 200.0), "local": ("the local embedder", 256.0)}
EVENTS_EACH = 10
SECONDS_PER_EVENT = 0.5


def measure_memory(ground: Ground, size: Size) -> Iterator[Figure]:
    """A worker's resident memory after many events, against few; models over HTTP, and the local embedder."""
    with model_server(0) as model:
        for embedder in size.embedders:
            name, megabytes = BOUNDS[embedder]
            environment = model.environment(embedding=embedder == "http")
            with (
                ground.fresh(registered=False) as own,
                worker(own, environment, concurrency=16) as process,
            ):
                early = _held(own, process, 0, size.events_early)
                late = _held(own, process, size.events_early, size.events_late)
            after = f"after {size.events_late:,} events, {name}"
            yield of_values(
                "memory", after, f"after {size.events_early:,}", "MB", [(late, early)], goal=Goal(1.1)
            )
            yield of_values("memory", after, f"{megabytes:g} MB", "MB", [(late, megabytes)], goal=Goal(1))


def _held(ground: Ground, process: Process, done: int, events: int) -> float:
    """Megabytes once so many events have been applied."""
    sessions = -(-(events - done) // EVENTS_EACH)
    each = min(EVENTS_EACH, events - done)
    said = _said_once(ground, done * TURN_MESSAGES, sessions * each * TURN_MESSAGES)
    memories = fill(said, sessions=sessions, events_each=each)
    wait_until_applied(ground, seconds=60 + events * SECONDS_PER_EVENT)
    close(memories)
    return process.resident_megabytes()


def _said_once(ground: Ground, first: int, messages: int) -> Ground:
    """Messages with a different word in each, so that a process that keeps texts or words shows it."""
    pieces = enumerate(ground.some_pieces(messages), start=first)
    return replace(
        ground,
        pieces=tuple(piece | {"content": f"{piece['content']} {_word(number)}"} for number, piece in pieces),
    )


def _word(number: int) -> str:
    """One of half a million words of four letters."""
    return "".join(ascii_lowercase[number // 26**place % 26] for place in range(4))
