"""What must hold whatever dies: real worker processes, killed or stopped exactly at a named point."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
import redis

from strandline import Memory, Message, Retention, retention
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.values.lanes import STAGES, Lane, queue_name
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.aging import DAY, age_messages
from tests.support.servers.model_server import ModelServer
from tests.support.stored import dead_letters, flush_events, registered_workers
from tests.support.workers.busy_workers import QUICK_TAKE_OVER, environment
from tests.support.workers.worker_processes import WorkerProcess

LIMITS: dict[str, Any] = {"token_limit": 400, "token_flush_size": 60}


def talk(memory: Memory, turns: int, *, begin: int = 0) -> None:
    """Put turns with a fact each."""
    for number in range(begin, begin + turns):
        for role, text in (
            ("user", f"I have visited harbour number {number} with my boat."),
            ("assistant", f"Harbour {number} is noted."),
        ):
            memory.put({"role": role, "content": text})


def stopped(worker: WorkerProcess) -> bool:
    return "State:\tT" in Path(f"/proc/{worker.pid}/status").read_text()


def check_applied_once(url: str) -> None:
    """Each event has one receipt per stage, one effect per receipt, and no fact stands twice."""
    events = flush_events(url)
    receipts = rows_of(
        url, "SELECT stage, count(*) FROM strandline.receipt WHERE outcome = 'applied' GROUP BY 1"
    )
    assert dict(receipts) == dict.fromkeys(STAGES, events)
    assert rows_of(url, "SELECT text FROM strandline.fact WHERE live GROUP BY 1 HAVING count(*) > 1") == []
    chunks = "SELECT from_seq, piece FROM strandline.chunk GROUP BY session_key, 1, 2 HAVING count(*) > 1"
    assert rows_of(url, chunks) == []
    # Messages that were flushed are in chunks without a gap.
    covered = "SELECT sum(through_seq - from_seq + 1) FROM strandline.chunk WHERE piece = 0"
    delivered = "SELECT sum(message_count) FROM strandline.flush_event"
    assert rows_of(url, covered) == rows_of(url, delivered)
    open_batches = "SELECT count(*) FROM strandline.batch WHERE state = 'open'"
    assert rows_of(url, open_batches) == [(0,)]


def text_calls(server: ModelServer) -> int:
    return sum(request.path.endswith("/chat/completions") for request in server.requests)


@pytest.mark.parametrize("point", get_args(StopPoint))
def test_a_worker_killed_at_any_point_costs_nothing(rig: Rig, point: StopPoint) -> None:
    settings = environment(rig.model, **QUICK_TAKE_OVER)
    doomed = rig.start_worker(**settings, STRANDLINE_STOP_AT=f"{point}:SIGKILL")
    memory = rig.memory(broker_url=rig.broker_url, user_id="sailor", **LIMITS)
    talk(memory, 40)
    wait_until(lambda: doomed.process.poll() is not None, timeout=20, what=f"the kill at {point}")
    rig.start_worker(**settings)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the other worker to finish")
    check_applied_once(rig.url)
    # A call whose answer was stored is never made again; one whose answer was not, once more at most.
    ledger = rows_of(rig.url, "SELECT count(*) FROM strandline.model_call WHERE stage <> 'vectors'")[0][0]
    repeated = text_calls(rig.model) - ledger
    # Several lanes may have been between call and store when the process died.
    assert 0 <= repeated <= (3 if point != "loaded" else 4)
    twice = "SELECT batch_id, step FROM strandline.model_call GROUP BY 1, 2 HAVING count(*) > 1"
    assert rows_of(rig.url, twice) == []


def test_redelivering_everything_changes_nothing(rig: Rig) -> None:
    """No model is asked again, and no row of any table is written again, not even as it was."""
    worker = rig.start_worker("--no-sweep", **environment(rig.model))
    memory = rig.memory(broker_url=rig.broker_url, user_id="sailor", **LIMITS)
    talk(memory, 30)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="everything to be consumed")
    lanes = [
        Lane(*row)
        for row in rows_of(rig.url, "SELECT shard_key, scope_key, generation_id, stage FROM strandline.lane")
    ]
    assert {lane.stage for lane in lanes} == set(STAGES)
    before, calls = row_versions(rig.url), len(rig.model.requests)
    worker.process.send_signal(signal.SIGSTOP)
    for _time in range(3):
        memory._resources.ring(lanes)
    wait_until(lambda: hints_left(rig.broker_url) >= len(STAGES) - 1, timeout=5, what="the hints to be there")
    worker.process.send_signal(signal.SIGCONT)
    wait_until(lambda: hints_left(rig.broker_url) == 0, timeout=20, what="every hint to be taken")
    assert worker.stop() == 0, "which works off those in hand"
    assert hints_left(rig.broker_url) == 0, "and gave none back"
    assert row_versions(rig.url) == before
    assert len(rig.model.requests) == calls


def row_versions(url: str) -> set[tuple[str, ...]]:
    """Every row with its place and the transaction that wrote it; leases and heartbeats come and go."""
    tables = rows_of(
        url,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'strandline'"
        " AND table_name NOT IN ('lane', 'worker')",
    )
    assert len(tables) > 10
    return {
        (table, *row)
        for (table,) in tables
        for row in rows_of(url, f"SELECT xmin::text, ctid::text, t::text FROM strandline.{table} t")
    }


def hints_left(broker_url: str) -> int:
    """Hints that no worker has taken."""
    with redis.Redis.from_url(broker_url) as broker:
        return sum(int(str(broker.llen(queue_name(stage)))) for stage in STAGES)


def test_a_worker_stopped_inside_its_transaction_delays_no_put(rig: Rig) -> None:
    memory = rig.memory(broker_url=rig.broker_url, user_id="sailor", **LIMITS)
    talk(memory, 45)
    worker = rig.start_worker(**environment(rig.model), STRANDLINE_STOP_AT="applying:SIGSTOP")
    wait_until(lambda: stopped(worker), timeout=20, what="the worker to stop inside its transaction")
    in_transaction = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND state = 'idle in transaction'"
    )
    wait_until(lambda: rows_of(rig.url, in_transaction)[0][0] > 0, timeout=5, what="its open transaction")
    # As a put that waited for it would, too long: this stays open until the server ends it.
    for number in range(45, 55):
        talk(memory, 1, begin=number)
    assert stopped(worker)
    assert rows_of(rig.url, in_transaction)[0][0] > 0, "it must have been open all the time"
    worker.process.kill()
    rig.start_worker(**environment(rig.model, **QUICK_TAKE_OVER))
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="everything to be consumed")
    check_applied_once(rig.url)


def test_puts_that_cross_the_mark_do_not_wait_for_a_slow_model(rig: Rig) -> None:
    """Not even for one that never answers."""
    rig.model.behave(hang=True)
    patient = {"STRANDLINE_MODEL_TIMEOUT_SECONDS": "3600", "STRANDLINE_LEASE_DEADLINE_SECONDS": "7200"}
    rig.start_worker(**environment(rig.model, **patient))
    memory = rig.memory(broker_url=rig.broker_url, user_id="sailor", **LIMITS)
    talk(memory, 20)
    wait_until(lambda: text_calls(rig.model) >= 1, timeout=20, what="the model to be asked")
    crossed = flush_events(rig.url)
    talk(memory, 85, begin=20)
    events = flush_events(rig.url)
    assert events - crossed >= 20
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.receipt WHERE stage = 'extract'") == [(0,)]


def test_what_the_broker_lost_is_found_by_the_sweep(rig: Rig) -> None:
    rig.start_worker(**environment(rig.model))
    # No broker listens there: every hint of this producer is lost.
    memory = rig.memory(broker_url="redis://127.0.0.1:1/0", user_id="sailor", **LIMITS)
    talk(memory, 40)
    wait_until(lambda: nothing_due(rig.url), timeout=25, what="the sweep to find the work")
    check_applied_once(rig.url)


def test_a_session_whose_producer_died_before_the_flush_is_flushed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise SystemExit("the producer dies here")

    memory = rig.memory(user_id="sailor", **LIMITS)
    with monkeypatch.context() as patched:
        # As near to a kill between the two transactions as one process can get to it.
        patched.setattr("strandline.producers.writing.put.flush_at_put", die)
        with pytest.raises(SystemExit):
            talk(memory, 40)
    assert flush_events(rig.url) == 0
    rig.start_worker(**environment(rig.model))
    flushed = "SELECT count(*) FROM strandline.flush_event WHERE cause = 'threshold'"
    wait_until(lambda: rows_of(rig.url, flushed)[0][0] > 0, timeout=15, what="the sweep to flush")
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="its work to be done")


def let_time_pass(database_url: str) -> None:
    """As if everything had been put two hours earlier."""
    for table, columns in {"session": ("last_put_at", "watched_until"), "watch": ("check_at",)}.items():
        earlier = ", ".join(f"{column} = {column} - interval '2 hours'" for column in columns)
        rows_of(database_url, f"UPDATE strandline.{table} SET {earlier} RETURNING 1")


def test_an_idle_session_is_remembered_and_still_there(rig: Rig) -> None:
    rig.start_worker(**environment(rig.model))
    memory = rig.memory(user_id="sailor", idle_seconds=3600)
    talk(memory, 3)
    let_time_pass(rig.url)
    idle = "SELECT count(*) FROM strandline.flush_event WHERE cause = 'idle'"
    wait_until(lambda: rows_of(rig.url, idle)[0][0] == 1, timeout=15, what="the session to count as idle")
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="its messages to be consumed")
    context = memory.get()
    assert [m.text for m in context if m.role == "user"] == [
        f"I have visited harbour number {number} with my boat." for number in range(3)
    ]
    assert "harbour number 1" in context[0].text, "and what was derived from them is there as well"
    watches = "SELECT count(*) FROM strandline.watch"
    wait_until(lambda: rows_of(rig.url, watches) == [(0,)], timeout=5, what="the watch to end")
    talk(memory, 1, begin=3)
    let_time_pass(rig.url)
    wait_until(lambda: rows_of(rig.url, idle)[0][0] == 2, timeout=15, what="the next idle time")
    assert rows_of(rig.url, "SELECT from_seq, through_seq FROM strandline.flush_event ORDER BY 1") == [
        (1, 6),
        (7, 8),
    ]


def test_two_sessions_of_one_user_make_one_fact(rig: Rig) -> None:
    """Sessions that say the same flush at the same moments, under three workers."""
    settings = environment(rig.model)
    for _ in range(3):
        rig.start_worker(**settings)
    user = uuid4().hex
    memories = [rig.memory(f"s{n}", broker_url=rig.broker_url, user_id=user, **LIMITS) for n in range(6)]
    barrier = threading.Barrier(len(memories))

    def converse(memory: Memory) -> None:
        for part in range(4):
            talk(memory, 3, begin=part * 3)
            barrier.wait(200)
            memory.flush(all=True)

    with ThreadPoolExecutor(len(memories)) as threads:
        list(threads.map(converse, memories))
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="the workers to finish")
    check_applied_once(rig.url)
    facts = memories[0].facts.list(limit=1000)
    assert len({fact.text for fact in facts}) == len(facts) == 12
    sessions = rows_of(
        rig.url, "SELECT count(DISTINCT session_key) FROM strandline.fact_revision GROUP BY fact_id"
    )
    assert sessions == [(6,)] * 12, "each fact names every session that said it"
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert rows_of(rig.url, deadlocks) == [(0,)]


def test_a_reset_voids_what_is_in_flight(rig: Rig) -> None:
    rig.model.behave(latency=1.5)
    rig.start_worker(**environment(rig.model))
    memory = rig.memory(broker_url=rig.broker_url, user_id="sailor", **LIMITS)
    talk(memory, 20)
    wait_until(lambda: text_calls(rig.model) > 0, timeout=15, what="a model call to be in flight")
    memory.reset(derived=True)
    rig.model.behave(latency=0.0)
    talk(memory, 1, begin=100)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the void work to be cleared away")
    for table in ("fact", "fact_candidate", "block_state", "chunk"):
        assert rows_of(rig.url, f"SELECT count(*) FROM strandline.{table}") == [(0,)], table
    assert [message.text for message in memory.get()] == [
        "I have visited harbour number 100 with my boat.",
        "Harbour 100 is noted.",
    ]


def test_a_worker_that_is_told_to_stop_leaves_nothing_behind(rig: Rig) -> None:
    rig.model.behave(latency=0.5)
    worker = rig.start_worker(**environment(rig.model))
    memory = rig.memory(broker_url=rig.broker_url, user_id="sailor", **LIMITS)
    talk(memory, 40)
    wait_until(lambda: text_calls(rig.model) > 0, timeout=15, what="work to be in flight")
    assert worker.stop(timeout=150) == 0, "".join(worker.output)
    assert registered_workers(rig.url) == 0
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.lane WHERE holder IS NOT NULL") == [(0,)]
    rig.start_worker(**environment(rig.model))
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the next worker to go on")
    check_applied_once(rig.url)


# A model server that is down: puts and reads do not notice, nothing is condemned, and all is caught up.
SESSIONS = 8
PUTS = 400


def outage_environment(server: ModelServer) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": server.base_url,
        "STRANDLINE_EMBEDDING_BACKEND": "local",
        "STRANDLINE_MODEL_TIMEOUT_SECONDS": "2",
    }


@pytest.mark.parametrize("kind", ["500", "hang"])
def test_an_outage_of_the_model_costs_nothing_but_its_time(rig: Rig, kind: str) -> None:
    """All the puts are made while no answer comes; how long they take is measured by ``make soak``."""
    rig.model.behave(hang=True) if kind == "hang" else rig.model.behave(status=500)
    rig.start_worker(**outage_environment(rig.model))
    limits = {"token_limit": 400, "token_flush_size": 60}
    memories = [rig.memory(f"s{n}", user_id=f"u{n % 7}", **limits) for n in range(SESSIONS)]
    for number in range(PUTS):
        said = f"I saw {number} gulls at harbour number {number % 97}."
        memories[number % SESSIONS].put({"role": "user", "content": said})
    wait_until(lambda: len(rig.model.requests) >= 3, timeout=30, what="the worker to ask in vain")
    applied = "SELECT count(*) FROM strandline.receipt WHERE stage = 'extract'"
    assert rows_of(rig.url, applied) == [(0,)], "no model has answered"
    assert rows_of(rig.url, "SELECT count(*) >= %s FROM strandline.flush_event", SESSIONS) == [(True,)]
    rig.model.behave()
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="everything to be caught up")
    assert dead_letters(rig.url) == 0
    assert rows_of(rig.url, "SELECT coalesce(max(failures), 0) FROM strandline.lane") == [(0,)]


def test_reads_do_not_wait_for_an_embedder_that_is_down(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read finds out, in its time budget."""
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    config = '{"embedder": "text-embedding-3-small", "dimensions": 256}'
    rows_of(
        rig.url,
        "UPDATE strandline.generation SET config = %s WHERE pipeline = 'vectors' RETURNING 1",
        config,
    )
    memory = rig.memory("s")
    memory.put({"role": "user", "content": "Herring is what I like."})
    memory.flush(all=True)
    memory.get("What do I like?")  # opens connections, loads the client
    rig.model.behave(hang=True)
    asked = len(rig.model.requests)
    for _read in range(3):
        context = memory.get("What do I like?")
        assert "search_text_only" in [omission.kind for omission in context.omitted]
        assert context.to_openai()[-1]["content"] == "Herring is what I like."
    # It never answers, so none of the reads has waited for it; how long they took is for `make soak`.
    assert len(rig.model.requests) > asked


