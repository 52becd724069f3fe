"""Flushing: marks move by compare-and-set, each message is delivered once, no caller waits for a broker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from strandline import Memory
from strandline.pipelines.flush.flush import deliver_idle, flush_by_hand, flush_over_mark, read_window
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.postgres.query import Query
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.stored import due_work
from tests.support.workers.worker_processes import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

TEN: dict[str, Any] = {"tokenizer_fn": lambda _text: 10}
KEYS = identify_session("default", "s", None)
SPEAKERS = ("user", "assistant")


def talk(memory: Memory, messages: int) -> None:
    """Turns of two messages; the next message of the session is a user's if it has an even number so far."""
    for number in range(messages):
        memory.put({"role": SPEAKERS[number % 2], "content": f"m{number}"})


def marks(url: str) -> tuple[Any, ...]:
    """Window begin, flushed through, window tokens."""
    return rows_of(url, "SELECT window_from, flushed_through, window_tokens FROM strandline.session")[0]


def events(url: str) -> list[tuple[Any, ...]]:
    return rows_of(url, "SELECT from_seq, through_seq, cause FROM strandline.flush_event ORDER BY 1")


def check_delivery(url: str) -> None:
    """Each seq up to the mark lies in exactly one event, and each event is due to each pipeline."""
    expected = 1
    for from_seq, through_seq, _ in events(url):
        assert from_seq == expected
        expected = through_seq + 1
    assert marks(url)[1] == expected - 1
    fed = rows_of(url, "SELECT unnest(pipelines) FROM strandline.session")
    due = due_work(url)
    assert due == len(fed) * len(events(url))


def test_a_manual_flush_keeps_the_last_turn(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=["summary"], token_limit=1_000, token_flush_size=30, **TEN)
    talk(memory, 10)
    flushed = memory.flush()
    assert len(flushed) == 3
    assert events(database_url) == [(1, 3, "manual"), (4, 6, "manual"), (7, 8, "manual")]
    assert marks(database_url) == (9, 8, 20)
    assert memory.flush() == []
    ids = rows_of(database_url, "SELECT event_id FROM strandline.flush_event ORDER BY from_seq")
    assert [event_id for (event_id,) in ids] == flushed
    assert len(memory.flush(all=True)) == 1
    assert marks(database_url) == (11, 10, 0)
    assert memory.flush(all=True) == []
    check_delivery(database_url)
    memory.put({"role": "user", "content": "next"})
    assert marks(database_url) == (11, 10, 10)


def test_without_blocks_a_flush_only_archives(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[], token_limit=100, token_flush_size=30, **TEN)
    talk(memory, 20)
    assert events(database_url)
    assert rows_of(database_url, "SELECT 1 FROM strandline.due") == []
    assert len(memory.get_all()) == 20
    shown = memory.get()
    assert shown.omitted == ()
    assert shown.caught_up
    assert [message.text for message in shown] == [f"m{number}" for number in range(20 - len(shown), 20)]


def test_every_pipeline_of_the_session_gets_every_event(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", token_limit=100, token_flush_size=30, **TEN)
    talk(memory, 20)
    stages = rows_of(database_url, "SELECT DISTINCT stage FROM strandline.due ORDER BY 1")
    assert stages == [("extract",), ("summary",), ("vectors",)]
    check_delivery(database_url)


def step_through(
    database: Database, operation: Operation[Any], before_the_flush: Callable[[], object]
) -> Any:
    """Carry an operation out, and let something happen between its plan and its flush."""
    result: Any = None
    while True:
        try:
            step = operation.send(result)
        except StopIteration as done:
            return done.value
        assert isinstance(step, Query)
        if step.name == "flush":
            before_the_flush()
        result = database.fetch(step)


def prepared(memory: Memory, database_url: str) -> None:
    """A session over its mark, as a process leaves it that dies between put and flush."""
    rows_of(
        database_url,
        "UPDATE strandline.session SET flush_at_tokens = 10000 RETURNING 1",
    )
    talk(memory, 10)
    rows_of(database_url, "UPDATE strandline.session SET flush_at_tokens = 70 RETURNING 1")


@pytest.fixture
def memory(make_memory: MakeMemory, database_url: str) -> Memory:
    made = make_memory("s", memory_blocks=["summary"], token_limit=100, token_flush_size=30, **TEN)
    talk(made, 2)
    prepared(made, database_url)
    return made


def test_a_flush_that_comes_second_does_nothing(rig: Rig, memory: Memory) -> None:
    def first() -> None:
        assert rig.database.run(flush_over_mark(KEYS.shard_key, KEYS.session_key)) is not None

    second = step_through(rig.database, flush_over_mark(KEYS.shard_key, KEYS.session_key), first)
    assert second is None
    check_delivery(rig.url)


def test_a_flush_planned_before_a_reset_does_nothing(rig: Rig, memory: Memory) -> None:
    """A reset moves the marks and renews the incarnation: what was planned from before is void."""
    assert step_through(rig.database, flush_over_mark(KEYS.shard_key, KEYS.session_key), memory.reset) is None
    assert events(rig.url) == []
    assert marks(rig.url) == (13, 12, 0)


def test_a_put_between_plan_and_flush_is_kept(memory: Memory, database: Database, database_url: str) -> None:
    def put() -> None:
        rows_of(database_url, "UPDATE strandline.session SET flush_at_tokens = 10000 RETURNING 1")
        memory.put({"role": "user", "content": "in between"})

    assert step_through(database, flush_over_mark(KEYS.shard_key, KEYS.session_key), put) is not None
    window_from, flushed_through, window_tokens = marks(database_url)
    assert window_from == flushed_through + 1
    assert window_tokens == 10 * (13 - flushed_through)
    check_delivery(database_url)
    assert memory.get_all()[-1].text == "in between"


def test_a_manual_flush_that_loses_the_race_plans_again(rig: Rig, memory: Memory) -> None:
    once = (rig.database.run(flush_over_mark(KEYS.shard_key, KEYS.session_key)) for _ in range(1))
    flushed = step_through(
        rig.database,
        flush_by_hand(KEYS.shard_key, KEYS.session_key, everything=True),
        partial(next, once, None),
    )
    assert flushed is not None
    assert marks(rig.url) == (13, 12, 0)
    check_delivery(rig.url)


def test_the_next_put_flushes_what_a_dead_process_left(memory: Memory, database_url: str) -> None:
    assert events(database_url) == []
    memory.put({"role": "user", "content": "next"})
    assert events(database_url)[0][0] == 1
    assert marks(database_url)[2] <= 70
    check_delivery(database_url)


def test_flushes_at_once_deliver_once(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=["summary"], token_limit=200, token_flush_size=30, **TEN)

    def work(number: int) -> None:
        memory.put({"role": "user", "content": f"m{number}"})
        if number % 3 == 0:
            memory.flush(all=number % 2 == 0)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(work, range(200)))
    assert [message.seq for message in memory.get_all()] == list(range(1, 201))
    check_delivery(database_url)
    window_from, _, window_tokens = marks(database_url)
    assert window_tokens == 10 * (201 - window_from)


