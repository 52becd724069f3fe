"""The sweep: finds work whose hint was lost, flushes what no put flushed; several do no harm."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
import pytest

from strandline.pipelines.engine.batches import claim
from strandline.pipelines.engine.leases import LeaseTerms
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.query import Query
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import STAGES, Lane
from strandline.workers.periodic import Periodic
from strandline.workers.sweep import Sweep
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.support.workers.draining import due_lanes
from tests.support.workers.hand_worker import HandWorker, counting, say, summary_lane

R = TypeVar("R")


def sweep_of(
    database: Database,
    rung: list[Lane],
    *,
    stages: Sequence[str] = STAGES,
    batch_size: int = 200,
    is_busy: Callable[[], bool] = lambda: False,
) -> Sweep:
    return Sweep(
        database,
        ring=rung.extend,
        take_over=rung.extend,
        stages=stages,
        batch_size=batch_size,
        dead_after_seconds=1_800.0,
        is_busy=is_busy,
    )


def make_ripe(url: str) -> None:
    """As if the time to ring had come."""
    rows_of(url, "UPDATE strandline.due SET ring_at = clock_timestamp() - interval '1 second' RETURNING 1")


def make_older(url: str, seconds: float, session_id: str = "s") -> None:
    """As if a session's last put, and what was planned at it, had been so long ago."""
    rows_of(
        url,
        "WITH aged AS (UPDATE strandline.session SET last_put_at = last_put_at - make_interval(secs => %s),"
        " watched_until = watched_until - make_interval(secs => %s) WHERE session_id = %s"
        " RETURNING shard_key, session_key)"
        " UPDATE strandline.watch w SET check_at = w.check_at - make_interval(secs => %s) FROM aged"
        " WHERE w.shard_key = aged.shard_key AND w.session_key = aged.session_key RETURNING 1",
        seconds,
        seconds,
        session_id,
        seconds,
    )


def events(url: str) -> list[tuple[Any, ...]]:
    return rows_of(url, "SELECT cause, from_seq, through_seq FROM strandline.flush_event ORDER BY 2")


def watches(url: str) -> int:
    return int(rows_of(url, "SELECT count(*) FROM strandline.watch")[0][0])


def test_work_that_nobody_took_up_is_rung_for_with_a_growing_wait(rig: Rig) -> None:
    say(rig.memory("s", memory_blocks=["summary"]), "one", "two")
    rung: list[Lane] = []
    sweep = sweep_of(rig.database, rung)
    sweep.tick()
    assert rung == [], "whoever was rung for at the flush gets two seconds"
    waits = []
    for _time in range(6):
        make_ripe(rig.url)
        rung.clear()
        sweep.tick()
        assert rung == due_lanes(rig.url), "once per lane, however many events"
        wait = "SELECT max(extract(epoch FROM ring_at - clock_timestamp()))::float8 FROM strandline.due"
        waits.append(rows_of(rig.url, wait)[0][0])
        sweep.tick()
        assert len(rung) == 1, "not again before its time"
    assert waits[0] < 3
    assert all(5.5 < wait <= 10 for wait in waits[3:])


def test_a_busy_worker_rings_seldom_and_a_free_one_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    say(rig.memory("s", memory_blocks=["summary"]), "one")
    rung: list[Lane] = []
    busy = True
    sweep = sweep_of(rig.database, rung, is_busy=lambda: busy)

    def rings() -> bool:
        make_ripe(rig.url)
        rung.clear()
        sweep.tick()
        return rung == due_lanes(rig.url)

    assert rings(), "it has not rung for long"
    assert not rings(), "what is due waits in the queue already"
    busy = False
    assert rings()
    busy = True
    assert not rings()
    monkeypatch.setattr("strandline.workers.sweep.BUSY_RING_SECONDS", 0.0)
    assert rings(), "a lost hint does not wait for the end of a backlog"


def test_a_sweep_rings_for_the_stages_it_serves(rig: Rig) -> None:
    say(rig.memory("s"), "one")
    make_ripe(rig.url)
    rung: list[Lane] = []
    sweep_of(rig.database, rung, stages=["vectors", "merge"]).tick()
    assert [lane.stage for lane in rung] == ["vectors"]


def test_what_a_dead_worker_held_is_rung_for_at_once(rig: Rig) -> None:
    say(rig.memory("s", memory_blocks=["summary"]), "one")
    lane = summary_lane(rig.url, "s")
    holder, rung = HandWorker(rig.database, counting()), list[Lane]()
    assert claim(rig.database, lane, holder.worker_id, LeaseTerms(5.0, 60.0), 8_000) is not None
    sweep = sweep_of(rig.database, rung)
    sweep.tick()
    assert rung == [], "its holder lives"
    holder.die(rig.url)
    sweep.tick()
    assert rung == [lane], "before the row itself would be rung for"
    HandWorker(rig.database, counting()).drain(lane)
    rung.clear()
    sweep.tick()
    assert rung == []


