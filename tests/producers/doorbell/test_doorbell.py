"""The doorbell: hints of ids, published beside the caller's thread, and dropped rather than waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.producers.doorbell import doorbell
from strandline.producers.doorbell.doorbell import MAX_WAITING_LANES, Doorbell, Pacer
from strandline.schemas.broker.hints import check_hint
from strandline.schemas.values.lanes import STAGES, Lane
from tests.conftest import MakeMemory, rows_of, wait_until
from tests.support.processes import forking
from tests.support.servers.broker_proxy import BrokerProxy
from tests.support.servers.broker_queues import BrokerQueues
from tests.support.servers.silent_server import SilentServer

NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture
def broker(broker_url: str) -> Iterator[BrokerQueues]:
    with BrokerQueues(broker_url) as queues:
        yield queues


def some_lane(stage: str = "summary") -> Lane:
    return Lane(uuid4(), uuid4(), 1, stage)


def await_hints(broker: BrokerQueues, count: int, stage: str = "summary") -> None:
    wait_until(lambda: broker.waiting(stage) == count, timeout=20, what=f"{count} hints for {stage}")


def test_a_hint_holds_ids_only(make_memory: MakeMemory, broker: BrokerQueues, broker_url: str) -> None:
    memory = make_memory("s", broker_url=broker_url)
    memory.put({"role": "user", "content": "my secret is herring"})
    memory.flush(all=True)
    for stage in ("extract", "summary", "vectors"):
        await_hints(broker, 1, stage)
        taken = broker.take(stage)
        assert taken is not None
        arguments, message = taken
        assert check_hint(arguments, STAGES).lane.stage == stage
        assert arguments[0].encode() in message
        assert b"herring" not in message
    assert broker.waiting("merge") == 0


def test_ringing_waits_for_nothing_when_the_broker_is_away() -> None:
    bell = Doorbell(NOBODY)
    lanes = [some_lane() for _ in range(1000)]
    for _time in range(50):
        bell.ring(lanes)
    assert bell._hints.qsize() <= MAX_WAITING_LANES
    bell.close(timeout_seconds=1.0)


def test_puts_wait_for_no_broker(make_memory: MakeMemory, database_url: str) -> None:
    """All of them are made while it says nothing to what it was sent first."""
    with SilentServer() as silent:
        memory = make_memory(
            broker_url=f"redis://127.0.0.1:{silent.port}/0", token_limit=200, token_flush_size=30
        )
        for number in range(60):
            memory.put({"role": "user", "content": f"harbour number {number} was a fine one to visit"})
        wait_until(lambda: silent.heard, timeout=20, what="the doorbell to ask the broker")
        for number in range(60):
            memory.put({"role": "user", "content": f"harbour number {number} was left again"})
        assert rows_of(database_url, "SELECT count(*) > 10 FROM strandline.flush_event") == [(True,)]
        memory.close()


@pytest.mark.parametrize("url", ["nonsense://here", "redis://127.0.0.1:notaport/0", "redis://"])
def test_a_wrong_url_ends_nothing(url: str) -> None:
    """Warnings are errors here: a thread that dies would be one."""
    bell = Doorbell(url)
    bell.ring([some_lane()])
    assert bell._thread is not None
    wait_until(bell._hints.empty, timeout=5, what="the hint to be taken")
    bell.ring([some_lane()])
    assert bell._thread.is_alive()
    bell.close(timeout_seconds=60)


def test_hints_pass_again_when_the_broker_is_back(
    broker: BrokerQueues, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "BACKOFF_SECONDS", 0.1)
    with BrokerProxy(broker_url) as proxy:
        bell = Doorbell(proxy.url)
        bell.ring([some_lane()])
        await_hints(broker, 1)
        proxy.down()
        bell.ring([some_lane() for _ in range(10)])
        wait_until(bell._hints.empty, timeout=10, what="the hints to be dropped")
        proxy.up()

        def passes() -> bool:
            bell.ring([some_lane()])
            return broker.waiting("summary") > 1

        wait_until(passes, timeout=10, what="hints to pass again")
        bell.close()


def test_close_publishes_what_is_waiting(broker: BrokerQueues, broker_url: str) -> None:
    bell = Doorbell(broker_url)
    bell.ring([some_lane() for _ in range(20)])
    bell.close(timeout_seconds=60)
    await_hints(broker, 20)


def test_many_threads_ring_at_once(broker: BrokerQueues, broker_url: str) -> None:
    bell = Doorbell(broker_url)

    def ring() -> None:
        for _time in range(20):
            bell.ring([some_lane()])

    threads = [threading.Thread(target=ring) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bell.close(timeout_seconds=60)
    await_hints(broker, 160)
    names = [thread.name for thread in threading.enumerate()]
    assert "strandline-doorbell" not in names


def test_every_hint_that_is_dropped_is_counted(
    broker: BrokerQueues,
    broker_url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those that came while nothing was tried."""
    monkeypatch.setattr(doorbell, "BACKOFF_SECONDS", 2.0)
    with BrokerProxy(broker_url) as proxy:
        proxy.down()
        bell = Doorbell(proxy.url)
        bell.ring([some_lane()])

        def said(action: str) -> list[int]:
            return [
                getattr(record, "dropped", 0)
                for record in caplog.records
                if getattr(record, "action", "") == action
            ]

        wait_until(lambda: said("broker_away"), timeout=30, what="the first hint to be dropped")
        bell.ring([some_lane() for _ in range(10)])
        wait_until(bell._hints.empty, timeout=30, what="the others to be dropped")
        proxy.up()
        rung = 11

        def passes() -> bool:
            nonlocal rung
            bell.ring([some_lane()])
            rung += 1
            return bool(said("broker_back"))

        wait_until(passes, timeout=30, what="hints to pass again")
        bell.close(timeout_seconds=60)
    assert broker.waiting("summary") + sum(said("broker_back")) == rung


