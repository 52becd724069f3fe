"""How workers end: within their grace time, with nothing lost, nothing held, and nothing paid for twice."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from strandline.schemas.errors import BrokerUnavailableError, DatabaseUnavailableError
from strandline.schemas.settings import load_settings
from strandline.workers.celery_app.app import make_app
from strandline.workers.startup import Patience
from tests.conftest import MakeMemory, Rig, StartWorker, nothing_due, rows_of, wait_until
from tests.support.proxies.stalling_proxy import StallingProxy
from tests.support.sample_blocks import POISON
from tests.support.servers.broker_proxy import BrokerProxy
from tests.support.servers.model_server import ModelServer
from tests.support.stored import registered_workers
from tests.support.workers.busy_workers import QUICK_TAKE_OVER, check_done_once, converse, environment
from tests.support.workers.draining import drain_everything
from tests.support.workers.worker_processes import WorkerProcess, launch_worker

# On x86-64 and on ARM.
FUTEX_CALLS = ("202", "98")
# A model call may take an hour, and the lease on its lane outlasts it.
SLOW_CALLS = {"STRANDLINE_MODEL_TIMEOUT_SECONDS": "3600", "STRANDLINE_LEASE_DEADLINE_SECONDS": "7200"}


def send(worker: WorkerProcess, *numbers: signal.Signals) -> None:
    """Send signals, the second one only when the first has been taken."""
    for place, number in enumerate(numbers):
        if place:
            wait_until(
                lambda: any("worker is stopping" in line for line in worker.output),
                timeout=5,
                what="the first signal to be taken",
            )
        worker.process.send_signal(number)


def in_flight(server: ModelServer, calls: int) -> None:
    wait_until(lambda: len(server.requests) >= calls, timeout=15, what=f"{calls} calls to be in flight")


def worker_whose_calls_hang(
    make_memory: MakeMemory, start_worker: StartWorker, model_server: ModelServer, broker_url: str
) -> WorkerProcess:
    """With three calls in hand, none of which will be answered."""
    model_server.behave(hang=True)
    patient = {"STRANDLINE_SHUTDOWN_GRACE_SECONDS": "3600"} | SLOW_CALLS
    worker = start_worker("--log-level", "info", **environment(model_server, **patient))
    converse(make_memory, 3, 1, broker_url=broker_url)
    in_flight(model_server, 3)
    return worker


def check_ends_at_once(worker: WorkerProcess, number: signal.Signals) -> None:
    """Long before its grace time, an hour, is over: with the code that says which signal hurried it."""
    assert worker.process.wait(150) == 128 + number, "".join(worker.output)


def check_nothing_is_held(url: str) -> None:
    """The worker is gone, no lane has a holder, and none counts its end as a crash."""
    assert registered_workers(url) == 0
    lanes = "SELECT count(*) FILTER (WHERE holder IS NOT NULL), max(crashes) FROM strandline.lane"
    assert rows_of(url, lanes) == [(0, 0)]


def test_calls_that_end_within_the_grace_time_are_stored_and_applied(rig: Rig) -> None:
    rig.model.behave(latency=1.0)
    worker = rig.start_worker(**environment(rig.model, STRANDLINE_SHUTDOWN_GRACE_SECONDS="3600"))
    converse(rig.memory, 4, 1, broker_url=rig.broker_url)
    in_flight(rig.model, 4)
    assert worker.stop() == 0, "".join(worker.output)
    check_nothing_is_held(rig.url)
    paid = rows_of(rig.url, "SELECT count(*) FROM strandline.model_call WHERE model = 'gpt-4.1-mini'")
    assert paid == [(len(rig.model.requests),)]
    applied = rows_of(rig.url, "SELECT count(*) FROM strandline.batch WHERE state = 'applied'")[0][0]
    assert applied >= 4
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.batch WHERE state = 'open'") == [(0,)]
    rig.model.behave()
    rig.start_worker(**environment(rig.model))
    wait_until(lambda: nothing_due(rig.url), timeout=15, what="the next worker to do the rest")
    check_done_once(rig.database, rig.url, 4)
    twice = "SELECT batch_id FROM strandline.model_call GROUP BY batch_id, step HAVING count(*) > 1"
    assert rows_of(rig.url, twice) == []


def test_threads_lost_during_the_grace_time_cut_it_short_for_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running worker is restarted for them; one that is stopping lets the other threads end in time."""
    blocks = "tests.support.sample_blocks:Stuck"
    monkeypatch.setenv("STRANDLINE_BLOCKS", blocks)
    drain_everything(rig.database, rig.url, load_settings(blocks=blocks), ["stuck"])
    let_answer = threading.Event()
    rig.model.behave(responder=lambda _: None if let_answer.wait(120) else "")
    patient = {"STRANDLINE_SHUTDOWN_GRACE_SECONDS": "3600"} | SLOW_CALLS
    own = environment(rig.model, **patient) | {"STRANDLINE_BLOCK_TIMEOUT_SECONDS": "8"}
    queues = ("--queues", "stuck,summary", "--concurrency", "2")
    worker = rig.start_worker(*queues, "--log-level", "info", **own)
    memory = rig.memory("s", memory_blocks=["stuck", "summary"], broker_url=rig.broker_url)
    memory.put({"role": "user", "content": f"the harbour and the {POISON}"})
    memory.flush(all=True)
    held = "SELECT count(*) FROM strandline.lane WHERE holder IS NOT NULL"
    wait_until(lambda: rows_of(rig.url, held) == [(2,)], timeout=15, what="both lanes to be in hand")
    in_flight(rig.model, 1)
    send(worker, signal.SIGTERM)
    wait_until(lambda: says(worker, "worker is stopping"), timeout=5, what="the signal to be taken")
    wait_until(lambda: says(worker, "action=block_late"), timeout=30, what="a thread to be lost")
    for _beat in range(3):  # in each of which the loss is seen
        await_beat(worker, rig.url)
    let_answer.set()
    assert worker.process.wait(150) == 0, "".join(worker.output)
    assert not says(worker, "action=lanes_released"), "".join(worker.output)
    check_nothing_is_held(rig.url)
    summaries = "SELECT outcome FROM strandline.receipt WHERE stage = 'summary'"
    assert rows_of(rig.url, summaries) == [("applied",)]


