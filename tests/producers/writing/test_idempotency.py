"""Putting again: the same id is the same message, whoever retries and whatever happened to the first try."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from strandline import ConflictError, Memory
from strandline.pipelines.flush.flush import tell_failed_flush
from tests.conftest import MakeMemory, Rig, rows_of, wait_until


def said(message_id: str, text: str = "The tide is out.") -> dict[str, Any]:
    return {"role": "user", "content": text, "id": message_id}


def stored(url: str) -> tuple[int, int, int]:
    """Messages, tokens on the messages, and tokens on the session row."""
    row = rows_of(
        url,
        "SELECT (SELECT count(*) FROM strandline.message),"
        " (SELECT coalesce(sum(tokens), 0)::bigint FROM strandline.message),"
        " (SELECT coalesce(sum(window_tokens + pinned_tokens), 0)::bigint FROM strandline.session)",
    )[0]
    return row[0], row[1], row[2]


def test_the_same_id_gets_the_same_seq(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    assert memory.put(said("a")) == 1
    before = stored(database_url)
    assert memory.put(said("a")) == 1
    assert asyncio.run(_aput(memory, said("a"))) == 1
    assert stored(database_url) == before


def test_retries_are_found_in_a_batch_with_new_messages(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    assert memory.put_messages([said("a"), said("b")]) == [1, 2]
    assert memory.put_messages([said("c"), said("b"), said("d"), said("a")]) == [3, 2, 4, 1]
    assert memory.put_messages([said("d"), said("c")]) == [4, 3]
    assert [message.id for message in memory.get_all()] == ["a", "b", "c", "d"]
    count, on_messages, on_session = stored(database_url)
    assert count == 4
    assert on_messages == on_session


def test_one_id_twice_in_one_put_is_one_message(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    assert memory.put_messages([said("a"), said("b"), said("a")]) == [1, 2, 1]
    with pytest.raises(ConflictError, match="'c'"):
        memory.put_messages([said("c"), said("c", "Something else.")])
    assert stored(database_url)[0] == 2


def test_a_retried_head_is_pinned_once(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    rules = {"role": "system", "content": "Be brief.", "id": "rules"}
    assert memory.put(rules) == 1
    assert memory.put_messages([rules, said("a")]) == [1, 2]
    assert memory.put(rules) == 1
    pinned = rows_of(database_url, "SELECT pinned_through, window_from FROM strandline.session")
    assert pinned == [(1, 2)]
    count, on_messages, on_session = stored(database_url)
    assert (count, on_messages) == (2, on_session)


@pytest.mark.parametrize(
    "other",
    [
        said("a", "Other words."),
        said("a") | {"role": "assistant"},
        said("a") | {"name": "maren"},
        said("a") | {"metadata": {"page": 2}},
    ],
)
def test_an_id_with_other_content_is_a_conflict(rig: Rig, other: dict[str, Any]) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put(said("a"))
    before = stored(rig.url)
    for batch in ([other], [said("new"), other]):
        with pytest.raises(ConflictError, match="'a'"):
            memory.put_messages(batch)
        with pytest.raises(ConflictError, match="'a'"):
            asyncio.run(_aput_messages(memory, batch))
    assert stored(rig.url) == before
    assert memory.put(said("new")) == 2


def test_ids_belong_to_their_session(make_memory: MakeMemory) -> None:
    for name in ("one", "two"):
        assert make_memory(name, user_id="maren", memory_blocks=[]).put(said("a", f"in {name}")) == 1


def test_an_id_is_free_again_after_a_reset(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put(said("a", "before"))
    memory.reset()
    assert memory.put(said("a", "after")) == 2
    assert [message.text for message in memory.get_all()] == ["after"]


def test_a_flushed_message_is_still_known(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    for number in range(6):
        memory.put(said(f"m{number}"))
    memory.flush(all=True)
    before = stored(database_url)
    assert memory.put(said("m2")) == 3
    assert stored(database_url) == before


def test_sixteen_threads_retry_one_id(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])

    def put(number: int) -> list[int]:
        # In the other order as well: the puts do not deadlock.
        batch = [said("a"), said("b")]
        return sorted(memory.put_messages(batch if number % 2 else batch[::-1]))

    with ThreadPoolExecutor(16) as threads:
        assert set(map(tuple, threads.map(put, range(64)))) == {(1, 2)}
    count, on_messages, on_session = stored(database_url)
    assert count == 2
    assert on_messages == on_session


@pytest.mark.parametrize("size", [1, 3])
def test_a_retry_beside_an_attempt_that_waits_for_the_lock(rig: Rig, size: int) -> None:
    """Both wait for the session row; whoever comes second finds what the first has written."""
    memory = rig.memory("s", memory_blocks=[])
    memory.put(said("before"))
    batch = [said(f"a{number}") for number in range(size)]
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND application_name = 'strandline' AND datname = current_database()"
    )
    with ThreadPoolExecutor(2) as threads, psycopg.connect(rig.url) as holder:
        holder.execute(b"SELECT 1 FROM strandline.session FOR UPDATE")
        attempts = [threads.submit(memory.put_messages, batch) for _ in range(2)]
        wait_until(lambda: rows_of(rig.url, waiting) == [(2,)], timeout=10, what="both attempts to wait")
        holder.rollback()
        seqs = [attempt.result(100) for attempt in attempts]
    assert seqs == [list(range(2, 2 + size))] * 2
    count, on_messages, on_session = stored(rig.url)
    assert count == 1 + size
    assert on_messages == on_session


def test_a_retried_put_that_crossed_flushes_if_its_first_attempt_could_not(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The put is committed and stands, whatever becomes of the flush; the next put makes up for it."""
    tell_failed_flush.cache_clear()  # another test may have told it this minute
    memory = rig.memory("s", memory_blocks=["summary"], token_limit=100, token_flush_size=20)
    for number in range(6):
        memory.put(said(f"m{number}", "one two three four five six seven"))
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute(b"ALTER FUNCTION strandline.flush_v1 RENAME TO away")
        with caplog.at_level(logging.WARNING, logger="strandline.producers"):
            for number in range(6, 12):
                assert memory.put(said(f"m{number}", "one two three four five six seven")) == number + 1
        connection.execute(b"ALTER FUNCTION strandline.away RENAME TO flush_v1")
    told = [record for record in caplog.records if record.message == "flush after put failed"]
    assert 0 < len(told) < 6, "not for each put"
    assert "strandline migrate" in str(caplog.records[0].__dict__["reason"])
    assert rows_of(rig.url, "SELECT 1 FROM strandline.flush_event") == []
    memory.put(said("m12", "one two three four five six seven"))
    assert rows_of(rig.url, "SELECT min(from_seq) FROM strandline.flush_event") == [(1,)]
    assert memory.get().tokens <= 100


async def _aput(memory: Memory, message: object) -> int:
    try:
        return await memory.aput(message)
    finally:
        await memory.aclose()


async def _aput_messages(memory: Memory, messages: list[Any]) -> list[int]:
    try:
        return await memory.aput_messages(messages)
    finally:
        await memory.aclose()
