"""Code of a custom block that does not come back: its event is given up, and the worker goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from strandline import Memory
from strandline.pipelines.custom import stage as custom
from strandline.pipelines.engine.dead_letters import list_dead_letters
from strandline.pipelines.own_code.bounded_calls import (
    BoundedCalls,
    NoPlaceError,
    TimeLimitError,
    worker_calls,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support import sample_blocks
from tests.support.sample_blocks import POISON
from tests.support.stored import registered_workers
from tests.support.workers.busy_workers import environment
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import HandWorker

BLOCKS = "tests.support.sample_blocks:Stuck"
# Harmless code needs microseconds, and has thousands of times as long.
SECONDS = 1.5
STATES = "SELECT state::text FROM strandline.block_state ORDER BY shard_key, scope_key, ordinal DESC"


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    sample_blocks.forgiving.clear()
    yield
    sample_blocks.forgiving.set()
    wait_until(lambda: worker_calls.late == 0, timeout=30, what="what was stuck to end")
    sample_blocks.forgiving.clear()


@pytest.fixture
def make_stuck(
    make_memory: MakeMemory, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Memory]:
    """Memories whose only block is the one that gets stuck, which is registered."""
    monkeypatch.setenv("STRANDLINE_BLOCKS", BLOCKS)
    drain_everything(database, database_url, load_settings(blocks=BLOCKS), ["stuck"])
    return lambda session_id, **options: make_memory(session_id, memory_blocks=["stuck"], **options)


def say(memory: Memory, *texts: str) -> None:
    for text in texts:
        memory.put({"role": "user", "content": text})
        memory.flush(all=True)


def test_an_event_on_which_a_block_does_not_come_back_is_a_dead_letter(
    rig: Rig, make_stuck: Callable[..., Memory]
) -> None:
    say(make_stuck("s"), "one", f"two {POISON}", "three")
    settings = load_settings(blocks=BLOCKS, block_timeout_seconds=SECONDS)
    drain_everything(rig.database, rig.url, settings, ["stuck"])
    (letter,) = list_dead_letters(rig.database, stage="stuck")
    assert letter.reason == (
        f"fold() of block 'stuck' did not return within {SECONDS} seconds (STRANDLINE_BLOCK_TIMEOUT_SECONDS)"
    )
    assert nothing_due(rig.url)
    assert rows_of(rig.url, STATES)[0] == ('["one", "three"]',)
    assert worker_calls.late == 2, "in company, and alone"


def test_a_worker_that_lost_its_threads_says_so_and_ends_for_its_supervisor_to_start_another(
    rig: Rig, make_stuck: Callable[..., Memory]
) -> None:
    own = environment(rig.model) | {
        "STRANDLINE_BLOCKS": BLOCKS,
        "STRANDLINE_BLOCK_TIMEOUT_SECONDS": str(SECONDS),
    }
    worker = rig.start_worker("--queues", "stuck", "--concurrency", "1", **own)
    say(make_stuck("s", broker_url=rig.broker_url), f"one {POISON}")
    assert worker.process.wait(120) == 75
    wait_until(
        lambda: any("stops (code of custom blocks has not returned" in line for line in worker.output),
        timeout=10,
        what="the reason why it stops",
    )
    assert any("action=block_late" in line for line in worker.output)
    assert registered_workers(rig.url) == 0, "it took its leave"
    assert len(list_dead_letters(rig.database, stage="stuck")) == 1
    rig.start_worker("--queues", "stuck", "--concurrency", "1", **own)
    say(make_stuck("t", broker_url=rig.broker_url), "two")
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="another worker to do what comes later")
    assert rows_of(rig.url, STATES) == [('["two"]',)]


def test_a_call_that_comes_back_late_has_its_place_again() -> None:
    calls = BoundedCalls(1)
    with pytest.raises(TimeLimitError):
        calls.within(0.05, sample_blocks.forgiving.wait)
    assert calls.late == 1
    with pytest.raises(NoPlaceError):
        calls.within(60.0, lambda: "no place")
    sample_blocks.forgiving.set()
    wait_until(lambda: calls.late == 0, timeout=30, what="the late call to end")
    assert calls.within(60.0, lambda: "there") == "there"


class CallerLast:
    """A lock that whoever asked for the call gets only once the call's own thread has had it."""

    def __init__(self, call_began: threading.Event) -> None:
        self._lock = threading.Lock()
        self._call_began = call_began
        self._caller = threading.get_ident()
        self._passed = threading.Event()

    def __enter__(self) -> None:
        if threading.get_ident() == self._caller and self._call_began.is_set():
            calls_go_on.set()
            assert self._passed.wait(300)
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()
        if threading.get_ident() != self._caller:
            self._passed.set()


class Lingering:
    """Keeps a thread alive after its last line, as much that a thread leaves behind may."""

    def __init__(self, until: threading.Event) -> None:
        self._until = until

    def __del__(self) -> None:
        self._until.wait(300)


calls_go_on = threading.Event()


def test_a_call_that_ends_as_it_is_given_up_does_not_count_as_late_for_ever() -> None:
    calls, began, is_looked_at = BoundedCalls(1), threading.Event(), threading.Event()
    left_behind = threading.local()
    calls_go_on.clear()

    def call() -> str:
        left_behind.lingering = Lingering(is_looked_at)
        began.set()
        calls_go_on.wait(300)
        return "there"

    calls._lock = CallerLast(began)  # type: ignore[assignment]
    try:
        assert calls.within(0.05, call) == "there"
    finally:
        began.clear()
        is_looked_at.set()
    assert calls.late == 0


def test_a_call_that_ends_its_thread_is_no_late_one() -> None:
    calls = BoundedCalls(1)
    with pytest.raises(RuntimeError, match="SystemExit"):
        calls.within(60.0, sys.exit)
    assert calls.within(60.0, lambda: "there") == "there"


def test_without_a_thread_for_it_the_work_of_a_block_waits(
    rig: Rig, make_stuck: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event whose block was never called has no reason to become a dead letter."""
    full, let_go = BoundedCalls(1), threading.Event()
    monkeypatch.setattr(custom, "worker_calls", full)
    with pytest.raises(TimeLimitError):
        full.within(0.05, let_go.wait)
    say(make_stuck("s"), "one")
    worker = HandWorker(rig.database, prepare_stages(rig.database, load_settings(blocks=BLOCKS), ["stuck"]))
    (lane,) = due_lanes(rig.url, ["stuck"])
    for _turn in range(2 * worker.retry.max_failures):
        wait_until(lambda: worker.drain(lane) == "postponed", timeout=30, what="its turn")
    assert list_dead_letters(rig.database, stage="stuck") == []
    ((told,),) = rows_of(rig.url, "SELECT last_error FROM strandline.lane WHERE stage = 'stuck'")
    assert "of block 'stuck' was not called" in told
    let_go.set()
    wait_until(lambda: worker.drain(lane) == "drained", timeout=30, what="a place, and its turn")
    assert rows_of(rig.url, STATES) == [('["one"]',)]
