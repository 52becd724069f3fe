"""Worker processes: what they serve, how they end, and how the others go on without them."""

from __future__ import annotations

import json
import re
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
import redis

from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.servers.broker_proxy import BrokerProxy
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.stored import dead_letters, registered_workers
from tests.support.workers.busy_workers import QUICK_TAKE_OVER, check_done_once, converse, environment


def test_a_worker_serves_the_queues_it_is_given(rig: Rig) -> None:
    rig.start_worker("--queues", "extract,vectors", **environment(rig.model))
    converse(rig.memory, 2, 3, broker_url=rig.broker_url)
    left = "SELECT stage, count(*) FROM strandline.due GROUP BY 1 ORDER BY 1"
    wait_until(
        lambda: rows_of(rig.url, left) == [("merge", 6), ("summary", 6)],
        timeout=15,
        what="its stages to be done",
    )
    assert rows_of(rig.url, "SELECT stages FROM strandline.worker") == [(["extract", "vectors"],)]
    rig.start_worker("--queues", "strandline.merge,summary", **environment(rig.model))
    wait_until(lambda: nothing_due(rig.url), timeout=15, what="the other worker to do the rest")
    check_done_once(rig.database, rig.url, 6)


def test_a_workers_log_is_json_where_that_is_set(rig: Rig) -> None:
    settings = {"STRANDLINE_LOG_FORMAT": "json", "STRANDLINE_MISSPELT": "yes"}
    worker = rig.start_worker(**environment(rig.model, **settings))
    assert worker.stop() == 0
    lines = [json.loads(line) for line in worker.output if line.startswith("{")]
    (unknown,) = (line for line in lines if line.get("action") == "unknown_settings")
    assert unknown["level"] == "WARNING" and "STRANDLINE_MISSPELT" in unknown["reason"]
    others = [line for line in worker.output if not line.startswith(("{", "strandline worker "))]
    assert others == []