FORKING = """
import os, sys
from uuid import uuid4
from strandline.producers.doorbell.doorbell import Doorbell
from strandline.schemas.values.lanes import Lane

bell = Doorbell(sys.argv[1])
bell.ring([Lane(uuid4(), uuid4(), 1, "summary")])
sys.stdin.readline()
child = os.fork()
bell.ring([Lane(uuid4(), uuid4(), 1, "merge" if child == 0 else "summary")])
bell.close(timeout_seconds=60)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_rings_by_itself(broker: BrokerQueues, broker_url: str) -> None:
    """It forks while its parent's connection is open."""
    command = [sys.executable, "-c", FORKING, broker_url]
    with forking.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        await_hints(broker, 1)
        process.communicate("fork\n", timeout=300)
    assert process.returncode == 0
    await_hints(broker, 2, "summary")
    await_hints(broker, 1, "merge")


REPEATING_PID = """
import os, sys
from uuid import uuid4
from strandline.producers.doorbell.doorbell import Doorbell
from strandline.schemas.values.lanes import Lane

def last_pid(number):
    try:
        with open("/proc/sys/kernel/ns_last_pid", "w") as chosen:
            chosen.write(str(number))
    except OSError:
        print("refused")
        sys.stdout.flush()
        os._exit(0)

def ring_with_the_pid(bell, pid):
    for _try in range(500):
        last_pid(pid - 1)
        child = os.fork()
        if child == 0:
            if os.getpid() == pid:
                bell.ring([Lane(uuid4(), uuid4(), 1, "merge")])
                bell.close(timeout_seconds=60)
            os._exit(0)
        os.waitpid(child, 0)
        if child == pid:
            print("rung")
            return

told, tell = os.pipe()
middle = os.fork()
if middle == 0:
    bell = Doorbell(sys.argv[1])
    bell.ring([Lane(uuid4(), uuid4(), 1, "summary")])
    pid = os.getpid()
    if os.fork() == 0:
        os.read(told, 1)
        ring_with_the_pid(bell, pid)
        sys.stdout.flush()
    os._exit(0)
os.waitpid(middle, 0)
os.write(tell, b"!")
"""


def test_a_child_with_the_process_id_of_an_ancestor_rings_by_itself(
    broker: BrokerQueues, broker_url: str
) -> None:
    """The ancestor made the doorbell, and has ended since."""
    command = [sys.executable, "-c", REPEATING_PID, broker_url]
    said = forking.run(command, stdout=subprocess.PIPE, timeout=120, check=True).stdout
    if said.strip() != "rung":
        pytest.skip("this machine lets nobody choose a process id")
    await_hints(broker, 1, "merge")