def test_an_idle_delivery_leaves_the_window_alone(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["summary"], token_limit=100, token_flush_size=30, **TEN)
    talk(memory, 6)
    before = [message.text for message in memory.get()]
    seen = rig.database.run(read_window(KEYS.shard_key, KEYS.session_key))
    assert seen is not None
    assert rig.database.run(deliver_idle(seen)) is not None
    assert marks(rig.url) == (1, 6, 60)
    assert [message.text for message in memory.get()] == before
    assert events(rig.url) == [(1, 3, "idle"), (4, 6, "idle")]
    # Delivered messages are not delivered again when they leave the window, wherever it is cut.
    talk(memory, 6)
    assert marks(rig.url)[0] > 1
    check_delivery(rig.url)
    seen = rig.database.run(read_window(KEYS.shard_key, KEYS.session_key))
    assert seen is not None
    rig.database.run(deliver_idle(seen))
    assert marks(rig.url)[1] == 12
    check_delivery(rig.url)


def test_a_session_that_pauses_is_remembered_and_still_there(rig: Rig) -> None:
    memory = rig.memory("s", idle_seconds=1, consume="background")
    for number in range(4):
        memory.put({"role": "user", "content": f"My name is Maren and I keep {number + 2} boats in Husum."})
    wait_until(lambda: events(rig.url), timeout=15, what="the idle flush")
    assert {cause for _, _, cause in events(rig.url)} == {"idle"}
    shown = memory.get(wait_for=4, timeout=300)
    assert [message.text for message in shown[-4:]] == [message.text for message in memory.get_all()]
    assert dict(shown.covered_through) == {"facts": 4, "summary": 4, "vectors": 4}
    assert memory.facts.list()


def test_a_dead_process_is_made_up_for_by_the_sweep(rig: Rig, memory: Memory) -> None:
    """No process puts again; the watch that the crossing put left behind brings the sweep."""
    rows_of(
        rig.url,
        "INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)"
        " VALUES (%s, %s, 'overdue', clock_timestamp()) RETURNING 1",
        KEYS.shard_key,
        KEYS.session_key,
    )
    rig.memory("other", consume="background").get()
    wait_until(lambda: marks(rig.url)[2] <= 70, timeout=15, what="the sweep to flush")
    assert {cause for _, _, cause in events(rig.url)} == {"threshold"}


def test_a_crossing_put_leaves_a_watch_for_the_case_that_it_dies(rig: Rig, memory: Memory) -> None:
    memory.put({"role": "user", "content": "crossing"})
    watches = (
        "SELECT check_at <= clock_timestamp() + interval '4 s' FROM strandline.watch WHERE cause = 'overdue'"
    )
    assert rows_of(rig.url, watches) == [(True,)]


def test_a_worker_process_hears_of_a_flush(rig: Rig) -> None:
    rig.start_worker()
    memory = rig.memory("s", broker_url=rig.broker_url, token_limit=400, token_flush_size=60)
    for number in range(40):
        memory.put({"role": "user", "content": f"My sister Inga lives in house number {number} of Husum."})
    wait_until(lambda: nothing_due(rig.url), timeout=15, what="the worker")
    assert memory.facts.list()
    shown = memory.get()
    assert shown.caught_up
    assert "tail" not in {omission.kind for omission in shown.omitted}


def test_a_broker_that_is_away_fails_no_put(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", broker_url="redis://127.0.0.1:1/0", token_limit=100, token_flush_size=30, **TEN)
    memory.put({"role": "user", "content": "the first one opens connections"})
    for number in range(100):
        memory.put({"role": "user", "content": f"m{number}"})
    check_delivery(database_url)
    memory.close()
