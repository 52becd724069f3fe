"""Correcting what is not delivered yet: marks, reads, caches, retries, and that everything adds up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from strandline import ConflictError, InvalidMessageError, Memory, NotFoundError, OwnerError
from strandline.pipelines.flush.flush import read_window
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.flush import Flush
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.messages import assistant

SYSTEM = {"role": "system", "content": "Answer in short sentences."}


def user(text: str, **more: object) -> dict[str, object]:
    return {"role": "user", "content": text, **more}


def texts(memory: Memory) -> list[str]:
    return [message.text for message in memory.get_all()]


def shown(memory: Memory) -> list[str]:
    return [message.text for message in memory.get()]


def marks(database_url: str) -> tuple[int, ...]:
    """next_seq, pinned_through, flushed_through, window_from, corrections."""
    columns = "next_seq, pinned_through, flushed_through, window_from, corrections"
    (row,) = rows_of(database_url, f"SELECT {columns} FROM strandline.session")
    return tuple(row)


def assert_sound(database: Database) -> None:
    assert verify(database).violations == ()


def test_a_rewind_takes_back_everything_from_a_message_on(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([user("one"), assistant("two"), user("three"), assistant("four")])
    assert shown(memory) == ["one", "two", "three", "four"]
    correction = memory.rewind(3, actor="ana")
    assert (correction.number, correction.kind, correction.from_seq, correction.through_seq) == (
        1,
        "rewind",
        3,
        4,
    )
    assert correction.seqs == (3, 4)
    assert texts(memory) == shown(memory) == ["one", "two"]
    assert memory.put(user("three, said better")) == 5
    assert texts(memory) == shown(memory) == ["one", "two", "three, said better"]
    assert_sound(rig.database)


def test_a_replaced_message_stays_at_its_place(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    mine = {
        "role": "user",
        "content": "my card is 4711",
        "id": "m2",
        "name": "Ana",
        "metadata": {"mood": "glad"},
    }
    memory.put_messages([user("one"), mine, assistant("three")])
    before = memory.get_all()[1]
    assert len(shown(memory)) == 3
    correction = memory.replace(2, "my card is [redacted] and no more than that")
    assert (correction.number, correction.kind, correction.seqs) == (1, "replace", (2,))
    (_, after, _) = memory.get_all()
    assert after.text == "my card is [redacted] and no more than that"
    assert (after.seq, after.id, after.name, after.metadata) == (2, "m2", "Ana", {"mood": "glad"})
    assert (after.role, after.created_at) == (before.role, before.created_at)
    assert after.tokens != before.tokens
    assert shown(memory) == ["one", after.text, "three"], "also from the cached window"
    assert_sound(database)


def test_nothing_of_what_was_taken_back_is_kept(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user("zyzzyva one"), user("zyzzyva two", id="zyzzyva")])
    memory.replace(1, "nothing")
    memory.rewind(2)
    for (table,) in rows_of(
        database_url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'strandline'"
    ):
        for (row,) in rows_of(database_url, f"SELECT t::text FROM strandline.{table} t"):
            assert "zyzzyva" not in row, table


def test_superseded_ids_may_be_used_again(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user("one", id="a"), user("two", id="b")])
    memory.rewind(2)
    assert memory.put(user("two, otherwise", id="b")) == 3
    memory.replace(1, "one, otherwise")
    with pytest.raises(ConflictError):
        memory.put(user("one", id="a"))
    assert memory.put(user("one, otherwise", id="a")) == 1, "what it says now is what was put"
    assert_sound(database)


@pytest.mark.parametrize("again", ["rewind", "replace"])
def test_a_repeated_correction_is_the_same(make_memory: MakeMemory, database: Database, again: str) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])

    def correct() -> object:
        if again == "rewind":
            return memory.rewind(2, idempotency_key="k")
        return memory.replace(2, "two, otherwise", idempotency_key="k")

    first = correct()
    memory.put(user("three"))
    expected = texts(memory)
    assert correct() == first
    assert texts(memory) == expected
    with pytest.raises(ConflictError, match="idempotency key"):
        memory.rewind(1, idempotency_key="k")
    with pytest.raises(ConflictError, match="idempotency key"):
        memory.replace(2, "something else", idempotency_key="k")
    # A key belongs to its session.
    other = make_memory(memory_blocks=[])
    other.put_messages([user("one"), user("two")])
    assert other.rewind(2, idempotency_key="k").number == 1
    memory.rewind(1)
    assert correct() == first, "also when the message is gone"
    assert_sound(database)


def test_a_rewind_may_find_nothing_left(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    memory.rewind(2)
    assert memory.rewind(2).seqs == ()
    assert texts(memory) == ["one"]
    assert_sound(database)


def test_a_head_that_is_taken_back_can_be_given_anew(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([SYSTEM, user("hello")])
    memory.rewind(1)
    assert texts(memory) == []
    memory.put({"role": "system", "content": "Answer at length."})
    assert marks(rig.url) == (4, 3, 3, 4, 1)
    assert_sound(rig.database)


def test_a_head_keeps_its_place_when_it_is_replaced(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([SYSTEM, user("hello")])
    memory.flush(all=True)
    memory.replace(1, "Answer at length, and with many examples of what you mean.")
    assert shown(memory)[0].startswith("Answer at length")
    assert_sound(database)


def test_other_processes_see_a_correction_at_once(make_memory: MakeMemory) -> None:
    here, there = (make_memory("s", memory_blocks=[]) for _ in range(2))
    here.put_messages([user("one"), assistant("two"), user("three")])
    assert shown(there) == shown(here) == ["one", "two", "three"]
    there.replace(2, "two, otherwise")
    assert shown(here) == ["one", "two, otherwise", "three"]
    there.rewind(3)
    there.put(user("four"))
    assert shown(here) == ["one", "two, otherwise", "four"]


def test_what_does_not_exist_cannot_be_corrected(make_memory: MakeMemory) -> None:
    memory = make_memory("named", memory_blocks=[])
    with pytest.raises(NotFoundError, match="Nothing has been put"):
        memory.rewind(1)
    memory.put_messages([user("one"), user("two")])
    for seq in (0, 3):
        with pytest.raises(NotFoundError, match=f"no message {seq}"):
            memory.rewind(seq)
    memory.rewind(2)
    with pytest.raises(NotFoundError, match="no message 2"):
        memory.replace(2, "other")
    with pytest.raises(InvalidMessageError, match=r"message\.content"):
        memory.replace(1, [{"no": "type"}])
    with pytest.raises(InvalidMessageError, match="actor"):
        memory.rewind(1, actor="")
    memory.reset()
    with pytest.raises(NotFoundError):
        memory.rewind(1)
    assert texts(memory) == []


def test_nobody_corrects_another_owners_session(make_memory: MakeMemory) -> None:
    mine = make_memory("shared-name", user_id="ana", memory_blocks=[])
    mine.put(user("mine"))
    other = make_memory("shared-name", user_id="bo", memory_blocks=[])
    with pytest.raises(OwnerError):
        other.rewind(1)
    with pytest.raises(OwnerError):
        other.replace(1, "yours")
    assert texts(mine) == ["mine"]


def test_a_correction_is_undone_with_its_transaction(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    with psycopg.connect(rig.url) as connection:
        memory.rewind(2, connection=connection)
        memory.replace(1, "other", connection=connection)
        connection.rollback()
    assert texts(memory) == ["one", "two"]
    with psycopg.connect(rig.url) as connection:
        memory.rewind(2, connection=connection)
    assert texts(memory) == ["one"]
    assert_sound(rig.database)


def planned_flush(rig: Rig, session_id: str) -> Flush:
    """A flush of a session's first two messages, planned by what its window holds now."""
    identity = identify_session("default", session_id, None)
    window = rig.database.run(read_window(identity.keys))
    assert window is not None
    seen = window.marks
    return Flush(
        **identity.keys,
        incarnation=seen.incarnation,
        corrections=seen.corrections,
        old_window_from=1,
        old_flushed_through=0,
        window_from=3,
        flushed_through=2,
        tokens_out=seen.window_tokens,
        messages_out=2,
        bytes_out=seen.window_bytes,
        cause="manual",
        event_ids=[uuid4()],
        from_seqs=[1],
        through_seqs=[2],
        tokens=[seen.window_tokens],
        messages=[2],
        version=1,
        lazily=False,
        delay_seconds=0.0,
        traceparent=None,
    )


