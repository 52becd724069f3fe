"""A model server that is down: puts and reads do not notice, nothing is condemned, and all is caught up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from strandline import Memory
from tests.conftest import StartWorker, nothing_due, rows_of, wait_until
from tests.model_server import ModelServer

MakeMemory = Callable[..., Memory]

# A longer one is asked for by hand: OUTAGE_SECONDS=60 pytest tests/test_outage.py -m alone
OUTAGE_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "6"))
SESSIONS = 20
PUTS_PER_SECOND = 60


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
            began = time.perf_counter()
            memory.put(message)
            self.seconds.append(time.perf_counter() - began)

    def during(self, seconds: float) -> list[float]:
        """What the puts of the next ``seconds`` take."""
        first = len(self.seconds)
        wait_until(
            lambda: len(self.seconds) >= first + 0.8 * PUTS_PER_SECOND * seconds,
            timeout=5 * seconds,
            what="enough puts",
        )
        return sorted(self.seconds[first:])

    def end(self) -> None:
        self._ended.set()
        self.join()


def environment(server: ModelServer) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": server.base_url,
        "STRANDLINE_EMBEDDING_BACKEND": "local",
        "STRANDLINE_MODEL_TIMEOUT_SECONDS": "2",
    }


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["500", "hang"])
@pytest.mark.timeout(300)
def test_an_outage_of_the_model_costs_nothing_but_its_time(
    kind: str,
    make_memory: MakeMemory,
    start_worker: StartWorker,
    model_server: ModelServer,
    database_url: str,
) -> None:
    start_worker(**environment(model_server))
    limits = {"token_limit": 400, "token_flush_size": 60}
    memories = [make_memory(f"s{n}", user_id=f"u{n % 7}", **limits) for n in range(SESSIONS)]
    load = Load(memories)
    load.start()
    try:
        load.during(2.0)  # warms up
        before = load.during(OUTAGE_SECONDS)
        model_server.behave(hang=True) if kind == "hang" else model_server.behave(status=500)
        asked = len(model_server.requests)
        during = load.during(OUTAGE_SECONDS)
        asked = len(model_server.requests) - asked
        model_server.behave()
    finally:
        load.end()
    began = time.monotonic()
    wait_until(lambda: nothing_due(database_url), timeout=120, what="everything to be caught up")
    caught_up = time.monotonic() - began
    # A few seconds hold too few puts for a steady 99th percentile.
    rank = 0.99 if OUTAGE_SECONDS >= 30 else 0.9
    ratio = during[int(len(during) * rank)] / before[int(len(before) * rank)]
    events = rows_of(database_url, "SELECT count(*) FROM strandline.flush_event")[0][0]
    print(
        f"{kind} for {OUTAGE_SECONDS:g} s: p{rank * 100:g} of puts {ratio:.2f} times that before,"
        f" {asked} requests during it, {events} events, caught up after {caught_up:.1f} s"
    )
    assert rows_of(database_url, "SELECT count(*) FROM strandline.dead_letter") == [(0,)]
    assert rows_of(database_url, "SELECT coalesce(max(failures), 0) FROM strandline.lane") == [(0,)]
    assert ratio <= (1.5 if OUTAGE_SECONDS >= 30 else 3.0)
    assert asked < 100 + 20 * OUTAGE_SECONDS


def test_reads_do_not_wait_for_an_embedder_that_is_down(
    make_memory: MakeMemory, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """The first read finds out, in its time budget; the next ones know."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    config = '{"embedder": "text-embedding-3-small", "dimensions": 256}'
    rows_of(
        database_url,
        "UPDATE strandline.generation SET config = %s WHERE pipeline = 'vectors' RETURNING 1",
        config,
    )
    memory = make_memory("s")
    memory.put({"role": "user", "content": "Herring is what I like."})
    memory.flush(all=True)
    memory.get("What do I like?")  # opens connections, loads the client
    model_server.behave(hang=True)
    took = []
    for _read in range(3):
        began = time.perf_counter()
        context = memory.get("What do I like?")
        took.append(time.perf_counter() - began)
        assert [omission.kind for omission in context.omitted] == ["search_text_only"]
        assert context.to_openai()[-1]["content"] == "Herring is what I like."
    assert took[0] > 0.3 > max(took[1:])