def test_sweeps_at_once_ring_once_for_each_lane(rig: Rig) -> None:
    for number in range(30):
        say(rig.memory(f"s{number}", memory_blocks=["summary"]), "one")
    make_ripe(rig.url)
    rung: list[Lane] = []
    with ThreadPoolExecutor(6) as pool:
        for _time in range(3):
            list(pool.map(lambda _n: sweep_of(rig.database, rung, batch_size=4).tick(), range(6)))
    assert len(rung) == 30
    assert set(rung) == set(due_lanes(rig.url))


def test_one_tick_is_bounded(make_memory: MakeMemory, database: Database, database_url: str) -> None:
    for number in range(12):
        say(make_memory(f"s{number}", memory_blocks=["summary"]), "one")
    make_ripe(database_url)
    rung: list[Lane] = []
    counts = []
    for _time in range(4):
        before = len(rung)
        sweep_of(database, rung, batch_size=5).tick()
        counts.append(len(rung) - before)
    assert counts == [5, 5, 2, 0]


def test_what_a_worker_is_just_writing_is_passed_over(rig: Rig) -> None:
    say(rig.memory("s", memory_blocks=["summary"]), "one")
    (lane,) = due_lanes(rig.url)
    rung: list[Lane] = []
    swept: list[int] = []

    def sweep(point: str) -> None:
        if point == "applying":
            # Within the worker's transaction, whose end it cannot wait for: they are one thread.
            sweep_of(rig.database, rung).tick()
            swept.append(len(rung))

    make_ripe(rig.url)
    assert HandWorker(rig.database, counting(), reach=sweep).drain(lane) == "drained"
    assert rung == []
    assert swept == [0]


def test_an_idle_session_is_delivered_once_and_its_window_stays(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["summary"], idle_seconds=60)
    for text in ("one", "two"):
        memory.put({"role": "user", "content": text})
    rung: list[Lane] = []
    sweep = sweep_of(rig.database, rung)
    sweep.tick()
    assert events(rig.url) == []
    make_older(rig.url, 61)
    sweep.tick()
    sweep.tick()
    assert events(rig.url) == [("idle", 1, 2)]
    assert [lane.stage for lane in rung] == ["summary"], "rung for at once"
    assert [message.text for message in memory.get() if message.seq] == ["one", "two"]
    assert watches(rig.url) == 0
    # Another idle period delivers only what came in it.
    memory.put({"role": "user", "content": "three"})
    make_older(rig.url, 61)
    sweep.tick()
    assert events(rig.url) == [("idle", 1, 2), ("idle", 3, 3)]


def test_a_put_postpones_idleness_without_another_watch(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["summary"], idle_seconds=60)
    memory.put({"role": "user", "content": "one"})
    make_older(rig.url, 40)
    memory.put({"role": "user", "content": "two"})
    assert watches(rig.url) == 1
    make_older(rig.url, 30)
    sweep = sweep_of(rig.database, [])
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _n: sweep_of(rig.database, []).tick(), range(6)))
    assert events(rig.url) == [], "the last put was 30 seconds ago"
    assert watches(rig.url) == 1, "looked at by six, and planned once"
    memory.put({"role": "user", "content": "three"})
    assert watches(rig.url) <= 2
    make_older(rig.url, 61)
    sweep.tick()
    sweep.tick()
    assert events(rig.url) == [("idle", 1, 3)]
    assert watches(rig.url) == 0


def test_many_sweeps_deliver_an_idle_session_once(rig: Rig) -> None:
    for number in range(10):
        memory = rig.memory(f"s{number}", memory_blocks=["summary"], idle_seconds=60)
        memory.put({"role": "user", "content": "one"})
        make_older(rig.url, 61, f"s{number}")
    rung: list[Lane] = []
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _n: sweep_of(rig.database, rung).tick(), range(6)))
    assert events(rig.url) == [("idle", 1, 1)] * 10
    assert len(rung) == 10
    assert watches(rig.url) == 0


def test_an_idle_delivery_that_loses_to_a_flush_by_hand_delivers_the_rest(rig: Rig) -> None:
    """The flush keeps the last turn, and no sweep would look again for what it left."""
    memory = rig.memory("s", memory_blocks=["summary"], idle_seconds=60)
    for role, text in (("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")):
        memory.put({"role": role, "content": text})
    make_older(rig.url, 61)

    class Rival(Database):
        """Flushes by hand between the plan of the idle delivery and its flush."""

        flushed = False

        def fetch(self, query: Query[R]) -> list[R]:
            if query.name == "flush" and not self.flushed:
                self.flushed = True
                assert len(memory.flush()) == 1
            return super().fetch(query)

    rival = Rival.connect(ConnectionOptions.from_settings(rig.url, load_settings()))
    rung: list[Lane] = []
    sweep_of(rival, rung).tick()
    rival.close()
    assert events(rig.url) == [("manual", 1, 2), ("idle", 3, 4)]
    assert len(rung) == 1
    assert watches(rig.url) == 0