@pytest.mark.parametrize("kind", ["rewind", "replace"])
def test_a_flush_that_was_planned_before_a_correction_is_lost(rig: Rig, kind: str) -> None:
    memory = rig.memory("raced", memory_blocks=[])
    memory.put_messages([user("one"), user("two"), user("three")])
    planned = planned_flush(rig, "raced")
    if kind == "rewind":
        memory.rewind(3)
    else:
        memory.replace(1, "one, and much more than that in tokens")
    assert rig.database.fetch(planned) == []
    assert len(memory.flush(all=True)) == 1
    assert_sound(rig.database)


def test_two_corrections_at_once_are_both_made(make_memory: MakeMemory, database: Database) -> None:
    memories = [make_memory("busy", memory_blocks=[]) for _ in range(4)]
    memories[0].put_messages([user(f"message {number}") for number in range(1, 41)])

    def correct(number: int) -> int:
        memory = memories[number % 4]
        if number % 2:
            return memory.rewind(40 - number).number
        return memory.replace(1 + number % 8, f"other {number}").number

    with ThreadPoolExecutor(4) as threads:
        numbers = list(threads.map(correct, range(1, 24)))
    assert sorted(numbers) == list(range(1, 24))
    assert len(texts(memories[0])) == 16
    assert_sound(database)


