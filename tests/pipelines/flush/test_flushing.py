"""Flushing: marks move by compare-and-set, each message is delivered once, no caller waits for a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import ConfigurationError, Facts, Memory
from strandline.pipelines.flush.flush import deliver_idle, flush_by_hand, flush_over_mark, read_window
from strandline.pipelines.flush.plan import Entry, plan_delivery
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.postgres.query import Query
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.workers.sweep import Sweep
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.messages import assistant, user
from tests.support.stored import due_work
from tests.support.workers.draining import drain_everything
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
        assert rig.database.run(flush_over_mark(KEYS.keys)) is not None

    second = step_through(rig.database, flush_over_mark(KEYS.keys), first)
    assert second is None
    check_delivery(rig.url)


def test_a_flush_planned_before_a_reset_does_nothing(rig: Rig, memory: Memory) -> None:
    """A reset moves the marks and renews the incarnation: what was planned from before is void."""
    assert step_through(rig.database, flush_over_mark(KEYS.keys), memory.reset) is None
    assert events(rig.url) == []
    assert marks(rig.url) == (13, 12, 0)


def test_a_put_between_plan_and_flush_is_kept(memory: Memory, database: Database, database_url: str) -> None:
    def put() -> None:
        rows_of(database_url, "UPDATE strandline.session SET flush_at_tokens = 10000 RETURNING 1")
        memory.put({"role": "user", "content": "in between"})

    assert step_through(database, flush_over_mark(KEYS.keys), put) is not None
    window_from, flushed_through, window_tokens = marks(database_url)
    assert window_from == flushed_through + 1
    assert window_tokens == 10 * (13 - flushed_through)
    check_delivery(database_url)
    assert memory.get_all()[-1].text == "in between"


def test_a_manual_flush_that_loses_the_race_plans_again(rig: Rig, memory: Memory) -> None:
    once = (rig.database.run(flush_over_mark(KEYS.keys)) for _ in range(1))
    flushed = step_through(
        rig.database,
        flush_by_hand(KEYS.keys, everything=True),
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
    seen = rig.database.run(read_window(KEYS.keys))
    assert seen is not None
    assert rig.database.run(deliver_idle(seen)) is not None
    assert marks(rig.url) == (1, 6, 60)
    assert [message.text for message in memory.get()] == before
    assert events(rig.url) == [(1, 3, "idle"), (4, 6, "idle")]
    # Delivered messages are not delivered again when they leave the window, wherever it is cut.
    talk(memory, 6)
    assert marks(rig.url)[0] > 1
    check_delivery(rig.url)
    seen = rig.database.run(read_window(KEYS.keys))
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


# Delivering at the end of a turn: what is delivered stays in the window, and is delivered once.
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def turn_marks(url: str) -> tuple[int, int]:
    return rows_of(url, "SELECT window_from, flushed_through FROM strandline.session")[0]


def shown(memory: Memory) -> list[str]:
    return [message.text for message in memory.get() if message.seq]


def test_the_answer_ends_the_turn_and_delivers_it_where_it_stands(rig: Rig) -> None:
    memory = rig.memory("s", deliver="turn", memory_blocks=["facts"])
    memory.put(user("one"))
    assert events(rig.url) == []
    memory.put(assistant("two"))
    assert events(rig.url) == [(1, 2, "turn")] and turn_marks(rig.url) == (1, 2)
    memory.put_messages([user("three"), assistant("four")])
    assert events(rig.url) == [(1, 2, "turn"), (3, 4, "turn")] and turn_marks(rig.url) == (1, 4)
    assert shown(memory) == ["one", "two", "three", "four"]
    assert memory.flush(all=True) == [], "what leaves the window later is not delivered again"
    assert turn_marks(rig.url) == (5, 4) and len(events(rig.url)) == 2
    assert verify(rig.database).violations == ()


def test_a_turn_with_tools_ends_with_the_answer_that_calls_none(rig: Rig) -> None:
    memory = rig.memory("s", deliver="turn", memory_blocks=["facts"])
    memory.put(user("look it up"))
    memory.put({"role": "assistant", "content": None, "tool_calls": [CALL]})
    memory.put({"role": "tool", "tool_call_id": "c1", "content": "found"})
    assert events(rig.url) == []
    memory.put(assistant("here it is"))
    assert events(rig.url) == [(1, 4, "turn")]


async def test_async_puts_deliver_turns_as_well(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", deliver="turn", memory_blocks=["facts"])
    await memory.aput(user("one"))
    await memory.aput(assistant("two"))
    await memory.aput(user("three"))
    await memory.adeliver()
    await memory.aclose()
    assert events(database_url) == [(1, 2, "turn"), (3, 3, "manual")]


def test_a_put_by_another_policy_goes_by_the_stored_one(make_memory: MakeMemory, database_url: str) -> None:
    make_memory("s", deliver="turn", memory_blocks=[]).put(user("one"))
    make_memory("s", memory_blocks=[]).put(assistant("two"))
    assert events(database_url) == [(1, 2, "turn")]


def test_a_change_of_the_policy_delivers_at_once_and_back(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[])
    memory.put_messages([user("one"), assistant("two"), user("three")])
    assert events(rig.url) == []
    assert memory.set_policy(deliver="turn").deliver == "turn"
    assert events(rig.url) == [(1, 2, "turn")], "the question waits for its answer"
    memory.set_policy(deliver="window")
    memory.put(assistant("four"))
    assert len(events(rig.url)) == 1
    assert verify(rig.database).violations == ()
    with pytest.raises(ConfigurationError, match="deliver is 'never'"):
        rig.memory("t", deliver="never")


def test_a_put_that_ends_a_turn_and_crosses_the_mark_does_both(rig: Rig) -> None:
    memory = rig.memory("s", deliver="turn", memory_blocks=[], token_limit=100, token_flush_size=30, **TEN)
    for number in range(8):
        memory.put(user(f"q{number}"))
        memory.put(assistant(f"a{number}"))
    assert [cause for _, _, cause in events(rig.url)] == ["turn"] * 8
    window_from, flushed_through = turn_marks(rig.url)
    assert window_from > 1 and flushed_through == 16
    assert shown(memory) == [f"{kind}{n}" for n in range(8) for kind in "qa"][window_from - 1 :]
    assert verify(rig.database).violations == ()


def test_the_sweep_delivers_the_turn_of_a_producer_that_died(rig: Rig) -> None:
    memory = rig.memory("s", deliver="turn", memory_blocks=["facts"])
    memory.put(user("one"))
    memory.put(assistant("two"))
    # As if the producer had died between its put and its delivery.
    for statement in (
        "DELETE FROM strandline.flush_event RETURNING 1",
        "DELETE FROM strandline.due RETURNING 1",
        "UPDATE strandline.session SET flushed_through = 0 RETURNING 1",
        "UPDATE strandline.watch SET check_at = now() WHERE cause = 'overdue' RETURNING 1",
    ):
        assert rows_of(rig.url, statement) == [(1,)]
    rung: list[Any] = []
    Sweep(
        rig.database,
        ring=rung.extend,
        take_over=lambda _lanes: None,
        stages=[],
        batch_size=10,
        dead_after_seconds=30,
    ).tick()
    assert events(rig.url) == [(1, 2, "turn")] and rung
    assert verify(rig.database).violations == ()


def test_a_read_shows_nothing_twice_and_says_how_far_memory_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    monkeypatch.setenv("STRANDLINE_TURN_DELAY_SECONDS", "0")
    chosen = load_settings(database_url=rig.url, embedding_backend="local")
    memory = rig.memory("s", user_id="ana", deliver="turn", memory_blocks=["facts", "vectors"])
    memory.put_messages([user("Ana keeps bees in Graz."), assistant("How many?")])
    before = memory.get("bees in Graz")
    drain_everything(rig.database, rig.url, chosen)
    assert nothing_due(rig.url)
    for context in (before, memory.get("bees in Graz")):
        assert [message.text for message in context if message.seq] == [
            "Ana keeps bees in Graz.",
            "How many?",
        ]
        assert str(context.to_openai()).count("Ana keeps bees in Graz.") == 1
        assert context.hits == () or not context.hits
    assert memory.get().caught_up
    message = memory.get_all()[0]
    explained = explain(rig.database, str(message.id), user_id="ana")
    assert isinstance(explained, MessageExplanation) and explained.event is not None
    assert explained.event.cause == "turn"


def test_what_one_session_hears_another_knows_while_the_turn_is_still_shown(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    first = rig.memory("one", user_id="ana", deliver="turn", memory_blocks=["facts"], consume="background")
    first.put_messages([user("My name is Chandra."), assistant("Hello Chandra!")])
    second = rig.memory("two", user_id="ana", deliver="turn", memory_blocks=["facts"], consume="background")
    wait_until(
        lambda: "My name is Chandra." in str(second.get("What is my name?").to_openai()),
        timeout=60,
        what="the other session knows the name",
    )
    assert shown(first) == ["My name is Chandra.", "Hello Chandra!"]
    other = Facts.for_owner(user_id="ben", database_url=rig.url)
    assert list(other.list()) == []
    other.close()


def test_a_delivered_answer_can_be_popped_and_said_again(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory("s", deliver="turn", memory_blocks=[])
    memory.put_messages([user("one"), assistant("two")])
    popped = memory.pop()
    assert popped is not None and popped.text == "two"
    memory.put(assistant("three"))
    assert [message.text for message in memory.get().messages] == ["one", "three"]
    assert verify(database).violations == ()


_STEPS = st.lists(st.sampled_from(["user", "answer", "call", "deliver", "flush", "flush all"]), max_size=24)


@given(_STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_it_goes_each_message_is_delivered_once_and_shown_until_it_leaves(
    rig: Rig, steps: Sequence[str]
) -> None:
    memory = rig.memory(
        None, deliver="turn", memory_blocks=["facts"], token_limit=120, token_flush_size=20, **TEN
    )
    said = 0
    for number, step in enumerate(steps):
        if step == "user":
            memory.put(user(f"m{said}"))
        elif step == "answer":
            memory.put(assistant(f"m{said}"))
        elif step == "call":
            call = {**CALL, "id": f"c{number}"}
            memory.put({"role": "assistant", "content": f"m{said}", "tool_calls": [call]})
        elif step == "deliver":
            memory.deliver()
        else:
            memory.flush(all=step == "flush all")
        said += step in ("user", "answer", "call")
    everything = [message.text for message in memory.get_all()]
    context = [message.text for message in memory.get() if message.seq]
    assert everything == [f"m{n}" for n in range(said)]
    assert len(set(context)) == len(context), "nothing is shown twice"
    if said:
        assert verify(rig.database, session_id=memory.session_id).violations == ()


def test_a_plan_ends_with_an_answer_and_leaves_the_window() -> None:
    entries = [
        Entry(1, "user", 10),
        Entry(2, "assistant", 10),
        Entry(3, "user", 10),
        Entry(4, "assistant", 10, ("c",)),
    ]
    plan = plan_delivery(entries, window_from=1, flushed_through=0, flush_size=100, whole_turns=True)
    assert plan is not None and (plan.window_from, plan.flushed_through, plan.tokens_out) == (1, 2, 0)
    assert plan_delivery(entries, window_from=1, flushed_through=2, flush_size=100, whole_turns=True) is None
