"""Plays a conversation: each message is put by itself, and read back as a chat backend would."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strandline.cli.demo.observer import Look
from strandline.cli.terminal.interrupts import Interrupts
from strandline.memory import Memory
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.values.message import Message

_PAUSE_SECONDS = 0.05


@dataclass
class Samples:
    """The measurements: milliseconds per put and per get, and the size of each read in tokens.

    ``over_budget`` counts reads that said so, ``unexplained`` those above the limit that did not.
    """

    put_ms: list[float] = field(default_factory=list)
    get_ms: list[float] = field(default_factory=list)
    get_tokens: list[int] = field(default_factory=list)
    over_budget: int = 0
    unexplained: int = 0

    def add_get(self, milliseconds: float, context: MemoryContext, token_limit: int) -> None:
        self.get_ms.append(milliseconds)
        self.get_tokens.append(context.tokens)
        self.over_budget += context.over_budget
        self.unexplained += context.tokens > token_limit and not context.over_budget


@dataclass(frozen=True, slots=True)
class Played:
    """The play: what was measured, how long it took, and when the last put returned (monotonic)."""

    samples: Samples
    seconds: float
    ended_at: float


def play(
    memory: Memory,
    messages: Sequence[Message],
    *,
    reads: int,
    pace_seconds: float,
    on_put: Callable[[int, float], None],
    interrupts: Interrupts,
) -> Played:
    """Put every message in turn, and read at ``reads`` user messages spread over them.

    ``on_put`` gets the number of messages put and the milliseconds that the last one took.
    """
    samples = Samples()
    read_at = _read_points(messages, reads)
    began = time.monotonic()
    for number, message in enumerate(messages, start=1):
        started = time.perf_counter()
        memory.put(message)
        samples.put_ms.append((time.perf_counter() - started) * 1000)
        on_put(number, samples.put_ms[-1])
        if number in read_at:
            timed_get(memory, message.text, samples)
        interrupts.pause(pace_seconds)
    ended = time.monotonic()
    return Played(samples, ended - began, ended)


def timed_get(memory: Memory, query: str, samples: Samples) -> MemoryContext:
    """One read, measured."""
    started = time.perf_counter()
    context = memory.get(query)
    samples.add_get((time.perf_counter() - started) * 1000, context, memory.token_limit)
    return context


def await_consumed(
    look: Callable[[], Look],
    pipelines: Sequence[str],
    *,
    since: float,
    patience_seconds: Callable[[], float],
    interrupts: Interrupts,
) -> tuple[Look, float | None]:
    """Wait until every event is consumed by all ``pipelines``.

    Args:
        since: the monotonic time that the returned seconds count from.
        patience_seconds: for how long to wait for a next event; asked again and again, as that may change.

    Returns:
        The last look, and the seconds it took; None if no next event came in time.
    """
    before, moved_at = -1, since
    while True:
        seen, now = look(), time.monotonic()
        done = sum(seen.consumed_by(pipeline) for pipeline in pipelines)
        if not seen.count_unconsumed(pipelines):
            return seen, now - since
        if done > before:
            before, moved_at = done, now
        elif now - moved_at > patience_seconds():
            return seen, None
        interrupts.pause(_PAUSE_SECONDS)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of all do not exceed; 0 for none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _read_points(messages: Sequence[Message], reads: int) -> frozenset[int]:
    asked = [number for number, message in enumerate(messages, start=1) if message.role == "user"]
    step = max(1, math.ceil(len(asked) / max(1, reads)))
    return frozenset(asked[::step])
