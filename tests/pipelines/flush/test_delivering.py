"""Delivering at the end of a turn: what is delivered stays in the window, and is delivered once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import ConfigurationError, Facts, Memory
from strandline.pipelines.flush.plan import Entry, plan_turn
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.workers.sweep import Sweep
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.messages import assistant, user
from tests.support.workers.draining import drain_everything

TEN: dict[str, Any] = {"tokenizer_fn": lambda _text: 10}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def events(url: str) -> list[tuple[Any, ...]]:
    return rows_of(url, "SELECT from_seq, through_seq, cause FROM strandline.flush_event ORDER BY 1")


def marks(url: str) -> tuple[int, int]:
    return rows_of(url, "SELECT window_from, flushed_through FROM strandline.session")[0]


def shown(memory: Memory) -> list[str]:
    return [message.text for message in memory.get() if message.seq]


def test_the_answer_ends_the_turn_and_delivers_it_where_it_stands(rig: Rig) -> None:
    memory = rig.memory("s", deliver="turn", memory_blocks=["facts"])
    memory.put(user("one"))
    assert events(rig.url) == []
    memory.put(assistant("two"))
    assert events(rig.url) == [(1, 2, "turn")] and marks(rig.url) == (1, 2)
    memory.put_messages([user("three"), assistant("four")])
    assert events(rig.url) == [(1, 2, "turn"), (3, 4, "turn")] and marks(rig.url) == (1, 4)
    assert shown(memory) == ["one", "two", "three", "four"]
    assert memory.flush(all=True) == [], "what leaves the window later is not delivered again"
    assert marks(rig.url) == (5, 4) and len(events(rig.url)) == 2
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
    window_from, flushed_through = marks(rig.url)
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
    plan = plan_turn(entries, window_from=1, flushed_through=0, flush_size=100)
    assert plan is not None and (plan.window_from, plan.flushed_through, plan.tokens_out) == (1, 2, 0)
    assert plan_turn(entries, window_from=1, flushed_through=2, flush_size=100) is None
