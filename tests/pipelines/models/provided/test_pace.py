"""The pace of a provider that refuses calls without saying for how long: few refusals, and no idle window."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.engine.stage import database_of_call
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.models.provided.pace import Pace, ProviderPace
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import Lane
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from strandline.workers.worker import Worker
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.stored import dead_letters, live_facts
from tests.support.workers.draining import due_lanes

REFUSAL = Raw(429, json.dumps({"error": {"message": "Rate limit reached", "code": None}}).encode())
SOON = (("Retry-After", "0"),)


class LimitedServer:
    """A server with a limit of calls in any window of time; those that it refuses count as well."""

    def __init__(self, limit: int, window_seconds: float) -> None:
        self.limit, self.window = limit, window_seconds
        self.calls: deque[float] = deque()
        self.answered = self.refused = 0

    def takes(self, now: float) -> bool:
        while self.calls and self.calls[0] <= now - self.window:
            self.calls.popleft()
        self.calls.append(now)
        is_taken = len(self.calls) <= self.limit
        self.answered += is_taken
        self.refused += not is_taken
        return is_taken

    def respond(self, _request: RecordedRequest) -> Raw | None:
        return None if self.takes(time.monotonic()) else REFUSAL


@given(limit=st.integers(5, 40), needed=st.integers(40, 200), at_once=st.integers(1, 4))
def test_a_limit_costs_few_refusals_and_hardly_any_time(limit: int, needed: int, at_once: int) -> None:
    server, pace, now = LimitedServer(limit, 60.0), Pace(60.0), 1000.0
    for _step in range(100 * needed):
        if server.answered >= needed:
            break
        waits = [pace.take(now) for _call in range(at_once)]  # all begin before the first may be refused
        for _call in range(waits.count(0.0)):
            if not server.takes(now):
                pace.note_refusal(now)
        now += max(0.01, *waits, 0.0) if 0.0 not in waits else 0.01
    assert server.answered >= needed
    assert server.refused <= 0.3 * needed + 4 * at_once
    assert now - 1000.0 <= 1.5 * 60.0 * -(-needed // limit) + 120.0


@given(st.lists(st.tuples(st.floats(-100, 100), st.booleans()), max_size=60))
def test_no_wait_is_longer_than_a_window_whatever_the_clock_did(steps: list[tuple[float, bool]]) -> None:
    pace, now = Pace(10.0), 1000.0
    for seconds, is_refused in steps:
        now += seconds
        assert 0 <= pace.take(now) <= 11.0
        if is_refused:
            pace.note_refusal(now)


@pytest.fixture
def in_a_worker(database: Database) -> Iterator[None]:
    token = database_of_call.set(database)
    yield
    database_of_call.reset(token)


@pytest.mark.usefixtures("in_a_worker")
def test_processes_that_were_refused_keep_one_pace_and_others_ask_nobody(database_url: str) -> None:
    clock = [100.0]
    first, second, third = (ProviderPace(60.0, "s", lambda: clock[0]) for _process in range(3))
    for process in (first, second):
        assert [process.take() for _call in range(5)] == [0.0] * 5
    assert rows_of(database_url, "SELECT count(*) FROM strandline.replay_budget") == [(0,)], (
        "nothing is known"
    )
    assert first.note_refusal() > 0, "four of its own were taken"
    assert second.note_refusal() > 0
    rows = rows_of(database_url, "SELECT namespace, pace FROM strandline.replay_budget")
    assert [name for name, _pace in rows] == ["server s"]
    pace = json.loads(rows[0][1])
    assert (len(pace["calls"]), len(pace["refusals"]), pace["limit"]) == (10, 2, 8)
    assert first.take() > 0 and second.take() > 0
    assert third.take() == 0, "it was not refused, and looks nowhere"
    assert (
        len(json.loads(rows_of(database_url, "SELECT pace FROM strandline.replay_budget")[0][0])["calls"])
        == 10
    )


@pytest.mark.usefixtures("in_a_worker")
def test_a_limit_that_is_forgotten_is_looked_for_no_more(database_url: str) -> None:
    pace = ProviderPace(60.0, "s")
    for _call in range(5):
        pace.take()
    pace.note_refusal()
    forgotten = json.dumps(asdict(Pace(60.0, limit=4, raised_at=1.0, refused_at=1.0)))
    assert rows_of(database_url, "UPDATE strandline.replay_budget SET pace = %s RETURNING 1", forgotten)
    assert pace.take() == 0
    assert rows_of(database_url, "DELETE FROM strandline.replay_budget RETURNING 1") == [(1,)]
    assert pace.take() == 0
    assert rows_of(database_url, "SELECT count(*) FROM strandline.replay_budget") == [(0,)]


def test_calls_begin_a_few_at_a_time_until_others_are_answered() -> None:
    clock = [100.0]
    pace = ProviderPace(60.0, "", lambda: clock[0])
    assert [pace.begin() for _call in range(3)] == [0.0] * 3
    assert 0 < pace.begin() < pace.begin()
    for _call in range(6):
        pace.end(is_answered=True)
    assert [pace.begin() for _call in range(8)] == [0.0] * 8, "twice as many as were answered"
    for _call in range(100):
        pace.end(is_answered=True)
    clock[0] += 60
    assert [pace.begin() > 0 for _call in range(6)] == [False] * 3 + [True] * 3, "after a rest"


@pytest.fixture
def paced_settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    return load_settings(
        database_url=database_url, embedding_dimensions=8, retry_base_seconds=0.05, retry_max_seconds=2.0
    )


def put_thirty_sessions(rig: Rig, **options: str) -> None:
    for number in range(30):
        blocks = ["facts", "summary"]
        memory = rig.memory(f"s{number}", user_id=f"u{number}", memory_blocks=blocks, **options)
        memory.put({"role": "user", "content": f"I own boat {number}."})
        memory.flush(all=True)


def see_that_all_is_done(rig: Rig, server: LimitedServer) -> None:
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="all work")
    assert server.answered == 60, "one extraction and one summary each"
    assert server.answered + server.refused <= 1.3 * 60
    assert live_facts(rig.url) == 30
    assert dead_letters(rig.url) == 0
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("headers", [(), SOON], ids=["no wait", "a wait of nothing"])
def test_thirty_sessions_at_a_limit_cost_few_requests_more_than_they_need(
    rig: Rig, paced_settings: Settings, headers: tuple[tuple[str, str], ...]
) -> None:
    server = LimitedServer(10, 2.0)
    refusal = replace(REFUSAL, headers=headers)
    rig.model.behave(responder=lambda request: server.respond(request) and refusal)
    runner = BackgroundRunner(rig.database, prepare_stages(rig.database, paced_settings), paced_settings)
    put_thirty_sessions(rig)
    runner.start()
    try:
        see_that_all_is_done(rig, server)
    finally:
        runner.stop()


def test_so_they_do_with_three_processes_of_workers(rig: Rig) -> None:
    server = LimitedServer(10, 4.0)
    rig.model.behave(responder=server.respond)
    environment = {
        "OPENAI_BASE_URL": rig.model.base_url,
        "STRANDLINE_EMBEDDING_BACKEND": "local",
        "STRANDLINE_TEXT_BACKEND": "openai",
        "STRANDLINE_RETRY_BASE_SECONDS": "0.1",
        "STRANDLINE_RETRY_MAX_SECONDS": "4",
    }
    for _process in range(3):
        rig.start_worker(**environment)
    put_thirty_sessions(rig, broker_url=rig.broker_url)
    see_that_all_is_done(rig, server)


def test_a_hint_that_came_while_the_provider_waited_is_rung_for_again(
    rig: Rig, paced_settings: Settings
) -> None:
    """The sweep would wait longer with each such hint, and miss windows of the limit."""
    rig.model.behave(status=429, retry_after="1", times=1)
    memory = rig.memory("s", user_id="u", memory_blocks=["facts"])
    memory.put({"role": "user", "content": "I own a boat."})
    memory.flush(all=True)
    rung: list[Lane] = []
    stages = prepare_stages(rig.database, paced_settings)
    worker = Worker(rig.database, stages, paced_settings, ring=rung.extend, with_sweep=False)
    worker.start()
    (lane,) = due_lanes(rig.url)
    for _hint in range(3):
        worker.take_up(lane)
    wait_until(lambda: bool(rung), timeout=30, what="a ring")
    worker.stop()
    assert rung == [lane]
    assert len(rig.model.requests) == 1


class Died(BaseException):
    """The end of a process."""


def test_workers_that_die_at_a_limit_lose_and_double_nothing(rig: Rig, paced_settings: Settings) -> None:
    server = LimitedServer(4, 1.0)
    rig.model.behave(responder=server.respond)
    for number in range(8):
        memory = rig.memory(f"s{number}", user_id=f"u{number}", memory_blocks=["facts"])
        memory.put({"role": "user", "content": f"I own boat {number}."})
        memory.flush(all=True)

    def die(point: str) -> None:
        if points and points.pop() == point:
            raise Died

    # Of five points that a lane passes, some are the last of a process.
    points = ["", "called", "", "", "", "applying", "stored", "", "", "called", "loaded"] * 2
    for _process in range(4):
        worker = Worker(
            rig.database,
            prepare_stages(rig.database, paced_settings),
            paced_settings,
            ring=lambda _lanes: None,
            with_sweep=False,
            reach=die,
        )
        worker.start()
        for lane in due_lanes(rig.url):
            with suppress(Died):
                worker.drain(lane)
        worker.stop()
    runner = BackgroundRunner(rig.database, prepare_stages(rig.database, paced_settings), paced_settings)
    runner.start()
    try:
        wait_until(lambda: nothing_due(rig.url), timeout=30, what="all work")
    finally:
        runner.stop()
    assert live_facts(rig.url) == 8
    assert verify(rig.database, deep=True).violations == ()
