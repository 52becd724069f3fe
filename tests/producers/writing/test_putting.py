"""Putting messages: one order per session, nothing lost, marks and events exact, whoever puts."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from strandline import ConfigurationError, DatabaseTimeoutError, DatabaseUnavailableError, Memory, Message
from strandline.producers.tokens import count_default
from strandline.schemas.postgres.pools.thin_pool import AsyncThinPool, ThinPool
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.policy import MIN_MESSAGE_TOKENS
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.support.messages import assistant, user
from tests.support.processes import forking
from tests.support.stored import stored_sessions


def marks(url: str, session_id: str) -> dict[str, Any]:
    found: dict[str, Any] = rows_of(
        url, "SELECT row_to_json(s) FROM strandline.session s WHERE session_id = %s", session_id
    )[0][0]
    return found


def events(url: str, session_id: str) -> list[tuple[Any, ...]]:
    """From, through, messages and tokens of each event, in order."""
    return rows_of(
        url,
        "SELECT e.from_seq, e.through_seq, e.message_count, e.tokens, e.cause FROM strandline.flush_event e"
        " JOIN strandline.session s USING (shard_key, session_key) WHERE s.session_id = %s ORDER BY 1",
        session_id,
    )


def check_session(url: str, memory: Memory) -> list[Message]:
    """What must hold of any session at rest: gapless seqs, exact counts, contiguous events."""
    history = memory.get_all()
    seen = marks(url, memory.session_id)
    assert [message.seq for message in history] == list(range(seen["log_start_seq"], seen["next_seq"]))
    tokens = [message.tokens or 0 for message in history]
    below = seen["window_from"] - seen["log_start_seq"]
    pinned = seen["pinned_through"] + 1 - seen["log_start_seq"]
    assert seen["window_tokens"] == sum(tokens[below:])
    assert seen["pinned_tokens"] == sum(tokens[:pinned])
    expected = seen["pinned_through"] + 1
    for from_seq, through_seq, messages, size, _ in events(url, memory.session_id):
        assert from_seq == expected
        assert messages == through_seq + 1 - from_seq
        first = from_seq - seen["log_start_seq"]
        assert size == sum(tokens[first : first + messages])
        expected = through_seq + 1
    assert seen["flushed_through"] == expected - 1
    return history


def test_seqs_count_from_one_in_order(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])
    assert [memory.put(user(f"m{number}")) for number in range(5)] == [1, 2, 3, 4, 5]
    assert memory.put_messages([user("m5"), assistant("m6"), user("m7")]) == [6, 7, 8]
    assert [message.text for message in memory.get_all()] == [f"m{number}" for number in range(8)]


def test_an_empty_put_does_nothing(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    assert memory.put_messages([]) == []
    assert asyncio.run(memory.aput_messages([])) == []
    assert rows_of(database_url, "SELECT 1 FROM strandline.session") == []


def test_tokens_are_counted_once_and_stored(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put(user("The tide leaves a line."))
    memory.put_messages([assistant("It does."), user("日本語 🌊")])
    assert [message.tokens for message in memory.get_all()] == [
        max(MIN_MESSAGE_TOKENS, count_default(text))
        for text in ("The tide leaves a line.", "It does.", "日本語 🌊")
    ]
    words = make_memory(memory_blocks=[], tokenizer_fn=str.split)
    words.put(user("four words are here"))
    assert words.get_all()[0].tokens == 4


def test_the_policy_of_the_first_put_stays(make_memory: MakeMemory, database_url: str) -> None:
    first = make_memory(
        "s", token_limit=1_000, token_flush_size=100, idle_seconds=60, memory_blocks=["facts"]
    )
    first.put(user("hello"))
    make_memory("s", token_limit=99, token_flush_size=9, memory_blocks=[], tokenizer_fn=len).put(
        user("again")
    )
    found = marks(database_url, "s")
    kept = ("token_limit", "flush_at_tokens", "token_flush_size", "idle_seconds", "tokenizer", "pipelines")
    assert [found[name] for name in kept] == [1_000, 700, 100, 60, "o200k_base", ["facts"]]


def test_the_opening_system_messages_are_pinned(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", token_limit=100, token_flush_size=10, memory_blocks=[])
    rules = {"role": "system", "content": "You keep the tide tables."}
    memory.put(rules)
    memory.put_messages([{"role": "developer", "content": "Be brief."}, user("one " * 10)])
    memory.put({"role": "system", "content": "Too late to be pinned."})
    for number in range(30):
        memory.put_messages([user(f"question {number} " * 3), assistant(f"answer {number} " * 3)])
    history = check_session(database_url, memory)
    seen = marks(database_url, "s")
    assert seen["pinned_through"] == 2
    assert seen["pinned_tokens"] == sum(message.tokens or 0 for message in history[:2])
    assert seen["pinned_tokens"] + seen["window_tokens"] <= 70
    shown = [message.text for message in memory.get()]
    assert shown[:2] == [rules["content"], "Be brief."]
    assert shown[2] == "Too late to be pinned.", "the newest system message, in its place"
    assert events(database_url, "s")[0][0] == 3


@pytest.mark.parametrize("together", [True, False])
def test_the_head_grows_until_the_first_other_message(rig: Rig, together: bool) -> None:
    memory = rig.memory("s", memory_blocks=[])
    roles = ["system", "system", "developer", "user", "system"]
    messages = [{"role": role, "content": f"{role} {place}"} for place, role in enumerate(roles)]
    if together:
        memory.put_messages(messages)
    else:
        for message in messages:
            memory.put(message)
    assert marks(rig.url, "s")["pinned_through"] == 3
    check_session(rig.url, memory)


def test_a_short_memory_keeps_the_last_messages_and_all_of_the_history(rig: Rig) -> None:
    """Limit 50, mark 35, flushes of 10, no blocks, 400 messages of about 10 tokens."""
    memory = rig.memory(
        "s", token_limit=50, chat_history_token_ratio=0.7, token_flush_size=10, memory_blocks=[]
    )
    texts = ["Hello, world!" if number % 2 == 0 else "Hello, back to you!" for number in range(400)]
    sizes = [count_default(text) for text in texts]
    for number, text in enumerate(texts):
        memory.put(user(text) if number % 2 == 0 else assistant(text))
        assert memory.get().tokens <= 35
    history = check_session(rig.url, memory)
    assert [message.text for message in history] == texts
    window = memory.get()
    assert [message.text for message in window] == texts[-len(window) :]
    assert window[0].role == "user"
    assert sum(sizes[-len(window) - 2 :]) > 35 - 10, "no more left than the flush size asks for"


def test_four_messages_of_ten_tokens_stay_of_four_hundred(make_memory: MakeMemory) -> None:
    memory = make_memory(token_limit=50, token_flush_size=10, memory_blocks=[], tokenizer_fn=lambda _text: 8)
    for number in range(400):
        memory.put_messages([user(f"m{number}")] if number % 2 == 0 else [assistant(f"m{number}")])
    assert [message.text for message in memory.get()] == ["m396", "m397", "m398", "m399"]
    assert [message.text for message in memory.get_all()] == [f"m{number}" for number in range(400)]


def test_a_flush_size_above_the_limit_is_repaired_and_said_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="strandline.policy"):
        for number in range(3):
            memory = rig.memory(f"s{number}", token_limit=4_321, token_flush_size=54_321, memory_blocks=[])
            memory.put(user("hello"))
            assert marks(rig.url, f"s{number}")["token_flush_size"] == int(0.7 * 4_321)
        # A default that does not fit is not the caller's mistake.
        rig.memory("small", token_limit=1_234, memory_blocks=[]).put(user("hello"))
        assert marks(rig.url, "small")["token_flush_size"] == int(0.7 * 1_234)
    assert [record.getMessage() for record in caplog.records] == [
        "token_flush_size 54321 is above token_limit 4321: using 3024"
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"token_limit": 0},
        {"token_limit": -5},
        {"token_limit": MIN_MESSAGE_TOKENS - 1},
        {"token_limit": 2**31},
        {"token_limit": 10.5},
        {"token_limit": True},
        {"token_flush_size": 0},
        {"chat_history_token_ratio": 0},
        {"chat_history_token_ratio": 1.2},
        {"idle_seconds": 0},
        {"insert_method": "sideways"},
        {"llm": object()},
        {"unheard_of": 1},
        {"database_url": "mysql://root@localhost/x"},
    ],
)
def test_limits_and_arguments_are_checked(make_memory: MakeMemory, options: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=next(iter(options)) if "url" not in str(options) else "Postgres"
    ):
        make_memory(**options).put(user("hello"))


def test_crossing_the_mark_records_exact_events(make_memory: MakeMemory, database_url: str) -> None:
    """Every message counts 10; above 70 a flush takes at least 30, up to a user message."""
    memory = make_memory(
        "s", token_limit=100, token_flush_size=30, memory_blocks=["summary"], tokenizer_fn=lambda _text: 10
    )
    for number in range(7):
        memory.put(user(f"m{number}") if number % 2 == 0 else assistant(f"m{number}"))
    assert events(database_url, "s") == []
    memory.put(assistant("m7"))
    assert events(database_url, "s") == [(1, 4, 4, 40, "threshold")]
    memory.put_messages([user(f"x{number}") for number in range(10)])
    assert events(database_url, "s") == [
        (1, 4, 4, 40, "threshold"),
        (5, 8, 4, 40, "threshold"),
        (9, 11, 3, 30, "threshold"),
    ]
    check_session(database_url, memory)
    due = "SELECT from_seq, through_seq, stage, tokens FROM strandline.due ORDER BY 1"
    assert rows_of(database_url, due) == [
        (1, 4, "summary", 40),
        (5, 8, "summary", 40),
        (9, 11, "summary", 30),
    ]


def test_a_window_that_cannot_be_flushed_is_not_planned_again_for_each_put(rig: Rig) -> None:
    memory = rig.memory(
        "s", token_limit=100, token_flush_size=40, memory_blocks=[], tokenizer_fn=lambda _text: 10
    )
    function = {"name": "f", "arguments": ""}
    calls = [{"id": f"c{number}", "type": "function", "function": function} for number in range(7)]
    memory.put(user("go"))
    memory.put({"role": "assistant", "content": "x", "tool_calls": calls})
    for number in range(6):
        memory.put({"role": "tool", "tool_call_id": f"c{number}", "content": "still working"})
    postponed = marks(rig.url, "s")["replan_at_tokens"]
    assert postponed > marks(rig.url, "s")["window_tokens"]
    memory.put(user("never mind"))
    assert events(rig.url, "s") == [(1, 8, 8, 150, "threshold")], "the names of the calls count too"
    check_session(rig.url, memory)


PUT_FROM_A_PROCESS = """
import json, sys
from strandline import Memory
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
memory = Memory.from_defaults("shared", database_url=url, token_limit=2_000, token_flush_size=200,
                              memory_blocks=["summary"])