def test_a_crossing_that_nobody_flushed_is_made_up_for(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["summary"], tokenizer_fn=lambda _text: 10, idle_seconds=None)
    for number in range(8):
        memory.put({"role": "user", "content": str(number)})
    # As if the put that crossed had died: its session is over the mark, and its watch is ripe.
    rows_of(rig.url, "UPDATE strandline.session SET flush_at_tokens = 40, token_flush_size = 20 RETURNING 1")
    rows_of(
        rig.url,
        "INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)"
        " SELECT shard_key, session_key, 'overdue', clock_timestamp() FROM strandline.session RETURNING 1",
    )
    rung: list[Lane] = []
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _n: sweep_of(rig.database, rung).tick(), range(4)))
    assert events(rig.url) == [("threshold", 1, 2), ("threshold", 3, 4)]
    assert len(rung) == 1
    assert watches(rig.url) == 0


def test_a_watch_on_a_session_that_was_reset_ends(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["summary"], idle_seconds=60)
    memory.put({"role": "user", "content": "one"})
    memory.reset()
    make_older(rig.url, 61)
    sweep_of(rig.database, []).tick()
    assert events(rig.url) == []
    assert watches(rig.url) == 0


def test_a_session_that_cannot_be_flushed_keeps_no_other_waiting(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good"):
        rig.memory(name, memory_blocks=["summary"], idle_seconds=60).put({"role": "user", "content": name})
        make_older(rig.url, 61, name)
    # An event in the way of the bad one's: its flush violates the key, each time.
    rows_of(
        rig.url,
        "INSERT INTO strandline.flush_event SELECT shard_key, session_key, 1, 1, gen_random_uuid(),"
        " incarnation, 'manual', 1, 1, 1 FROM strandline.session WHERE session_id = 'bad' RETURNING 1",
    )
    rung: list[Lane] = []
    sweep_of(rig.database, rung).tick()
    assert len(rung) == 1
    assert ("idle", 1, 1) in events(rig.url)
    assert any(record.message == "session cannot be flushed" for record in caplog.records)
    ripe = "SELECT count(*) FROM strandline.watch WHERE check_at <= clock_timestamp()"
    assert rows_of(rig.url, ripe) == [(0,)], "it comes behind the others for a while"
    assert watches(rig.url) == 1


def test_a_session_that_somebody_holds_locked_keeps_no_other_waiting(rig: Rig) -> None:
    for name in ("held", "free"):
        rig.memory(name, memory_blocks=["summary"], idle_seconds=60).put({"role": "user", "content": name})
        make_older(rig.url, 61, name)
    impatient = rig.settings.model_copy(update={"statement_timeout_seconds": 0.3})
    database = Database.connect(ConnectionOptions.from_settings(rig.url, impatient))
    rung: list[Lane] = []
    with psycopg.connect(rig.url) as caller:
        caller.execute("SELECT 1 FROM strandline.session WHERE session_id = 'held' FOR UPDATE")
        sweep_of(database, rung).tick()
    assert len(rung) == 1
    database.close()


def test_workers_long_dead_are_forgotten(database: Database, database_url: str) -> None:
    HandWorker(database, counting()).die(database_url)
    live = HandWorker(database, counting())
    sweep_of(database, []).tick()
    assert rows_of(database_url, "SELECT worker_id FROM strandline.worker") == [(live.worker_id,)]


def test_periodic_work_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 1:
            raise RuntimeError("a defect")

    with caplog.at_level(logging.ERROR):
        periodic = Periodic("test", 0.01, tick)
        periodic.start()
        wait_until(lambda: len(ticks) > 3, timeout=5, what="it to go on")
        periodic.stop(timeout_seconds=100)
    assert "strandline-test" not in [thread.name for thread in threading.enumerate()]
    assert [record.message for record in caplog.records] == ["periodic work broke"]


def test_kept_responses_are_swept_after_their_day(database: Database, database_url: str) -> None:
    rows_of(
        database_url,
        "INSERT INTO strandline.kept_response (shard_key, request_key, request_digest, status, created_at)"
        " SELECT gen_random_uuid(), gen_random_uuid(), 'x', hours,"
        " clock_timestamp() - make_interval(hours => hours) FROM unnest(ARRAY[1, 23, 25, 48]) AS hours"
        " RETURNING 1",
    )
    sweep_of(database, []).tick()
    kept = rows_of(database_url, "SELECT status FROM strandline.kept_response ORDER BY status")
    assert kept == [(1,), (23,)]