def test_a_lane_rung_for_again_and_again_gets_one_hint(
    broker: BrokerQueues, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "QUIET_SECONDS", 60.0)
    monkeypatch.setattr(doorbell, "GATHER_SECONDS", 0.5)
    bell = Doorbell(broker_url)
    lane, other = some_lane(), some_lane()
    bell.ring([lane])
    await_hints(broker, 1)
    for _time in range(50):
        bell.ring([lane, other])
    bell.close(timeout_seconds=60)
    await_hints(broker, 3)


def test_the_first_hint_after_a_while_goes_out_at_once(
    broker: BrokerQueues, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(doorbell, "GATHER_SECONDS", 3600.0)
    bell = Doorbell(broker_url)
    for number in (1, 2):
        bell.ring([some_lane()])
        await_hints(broker, number)
    bell.close()


def test_a_connection_that_is_not_used_is_closed_and_opened_again(
    broker: BrokerQueues, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "IDLE_SECONDS", 0.2)
    with BrokerProxy(broker_url) as proxy:
        bell = Doorbell(proxy.url)
        for number in (1, 2):
            bell.ring([some_lane()])
            await_hints(broker, number)
            wait_until(lambda: not proxy.connections, timeout=5, what="the connection to be closed")
        bell.close()


def test_a_lane_gets_its_next_hint_when_its_time_has_come(
    broker: BrokerQueues, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "REPEAT_SECONDS", 1.0)
    bell = Doorbell(broker_url)
    lane = some_lane()
    bell.ring([lane])
    await_hints(broker, 1)
    bell.ring([lane] * 50)
    wait_until(lambda: broker.waiting("summary") > 1, timeout=20, what="the next hint")
    bell.close()
    assert broker.waiting("summary") <= 3, "which are one, and one for each time they were looked at"


# Pacing: no lane passes more often than it may, and none is forgotten.
SECONDS = 1.0
LANES = [Lane(UUID(int=number), UUID(int=number), 1, "summary") for number in range(4)]


def test_the_first_hint_passes_at_once_and_its_repetitions_as_one() -> None:
    pacer, lane, other = Pacer(SECONDS), LANES[0], LANES[1]
    assert pacer.wait_seconds(0.0) is None
    assert pacer.pass_on([lane, lane], 0.0) == [lane]
    assert pacer.wait_seconds(0.0) is None
    assert pacer.pass_on([lane, other], 0.25) == [other]
    assert pacer.wait_seconds(0.5) == 0.5
    assert pacer.pass_on([lane], 0.5) == []
    assert pacer.pass_on([], 1.0) == [lane]
    assert pacer.wait_seconds(1.0) is None


def test_hints_that_a_pacer_keeps_can_be_taken_once() -> None:
    pacer = Pacer(SECONDS)
    pacer.pass_on(LANES, 0.0)
    pacer.pass_on(LANES[:2], 0.5)
    assert pacer.take_kept() == LANES[:2]
    assert pacer.take_kept() == []
    assert pacer.pass_on([], 2.0) == []


@given(st.lists(st.tuples(st.floats(0.0, 0.7), st.lists(st.sampled_from(LANES), max_size=3)), max_size=40))
def test_each_hint_is_followed_by_one_in_time(rung: list[tuple[float, list[Lane]]]) -> None:
    """Rung for at any times, and looked at as it asks to be."""
    pacer, now = Pacer(SECONDS), 0.0
    passed: dict[Lane, list[float]] = {lane: [] for lane in LANES}
    asked: dict[Lane, float] = {}

    def look(lanes: list[Lane]) -> None:
        asked.update(dict.fromkeys(lanes, now))
        for lane in pacer.pass_on(lanes, now):
            passed[lane].append(now)

    for pause, lanes in [*rung, (2 * SECONDS, [])]:
        until = now + pause
        while (wait := pacer.wait_seconds(now)) is not None and now + wait <= until:
            now += wait
            look([])
        now = until
        look(lanes)
    for lane, times in passed.items():
        assert all(later - earlier >= SECONDS - 1e-9 for earlier, later in pairwise(times))
        if lane in asked:
            assert asked[lane] <= times[-1] <= asked[lane] + SECONDS + 1e-9
    assert pacer.wait_seconds(now) is None