def says(worker: WorkerProcess, text: str) -> bool:
    return any(text in line for line in worker.output)


def await_beat(worker: WorkerProcess, url: str) -> None:
    """Wait until its row has another time, or it has ended."""
    beaten = "SELECT heartbeat_at FROM strandline.worker"
    last = rows_of(url, beaten)
    wait_until(
        lambda: rows_of(url, beaten) != last or worker.process.poll() is not None,
        timeout=20,
        what="a heartbeat",
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_outlasts_the_grace_time_is_handed_back_and_taken_up_at_once(
    rig: Rig, number: signal.Signals
) -> None:
    rig.model.behave(hang=True)
    settings = environment(rig.model, STRANDLINE_SHUTDOWN_GRACE_SECONDS="0.5")
    # Its end has to free the lanes, not its silence.
    settings |= {"STRANDLINE_WORKER_DEAD_AFTER_SECONDS": "3600"} | SLOW_CALLS
    worker = rig.start_worker(**settings)
    converse(rig.memory, 3, 1, broker_url=rig.broker_url)
    in_flight(rig.model, 6)
    send(worker, number)
    assert worker.process.wait(150) == 0, "".join(worker.output)
    check_nothing_is_held(rig.url)
    rig.model.behave()
    rig.start_worker(**settings)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the other worker to finish")
    check_done_once(rig.database, rig.url, 3)


@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT,) * 2]
)
def test_a_second_signal_ends_a_worker_at_once(rig: Rig, numbers: tuple[signal.Signals, ...]) -> None:
    worker = worker_whose_calls_hang(rig.memory, rig.start_worker, rig.model, rig.broker_url)
    send(worker, *numbers)
    check_ends_at_once(worker, numbers[-1])
    check_nothing_is_held(rig.url)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells which thread gets a signal"
)
def test_a_signal_counts_though_the_main_thread_waits_and_another_thread_gets_it(rig: Rig) -> None:
    """As when a second Ctrl-C comes just before the main thread begins to wait for the tasks."""
    worker = worker_whose_calls_hang(rig.memory, rig.start_worker, rig.model, rig.broker_url)
    send(worker, signal.SIGINT)
    wait_until(lambda: waits_for_threads(worker.pid), timeout=10, what="Celery to wait for its tasks")
    send_to_thread(worker.pid, thread_beside_main(worker.pid), signal.SIGINT)
    check_ends_at_once(worker, signal.SIGINT)
    check_nothing_is_held(rig.url)


