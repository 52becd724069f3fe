"""What bounds a window beside tokens: no message is free, and there are marks for messages and bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline import ConfigurationError, Memory, sliding_window, summary_window
from strandline.cli.entry import run
from strandline.pipelines.inspect.sessions import show_session
from strandline.pipelines.inspect.verify import verify
from strandline.producers.reading.read import MAX_TAIL_BYTES
from strandline.schemas.values.policy import DEFAULT_WINDOW_BYTES, DEFAULT_WINDOW_MESSAGES, MIN_MESSAGE_TOKENS
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.stored import flush_events

UNBOUNDED = 10**9


def counters(url: str) -> tuple[int, int]:
    ((messages, size),) = rows_of(url, "SELECT window_messages, window_bytes FROM strandline.session")
    return messages, size


def blob(number: int, size: int) -> dict[str, Any]:
    """A message that counts hardly any tokens: an image, of which only the estimate counts."""
    url = f"data:image/png;base64,{number:08d}" + "A" * size
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def one_by_one(memory: Memory, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        memory.put(message)


def together(memory: Memory, messages: list[dict[str, Any]]) -> None:
    memory.put_messages(messages)


def async_one_by_one(memory: Memory, messages: list[dict[str, Any]]) -> None:
    async def put_all() -> None:
        for message in messages:
            await memory.aput(message)

    asyncio.run(put_all())


WAYS = pytest.mark.parametrize("put", [one_by_one, together, async_one_by_one])


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}], "a"])
def test_a_window_of_empty_messages_is_flushed(content: object, make_memory: MakeMemory) -> None:
    memory = make_memory("s", token_limit=1_000, token_flush_size=100, memory_blocks=[])
    memory.put_messages([{"role": "user", "content": content}] * 500)
    context = memory.get()
    assert len(context) <= 700 // MIN_MESSAGE_TOKENS
    assert context.tokens == MIN_MESSAGE_TOKENS * len(context)
    assert len(memory.get_all()) == 500


def test_parts_that_nobody_knows_are_within_the_limit(make_memory: MakeMemory) -> None:
    memory = make_memory("s", token_limit=5_000, token_flush_size=500, memory_blocks=[])
    for number in range(60):
        part = {"type": "unheard_of", "blob": f"{number} some words " * 1_000}
        memory.put({"role": "user", "content": [part]})
    context = memory.get()
    assert len(context) == 1, "a message that is over the mark alone"
    assert 4_000 < context.tokens <= 5_000


@WAYS
def test_a_put_that_crosses_the_mark_by_messages_flushes_the_oldest(
    rig: Rig, put: Callable[[Memory, list[dict[str, Any]]], None]
) -> None:
    memory = rig.memory("s", max_window_messages=12, memory_blocks=[])
    put(memory, [{"role": "user", "content": f"{n}"} for n in range(12)])
    assert flush_events(rig.url) == 0
    put(memory, [{"role": "user", "content": "one more"}])
    events = rows_of(rig.url, "SELECT from_seq, through_seq, cause FROM strandline.flush_event")
    assert events == [(1, 3, "threshold")], "a fourth of what the window may hold"
    assert counters(rig.url)[0] == 10 == len(memory.get())
    put(memory, [{"role": "user", "content": f"and {n}"} for n in range(40)])
    assert 9 <= len(memory.get()) <= 12
    assert verify(rig.database).violations == ()


@WAYS
def test_a_put_that_crosses_the_mark_by_bytes_flushes_the_oldest(
    rig: Rig, put: Callable[[Memory, list[dict[str, Any]]], None]
) -> None:
    memory = rig.memory(
        "s", token_limit=UNBOUNDED, max_window_bytes=100_000, memory_blocks=[], part_tokens={"image": 0}
    )
    put(memory, [blob(number, 10_000) for number in range(50)])
    shown = memory.get().to_openai()
    assert 6 <= len(shown) <= 9
    assert counters(rig.url)[1] <= 100_000
    assert rows_of(rig.url, "SELECT max(message_count) FROM strandline.flush_event")[0][0] <= 4
    assert verify(rig.database).violations == ()


async def test_puts_that_share_a_statement_keep_to_each_session_s_marks(rig: Rig) -> None:
    memories = [rig.memory(f"s{n}", max_window_messages=4, memory_blocks=[]) for n in range(8)]

    for number in range(20):
        message = {"role": "user", "content": f"{number}"}
        await asyncio.gather(*(memory.aput(message) for memory in memories))
    counts = rows_of(rig.url, "SELECT window_messages, next_seq FROM strandline.session")
    assert counts == [(4, 21)] * 8
    assert verify(rig.database).violations == ()


@WAYS
def test_five_of_ten_messages_stay_and_the_log_keeps_all(
    rig: Rig, put: Callable[[Memory, list[dict[str, Any]]], None]
) -> None:
    memory = rig.memory("s", memory_blocks=[], **sliding_window(5))
    put(memory, [{"role": "user", "content": f"Message {number}"} for number in range(10)])
    assert [one.text for one in memory.get()] == [f"Message {number}" for number in range(5, 10)]
    assert len(memory.get_all()) == 10
    events = "SELECT min(from_seq), max(through_seq), sum(message_count)::int FROM strandline.flush_event"
    assert rows_of(rig.url, events) == [(1, 5, 5)]
    assert verify(rig.database).violations == ()


def test_a_sliding_window_begins_with_a_whole_turn(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[], **sliding_window(10))
    for number in range(30):
        memory.put({"role": ("user", "assistant")[number % 2], "content": f"{number}"})
        window = memory.get()
        assert min(number, 9) <= len(window) <= 10 and window[0].role == "user"
        assert window[-1].text == f"{number}"


def test_a_window_beyond_tokens_as_well_is_flushed_until_both_hold(make_memory: MakeMemory) -> None:
    memory = make_memory("s", token_limit=100, token_flush_size=10, memory_blocks=[], **sliding_window(40))
    memory.put_messages([{"role": "user", "content": "one two three four five"} for _ in range(60)])
    context = memory.get()
    assert len(context) < 40 and context.tokens <= 70


def test_a_summary_window_is_flushed_at_its_threshold_and_keeps_the_last(rig: Rig) -> None:
    memory = rig.memory("s", token_flush_size=1, memory_blocks=["summary"], **summary_window(50, 10))
    sizes = []
    for number in range(100):
        memory.put({"role": ("user", "assistant")[number % 2], "content": f"{number}"})
        sizes.append(counters(rig.url)[0])
    assert max(sizes) == 49 and sizes[48:51] == [49, 10, 11] and sizes[89] == 10
    events = rows_of(rig.url, "SELECT message_count FROM strandline.flush_event ORDER BY from_seq")
    assert events == [(40,), (40,)], "what is summarised together is one event, however few its tokens"
    assert len(memory.get()) == 100 and memory.get().omitted == (), "until then the messages are shown"


def test_messages_that_come_together_leave_as_if_they_came_alone(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[], **summary_window(50, 10))
    memory.put_messages([{"role": "user", "content": f"{number}"} for number in range(100)])
    assert counters(rig.url)[0] == 20
    assert rows_of(rig.url, "SELECT message_count FROM strandline.flush_event") == [(80,)]


def test_the_flush_size_is_part_of_the_policy(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    memory = rig.memory("s", memory_blocks=[], max_window_messages=20)
    memory.put_messages([{"role": "user", "content": f"{number}"} for number in range(20)])
    assert memory.set_policy(message_flush_size=15).message_flush_size == 15
    memory.put({"role": "user", "content": "one more"})
    assert len(memory.get()) == 6
    assert memory.set_policy(max_window_messages=4).message_flush_size == 4, "a smaller window has no room"
    picture = show_session(rig.database, "s")
    assert picture.session.policy.message_flush_size == 4
    assert [change.after for change in picture.policy_changes] == [
        {"message_flush_size": 15},
        {"message_flush_size": 4, "max_window_messages": 4},
    ]
    target = ["--database-url", rig.url]
    assert run(["sessions", "set-policy", "s", "--message-flush-size", "2", *target]) == 0
    assert run(["sessions", "show", "s", *target]) == 0
    assert "or 2 messages; window of at most 4 messages" in capsys.readouterr().out
    assert verify(rig.database).violations == ()
    for wrong in (5, 0):
        with pytest.raises(ConfigurationError, match="message_flush_size"):
            memory.set_policy(message_flush_size=wrong)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sliding_window(0), "window_size is 0"),
        (lambda: sliding_window(1.5), "window_size is 1.5"),  # type: ignore[arg-type]
        (lambda: summary_window(10, 10), "below threshold_messages, 10"),
        (lambda: summary_window(10, 0), "keep_last is 0"),
    ],
)
def test_a_window_that_cannot_be_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_counters_follow_pops_resets_idle_and_manual_flushes(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[])
    memory.put_messages([{"role": "system", "content": "head"}, {"role": "user", "content": "ü", "id": "u"}])
    size = len('{"content":"ü"}'.encode())
    assert counters(rig.url) == (1, size)
    memory.put({"role": "user", "content": "more", "metadata": {"a": 1}})
    assert counters(rig.url) == (2, size + len('{"content":"more"}') + len('{"a":1}'))
    memory.pop()
    assert counters(rig.url) == (1, size)
    memory.put({"role": "assistant", "content": "x"})
    assert verify(rig.database).violations == ()
    memory.put({"role": "user", "content": "last"})
    memory.flush()
    assert counters(rig.url) == (1, len('{"content":"last"}'))
    assert verify(rig.database).violations == ()
    memory.reset()
    assert counters(rig.url) == (0, 0)
    assert verify(rig.database).violations == ()


def test_the_marks_of_the_first_put_hold(make_memory: MakeMemory, database_url: str) -> None:
    make_memory("s", max_window_messages=5, max_window_bytes=5_000, memory_blocks=[]).put(
        {"role": "user", "content": "first"}
    )
    other = make_memory("s", memory_blocks=[])
    for number in range(20):
        other.put({"role": "user", "content": f"{number}"})
    assert len(other.get()) <= 5
    stored = rows_of(database_url, "SELECT max_window_messages, max_window_bytes FROM strandline.session")
    assert stored == [(5, 5_000)]
    make_memory("t", memory_blocks=[]).put({"role": "user", "content": "x"})
    newest = "SELECT max_window_messages, max_window_bytes FROM strandline.session WHERE session_id = 't'"
    assert rows_of(database_url, newest) == [(DEFAULT_WINDOW_MESSAGES, DEFAULT_WINDOW_BYTES)]


@pytest.mark.parametrize("name", ["max_window_messages", "max_window_bytes", "message_flush_size"])
@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, True, "5"])
def test_a_mark_is_a_whole_number_above_0(name: str, value: object, make_memory: MakeMemory) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make_memory("s", **{name: value})


def test_a_read_takes_in_so_many_bytes_of_the_tail(make_memory: MakeMemory) -> None:
    """Messages that no worker has taken in yet, and that count hardly any tokens."""
    memory = make_memory("s", token_limit=UNBOUNDED, memory_blocks=["summary"], part_tokens={"image": 0})
    size, number = 900_000, MAX_TAIL_BYTES // 900_000 + 4
    for at in range(number):
        memory.put(blob(at, size))
    memory.flush(all=True)
    context = memory.get()
    assert number - 6 <= len(context) <= MAX_TAIL_BYTES // size
    (omitted,) = context.omitted
    assert (omitted.kind, omitted.from_seq, omitted.through_seq) == ("tail", 1, number - len(context))
    assert "than one read includes" in omitted.reason
