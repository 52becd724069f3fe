"""Taking the newest message back: what may be popped, what follows, and that everything still adds up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import InvalidMessageError, Memory, OwnerError
from strandline.pipelines.audit.appending import Act
from strandline.pipelines.inspect.verify import verify
from strandline.producers.writing.correcting.correct import Correcting
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.messages import Pop
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.producers.writing.correcting.test_corrections import planned_flush
from tests.support.messages import user
from tests.support.stored import flush_events

SYSTEM = {"role": "system", "content": "Answer in short sentences."}


def texts(memory: Memory) -> list[str]:
    return [message.text for message in memory.get_all()]


def marks(database_url: str) -> tuple[int, ...]:
    """next_seq, pinned_through, flushed_through, window_from, pinned_tokens, window_tokens."""
    columns = "next_seq, pinned_through, flushed_through, window_from, pinned_tokens, window_tokens"
    (row,) = rows_of(database_url, f"SELECT {columns} FROM strandline.session")
    return tuple(row)


def assert_sound(database: Database) -> None:
    assert verify(database).violations == ()


def test_the_newest_message_comes_back_and_is_gone(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user("one"), {"id": "m2", **user("two"), "metadata": {"mood": "glad"}}])
    popped = memory.pop()
    assert popped is not None
    assert (popped.id, popped.seq, popped.text, popped.metadata) == ("m2", 2, "two", {"mood": "glad"})
    assert texts(memory) == [message.text for message in memory.get()] == ["one"]
    assert_sound(database)


def test_a_number_is_not_used_again_but_an_id_may_be(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put(user("one"))
    assert memory.put({"id": "again", **user("two")}) == 2
    memory.pop()
    assert memory.put({"id": "again", **user("two, said better")}) == 3
    assert_sound(database)


def test_an_empty_session_has_nothing_to_pop(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])
    assert memory.pop() is None
    memory.put(user("one"))
    assert memory.pop() is not None
    assert memory.pop() is None
    memory.put(user("before the reset"))
    memory.reset()
    assert memory.pop() is None


def test_a_delivered_message_is_taken_back(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    memory.flush(all=True)
    popped = memory.pop()
    assert popped is not None
    assert popped.text == "two"
    assert texts(memory) == ["one"]
    memory.put(user("three"))
    popped = memory.pop()
    assert popped is not None
    assert popped.text == "three"
    assert_sound(database)


def test_a_message_that_a_reset_took_meanwhile_is_not_popped(rig: Rig) -> None:
    """The pop looks for the newest message again, instead of failing."""
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    memory.flush(all=True)
    identity = identify_session(memory.namespace, memory.session_id, None)
    memory.reset()
    assert not rig.database.run(Correcting(identity, uuid4(), Act.here("pop")).take_back(2, 2))
    assert memory.pop() is None
    assert_sound(rig.database)


def test_the_only_message_is_taken_back_once(make_memory: MakeMemory, database: Database) -> None:
    """Where nothing is left, another message is not the newest either."""
    memory = make_memory("once", memory_blocks=[])
    memory.put(user("the only one"))
    memory.flush(all=True)
    identity = identify_session("default", "once", None)
    assert [
        database.run(Correcting(identity, uuid4(), Act.here("pop")).take_back(1, 1)) for _ in range(2)
    ] == [
        True,
        False,
    ]
    assert_sound(database)


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


def test_several_callers_at_once_get_the_only_message_once(rig: Rig) -> None:
    """All of them have read it as the newest, and found it delivered, when the first takes it back."""
    memory = rig.memory("raced", memory_blocks=["summary"])
    memory.put(user("its correction opens the lanes"))
    memory.flush(all=True)
    assert memory.pop() is not None
    memory.put(user("the only one"))
    memory.flush(all=True)
    with ThreadPoolExecutor(4) as threads, psycopg.connect(rig.url) as holder:
        holder.execute("SELECT FROM strandline.lane FOR UPDATE")
        pops = [threads.submit(memory.pop) for _ in range(4)]
        wait_until(lambda: rows_of(rig.url, WAITING) == [(4,)], timeout=60, what="four pops to wait")
        holder.rollback()
        popped = [pop.result() for pop in pops]
    assert [message.text for message in popped if message] == ["the only one"]
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.correction") == [(2,)]
    assert_sound(rig.database)


def test_nobody_pops_from_another_owner(make_memory: MakeMemory) -> None:
    make_memory("shared-name", user_id="ana", memory_blocks=[]).put(user("mine"))
    with pytest.raises(OwnerError):
        make_memory("shared-name", user_id="bo", memory_blocks=[]).pop()


def test_a_head_that_is_popped_can_be_given_anew(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([SYSTEM, user("hello")])
    assert [memory.pop(), memory.pop()] != [None, None]
    assert marks(rig.url) == (3, 2, 2, 3, 0, 0)
    memory.put({"role": "system", "content": "Answer at length."})
    assert marks(rig.url)[:2] == (4, 3)
    assert_sound(rig.database)


def test_ranges_stay_contiguous_over_what_was_popped(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([user(f"message {n}") for n in range(1, 4)])
    memory.pop()
    memory.flush(all=True)
    memory.put(user("a slip"))
    memory.pop()
    memory.put_messages([user("five"), user("six")])
    memory.flush(all=True)
    events = rows_of(
        rig.url,
        "SELECT from_seq, through_seq, message_count FROM strandline.flush_event ORDER BY from_seq",
    )
    assert events == [(1, 2, 2), (3, 6, 2)]
    assert_sound(rig.database)


def test_a_flush_that_was_planned_before_a_pop_does_nothing(rig: Rig) -> None:
    """The plan names what is gone by then; delivered, it would claim messages that are not there."""
    memory = rig.memory("raced", memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    flush = planned_flush(rig, "raced")
    memory.pop()
    assert rig.database.fetch(flush) == []
    assert flush_events(rig.url) == 0
    assert memory.flush(all=True) != []
    assert_sound(rig.database)


def test_an_attempt_that_is_sent_again_takes_nothing_more(rig: Rig) -> None:
    memory = rig.memory("repeated", memory_blocks=[])
    memory.put_messages([user("one"), user("two"), user("three")])
    identity = identify_session("default", "repeated", None)
    attempt = Pop(**identity.keys, seq=3, pop_id=UUID(int=7), act=None)
    assert [rig.database.fetch(attempt), rig.database.fetch(attempt)] == [[("ok",)], [("ok",)]]
    assert rig.database.fetch(Pop(**identity.keys, seq=3, pop_id=UUID(int=8), act=None)) == [("changed",)]
    assert texts(memory) == ["one", "two"]


def test_many_threads_pop_each_message_once(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user(f"message {n}") for n in range(12)])
    with ThreadPoolExecutor(4) as threads:
        popped = [message for message in threads.map(lambda _: memory.pop(), range(14)) if message]
    assert sorted(message.seq or 0 for message in popped) == list(range(1, 13))
    assert texts(memory) == []
    assert_sound(database)


def test_a_pop_joins_the_callers_transaction(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    with psycopg.connect(database_url) as connection:
        assert memory.pop(connection=connection) is not None
        connection.rollback()
    assert texts(memory) == ["one", "two"]


@pytest.mark.parametrize("derived", [False, True])
def test_a_reset_counts_nothing_popped_before(rig: Rig, derived: bool) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    memory.pop()
    memory.reset(derived=derived)
    memory.put(user("anew"))
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.popped") == [(0 if derived else 1,)]
    assert_sound(rig.database)


def test_a_loss_beside_a_pop_is_still_named(rig: Rig) -> None:
    memory = rig.memory("lossy", memory_blocks=[])
    memory.put_messages([user("one"), user("two"), user("three")])
    memory.pop()
    with psycopg.connect(rig.url) as connection:
        connection.execute("DELETE FROM strandline.message WHERE seq = 1")
    missing = [found for found in verify(rig.database).violations if found.kind == "message_missing"]
    assert [str(found.sentence) for found in missing] == [
        "Messages 1 to 1 of session 'lossy' are missing from the log."
    ]


@pytest.mark.parametrize("wrong", [7, True, "text", [7], {"role": "user"}])
def test_what_is_to_be_kept_and_is_no_list_of_messages_leaves_the_message(
    make_memory: MakeMemory, wrong: object
) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put(user("stays"))
    with pytest.raises(InvalidMessageError):
        memory.pop(keep=lambda message: wrong)  # type: ignore[arg-type,return-value]
    assert texts(memory) == ["stays"]


STEPS = st.lists(
    st.sampled_from(["put", "put", "put", "head", "pop", "flush", "flush_all", "reset"]), max_size=25
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_happens_everything_adds_up(rig: Rig, steps: list[str]) -> None:
    """Beside a plain list as the model of what the log holds."""
    memory = rig.memory(memory_blocks=[], token_limit=60, token_flush_size=12)
    model: list[str] = []
    for number, step in enumerate(steps):
        if step in ("put", "head"):
            text = f"This is message number {number}."
            memory.put({"role": "user" if step == "put" else "system", "content": text})
            model.append(text)
        elif step == "pop":
            popped = memory.pop()
            assert (popped.text if popped else None) == (model.pop() if model else None)
        elif step == "reset":
            memory.reset()
            model.clear()
        else:
            memory.flush(all=step == "flush_all")
    assert texts(memory) == model
    assert_sound(rig.database)