# Retention by real workers that are killed exactly at a step: nothing is lost, nothing is doubled.
QUICK = {"STRANDLINE_RETENTION_INTERVAL_SECONDS": "0.2", "STRANDLINE_RETENTION_PASS_SECONDS": "0.1"}


def test_workers_killed_at_steps_of_retention_cost_nothing(rig: Rig, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        memory = rig.memory(name, memory_blocks=[])
        memory.put_messages([Message(role="user", content=f"{name} {n}") for n in range(40)])
        memory.flush(all=True)
        age_messages(rig.url, name, 40 * DAY)
    stored = rows_of(rig.url, "SELECT session_key, seq, envelope::text FROM strandline.message ORDER BY 1, 2")
    retention.set_retention(
        rig.database, Retention(max_age_seconds=30 * DAY, archive=f"file://{tmp_path}/archive")
    )
    for point in ("removal_stored", "removal_read_back"):
        doomed = rig.start_worker(**QUICK, STRANDLINE_STOP_AT=f"{point}:SIGKILL")
        wait_until(lambda: doomed.process.poll() is not None, timeout=20, what=f"the kill at {point}")  # noqa: B023
        # Whoever is alive leaves it to the dead one for a minute.
        rows_of(rig.url, "UPDATE strandline.retention_step SET attempted_at = NULL RETURNING 1")
    rig.start_worker(**QUICK)
    left = "SELECT count(*) FROM strandline.message"
    wait_until(lambda: rows_of(rig.url, left) == [(0,)], timeout=20, what="the last worker to remove all")
    archived = []
    for path in tmp_path.rglob("*.jsonl"):
        header, *rows = map(json.loads, path.read_text().removesuffix("\n").split("\n"))
        archived += [(header["session_key"], row["seq"], row["envelope"]) for row in rows]
    assert sorted(archived) == [(str(key), seq, envelope) for key, seq, envelope in stored]
    assert verify(rig.database).violations == ()
