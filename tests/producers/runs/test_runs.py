"""Runs by id: added, replaced where they stand, and given back, the last of them first of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import (
    ConfigurationError,
    ConflictError,
    DeliveredError,
    InvalidMessageError,
    Memory,
    OwnerError,
    SessionRun,
)
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import rows_of
from tests.support.servers.databases import temporary_database

Chat = dict[str, Any]
SYSTEM = {"role": "system", "content": "Answer in short sentences."}


def user(text: str, **more: object) -> Chat:
    return {"role": "user", "content": text, **more}


def assistant(text: str, **more: object) -> Chat:
    return {"role": "assistant", "content": text, **more}


def call(name: str) -> Chat:
    function = {"name": name, "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": name, "type": "function", "function": function}],
    }


def result(name: str, text: str) -> Chat:
    return {"role": "tool", "content": text, "tool_call_id": name}


def texts(messages: Sequence[Any]) -> list[str]:
    return [message.text for message in messages]


@pytest.fixture(scope="module")
def url(stack: EmbeddedStack) -> Iterator[str]:
    """A database that all tests of this module share."""
    with temporary_database(stack.database_url) as url:
        yield url


@pytest.fixture
def memory(url: str) -> Iterator[Memory]:
    memory = Memory.from_defaults(uuid4().hex, database_url=url, memory_blocks=[], user_id="ana")
    yield memory
    memory.close()


def assert_sound(url: str) -> None:
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings(database_url=url)))
    try:
        assert verify(database).violations == ()
    finally:
        database.close()


def test_a_run_is_a_put_that_is_known_by_its_id(memory: Memory) -> None:
    run = memory.add_run("r1", [user("one"), assistant("two")], agent_id="writer", team_id="desk")
    assert run == SessionRun("r1", "completed", (1, 2), "writer", "desk")
    assert texts(memory.get_all()) == texts(memory.run_history()) == ["one", "two"]


def test_the_last_five_runs_are_given_as_the_document_says(memory: Memory) -> None:
    for number in range(7):
        memory.add_run(f"r{number}", [user(f"question {number}"), assistant(f"answer {number}")])
    memory.put(user("in no run"))
    last_five = [f"{what} {number}" for number in range(2, 7) for what in ("question", "answer")]
    assert texts(memory.run_history()) == last_five
    assert texts(memory.run_history(2)) == last_five[-4:]
    assert memory.run_history(last_n=0) == []
    assert len(memory.run_history(None)) == len(memory.run_history(100)) == 14


def test_roles_and_statuses_are_skipped_and_runs_are_counted_after_that(memory: Memory) -> None:
    memory.add_run("r1", [SYSTEM, user("one"), call("look"), result("look", "seen"), assistant("two")])
    memory.add_run("r2", [user("three")], status="paused")
    memory.add_run("r3", [user("four")], status="error")
    memory.add_run("r4", [user("five")], status="cancelled")
    memory.add_run("r5", [user("six")])
    memory.add_run("r6", [user("seven")], status="running")
    assert texts(memory.run_history(2))[-2:] == ["two", "six"]
    assert texts(memory.run_history(1, skip_statuses=["completed", "running"])) == ["five"]
    assert texts(memory.run_history(None, skip_statuses=[])) == [
        *(SYSTEM["content"], "one", "", "seen", "two"),
        *("three", "four", "five", "six", "seven"),
    ]
    assert texts(memory.run_history(skip_roles=["system", "tool", "assistant"])) == ["one", "six"]


def test_only_runs_of_an_agent_or_a_team(memory: Memory) -> None:
    memory.add_run("r1", [user("one")], agent_id="writer", team_id="desk")
    memory.add_run("r2", [user("two")], agent_id="critic", team_id="desk")
    memory.add_run("r3", [user("three")], team_id="board")
    assert texts(memory.run_history(agent_id="writer")) == ["one"]
    assert texts(memory.run_history(1, team_id="desk")) == ["two"]
    assert memory.run_history(agent_id="writer", team_id="board") == []


def test_a_system_message_is_stored_once_and_given_once(memory: Memory) -> None:
    for number in range(3):
        run = memory.add_run(f"r{number}", [SYSTEM, user(f"question {number}")])
        assert run.seqs[0] == 1
    assert texts(memory.get_all()).count(SYSTEM["content"]) == 1
    assert texts(memory.run_history(2)) == [SYSTEM["content"], "question 1", "question 2"]
    memory.add_run("r3", [{**SYSTEM, "content": "Answer at length."}, user("question 3")])
    assert [m.role for m in memory.run_history(2)] == ["system", "user", "user"]
    assert texts(memory.run_history(1))[0] == "Answer at length."


def test_a_repeated_run_adds_nothing_and_may_have_another_status(memory: Memory) -> None:
    messages = [SYSTEM, user("one"), assistant("two")]
    first = memory.add_run("r1", messages, status="running")
    again = memory.add_run("r1", messages)
    assert (again.seqs, again.corrections, again.status) == (first.seqs, (), "completed")
    assert len(memory.get_all()) == 3
    # Other ids are no other messages.
    assert memory.add_run("r1", [{**message, "id": uuid4().hex} for message in messages]).seqs == first.seqs


def test_the_last_run_is_replaced_by_a_rewind_and_keeps_what_is_the_same(memory: Memory) -> None:
    memory.add_run("r1", [user("one"), assistant("two")])
    memory.add_run("r2", [user("three"), assistant("four")])
    run = memory.add_run("r2", [user("three"), assistant("other"), user("more")])
    assert run.seqs == (3, 5, 6) and [c.kind for c in run.corrections] == ["rewind"]
    assert texts(memory.get_all()) == texts(memory.run_history()) == ["one", "two", "three", "other", "more"]
    assert memory.add_run("r2", [user("three")]).seqs == (3,)
    assert texts(memory.run_history()) == ["one", "two", "three"]


def test_a_run_that_goes_on_loses_nothing(memory: Memory) -> None:
    paused = memory.add_run("r1", [user("one"), call("look")], status="paused")
    run = memory.add_run("r1", [user("one"), call("look"), result("look", "seen"), assistant("two")])
    assert run.seqs[:2] == paused.seqs and run.corrections == ()
    assert texts(memory.run_history()) == ["one", "", "seen", "two"]


def test_a_run_in_the_middle_is_given_other_content_in_its_place(memory: Memory) -> None:
    first = memory.add_run("r1", [user("one"), assistant("two")])
    memory.add_run("r2", [user("three")])
    run = memory.add_run("r1", [user("other"), assistant("two")])
    assert run.seqs == first.seqs
    assert [(c.kind, c.seqs) for c in run.corrections] == [("replace", (1,))]
    assert texts(memory.get_all()) == texts(memory.run_history()) == ["other", "two", "three"]


@pytest.mark.parametrize(
    "messages",
    [
        [user("one"), call("look"), result("look", "seen"), assistant("two")],
        [user("one")],
        [user("one"), assistant("two", name="critic")],
        [],
    ],
    ids=["more", "fewer", "another speaker", "none"],
)
def test_what_stood_behind_a_run_in_the_middle_stands_behind_it_again(
    memory: Memory, messages: list[Chat]
) -> None:
    memory.add_run("r1", [user("one"), assistant("two")])
    behind = memory.add_run("r2", [user("three", id="m3"), assistant("four")])
    memory.put(user("in no run", metadata={"color": "red"}))
    times = [message.created_at for message in memory.get_all()[2:]]
    memory.add_run("r1", messages)
    own = [m["content"] or "" for m in messages]
    assert texts(memory.get_all()) == [*own, "three", "four", "in no run"]
    assert texts(memory.run_history()) == [*own, "three", "four"]
    again = memory.get_all()[len(own) :]
    assert [message.created_at for message in again] == times and again[0].id == "m3"
    assert texts(memory.history(metadata={"color": "red"})) == ["in no run"]
    assert again[0].seq not in behind.seqs


def test_too_many_messages_behind_a_run_are_not_put_again(memory: Memory) -> None:
    memory.add_run("r1", [user("one"), assistant("two")])
    memory.put_messages([user(f"line {number}") for number in range(1_000)])
    with pytest.raises(ConflictError, match="more than 999 were put"):
        memory.add_run("r1", [user("other")])
    assert texts(memory.history(offset=1_000)) == ["one", "two"]
    memory.add_run("r1", [user("other"), assistant("two")])
    assert texts(memory.run_history()) == ["other", "two"]


def test_a_message_that_two_runs_bring_is_one_and_stays_as_long_as_one_has_it(memory: Memory) -> None:
    memory.add_run("r1", [user("one", id="m1"), assistant("two", id="m2")])
    history = [user("one", id="m1"), assistant("two", id="m2")]
    run = memory.add_run("r2", [*history, user("three")])
    assert run.seqs == (1, 2, 3)
    assert texts(memory.run_history()) == ["one", "two", "three"]
    memory.add_run("r2", [user("three")])
    assert texts(memory.get_all()) == ["one", "two", "three"]
    assert texts(memory.run_history(1)) == ["three"]


def test_a_message_that_was_put_before_can_become_a_runs(memory: Memory) -> None:
    memory.put(user("one", id="m1"))
    assert memory.add_run("r1", [user("one", id="m1"), assistant("two")]).seqs == (1, 2)
    with pytest.raises(ConflictError, match="m1"):
        memory.add_run("r2", [user("another", id="m1")])
    assert texts(memory.run_history()) == ["one", "two"]


def test_what_is_taken_back_is_no_runs_and_a_run_without_messages_is_not_counted(memory: Memory) -> None:
    for number in range(3):
        memory.add_run(f"r{number}", [user(f"question {number}")])
    memory.add_run("empty", [])
    memory.rewind(2)
    assert texts(memory.run_history(2)) == ["question 0"]
    memory.add_run("r3", [user("question 3")])
    assert memory.add_run("r1", [user("question 1")]).corrections == ()
    assert (
        texts(memory.run_history()) == texts(memory.get_all()) == ["question 0", "question 3", "question 1"]
    )


@pytest.mark.parametrize("is_last", [True, False], ids=["last", "middle"])
def test_what_a_person_replaced_stays_replaced_when_its_run_comes_again(
    memory: Memory, url: str, is_last: bool
) -> None:
    given = [user("my card is 4111"), assistant("noted")]
    memory.add_run("r1", given)
    if not is_last:
        memory.add_run("r2", [user("later")])
    memory.replace(1, "[redacted]")
    behind = [] if is_last else ["later"]
    assert memory.add_run("r1", given).corrections == ()
    assert texts(memory.get_all()) == ["[redacted]", "noted", *behind]
    # It goes on, begins with something else, has another answer: what is given as before is not brought back.
    for messages, expected in (
        ([*given, assistant("and")], ["[redacted]", "noted", "and"]),
        ([user("hello"), *given], ["hello", "[redacted]", "noted"]),
        ([given[0], assistant("other")], ["[redacted]", "other"]),
    ):
        memory.add_run("r1", messages)
        assert texts(memory.get_all()) == [*expected, *behind]
        assert texts(memory.run_history()) == [*expected, *behind]
    # What is given in other words is another message.
    memory.add_run("r1", [user("my card is blue"), assistant("other")])
    assert texts(memory.get_all()) == ["my card is blue", "other", *behind]
    assert_sound(url)


def test_what_a_person_popped_stays_away_when_its_run_comes_again(memory: Memory, url: str) -> None:
    given = [user("question"), assistant("secret")]
    memory.add_run("r1", given)
    memory.pop()
    for _again in range(2):
        assert memory.add_run("r1", given).seqs == (1,)
        assert texts(memory.get_all()) == ["question"]
    memory.add_run("r2", [user("later")])
    memory.add_run("r1", [*given, assistant("more")])
    memory.add_run("r1", [*given, assistant("more")])
    assert texts(memory.get_all()) == texts(memory.run_history()) == ["question", "more", "later"]
    memory.add_run("r1", [user("question"), assistant("answer")])
    assert texts(memory.run_history()) == ["question", "answer", "later"]
    assert_sound(url)


def test_of_equal_messages_of_a_run_the_one_that_was_taken_stays_away(memory: Memory) -> None:
    given = [user("again"), assistant("yes"), user("again"), assistant("yes")]
    memory.add_run("r1", given)
    memory.pop()
    assert memory.add_run("r1", given).seqs == (1, 2, 3)
    memory.replace(1, "[redacted]")
    assert memory.add_run("r1", given).corrections == ()
    assert texts(memory.get_all()) == ["[redacted]", "yes", "again"]


def test_a_fork_holds_what_a_person_corrected_before_it(memory: Memory, url: str) -> None:
    given = [user("my card is 4111"), assistant("noted"), assistant("secret")]
    memory.add_run("r1", given)
    memory.replace(1, "[redacted]")
    memory.pop()
    fork = memory.fork()
    forked = Memory.from_defaults(fork.session_id, database_url=url, memory_blocks=[], user_id="ana")
    forked.add_run("r1", given)
    assert texts(forked.get_all()) == ["[redacted]", "noted"]
    forked.close()


def test_a_system_message_that_a_person_replaced_serves_later_runs_as_it_stands(memory: Memory) -> None:
    memory.add_run("r0", [SYSTEM, user("one")])
    memory.replace(1, "Answer politely.")
    assert memory.add_run("r0", [SYSTEM, user("one")]).corrections == ()
    assert memory.add_run("r1", [SYSTEM, user("two")]).seqs[0] == 1
    assert memory.add_run("r1", [SYSTEM, user("three")]).seqs[0] == 1
    assert texts(memory.get_all()) == ["Answer politely.", "one", "three"]


def test_a_head_that_was_delivered_is_replaced_or_stays(memory: Memory) -> None:
    memory.add_run("r1", [SYSTEM, user("one"), assistant("two")])
    memory.deliver()
    other = {**SYSTEM, "content": "Answer at length."}
    run = memory.add_run("r1", [other, user("one"), assistant("two")])
    assert [c.kind for c in run.corrections] == ["replace"]
    assert texts(memory.get()) == texts(memory.run_history()) == ["Answer at length.", "one", "two"]
    with pytest.raises(DeliveredError):
        memory.add_run("r1", [user("one"), assistant("two")])
    assert len(memory.get_all()) == 3


def test_runs_end_with_their_session_and_go_along_with_a_fork(memory: Memory, url: str) -> None:
    memory.add_run("r1", [user("one"), assistant("two")])
    memory.add_run("r2", [user("three"), assistant("four")])
    fork = memory.fork(through_seq=3)
    forked = Memory.from_defaults(fork.session_id, database_url=url, memory_blocks=[], user_id="ana")
    assert texts(forked.run_history()) == ["one", "two", "three"]
    forked.add_run("r2", [user("three"), assistant("five")])
    assert texts(forked.run_history(1)) == ["three", "five"]
    assert texts(memory.run_history(1)) == ["three", "four"]
    forked.reset(derived=True)
    memory.reset()
    assert memory.run_history() == forked.run_history() == []
    assert rows_of(
        url,
        "SELECT count(*) FROM strandline.session_run WHERE run_id IN ('r1', 'r2') AND"
        f" session_key IN (SELECT session_key FROM strandline.session WHERE session_id IN"
        f" ('{memory.session_id}', '{fork.session_id}'))",
    ) == [(0,)]
    assert memory.add_run("r1", [user("anew")]).corrections == ()
    assert texts(memory.run_history()) == ["anew"]
    forked.close()


def test_a_run_joins_the_callers_transaction(memory: Memory, url: str) -> None:
    memory.add_run("r1", [user("one")])
    with psycopg.connect(url) as connection:
        memory.add_run("r2", [user("two")], connection=connection)
        memory.add_run("r1", [user("other")], connection=connection)
        assert texts(memory.run_history(connection=connection)) == ["other", "two"]
        connection.rollback()
    assert texts(memory.run_history()) == ["one"]


def test_a_bad_run_changes_nothing(memory: Memory, url: str) -> None:
    memory.add_run("r1", [user("one")])
    wrong: Any = "done"
    with pytest.raises(ConfigurationError, match="status has 'done'"):
        memory.add_run("r2", [user("two")], status=wrong)
    with pytest.raises(ConfigurationError, match="skip_roles"):
        memory.run_history(skip_roles=[wrong])
    with pytest.raises(ConfigurationError, match="skip_statuses is 'done'"):
        memory.run_history(skip_statuses=wrong)
    with pytest.raises(ConfigurationError, match="last_n is -1"):
        memory.run_history(-1)
    for run_id in ("", "x" * 513, "a\0"):
        with pytest.raises(InvalidMessageError, match="run_id"):
            memory.add_run(run_id, [user("two")])
    with pytest.raises(InvalidMessageError, match=r"messages\[1\]"):
        memory.add_run("r1", [user("other"), {"role": "nobody", "content": "x"}])
    assert texts(memory.get_all()) == ["one"]
    strangers = Memory.from_defaults(memory.session_id, database_url=url, memory_blocks=[], user_id="ben")
    for attempt in (
        lambda: strangers.add_run("r1", [user("mine")]),
        lambda: strangers.add_run("r1", []),
        strangers.run_history,
    ):
        with pytest.raises(OwnerError):
            attempt()
    strangers.close()


def test_two_users_who_give_their_runs_the_same_id_have_a_run_each(memory: Memory, url: str) -> None:
    other = Memory.from_defaults(uuid4().hex, database_url=url, memory_blocks=[], user_id="ben")
    memory.add_run("r1", [user("of ana")])
    other.add_run("r1", [user("of ben")])
    memory.add_run("r1", [user("of ana, again")])
    assert texts(memory.run_history()) == ["of ana, again"]
    assert texts(other.run_history()) == ["of ben"]
    other.close()


def test_many_callers_add_the_same_runs_and_one_of_each_is_kept(memory: Memory, url: str) -> None:
    def add(number: int) -> None:
        memory.add_run(f"r{number % 4}", [user(f"question {number % 4}"), assistant(f"answer {number}")])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(48)))
    assert len(memory.get_all()) == len(memory.run_history()) == 8
    assert sorted(texts(memory.history(roles=["user"]))) == [f"question {number}" for number in range(4)]
    assert_sound(url)


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=4)
STEPS = st.lists(st.tuples(st.sampled_from(["r1", "r2", "r3"]), WORDS), max_size=12)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_runs_are_those_that_were_added_last_under_each_id(
    url: str, steps: list[tuple[str, list[str]]]
) -> None:
    """Whatever is added in whatever order, the log is the runs one behind the other."""
    memory = Memory.from_defaults(uuid4().hex, database_url=url, memory_blocks=[], user_id="ana")
    runs: dict[str, list[str]] = {}
    for run_id, words in steps:
        if not runs.get(run_id):  # a run without messages has no place yet
            runs.pop(run_id, None)
        runs[run_id] = words
        memory.add_run(run_id, [user(word) for word in words])
    expected = [word for words in runs.values() for word in words]
    assert texts(memory.get_all()) == texts(memory.run_history(None)) == expected
    memory.close()