sys.stdin.readline()
print(json.dumps([memory.put({"role": "user", "content": f"{name}:{number} " + "word " * 6})
                  for number in range(count)]))
"""


def put_from_processes(url: str, writers: int, count: int) -> list[list[int]]:
    """Processes that put into the session ``shared`` at the same time; the seqs that each one got."""
    processes = [
        forking.Popen(
            [sys.executable, "-c", PUT_FROM_A_PROCESS, url, f"p{writer}", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for writer in range(writers)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.communicate(timeout=600)[0]) for process in processes]


def check_writers(history: Sequence[Message], seqs_of: dict[str, list[int]]) -> None:
    """Each writer's messages are there once, in the writer's order, under the seqs it was told."""
    found: dict[str, list[int]] = defaultdict(list)
    numbers: dict[str, list[int]] = defaultdict(list)
    for message in history:
        name, _, number = message.text.split(" ")[0].partition(":")
        found[name].append(message.seq or 0)
        numbers[name].append(int(number))
    assert found == seqs_of
    assert all(listed == list(range(len(listed))) for listed in numbers.values())


def test_many_threads_share_a_session(make_memory: MakeMemory, database_url: str) -> None:
    options: dict[str, Any] = {"token_limit": 2_000, "token_flush_size": 200, "memory_blocks": ["summary"]}

    def put(writer: int) -> list[int]:
        memory = make_memory("shared", **options)
        return [memory.put(user(f"t{writer}:{number} " + "word " * 6)) for number in range(10)]

    with ThreadPoolExecutor(50) as threads:
        seqs = list(threads.map(put, range(50)))
    history = check_session(database_url, make_memory("shared", **options))
    check_writers(history, {f"t{writer}": seqs[writer] for writer in range(50)})
    assert len(events(database_url, "shared")) > 10


def test_many_tasks_share_a_session(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("shared", token_limit=2_000, token_flush_size=200, memory_blocks=["summary"])

    async def put(writer: int) -> list[int]:
        return [await memory.aput(user(f"a{writer}:{number} " + "word " * 6)) for number in range(10)]

    async def main() -> list[list[int]]:
        seqs = await asyncio.gather(*(put(writer) for writer in range(50)))
        assert [message.seq for message in await memory.aget_all()] == list(range(1, 501))
        await memory.aclose()
        return seqs

    seqs = asyncio.run(main())
    history = check_session(database_url, memory)
    check_writers(history, {f"a{writer}": seqs[writer] for writer in range(50)})


def test_four_processes_share_a_session(make_memory: MakeMemory, database_url: str) -> None:
    seqs = put_from_processes(database_url, writers=4, count=60)
    history = check_session(database_url, make_memory("shared"))
    check_writers(history, {f"p{writer}": listed for writer, listed in enumerate(seqs)})


def test_first_puts_at_once_make_one_session(make_memory: MakeMemory, database_url: str) -> None:
    def put(number: int) -> int:
        return make_memory("new", user_id="maren", memory_blocks=[]).put(user(f"m{number}"))

    with ThreadPoolExecutor(16) as threads:
        assert sorted(threads.map(put, range(16))) == list(range(1, 17))
    assert stored_sessions(database_url) == 1


BACKENDS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'strandline' AND datname = current_database()"
)


def end_backends(url: str) -> int:
    """End every connection that the library holds, as a restart or a fail-over would."""
    pids = [pid for (pid,) in rows_of(url, BACKENDS)]
    alive = "SELECT pid FROM pg_stat_activity WHERE pid = ANY (%s)"
    rows_of(url, "SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) AS u (pid)", pids)
    wait_until(lambda: rows_of(url, alive, pids) == [], timeout=10, what="the backends to end")
    return len(pids)


def end_settled_backends(url: str, pool: object) -> int:
    """As ``end_backends``, once the pool makes no connection any more: it would give one that has died."""
    assert isinstance(pool, (ThinPool, AsyncThinPool))
    stats = pool._pool.get_stats
    wait_until(lambda: stats()["pool_available"] == stats()["pool_size"], timeout=10, what="the pool")
    return end_backends(url)


def test_lost_connections_are_replaced_between_puts(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(memory.put, [user(f"m{number}") for number in range(40)]))
    pool = memory._runner._resources.database()._pool
    assert end_settled_backends(database_url, pool) >= 1
    assert memory.put(user("after")) == 41
    end_settled_backends(database_url, pool)
    assert len(memory.get()) == 41
    end_settled_backends(database_url, pool)
    assert memory.put_messages([user("a"), user("b")]) == [42, 43]
    assert len(check_session(database_url, memory)) == 43


async def test_lost_connections_are_replaced_between_async_puts(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[])
    await asyncio.gather(*(memory.aput(user(f"m{number}")) for number in range(20)))
    pool = (await memory._runner._resources.async_database())._pool
    assert await asyncio.to_thread(end_settled_backends, rig.url, pool) >= 1
    assert await memory.aput(user("after")) == 21
    await asyncio.to_thread(end_settled_backends, rig.url, pool)
    assert len(await memory.aget()) == 21
    await memory.aclose()


def test_a_put_whose_connection_dies_in_the_middle_is_sent_again_once(rig: Rig) -> None:
    """The session row is locked, so that the put is under way when its backend is ended."""
    memory = rig.memory("s", memory_blocks=[])
    memory.put(user("first"))
    key = identify_session("default", "s", None).session_key
    waiting = BACKENDS + " AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as threads, psycopg.connect(rig.url) as holder:
        holder.execute(b"SELECT 1 FROM strandline.session WHERE session_key = %s FOR UPDATE", (key,))
        put = threads.submit(memory.put, user("second"))
        wait_until(lambda: rows_of(rig.url, waiting), timeout=10, what="the put to wait")
        end_backends(rig.url)
        wait_until(lambda: rows_of(rig.url, waiting), timeout=10, what="the second attempt")
        holder.rollback()
        assert put.result(100) == 2
    assert [message.text for message in check_session(rig.url, memory)] == ["first", "second"]


async def test_a_database_that_is_away_is_said_in_bounded_time(
    make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_POOL_TIMEOUT_SECONDS", "0.5")
    memory = make_memory(database_url="postgresql://nobody@127.0.0.1:1/nothing", memory_blocks=[])
    for call in (lambda: memory.put(user("hello")), memory.get, memory.get_all):
        with pytest.raises(DatabaseUnavailableError):
            call()

    async def main() -> None:
        with pytest.raises(DatabaseUnavailableError):
            await memory.aput(user("hello"))
        await memory.aclose()

    await asyncio.wait_for(main(), timeout=100)


def test_a_put_behind_a_lock_ends_in_bounded_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_STATEMENT_TIMEOUT_SECONDS", "0.3")
    memory = rig.memory("s", memory_blocks=[])
    memory.put(user("first"))
    with psycopg.connect(rig.url) as holder:
        holder.execute(b"SELECT 1 FROM strandline.session FOR UPDATE")
        with pytest.raises(DatabaseTimeoutError):
            memory.put(user("second"))
        assert len(memory.get()) == 1, "a read waits for nobody"
        holder.rollback()
    assert memory.put(user("second")) == 2


def test_a_closed_memory_opens_again_when_it_is_used(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put(user("one"))
    memory.close()
    memory.close()
    assert memory.put(user("two")) == 2
