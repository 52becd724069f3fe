"""What is measured, each against the plain statement beside it, one call in flight, in turns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg

from bench.figures import Pair, Result, result
from bench.ground import Ground
from strandline import FactExtractionMemoryBlock, Memory, SummaryMemoryBlock

PUTS = 300
GETS = 40
WINDOW_MESSAGES = 400
TURN = 20
CROSSING_PUTS = 560
SHORT_HISTORY, LONG_HISTORY, PUT_AT_ONCE = 500, 10_000, 500

BARE_INSERT = "INSERT INTO bare (session_key, seq, role, tokens, envelope) VALUES (%s, %s, %s, %s, %s)"
BARE_SELECT = """
SELECT seq, id, role, tokens, created_at, envelope::text, metadata::text FROM strandline.message
WHERE shard_key = %s AND session_key = %s AND seq >= %s ORDER BY seq
"""
# Which put recorded a flush: the last message accepted before its event.
CROSSING_SEQS = """
SELECT DISTINCT (SELECT max(m.seq) FROM strandline.message m
    WHERE m.shard_key = e.shard_key AND m.session_key = e.session_key AND m.created_at <= e.created_at)
FROM strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)
WHERE s.session_id = %s
"""
SESSION = "SELECT shard_key, session_key, window_from FROM strandline.session WHERE session_id = %s"


def measure_put(ground: Ground, repetitions: int) -> list[Result]:
    """A put far below the mark, against one prepared INSERT of the same message into a bare table."""
    with ground.connection() as connection:
        pairs = [_put_pair(ground, connection) for _ in range(repetitions + 1)][1:]  # the first one warms up
    return [
        result("put", "bare INSERT, p50", pairs),
        result("put", "bare INSERT, p99", pairs, rank=99, against_rank=99),
    ]


def measure_get(ground: Ground, repetitions: int) -> list[Result]:
    """Reads of a window of 400 to 500 messages, against one SELECT of these messages."""
    session_id = _filled_session(ground)
    derived = ground.memory(session_id=session_id, blocks=[FactExtractionMemoryBlock(), SummaryMemoryBlock()])
    searching = ground.memory(session_id=session_id)
    with ground.connection() as connection:
        keys = connection.execute(SESSION, [session_id]).fetchall()[0]

        def select() -> None:
            connection.execute(BARE_SELECT, keys, prepare=True).fetchall()

        def search() -> None:
            searching.get("How long and how wide is the boat?")

        pairs = [_in_turns(derived.get, select, GETS) for _ in range(repetitions + 1)][1:]
        search_pairs = [_in_turns(search, select, GETS) for _ in range(repetitions + 1)][1:]
    _end(derived, searching)
    against = "SELECT of the window, p50"
    return [
        result("get, facts and summary", against, pairs),
        result("get, facts, summary and search", against, search_pairs),
    ]


def measure_crossing(ground: Ground, repetitions: int) -> list[Result]:
    """Puts that cross the mark, which plan and record the flush, against those that do not."""
    pairs = [_crossing_pair(ground) for _ in range(repetitions + 1)][1:]
    return [
        result("put that crosses the mark", "other puts, p50", pairs),
        result("put that crosses the mark", "other puts, p50", pairs, rank=90),
    ]


def measure_history(ground: Ground, repetitions: int) -> list[Result]:
    """Reads of a session with much history below its window, against one with little."""
    short, long = (_archived_session(ground, messages) for messages in (SHORT_HISTORY, LONG_HISTORY))
    ground.analyze()
    pairs = [_in_turns(long.get, short.get, GETS) for _ in range(repetitions + 1)][1:]
    _end(short, long)
    return [result(f"get, {LONG_HISTORY:,} messages of history", f"{SHORT_HISTORY:,} of history, p50", pairs)]


def _put_pair(ground: Ground, connection: psycopg.Connection[tuple[Any, ...]]) -> Pair:
    memory = ground.memory(blocks=[], token_limit=1_000_000)
    messages = iter(ground.some_messages(PUTS + 1))
    rows = iter(list(enumerate(ground.some_messages(PUTS), start=1)))
    key = uuid4()
    memory.put(next(messages))  # the session's first put claims it

    def insert() -> None:
        seq, message = next(rows)
        envelope = json.dumps({"content": message["content"]}, ensure_ascii=False)
        connection.execute(BARE_INSERT, [key, seq, message["role"], 40, envelope], prepare=True)

    pair = _in_turns(lambda: memory.put(next(messages)), insert, PUTS)
    _end(memory)
    return pair


def _filled_session(ground: Ground) -> str:
    """A session with flushed history, facts and summary derived, and 400 to 500 messages in its window."""
    memory = ground.memory(consuming=True)
    for message in ground.some_messages(3 * WINDOW_MESSAGES):
        seq = memory.put(message)
    while len(window := memory.get(wait_for=seq, timeout=30).messages) < WINDOW_MESSAGES:
        seq = memory.put(ground.messages[len(window) % len(ground.messages)])
    session_id = memory.session_id
    _end(memory)
    ground.analyze()
    return session_id


def _archived_session(ground: Ground, messages: int) -> Memory:
    """A session that was put to so often, and whose window is small: the rest lies below it."""
    memory = ground.memory(blocks=[], token_limit=4_000, token_flush_size=700)
    for _ in range(messages // PUT_AT_ONCE):
        memory.put_messages(ground.some_messages(PUT_AT_ONCE))
    return memory


def _crossing_pair(ground: Ground) -> Pair:
    memory = ground.memory(token_limit=4_000, token_flush_size=700)
    seconds: dict[int, float] = {}
    for message in ground.some_messages(CROSSING_PUTS):
        began = time.perf_counter()
        seq = memory.put(message)
        seconds[seq] = time.perf_counter() - began
    with ground.connection() as connection:
        crossing = {row[0] for row in connection.execute(CROSSING_SEQS, [memory.session_id])}
    _end(memory)
    # The first put of a session makes it, in three round trips.
    others = [taken for seq, taken in seconds.items() if seq not in crossing and seq > 1]
    return Pair([seconds[seq] for seq in sorted(crossing)], others)


def _in_turns(measured: Callable[[], object], against: Callable[[], object], calls: int) -> Pair:
    """Time both, a few calls of one and then of the other, so that what disturbs the machine meets both."""
    pair: tuple[list[float], list[float]] = ([], [])
    for _ in range(calls // TURN):
        for call, taken in zip((measured, against), pair, strict=True):
            for _ in range(TURN):
                began = time.perf_counter()
                call()
                taken.append(time.perf_counter() - began)
    return Pair(*pair)


def _end(*memories: Memory) -> None:
    for memory in memories:
        memory.close()