def test_two_workers_share_the_work(rig: Rig) -> None:
    """The one that asks first gets its answer when the other has asked as well."""
    asked = {"Bearer first": threading.Event(), "Bearer second": threading.Event()}

    def answer_when_both_have_asked(request: RecordedRequest) -> None:
        asked[request.authorization].set()
        for one in asked.values():
            one.wait(600)

    rig.model.behave(responder=answer_when_both_have_asked)
    for key in ("first", "second"):
        rig.start_worker("--concurrency", "2", **environment(rig.model, key))
    converse(rig.memory, 12, 2, broker_url=rig.broker_url)
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="both to finish")
    check_done_once(rig.database, rig.url, 24)
    assert all(one.is_set() for one in asked.values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_end_while_the_model_hangs_ends_with_its_calls(
    rig: Rig, number: signal.Signals
) -> None:
    rig.model.behave(hang=True)
    patience = {"STRANDLINE_MODEL_TIMEOUT_SECONDS": "2", "STRANDLINE_SHUTDOWN_GRACE_SECONDS": "3600"}
    worker = rig.start_worker(**environment(rig.model, **patience))
    converse(rig.memory, 3, 2, broker_url=rig.broker_url)
    wait_until(lambda: len(rig.model.requests) >= 3, timeout=15, what="calls to be in flight")
    worker.process.send_signal(number)
    # With the model's time-out: it would wait for an hour if the calls took as long.
    assert worker.process.wait(150) == 0, "".join(worker.output)
    assert registered_workers(rig.url) == 0
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.lane WHERE holder IS NOT NULL") == [(0,)]
    assert rows_of(rig.url, "SELECT max(crashes) FROM strandline.lane") == [(0,)]


def test_the_others_take_over_from_a_killed_worker(rig: Rig) -> None:
    """It dies in the middle of model calls; the other one has been there all the time."""
    dead = threading.Event()
    waiting = threading.Semaphore(0)

    def respond(request: RecordedRequest) -> None:
        if request.authorization == "Bearer doomed":
            waiting.release()
            dead.wait(200)

    rig.model.behave(responder=respond)
    doomed = rig.start_worker(**environment(rig.model, "doomed"))
    converse(rig.memory, 4, 3, broker_url=rig.broker_url)
    assert waiting.acquire(timeout=150)
    rig.start_worker(**environment(rig.model, "heir", **QUICK_TAKE_OVER))
    doomed.kill()
    dead.set()
    wait_until(lambda: nothing_due(rig.url), timeout=25, what="the heir to finish")
    check_done_once(rig.database, rig.url, 12)


def test_what_a_killed_worker_held_does_not_wait_behind_others(rig: Rig) -> None:
    """The only thread of the heir waits for a model all the time; the lane is taken over beside it."""
    freed = threading.Event()
    asked: list[str] = []

    def respond(request: RecordedRequest) -> None:
        asked.append(request.authorization)
        if asked.count("Bearer heir") < 2:
            freed.wait(600)

    def has_asked(key: str) -> bool:
        return f"Bearer {key}" in asked

    rig.model.behave(responder=respond)
    for number, key in enumerate(("heir", "doomed")):
        own = environment(rig.model, key, **QUICK_TAKE_OVER)
        worker = rig.start_worker("--queues", "summary", "--concurrency", "1", **own)
        memory = rig.memory(f"s{number}", broker_url=rig.broker_url)
        memory.put({"role": "user", "content": "Good morning."})
        memory.flush(all=True)
        wait_until(partial(has_asked, key), timeout=20, what=f"the call of the {key}")
    worker.kill()
    done = (
        "SELECT s.session_id FROM strandline.receipt r JOIN strandline.flush_event USING (event_id)"
        " JOIN strandline.session s USING (session_key) WHERE r.stage = 'summary'"
    )
    try:
        wait_until(lambda: rows_of(rig.url, done) == [("s1",)], timeout=10, what="the lane's new holder")
    finally:
        freed.set()
    wait_until(lambda: len(rows_of(rig.url, done)) == 2, timeout=10, what="the heir's own lane")


def test_work_resumes_by_itself_once_the_model_is_back(rig: Rig) -> None:
    rig.model.behave(status=503)
    rig.start_worker(**environment(rig.model))
    converse(rig.memory, 2, 2, broker_url=rig.broker_url)
    # A call, the probe that shows whose fault it was, and a later probe.
    wait_until(lambda: len(rig.model.requests) >= 3, timeout=25, what="a second try in vain")
    rig.model.behave()
    wait_until(lambda: nothing_due(rig.url), timeout=25, what="the sweep to try again")
    check_done_once(rig.database, rig.url, 4)
    assert dead_letters(rig.url) == 0


def test_a_broker_that_goes_and_comes_back_costs_seconds(rig: Rig) -> None:
    with BrokerProxy(rig.broker_url) as proxy, redis.Redis.from_url(rig.broker_url) as broker:
        worker = rig.start_worker(**environment(rig.model, STRANDLINE_BROKER_URL=proxy.url))
        converse(rig.memory, 1, 1, about="boat", broker_url=proxy.url)
        wait_until(lambda: nothing_due(rig.url), timeout=15, what="the first event")
        proxy.down()
        converse(rig.memory, 3, 2, broker_url=proxy.url)
        broker.flushdb()
        assert worker.process.poll() is None
        proxy.up()
        wait_until(lambda: nothing_due(rig.url), timeout=15, what="the sweep to ring again")
        check_done_once(rig.database, rig.url, 7)
        assert worker.stop() == 0


def test_a_worker_logs_nothing_that_users_said(rig: Rig) -> None:
    """Whatever the model does with it, and at the most talkative level."""

    def respond(request: RecordedRequest) -> str | None:
        prompt = json.dumps(request.body)
        return "zyzzyva, no JSON" if "zyzzyva" in prompt else None

    rig.model.behave(responder=respond)
    worker = rig.start_worker("--log-level", "DEBUG", **environment(rig.model, "sk-zyzzyva-key"))
    memory = rig.memory("s", broker_url=rig.broker_url)
    memory.put({"role": "user", "content": "my word is zyzzyva"})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="its end")
    assert len(rows_of(rig.url, "SELECT 1 FROM strandline.dead_letter")) == 2
    worker.stop()
    assert worker.output
    assert "zyzzyva" not in "".join(worker.output)
    reasons = rows_of(rig.url, "SELECT reason FROM strandline.dead_letter")
    assert "zyzzyva" not in str(reasons)


