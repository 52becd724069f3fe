"""Reads of a long window, with facts, summary and search, against the bare SELECT of the same rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from unittest.mock import patch

from bench.cases.bare import BARE_SELECT, SESSION
from bench.environment import Ground, NotMeasuredError
from bench.figures import Figure, Goal, of_times
from bench.size import Size
from bench.turns import Call, pair
from strandline import FactExtractionMemoryBlock, Memory, SummaryMemoryBlock
from strandline.producers.tokens import count_default
from strandline.schemas.values.policy import DEFAULT_HISTORY_RATIO

QUESTION = "How long and how wide is the boat?"
CACHES = ("STRANDLINE_WINDOW_CACHE_BYTES", "STRANDLINE_INDEX_CACHE_BYTES")


def measure_get(ground: Ground, size: Size) -> Iterator[Figure]:
    """Read again, never read before, with search, and after one more put."""
    session_id, limits = filled_session(ground, size)
    again, searching = (
        memory_of(ground, session_id, limits),
        memory_of(ground, session_id, limits, search=True),
    )
    with without_cache():
        first = memory_of(ground, session_id, limits)
    messages = cycle(ground.messages)
    window = len(again.get().messages)
    with bare_select(ground, session_id) as select:
        get = Gets("get", f"get of {window} messages, facts, summary", select, size)
        yield get.figure("read again", again.get, goal=Goal(2))
        yield get.figure("never read before", first.get, goal=Goal(3.3))
        yield get.figure("with search, read again", lambda: searching.get(QUESTION))
        # Last, since the window grows.
        yield get.figure("after one more put", again.get, before=lambda: again.put(next(messages)))


class Gets:
    """Figures of one kind of read."""

    def __init__(self, case: str, name: str, select: Call, size: Size) -> None:
        self._case = case
        self._name = name
        self._select = select
        self._size = size

    def figure(self, how: str, get: Call, *, before: Call | None = None, goal: Goal | None = None) -> Figure:
        count = self._size.gets // 2 if before else self._size.gets
        pairs = [pair(get, self._select, count, before=before) for _ in range(self._size.repetitions + 1)]
        return of_times(self._case, f"{self._name}: {how}", "SELECT of the window", pairs[1:], goal=goal)


def filled_session(ground: Ground, size: Size, *, user_id: str | None = None) -> tuple[str, tuple[int, int]]:
    """A session with flushed history, facts and summary derived, and the window asked for; and its limits.

    Two and a half windows cross the mark, and one and a half of them are flushed.
    """
    messages = ground.some_messages(4 * size.window)
    tokens = [count_default(message["content"]) for message in messages]
    mark, flushed = sum(tokens[: 5 * size.window // 2]), sum(tokens[: 3 * size.window // 2])
    limits = (math.ceil(mark / DEFAULT_HISTORY_RATIO), flushed)
    memory = ground.memory(user_id=user_id, token_limit=limits[0], token_flush_size=limits[1], consuming=True)
    for message in messages:
        seq = memory.put(message)
        if seq > 2 * size.window and ground.rows("SELECT FROM strandline.flush_event"):
            break
    if not memory.get(wait_for=seq, timeout=60).caught_up:
        raise NotMeasuredError("facts and summary of the session were not derived within 60 s")
    memory.close()  # with it ends the thread that derives
    ground.analyze()
    return memory.session_id, limits


def memory_of(ground: Ground, session_id: str, limits: tuple[int, int], *, search: bool = False) -> Memory:
    blocks = None if search else [FactExtractionMemoryBlock(), SummaryMemoryBlock()]
    return ground.memory(
        session_id=session_id, blocks=blocks, token_limit=limits[0], token_flush_size=limits[1]
    )


@contextmanager
def bare_select(ground: Ground, session_id: str) -> Iterator[Call]:
    with ground.connection() as connection:
        (keys,) = connection.execute(SESSION, [session_id]).fetchall()
        yield lambda: connection.execute(BARE_SELECT, keys, prepare=True).fetchall()


@contextmanager
def without_cache() -> Iterator[None]:
    """Memories made within keep nothing that they read."""
    with patch.dict(os.environ, dict.fromkeys(CACHES, "0")):
        yield
