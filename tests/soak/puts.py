"""Puts wait for nothing but their commit: not for a model, a broker or a worker, whatever these do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from strandline import Memory
from tests.conftest import wait_until
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.soak.measuring.timing import percentile, seconds_of
from tests.support.workers.busy_workers import environment

LIMITS: dict[str, Any] = {"token_limit": 400, "token_flush_size": 60}
NOBODY = "redis://127.0.0.1:1/0"
SESSIONS = 20
PUTS_PER_SECOND = 60
PHASE_SECONDS = 8.0
IN_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND state = 'idle in transaction'"
)


def run(ground: Ground) -> Iterator[Reading]:
    """Puts beside a model that fails, a broker that is away, and a worker stopped in its transaction."""
    yield from _outages(ground)
    yield from _crossing(ground)
    yield from _broker_away(ground)
    yield from _stopped_worker(ground)


class Load(threading.Thread):
    """Puts at a steady pace to a number of sessions, and keeps how long each took."""

    def __init__(self, memories: list[Memory]) -> None:
        super().__init__(daemon=True)
        self._memories = memories
        self._ended = threading.Event()
        self.seconds: list[float] = []

    def run(self) -> None:
        number = 0
        while not self._ended.wait(1 / PUTS_PER_SECOND):
            memory = self._memories[number % len(self._memories)]
            number += 1
            message = {"role": "user", "content": f"I saw {number} gulls at harbour number {number % 97}."}
            self.seconds.append(seconds_of(partial(memory.put, message)))

    def during(self, seconds: float) -> list[float]:
        """How long the puts of about the next ``seconds`` take."""
        first = len(self.seconds)
        wanted = first + 0.8 * PUTS_PER_SECOND * seconds
        wait_until(lambda: len(self.seconds) >= wanted, timeout=5 * seconds, what="enough puts")
        return self.seconds[first:]

    def end(self) -> None:
        self._ended.set()
        self.join()


def _outages(ground: Ground) -> Iterator[Reading]:
    model = ground.model()
    worker = ground.worker(**environment(model, STRANDLINE_MODEL_TIMEOUT_SECONDS="2"))
    for name, trouble in (("answers 500", {"status": 500}), ("never answers", {"hang": True})):
        memories = [ground.memory(f"{name} {n}", user_id=f"u{n % 7}", **LIMITS) for n in range(SESSIONS)]
        load = Load(memories)
        load.start()
        try:
            load.during(2.0)  # warms up
            before = load.during(PHASE_SECONDS)
            model.behave(**trouble)
            asked = model.received
            during = load.during(PHASE_SECONDS)
            asked = model.received - asked
        finally:
            model.behave()
            load.end()
        ratio = percentile(during, 0.9) / percentile(before, 0.9)
        yield Reading(f"p90 of puts while the model {name}, against before", ratio, 3.0, "x")
        yield Reading(
            f"requests to a model that {name}", asked, 100 + 20 * PHASE_SECONDS, f"in {PHASE_SECONDS:g} s"
        )
        caught_up = seconds_of(lambda: wait_until(ground.nothing_due, timeout=30, what="to catch up"))
        yield Reading(f"all is caught up after the model that {name} is well", caught_up, 60.0)
    worker.end()


def _crossing(ground: Ground) -> Iterator[Reading]:
    """Puts that flush, beside those that do not, while each model call takes two seconds."""
    model = ground.model()
    model.behave(latency=2.0)
    worker = ground.worker(**environment(model))
    memory = ground.memory("crossing", user_id="sailor", broker_url=ground.broker_url, **LIMITS)
    _talk(memory, range(5))
    plain: list[float] = []
    crossing: list[float] = []
    for number in range(5, 105):
        before = _events(ground)
        took, _answered = _talk(memory, range(number, number + 1))
        (crossing if _events(ground) != before else plain).append(took)
    model.behave()
    wait_until(ground.nothing_due, timeout=30, what="the worker to be done")
    worker.end()
    yield Reading("p99 of puts that flush, beside a model of 2 s", percentile(crossing, 0.99), 0.25)
    yield Reading("median of puts that flush, against others", median(crossing) / median(plain), 20, "x")


def _broker_away(ground: Ground) -> Iterator[Reading]:
    """In turns, so that what else disturbs the machine meets both."""
    limits: dict[str, Any] = {"token_limit": 200, "token_flush_size": 30}
    memories = ground.memory(**limits), ground.memory(broker_url=NOBODY, **limits)
    turns = [[_talk(memory, range(10)) for memory in memories] for _ in range(6)]
    without, away = ([took for turn in turns for took in turn[at]] for at in range(2))
    ratio = median(away) / median(without)
    yield Reading("median of puts while the broker is away, against none", ratio, 3.0, "x")
    yield Reading("the longest put while the broker is away", max(away), 0.5)


def _stopped_worker(ground: Ground) -> Iterator[Reading]:
    """In units of one row's commit beside it, since a disk has its slow moments."""
    model = ground.model()
    memory = ground.memory("stopped", user_id="stopped", broker_url=ground.broker_url, **LIMITS)
    free, _ = _in_commits(ground, memory, range(40))
    worker = ground.worker(**environment(model), STRANDLINE_STOP_AT="applying:SIGSTOP")
    status = Path(f"/proc/{worker.pid}/status")
    wait_until(lambda: "State:\tT" in status.read_text(), timeout=20, what="the worker to stop")
    wait_until(lambda: ground.rows(IN_TRANSACTION)[0][0], timeout=5, what="its open transaction")
    meanwhile, longest = _in_commits(ground, memory, range(40, 80))
    worker.end()
    yield Reading(
        "median of puts beside a worker stopped in its transaction, against before", meanwhile / free, 3, "x"
    )
    yield Reading("the longest put beside a worker stopped in its transaction", longest, 0.5)


def _in_commits(ground: Ground, memory: Memory, turns: range) -> tuple[float, float]:
    """The median put divided by the median commit of one row, and the longest put in seconds."""
    puts: list[float] = []
    commits: list[float] = []
    with psycopg.connect(ground.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS beside (number bigint)")
        for number in turns:
            puts += _talk(memory, range(number, number + 1))
            commits += [
                seconds_of(lambda: connection.execute("INSERT INTO beside VALUES (1)")) for _ in range(2)
            ]
    return median(puts) / median(commits), max(puts)


def _talk(memory: Memory, turns: range) -> list[float]:
    """Put turns with a fact each; returns how long each put took, in seconds."""
    return [
        seconds_of(partial(memory.put, {"role": role, "content": text}))
        for number in turns
        for role, text in (
            ("user", f"I have visited harbour number {number} with my boat."),
            ("assistant", f"Harbour {number} is noted."),
        )
    ]


def _events(ground: Ground) -> int:
    return int(ground.rows("SELECT count(*) FROM strandline.flush_event")[0][0])