# After a fault, with the default settings, the work is taken up, and done once.
ROOT = Path(__file__).parent.parent.parent


def as_it_comes(server: ModelServer, key: str, **settings: str) -> dict[str, str]:
    """A worker's environment with nothing but its models set."""
    models = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": key}
    return models | {"STRANDLINE_EMBEDDING_BACKEND": "local"} | settings


@pytest.fixture
def waiting(model_server: ModelServer) -> threading.Semaphore:
    """Released for each call that the worker with the key ``stuck`` waits for in vain."""
    calls = threading.Semaphore(0)

    def respond(request: RecordedRequest) -> None:
        if request.authorization == "Bearer stuck":
            calls.release()
            model_server.closing.wait()

    model_server.behave(responder=respond)
    return calls


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_killed_or_paused_worker_held_is_taken_up(
    rig: Rig, number: signal.Signals, waiting: threading.Semaphore
) -> None:
    stuck = rig.start_worker(**as_it_comes(rig.model, "stuck"))
    converse(rig.memory, 3, 1, broker_url=rig.broker_url)
    assert all(waiting.acquire(timeout=150) for _call in range(3))
    rig.start_worker(**as_it_comes(rig.model, "other"))
    stuck.process.send_signal(number)
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="the other worker to finish")
    check_done_once(rig.database, rig.url, 3)


def test_what_hangs_in_a_living_worker_is_taken_up_at_its_deadline(
    rig: Rig, waiting: threading.Semaphore
) -> None:
    """It beats, so only the lease's deadline tells; whatever it is that hangs, here it is a model call."""
    # As many threads as calls that hang, so that it cannot take up the lanes again itself.
    rig.start_worker("--concurrency", "3", **as_it_comes(rig.model, "stuck"))
    converse(rig.memory, 3, 1, broker_url=rig.broker_url)
    assert all(waiting.acquire(timeout=150) for _call in range(3))
    rows_of(
        rig.url,
        "UPDATE strandline.lane SET deadline_at = now() WHERE holder IS NOT NULL RETURNING stage",
    )
    rig.start_worker(**as_it_comes(rig.model, "other"))
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="the other worker to finish")
    assert registered_workers(rig.url) == 2
    check_done_once(rig.database, rig.url, 3)


def test_workers_go_on_after_postgres_has_ended_every_connection(rig: Rig) -> None:
    """As a restart does, in the middle of calls; here the server is there again at once."""
    rig.model.behave(latency=1.0)
    worker = rig.start_worker(**as_it_comes(rig.model, "key"))
    converse(rig.memory, 3, 1, broker_url=rig.broker_url)
    wait_until(lambda: len(rig.model.requests) >= 3, timeout=15, what="calls to be in flight")
    rows_of(
        rig.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    rig.model.behave()
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="the worker to go on")
    assert worker.process.poll() is None
    afresh = Database.connect(ConnectionOptions.from_settings(rig.url, rig.settings))
    check_done_once(afresh, rig.url, 3)
    afresh.close()


def section(page: str, title: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {title}\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    return str(found)


def first_cells(table: str) -> list[str]:
    return re.findall(r"^\| (.+?) \|", table, re.MULTILINE)


def test_bounds_follow_from_the_defaults_that_they_name() -> None:
    defaults = {f"STRANDLINE_{name.upper()}": field.default for name, field in Settings.model_fields.items()}
    named = re.findall(r"`(STRANDLINE_\w+)` \((\d+)\)", section("operations.md", "Longest waits"))
    assert len(named) >= 3
    assert {name: float(value) for name, value in named} == {name: defaults[name] for name, _ in named}


def test_each_bound_has_a_test_that_there_is() -> None:
    proofs = section("faults.md", "Proofs of environments and waits").partition("| fault |")[2]
    bounds = first_cells(section("operations.md", "Longest waits"))
    assert bounds == ["fault", *first_cells(proofs)]
    for path, name in re.findall(r"`(tests/(?:\w+/)*\w+\.py)::(\w+)`", proofs):
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
