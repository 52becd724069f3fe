"""The texts of content parts: read once, whatever stands in what, and never an address or data."""

from __future__ import annotations

from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.pipelines.transcript import full_text
from strandline.producers.tokens import count_default, count_message
from strandline.schemas.values import content_parts
from strandline.schemas.values.content_parts import beside_texts, named_text, source_text
from strandline.schemas.values.message import Message

DEPTH = 60
WORDS = "ümläut and enough of plain words to fill more than one line of base64, which has 76 characters?>"
WITHIN: dict[str, Callable[[Any], Any]] = {
    "content": lambda inner: {"type": "x", "content": inner},
    "a list": lambda inner: {"type": "x", "content": [inner]},
    "a source": lambda inner: {"type": "x", "source": {"content": inner}},
    "sources": lambda inner: {"type": "x", "source": inner},
    "a document": lambda inner: {"type": "document", "source": {"type": "content", "content": [inner]}},
    "an object": lambda inner: {"type": "x", "a": {"output": inner}},
    "no part": lambda inner: {"output": inner},
}


@pytest.mark.parametrize("innermost", [{"type": "x"}, {"type": "text", "text": "words"}])
@pytest.mark.parametrize("how", WITHIN)
def test_each_value_of_a_part_is_read_once(
    how: str, innermost: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, number = content_parts._readable, 0

    def count(value: object) -> Iterator[str]:
        nonlocal number
        number += 1
        assert number <= 20 * DEPTH
        return read(value)

    monkeypatch.setattr(content_parts, "_readable", count)
    part: Any = innermost
    for _level in range(DEPTH):
        part = WITHIN[how](part)
    message = Message("user", [{"type": "x", **part}])
    for reader in (full_text, Message.openai_forms, lambda one: count_message(one, count_default)):
        number = 0
        reader(message)


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "text/plain", "data": b64encode(WORDS.encode()).decode()},
        {"media_type": "text/plain", "data": encodebytes(WORDS.encode()).decode()},
        {"media_type": "text/markdown", "data": urlsafe_b64encode(WORDS.encode()).decode()},
        {"media_type": "text/plain", "data": WORDS},
        {"url": f"data:text/plain,{WORDS}"},
        {"url": f"data:text/plain;charset=utf-8;base64,{b64encode(WORDS.encode()).decode()}"},
        {"file_data": WORDS},
    ],
)
def test_a_text_is_found_in_whatever_form_its_data_has(source: dict[str, Any]) -> None:
    assert source_text({"type": "file", "source": source}) == WORDS
    assert source_text({"type": "file", **source}) == WORDS


def test_a_short_text_is_no_base64() -> None:
    assert source_text({"type": "file", "mime_type": "text/plain", "data": "Hello"}) == "Hello"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "url": "s3://bucket/my file.png?signature=secret"},
        {"type": "file", "mime_type": "application/pdf", "data": "JVBERi0x LjQK"},
        {"type": "file", "file_id": "https://e.org/a b?secret"},
    ],
)
def test_neither_an_address_nor_data_is_a_text(part: dict[str, Any]) -> None:
    assert source_text(part) == ""
    assert "secret" not in full_text(Message("user", [part]))


def test_data_beside_a_picture_is_no_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}
    data = b64encode(bytes(range(256)) * 4).decode()
    assert [*beside_texts({**picture, "content": data})] == ["[data]"]
    assert [*beside_texts({**picture, "content": [{"type": "text", "text": "a boat"}]})] == ["a boat"]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "n", "value": 0}, "[n] 0"),
        ({"type": "n", "is_set": False, "empty": []}, "[n] false"),
        ({"type": "n", "at": datetime(2026, 1, 2, tzinfo=UTC)}, "[n] 2026-01-02 00:00:00+00:00"),
        ({"type": "n", "by": {1: "a", 2: "b"}}, '[n] {"1": "a", "2": "b"}'),
        ({"type": "n", "healthcare_provider": "Dr. Lee"}, "[n] Dr. Lee"),
        ({"type": "n", "providerOptions": {"a": 1}, "cache_control": "x", "thought_signature": "y"}, "[n]"),
    ],
)
def test_a_part_of_an_unknown_type_is_its_type_and_its_values(part: dict[str, Any], text: str) -> None:
    assert named_text(part).replace('"', "") == text.replace('"', "")