@pytest.mark.parametrize("derived", [False, True])
def test_a_reset_begins_after_all_corrections(rig: Rig, *, derived: bool) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    memory.replace(1, "other")
    memory.rewind(2)
    memory.reset(derived=derived)
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.superseded") == [(0 if derived else 2,)]
    memory.put_messages([user("three"), user("four")])
    assert memory.rewind(4).number == 3
    assert texts(memory) == ["three"]
    assert_sound(rig.database)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("DELETE FROM strandline.correction WHERE number = 1", "correction_missing"),
        ("UPDATE strandline.superseded SET seq = 1 WHERE number = 2", "superseded_stray"),
        ("UPDATE strandline.session SET corrections = 7", "correction_missing"),
        (
            "INSERT INTO strandline.superseded SELECT shard_key, session_key, 1, 2, 4, false"
            " FROM strandline.session",
            "superseded_stray",
        ),
    ],
)
def test_verify_finds_what_contradicts_a_correction(rig: Rig, change: str, kind: str) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([user("one"), user("two"), user("three")])
    memory.replace(1, "other")
    memory.rewind(3)
    assert_sound(rig.database)
    rows_of(rig.url, f"{change} RETURNING 1")
    assert kind in {violation.kind for violation in verify(rig.database).violations}


def test_a_replaced_message_keeps_all_but_its_content(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages(
        [{"id": "m1", "role": "user", "content": "kumquat", "metadata": {"mood": "glad", "day": 3}}]
    )
    content = "'envelope', 'digest', 'tokens', 'bytes'"
    kept = f"SELECT to_jsonb(m) - ARRAY[{content}] FROM strandline.message m"
    before = rows_of(rig.url, kept)
    memory.replace(1, "a fruit")
    assert rows_of(rig.url, kept) == before
    assert [message.text for message in memory.history(metadata={"mood": "glad"})] == ["a fruit"]
    assert verify(rig.database).violations == ()