def waits_for_threads(pid: int) -> bool:
    """The main thread is in a futex without a time limit: its system call's fourth argument is null."""
    number, *arguments = Path(f"/proc/{pid}/syscall").read_text().split()
    return number in FUTEX_CALLS and arguments[3] == "0x0"


def thread_beside_main(pid: int) -> int:
    return max(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())


def send_to_thread(pid: int, thread: int, number: signal.Signals) -> None:
    """``tgkill``, which Python knows for its own process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.tgkill(pid, thread, number) == 0, os.strerror(ctypes.get_errno())


def test_a_second_signal_ends_a_worker_that_cannot_hand_back_and_others_take_over(rig: Rig) -> None:
    """Postgres answers nothing about workers: the hand-back hangs, and so does each heartbeat."""
    worker = worker_whose_calls_hang(rig.memory, rig.start_worker, rig.model, rig.broker_url)
    with psycopg.connect(rig.url) as blocker:
        blocker.execute("LOCK TABLE strandline.worker")
        send(worker, signal.SIGTERM, signal.SIGTERM)
        check_ends_at_once(worker, signal.SIGTERM)
    rig.model.behave()
    rig.start_worker(**environment(rig.model, **QUICK_TAKE_OVER))
    wait_until(lambda: nothing_due(rig.url), timeout=25, what="the other worker to finish")
    check_done_once(rig.database, rig.url, 3)


def test_a_worker_without_its_broker_ends(rig: Rig) -> None:
    """Also one that has only just registered, and whose Celery has not begun to consume."""
    with BrokerProxy(rig.broker_url) as proxy:
        worker = rig.start_worker(
            **environment(rig.model, STRANDLINE_BROKER_URL=proxy.url, STRANDLINE_SHUTDOWN_GRACE_SECONDS="3")
        )
        proxy.down()
        send(worker, signal.SIGTERM)
        assert worker.process.wait(150) == 0, "".join(worker.output)


def test_what_a_worker_forks_ends_at_its_own_signals() -> None:
    """As processes that a block's own code starts: they inherit the pipe, and must not write into it."""
    code = """
        import os, signal, threading
        from strandline.workers.signal_pipe import SignalPipe
        signals = SignalPipe((signal.SIGTERM, signal.SIGHUP))
        forked, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(told, b"1")
            threading.Event().wait(60)
            os._exit(0)
        os.read(forked, 1)
        os.kill(child, signal.SIGTERM)
        print(os.WTERMSIG(os.waitpid(child, 0)[1]), signals.wait(0.1))
        os.kill(os.getpid(), signal.SIGHUP)
        print(signals.wait(100))
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == [str(int(signal.SIGTERM)), "None", str(int(signal.SIGHUP))]


# A worker that is started before its servers, or while they restart: it waits, and says for what.
NOBODY = "redis://:s3cret@127.0.0.1:1/0"


@pytest.fixture
def running() -> Iterator[list[WorkerProcess]]:
    """Workers that a test has started; ended after it."""
    started: list[WorkerProcess] = []
    yield started
    for worker in started:
        worker.end()


def begin(running: list[WorkerProcess], database_url: str, broker_url: str, wait: str) -> WorkerProcess:
    """Start a worker process without waiting for it."""
    worker = launch_worker(
        database_url, broker_url, "--queues", "summary", STRANDLINE_STARTUP_WAIT_SECONDS=wait
    )
    running.append(worker)
    return worker


def said(worker: WorkerProcess, words: str) -> int:
    return sum(words in line for line in list(worker.output))


def test_a_worker_waits_for_a_broker_that_starts_after_it(rig: Rig, running: list[WorkerProcess]) -> None:
    with BrokerProxy(rig.broker_url) as broker:
        broker.down()
        worker = begin(running, rig.url, broker.url, "600")
        wait_until(lambda: said(worker, "server=the broker"), timeout=60, what="the worker to say so")
        sql = "SELECT pid FROM strandline.worker WHERE condition ->> 'no_broker' IS NOT NULL"
        wait_until(
            lambda: rows_of(rig.url, sql) == [(worker.pid,)], timeout=60, what="status to show it without"
        )
        broker.up()
        wait_until(lambda: not rows_of(rig.url, sql), timeout=60, what="status to show it with its broker")
        wait_until(lambda: said(worker, "is ready"), timeout=60, what="the worker to be ready")
        assert said(worker, "worker waits for a server") == 1
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(300) == 0
    wait_until(lambda: said(worker, "stops (SIGTERM)"), timeout=5, what="the reason why it stops")


def test_a_signal_ends_a_worker_that_waits_for_its_broker(rig: Rig, running: list[WorkerProcess]) -> None:
    with BrokerProxy(rig.broker_url) as broker:
        broker.down()
        worker = begin(running, rig.url, broker.url, "600")
        wait_until(lambda: said(worker, "server=the broker"), timeout=60, what="the worker to say so")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(300) == 0
    assert not said(worker, "worker ends before its batches do")
    assert rows_of(rig.url, "SELECT pid FROM strandline.worker") == []


def test_a_worker_waits_for_a_postgres_that_starts_after_it(rig: Rig, running: list[WorkerProcess]) -> None:
    """As long as a server has not started, nothing listens on its port."""
    with StallingProxy(rig.url) as gone:
        pass
    port = urlsplit(gone.url).port
    assert port is not None
    worker = begin(running, gone.url, rig.broker_url, "600")
    wait_until(lambda: said(worker, "server=Postgres"), timeout=60, what="the worker to say so")
    pids = "SELECT pid FROM strandline.worker"
    with StallingProxy(rig.url, port=port):
        wait_until(
            lambda: rows_of(rig.url, pids) == [(worker.pid,)],
            timeout=60,
            what="the worker to register",
        )
        assert said(worker, "worker waits for a server") == 1
        worker.end()


@pytest.mark.parametrize("away", ["Postgres", "The broker"])
def test_a_worker_whose_server_stays_away_ends_with_a_sentence(
    rig: Rig, away: str, running: list[WorkerProcess]
) -> None:
    nowhere = urlsplit(NOBODY)._replace(scheme="postgresql", path="/nowhere").geturl()
    urls = (nowhere, rig.broker_url) if away == "Postgres" else (rig.url, NOBODY)
    worker = begin(running, *urls, "0.2")
    assert worker.process.wait(300) == 1
    wait_until(
        lambda: said(worker, f"{away} did not answer within 0.2 seconds of the worker's start"),
        timeout=5,
        what="the sentence",
    )
    assert "Traceback" not in "".join(worker.output)
    assert "s3cret" not in "".join(worker.output)


def test_each_server_is_asked_once_at_least(database_url: str) -> None:
    patience = Patience(0.0)
    calls = []

    def start() -> None:
        calls.append(1)
        raise DatabaseUnavailableError("Postgres is starting up.")

    with pytest.raises(DatabaseUnavailableError, match=r"STARTUP_WAIT_SECONDS.*is starting up"):
        patience.for_postgres(start)
    with pytest.raises(BrokerUnavailableError, match="STRANDLINE_BROKER_URL"):
        patience.for_broker(make_app(load_settings(), NOBODY, ["summary"]))
    assert calls == [1]
    assert patience.for_postgres(lambda: "there") == "there"


def test_one_time_is_waited_for_all_servers_together() -> None:
    """Postgres takes an hour of it; 600 seconds pass from one look at the clock to the next."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 600.0
        return now

    def start() -> str:
        if now < 3_600.0:
            raise DatabaseUnavailableError("Postgres is starting up.")
        return "there"

    patience = Patience(7_200.0, clock)
    assert patience.for_postgres(start) == "there"
    with pytest.raises(BrokerUnavailableError, match="within 7200 seconds"):
        patience.for_broker(make_app(load_settings(), NOBODY, ["summary"]))
    # Of the first look, what is waited, and the look that finds the time over.
    assert 7_200.0 + 600.0 <= now <= 7_200.0 + 1_200.0
