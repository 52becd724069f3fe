"""Sessions: whose they are, how they are kept apart, and how they start over."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from strandline import (
    ConfigurationError,
    ConflictError,
    InvalidMessageError,
    Memory,
    OwnerError,
    StrandlineError,
    UnknownPipelineError,
    VectorMemoryBlock,
)
from strandline.schemas.tables import metadata
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.messages import user
from tests.support.stored import stored_messages, stored_sessions

TIGHT: dict[str, Any] = {"token_limit": 400, "token_flush_size": 60}


def tables_with_rows(url: str) -> set[str]:
    names = [table.name for table in metadata.tables.values() if table.name != "generation"]
    return {name for name in names if rows_of(url, f"SELECT 1 FROM strandline.{name} LIMIT 1")}


def tell(memory: Memory, name: str, food: str) -> int:
    """A conversation that leaves facts, a summary and vectors behind; returns its last seq."""
    seq = 0
    for number in range(12):
        memory.put(user(f"My name is {name} and I like {food} number {number} more than any other food."))
        seq = memory.put({"role": "assistant", "content": f"Good to know that, number {number}."})
    memory.flush(all=True)
    return seq


def remember(memory: Memory, url: str, name: str, food: str) -> None:
    """The same, and wait until this process has derived everything from it."""
    seq = tell(memory, name, food)
    assert memory.get(wait_for=seq, timeout=300).caught_up
    wait_until(lambda: nothing_due(url), timeout=30, what="everything to be consumed")


@pytest.mark.parametrize("stranger", ["other", None])
def test_a_session_cannot_be_opened_as_somebody_else(rig: Rig, stranger: str | None) -> None:
    rig.memory("s", user_id="maren", memory_blocks=[]).put(user("private"))
    other = rig.memory("s", user_id=stranger, memory_blocks=[])
    check_refused(other)
    assert stored_messages(rig.url) == 1
    assert stored_sessions(rig.url) == 1


def test_a_session_without_a_user_cannot_be_taken_over(make_memory: MakeMemory) -> None:
    make_memory("s", memory_blocks=[]).put(user("private"))
    check_refused(make_memory("s", user_id="maren", memory_blocks=[]))


def check_refused(other: Memory) -> None:
    """Every way in, sync and async, says that the session belongs to another owner."""
    for call in (
        lambda: other.put(user("x")),
        lambda: other.put_messages([user("x"), user("y")]),
        other.get,
        other.get_all,
        lambda: list(other.iterate()),
        lambda: other.set([user("x")]),
        lambda: other.set([]),
        other.reset,
        lambda: other.reset(derived=True),
        other.flush,
        lambda: other.flush(all=True),
    ):
        with pytest.raises(OwnerError, match="belongs to another owner"):
            call()

    async def main() -> None:
        for make in (
            lambda: other.aput(user("x")),
            other.aget,
            other.aget_all,
            lambda: other.aset([user("x")]),
            other.areset,
            other.aflush,
        ):
            with pytest.raises(OwnerError):
                await make()
        await other.aclose()

    asyncio.run(main())


def test_the_same_name_in_two_namespaces_is_two_sessions(make_memory: MakeMemory) -> None:
    one = make_memory("s", user_id="maren", namespace="one", memory_blocks=[])
    two = make_memory("s", user_id="other", namespace="two", memory_blocks=[])
    assert [one.put(user("in one")), two.put(user("in two"))] == [1, 1]
    one.reset(derived=True)
    assert [message.text for message in two.get_all()] == ["in two"]
    assert one.get_all() == []


def test_names_that_look_like_something_else_are_names(make_memory: MakeMemory, database_url: str) -> None:
    names = [
        "'; DROP TABLE strandline.session; --",
        "%s %(x)s %%",
        "{0} $1 ${x}",
        "../../etc/passwd",
        "a/b", "a", "b",
        "Robert\"); --",
        "\\'; SELECT 1",
        "in side", "inside", "INSIDE",
        "é", "e\u0301",
        "x\u202egnp", "[red]", "<b>", "🌊" * 100,
    ]  # fmt: skip
    for number, name in enumerate(names):
        memory = make_memory(name, user_id=names[-1 - number], namespace=name, memory_blocks=[])
        memory.put(user(name, id=name, name=name, metadata={name: name}))
    for number, name in enumerate(names):
        memory = make_memory(name, user_id=names[-1 - number], namespace=name, memory_blocks=[])
        assert [(m.text, m.id, m.name, m.metadata) for m in memory.get_all()] == [
            (name, name, name, {name: name})
        ]
    assert stored_sessions(database_url) == len(names)


NO_NAMES = (" leading", "\u202egnp", "\n", "\t\r\x1b[31m")


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_others_would_strip_is_no_name_but_a_text_and_an_id(rig: Rig, text: str) -> None:
    for field in ("session_id", "user_id", "namespace"):
        with pytest.raises(InvalidMessageError, match=f"^{field}: must not "):
            rig.memory(**{"session_id": "s", "user_id": "u", "namespace": "n"} | {field: text})
    assert tables_with_rows(rig.url) == set()
    memory = rig.memory("s", memory_blocks=[])
    memory.put(user(text, id=text, name=text, metadata={text: text}))
    assert [(m.text, m.id, m.name, m.metadata) for m in memory.get_all()] == [
        (text, text, text, {text: text})
    ]


def test_parts_of_names_do_not_run_together() -> None:
    assert identify_session("a", "bc", None).session_key != identify_session("ab", "c", None).session_key
    assert identify_session("n", "u", None).shard_key != identify_session("n", "s", "u").shard_key


def test_a_schema_name_is_checked(make_memory: MakeMemory) -> None:
    for name in ("strandline; DROP SCHEMA public", "Strandline", "a.b", "", "x" * 60, "1a"):
        with pytest.raises(ConfigurationError, match="schema=: "):
            make_memory(schema=name)


@pytest.mark.parametrize("together", [True, False])
def test_a_block_that_nobody_serves_is_an_error_at_put(rig: Rig, together: bool) -> None:
    memory = rig.memory("s", memory_blocks=["mentions", "facts"])
    with pytest.raises(UnknownPipelineError, match="mentions"):
        memory.put_messages([user("x"), user("y")]) if together else memory.put(user("x"))
    assert tables_with_rows(rig.url) == set(), "not even the session's name is taken"
    assert len(memory.get()) == 0
    assert rig.memory("s", user_id="maren", memory_blocks=["facts"]).put(user("x")) == 1


def test_two_users_never_see_each_others_memory(make_memory: MakeMemory, database_url: str) -> None:
    """Facts, summary and vectors, from two users in one database whose sessions speak of the same."""
    blocks = ["facts", "summary", VectorMemoryBlock(scope="owner", similarity_top_k=50)]
    people = {"maren": ("Maren", "herring"), "tove": ("Tove", "seaweed")}
    for user_id, (name, food) in people.items():
        memory = make_memory(
            f"{user_id}-1", user_id=user_id, memory_blocks=blocks, consume="background", **TIGHT
        )
        remember(memory, database_url, name, food)
    for user_id, (name, food) in people.items():
        (other,) = (foods for other_id, foods in people.items() if other_id != user_id)
        for session_id in (f"{user_id}-1", f"{user_id}-new"):
            memory = make_memory(session_id, user_id=user_id, memory_blocks=blocks, token_limit=30_000)
            shown = str(memory.get(f"Who likes {other[1]}, {other[0]} or {name}?"))
            assert food in shown
            assert other[0] not in shown
            assert other[1] not in shown
        assert all(other[1] not in fact.text for fact in memory.facts.list())
        assert memory.facts.list()
    foreign = make_memory("maren-1", user_id="maren", namespace="elsewhere", memory_blocks=blocks)
    assert len(foreign.get("herring")) == 0
    assert foreign.facts.list() == []


def test_a_reset_begins_the_log_anew(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=["summary"], **TIGHT)
    for number in range(50):
        memory.put(user(f"message {number} with some more words in it"))
    before = one_session(database_url)
    assert before["flushed_through"] > 0
    memory.reset()
    after = one_session(database_url)
    assert memory.get_all() == []
    assert list(memory.iterate()) == []
    assert len(memory.get()) == 0
    assert UUID(after["incarnation"]) != UUID(before["incarnation"])
    assert after["window_tokens"] == after["pinned_tokens"] == 0
    assert memory.put(user("anew")) == 51
    assert [message.seq for message in memory.get_all()] == [51]
    assert [message.text for message in memory.get()] == ["anew"]
    assert stored_messages(database_url) == 51


def test_a_reset_head_is_pinned_again(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages([{"role": "system", "content": "old"}, user("x")])
    memory.reset()
    memory.put_messages([{"role": "system", "content": "new"}, user("y")])
    found = one_session(database_url)
    assert (found["pinned_through"], found["window_from"], found["log_start_seq"]) == (3, 4, 3)
    assert [message.text for message in memory.get()] == ["new", "y"]


def test_a_reset_of_what_is_not_there_does_nothing(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s")
    memory.reset()
    memory.reset(derived=True)
    assert memory.flush(all=True) == []
    assert tables_with_rows(database_url) == set()


# The tables that keep rows of a session that has forgotten everything: its name and owner, its marks (so that
# no seq is used twice), the lanes' leases, the costs of its calls, and its batches; none holds content.
# The audit trail says that it was done, and to whom by a pseudonym; the worker's upkeep may have sealed it.
REMAINS = {
    "session",
    "session_owner",
    "lane",
    "model_call",
    "batch",
    "derived_change",
    "audit_entry",
    "audit_subject",
    "audit_chain",
    "audit_seal",
    "audit_sealed",
}


def test_a_derived_reset_leaves_nothing_of_a_session(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", user_id="maren", consume="background", **TIGHT)
    remember(memory, database_url, "Maren", "herring")
    assert {
        "message",
        "flush_event",
        "receipt",
        "fact",
        "fact_revision",
        "chunk",
        "block_state",
        "answer",
    } <= (tables_with_rows(database_url))
    assert "herring" in str(memory.get())
    tell(memory, "Maren", "mussels")  # some of which may still be on its way
    memory.reset(derived=True)
    wait_until(lambda: nothing_due(database_url), timeout=20, what="void work to be cleared away")
    memory.close()
    left = tables_with_rows(database_url) - {"worker"}
    assert left <= REMAINS
    for table in sorted(left):
        content = rows_of(database_url, f"SELECT t::text FROM strandline.{table} t")
        assert all("herring" not in row and "mussels" not in row for (row,) in content)
    again = make_memory("s", user_id="maren", **TIGHT)
    assert len(again.get("herring")) == 0
    assert again.facts.list(with_invalidated=True) == []
    assert again.put(user("hello")) == 49


def test_a_derived_reset_spares_the_users_other_sessions(make_memory: MakeMemory, database_url: str) -> None:
    options: dict[str, Any] = {"user_id": "maren", "consume": "background", **TIGHT}
    remember(make_memory("one", **options), database_url, "Maren", "herring")
    remember(make_memory("two", **options), database_url, "Maren", "seaweed")
    make_memory("one", **options).reset(derived=True)
    shown = str(make_memory("two", **options).get("What do I like?"))
    assert "seaweed" in shown
    assert "herring" not in shown
    texts = [fact.text for fact in make_memory("two", **options).facts.list(with_invalidated=True)]
    assert any("seaweed" in text for text in texts)
    assert not any("herring" in text for text in texts)
    assert len(make_memory("two", **options).get_all()) == 24


def test_a_set_replaces_the_history_atomically(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages([user("one"), user("two", id="b")])
    assert memory.set([{"role": "system", "content": "rules"}, user("three"), user("other", id="b")]) == [
        3,
        4,
        5,
    ]
    assert [message.text for message in memory.get_all()] == ["rules", "three", "other"]
    assert one_session(database_url)["pinned_through"] == 3
    with pytest.raises(ConflictError):
        memory.set([user("four", id="c"), user("five", id="c")])
    assert [message.text for message in memory.get_all()] == ["rules", "three", "other"]
    assert memory.set([]) == []
    assert memory.get_all() == []


def test_a_set_that_fails_in_the_database_changes_nothing(make_memory: MakeMemory, database_url: str) -> None:
    """The reset has run by then, and is rolled back with the rest."""
    memory = make_memory("s", memory_blocks=[], tokenizer_fn=lambda text: 2**31 if text == "bad" else 1)
    memory.put_messages([user("one"), user("two")])
    before = one_session(database_url)
    with pytest.raises(StrandlineError, match="out of range"):
        memory.set([user("three"), user("bad")])
    assert one_session(database_url) == before
    assert [message.text for message in memory.get_all()] == ["one", "two"]


def test_a_large_set_is_flushed_to_the_mark(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=["summary"], **TIGHT)
    assert memory.set([user(f"message {number} with more words") for number in range(200)]) == list(
        range(1, 201)
    )
    assert memory.get().tokens <= 400
    assert len(memory.get_all()) == 200


def one_session(url: str) -> dict[str, Any]:
    ((found,),) = rows_of(url, "SELECT row_to_json(s) FROM strandline.session s")
    assert isinstance(found, dict)
    return found
