"""Counting tokens: held to tiktoken itself, on any text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import Message
from strandline.producers.tokens import (
    MAX_COUNTED_JSON_CHARACTERS,
    PART_TOKENS,
    SLICE_CHARACTERS,
    count_default,
    count_message,
    load_encoding,
    text_counter,
)
from strandline.schemas.values.policy import MIN_MESSAGE_TOKENS


@pytest.fixture(scope="module")
def encoding() -> tiktoken.Encoding:
    return load_encoding("o200k_base")


@given(st.text(max_size=400))
@settings(max_examples=100, deadline=None)
def test_counts_what_the_vocabulary_counts(text: str) -> None:
    assert count_default(text) == len(load_encoding("o200k_base").encode(text, disallowed_special=()))


def test_what_looks_like_a_special_token_is_text() -> None:
    assert count_default("<|endoftext|>") > 1


@pytest.mark.parametrize("text", [" " * 1_000_000, "a" * 300_000, "日" * 100_000])
def test_long_runs_are_counted_in_slices(text: str) -> None:
    assert 0 < count_default(text) <= len(text)


def test_slices_cost_next_to_nothing(encoding: tiktoken.Encoding) -> None:
    text = "The tide leaves its line at high water. " * (3 * SLICE_CHARACTERS // 40)
    exact = len(encoding.encode_ordinary(text))
    assert exact <= count_default(text) <= exact + 3


def test_a_message_costs_its_content_name_and_calls() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Oslo"}'}}
    message = Message(
        "assistant", "One moment.", name="maren", tool_calls=[call], metadata={"long": "x" * 99}
    )
    parts = ["One moment.", "maren", "look_up", '{"city": "Oslo"}']
    assert count_message(message, count_default) == sum(count_default(part) for part in parts)


@pytest.mark.parametrize(
    "message",
    [
        Message("user", ""),
        Message("user", []),
        Message("user", "Hi"),
        Message("assistant", None, extra={"refusal": ""}),
        Message("user", [{"type": "text", "text": ""}]),
    ],
)
def test_no_message_is_free(message: Message) -> None:
    assert count_message(message, count_default) == MIN_MESSAGE_TOKENS
    assert count_message(message, lambda _text: 0) == MIN_MESSAGE_TOKENS


JSON = st.recursive(
    st.text(max_size=5) | st.integers() | st.booleans() | st.none(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=5), inside, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), JSON, min_size=1, max_size=3), st.integers(0, 3))
def test_values_of_unknown_kinds_count_by_their_json(value: dict[str, Any], times: int) -> None:
    """An unknown part, an object that a provider added, a legacy function call, a call of another type."""
    size = max(MIN_MESSAGE_TOKENS, len(json.dumps(value, ensure_ascii=False)))
    part = {"type": "unheard_of", "value": value}
    assert count_message(Message("user", [part] * times), len) >= times * size
    assert count_message(Message("assistant", None, extra={"function_call": value}), len) == size
    call = {"id": "c", "type": "custom", "custom": value}
    assert count_message(Message("assistant", None, tool_calls=[call]), len) > size


def test_json_counts_by_its_length_where_it_is_long() -> None:
    blob = {"blob": "ab " * 300_000}
    seen: list[int] = []

    def count(text: str) -> int:
        seen.append(len(text))
        return len(text) // 3

    tokens = count_message(Message("user", [{"type": "unheard_of", **blob}]), count)
    assert abs(tokens - 300_000) < 3_000
    assert sum(seen) <= MAX_COUNTED_JSON_CHARACTERS


def test_parts_that_are_no_text_cost_their_estimate() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5_000}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "unheard_of"},
    ]
    expected = count_default("What is this?") + PART_TOKENS["image"] + PART_TOKENS["document"]
    expected += count_default('{"type": "unheard_of"}')
    assert count_message(Message("user", parts), count_default) == expected


def test_a_tokenizer_returns_a_list_or_a_count() -> None:
    assert text_counter(str.split)("three short words") == 3
    assert text_counter(len)("four") == 4
    assert text_counter(None)("four") == count_default("four")


def test_the_vocabulary_ships_with_the_package(tmp_path: Path) -> None:
    """Nothing is fetched: in a process whose proxy leads nowhere, and with an empty cache, it loads."""
    code = (
        "import os; from strandline.producers.tokens import count_default, is_loaded;"
        " assert not is_loaded(); print(count_default('high water'), is_loaded(),"
        " os.environ['TIKTOKEN_CACHE_DIR'])"
    )
    nowhere = "http://127.0.0.1:9"
    environment = {
        **os.environ,
        "TIKTOKEN_CACHE_DIR": str(tmp_path),
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), nowhere),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["2", "True", str(tmp_path)], done.stderr
    assert list(tmp_path.iterdir()) == []
