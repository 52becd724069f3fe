"""The newest messages that fit a number of tokens, behind the pinned head, with calls whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from strandline import ConfigurationError
from strandline.producers.reading import history
from strandline.producers.reading.history import (
    DEFAULT_CONTEXT_TOKENS,
    HistoryFilter,
    HistoryRequest,
    newest_history,
    newest_that_fit,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.message import Message
from tests.conftest import MakeMemory, Rig


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "seen"}


def test_the_newest_that_fit_are_given_flushed_ones_included(make_memory: MakeMemory) -> None:
    memory = make_memory("s", max_window_messages=5, memory_blocks=[])
    memory.put_messages([{"role": "user", "content": f"message {number}"} for number in range(40)])
    messages = memory.get_all()
    size = messages[0].tokens or 0
    for number in (0, 1, 7, 30, 40, 50):
        window = memory.context_window(number * size + size - 1)
        assert window == messages[max(0, 40 - number) :]
    assert memory.context_window() == messages and 40 * size < DEFAULT_CONTEXT_TOKENS
    assert asyncio.run(memory.acontext_window(3 * size)) == memory.context_window(3 * size)


def test_a_long_log_is_read_page_by_page(make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CONTEXT_PAGE_MESSAGES", 4)
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages([{"role": "user", "content": "x " * (number % 5 + 1)} for number in range(30)])
    messages = memory.get_all()
    for first in range(30):
        size = sum(one.tokens or 0 for one in messages[first:])
        assert memory.context_window(size) == messages[first:]
        assert memory.context_window(size - 1) == messages[first + 1 :]


def test_four_thousand_tokens_are_given_unless_another_number_is(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[], token_limit=100_000)
    memory.put_messages([{"role": "user", "content": "word " * 45} for _number in range(100)])
    messages = memory.get_all()
    size = messages[0].tokens or 0
    shown = memory.context_window()
    assert shown == memory.context_window(4_000) == messages[-(4_000 // size) :]
    assert len(shown) < len(messages)


def read_with(database: Database, operation: Any, step: int, act: Callable[[], object]) -> list[Message]:
    """Carry an operation out, with something else done before its statement of this number."""
    answer = None
    for number in count():
        try:
            statement = operation.send(answer)
        except StopIteration as end:
            found: list[Message] = end.value
            return found
        if number == step:
            act()
        answer = database.fetch(statement)
    raise AssertionError("an operation ends")


@pytest.mark.parametrize("way", ["window", "history"])
def test_a_correction_between_two_pages_shows_one_state(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What stood behind the run is put again under other numbers, which a later page would miss."""
    for name in ("PAGE_MESSAGES", "CONTEXT_PAGE_MESSAGES"):
        monkeypatch.setattr(history, name, 4)
    identity = identify_session("default", "s", None)
    memory = rig.memory("s", memory_blocks=[])
    memory.put({"role": "user", "content": "first"})
    memory.add_run("r1", [{"role": "user", "content": "0"}])
    memory.put_messages([{"role": "user", "content": f"message {number}"} for number in range(10)])
    for step in range(12):
        before = memory.get_all()
        said = [{"role": "user", "content": f"{step} {n}"} for n in range(step % 2 + 1)]
        operation: Any
        if way == "window":
            operation = newest_that_fit(identity, 10_000)
        else:
            operation = newest_history(HistoryRequest(identity, HistoryFilter(), None, 0))
        shown = read_with(rig.database, operation, step, partial(memory.add_run, "r1", said))
        assert shown in (before, memory.get_all())


def test_the_pinned_head_comes_first_and_takes_its_room_first(make_memory: MakeMemory) -> None:
    memory = make_memory("s", max_window_messages=4, memory_blocks=[])
    memory.put({"role": "system", "content": "You are the harbour's clerk."})
    memory.put_messages([{"role": "user", "content": f"message {number}"} for number in range(20)])
    head, *rest = memory.get_all()
    size, head_size = rest[0].tokens or 0, head.tokens or 0
    assert memory.context_window(head_size + 2 * size) == [head, *rest[-2:]]
    assert memory.context_window(head_size) == [head]
    assert memory.context_window(head_size - 1) == rest[-((head_size - 1) // size) :], "no head, and no more"


def test_a_result_is_never_without_its_call(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages(
        [
            {"role": "user", "content": "Where is the boat?"},
            call("a", "b"),
            result("a"),
            result("b"),
            {"role": "assistant", "content": "At the pier."},
        ]
    )
    messages = memory.get_all()
    total = sum(one.tokens or 0 for one in messages)
    lengths = {len(memory.context_window(limit)) for limit in range(total + 1)}
    assert lengths == {0, 1, 4, 5}, "the results come with their call or not at all"


def test_a_number_of_tokens_is_asked_for(make_memory: MakeMemory) -> None:
    for wrong in (-1, 1.5, "many", True, None):
        with pytest.raises(ConfigurationError, match="max_tokens"):
            make_memory("s", memory_blocks=[]).context_window(wrong)  # type: ignore[arg-type]
    assert make_memory("s", memory_blocks=[]).context_window(100) == []
