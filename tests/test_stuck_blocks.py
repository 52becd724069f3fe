"""Code of a custom block that does not come back: its event is given up, and the worker goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from strandline import Memory
from strandline.pipelines.bounded_calls import BoundedCalls, TimeLimitError
from strandline.pipelines.custom import block_calls
from strandline.pipelines.engine.dead_letters import list_dead_letters
from strandline.schemas.database import Database
from strandline.schemas.settings import load_settings
from tests import sample_blocks
from tests.conftest import StartWorker, nothing_due, rows_of, wait_until
from tests.draining import drain_everything
from tests.model_server import ModelServer
from tests.sample_blocks import POISON
from tests.working import environment

MakeMemory = Callable[..., Memory]

BLOCKS = "tests.sample_blocks:Stuck"
STATES = "SELECT state::text FROM strandline.block_state ORDER BY shard_key, scope_key, ordinal DESC"


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    sample_blocks.forgiving.clear()
    yield
    sample_blocks.forgiving.set()
    wait_until(lambda: block_calls.late == 0, timeout=30, what="what was stuck to end")
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
    make_stuck: Callable[..., Memory], database: Database, database_url: str
) -> None:
    say(make_stuck("s"), "one", f"two {POISON}", "three")
    settings = load_settings(blocks=BLOCKS, block_timeout_seconds=0.3)
    drain_everything(database, database_url, settings, ["stuck"])
    (letter,) = list_dead_letters(database, stage="stuck")
    assert letter.reason == (
        "fold() of block 'stuck' did not return within 0.3 seconds (STRANDLINE_BLOCK_TIMEOUT_SECONDS)"
    )
    assert nothing_due(database_url)
    assert rows_of(database_url, STATES)[0] == ('["one", "three"]',)
    assert block_calls.late == 2, "in company, and alone"


def test_a_worker_that_lost_its_threads_says_so_and_ends_for_its_supervisor_to_start_another(
    make_stuck: Callable[..., Memory],
    start_worker: StartWorker,
    model_server: ModelServer,
    database: Database,
    database_url: str,
    broker_url: str,
) -> None:
    own = environment(model_server) | {
        "STRANDLINE_BLOCKS": BLOCKS,
        "STRANDLINE_BLOCK_TIMEOUT_SECONDS": "0.3",
    }
    worker = start_worker("--queues", "stuck", "--concurrency", "1", **own)
    say(make_stuck("s", broker_url=broker_url), f"one {POISON}")
    assert worker.process.wait(120) == 75
    wait_until(
        lambda: any("stops (code of custom blocks does not come back" in line for line in worker.output),
        timeout=10,
        what="the reason why it stops",
    )
    assert any("action=block_late" in line for line in worker.output)
    assert rows_of(database_url, "SELECT count(*) FROM strandline.worker") == [(0,)], "it took its leave"
    assert len(list_dead_letters(database, stage="stuck")) == 1
    start_worker("--queues", "stuck", "--concurrency", "1", **own)
    say(make_stuck("t", broker_url=broker_url), "two")
    wait_until(lambda: nothing_due(database_url), timeout=60, what="another worker to do what comes later")
    assert rows_of(database_url, STATES) == [('["two"]',)]


def test_a_call_that_comes_back_late_has_its_place_again() -> None:
    calls = BoundedCalls(1)
    with pytest.raises(TimeLimitError):
        calls.within(0.05, sample_blocks.forgiving.wait)
    assert calls.late == 1
    with pytest.raises(TimeLimitError):
        calls.within(60.0, lambda: "no place")
    sample_blocks.forgiving.set()
    wait_until(lambda: calls.late == 0, timeout=30, what="the late call to end")
    assert calls.within(60.0, lambda: "there") == "there"
