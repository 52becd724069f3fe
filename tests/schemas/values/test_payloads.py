"""Data that is no text: found by its form wherever it stands, never counted or read, and shown by a mark."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.models.contract import SummaryTask, TranscriptLine
from strandline.pipelines.models.local.extractive import roll_summary
from strandline.pipelines.transcript import full_text
from strandline.producers.blocks.render import message_line, speech_line
from strandline.producers.tokens import count_default, count_message, count_parts
from strandline.schemas.values.content_parts import is_payload, split_payloads, without_payloads
from strandline.schemas.values.message import Message

BYTES = random.Random(1).randbytes(150_000)  # noqa: S311
DATA = base64.b64encode(BYTES).decode()
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + BYTES).decode()
MAIL = base64.encodebytes(BYTES[:5_700]).decode().replace("=", "")

PDF = "data:application/pdf;base64," + DATA
SOURCE = {"type": "base64", "media_type": "image/png", "data": DATA}
BINARY = {"kind": "binary", "data": DATA, "media_type": "image/png"}

# Where formats have data: each is a part, or a value beside it.
PARTS: dict[str, dict[str, Any]] = {
    "data url": {"type": "image_url", "image_url": {"url": "data:image/png;base64," + DATA}},
    "media of LangChain": {"type": "media", "mime_type": "image/png", "data": DATA},
    "sound": {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
    "file": {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": PDF},
    },
    "Anthropic": {"type": "image", "source": SOURCE},
    "Gemini": {"type": "part", "inlineData": {"mimeType": "image/png", "data": DATA}},
    "Pydantic AI": {
        "type": "image",
        "pydantic_ai": {"kind": "binary", "data": DATA, "media_type": "image/png"},
    },
    "Agents SDK": {"type": "image_generation_call", "item": {"id": "ig_1", "result": PNG}},
    "result": {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [{"type": "image", "source": SOURCE}],
    },
    "unknown": {"type": "thing", "deep": [{"er": {"blob": DATA}}]},
    "JSON in text": {
        "type": "text",
        "text": json.dumps(BINARY),
    },
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_data_is_neither_counted_nor_read_wherever_it_stands(part: dict[str, Any]) -> None:
    texts = [{"type": "text", "text": "see"}]
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps(part)}}]
    for message in (
        Message("user", [*texts, part]),
        Message("tool", json.dumps(part), tool_call_id="c"),
        Message("assistant", "see", extra={"audio": part, "images": [part]}),
        Message("assistant", None, tool_calls=calls),
    ):
        assert count_message(message, count_default) < 4_500
        for text in (full_text(message), message_line(message), speech_line(message), message.shown_text):
            assert DATA[100:200] not in text
            assert len(text) < 1_000


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (PARTS["data url"], "[picture]"),
        (PARTS["media of LangChain"], "[picture]"),
        (PARTS["sound"], "[sound]"),
        (PARTS["file"], "[document] a.pdf"),
        (PARTS["Gemini"], "[picture]"),
        (PARTS["result"], "[picture]"),
        (
            {"type": "image_url", "image_url": {"url": "https://e.org/d/boat.png?sig=1"}},
            "[picture] boat.png",
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://e.org/b.png"}, "alt": "A boat."},
            "[picture] b.png\nA boat.",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "", "transcript": "I live in Bergen."}},
            "[sound]\nI live in Bergen.",
        ),
        ({"type": "video_url", "video_url": {"url": "https://[::bad"}}, "[video]"),
        ({"type": "text", "text": "plain"}, "plain"),
        ({"type": "thing", "value": 1}, ""),
        (PARTS["Agents SDK"], "[picture]"),
        ({"type": "tool_use", "id": "c", "input": {"mime_type": "text/html"}}, ""),
    ],
)
def test_a_part_leaves_a_mark_with_its_name_and_captions(part: dict[str, Any], text: str) -> None:
    assert Message("user", [part]).shown_text == text
    beside = Message("user", [{"type": "text", "text": "before"}, part, {"type": "text", "text": "after"}])
    assert beside.shown_text == "\n".join(line for line in ("before", text, "after") if line)


def test_the_transcript_of_an_answer_is_read() -> None:
    extra = {"audio": {"id": "a", "data": DATA, "expires_at": 1, "transcript": "Petrel lies in Bergen."}}
    assert full_text(Message("assistant", None, extra=extra)) == "[sound]\nPetrel lies in Bergen."
    assert full_text(Message("assistant", "Hello.", extra={"refusal": "no"})) == "Hello."


@pytest.mark.parametrize(
    "text",
    [
        "x" * 150_000, "ab " * 1_000, "港は深く古い。" * 1_000, "word" * 500, "0123456789abcdef" * 100,
        "The key is AKIAIOSFODNN7EXAMPLE.", "a/b/c" * 200, json.dumps({"n": list(range(2_000))}), "=" * 1_000,
    ],
)  # fmt: skip
def test_text_stays(text: str) -> None:
    assert split_payloads(text) == (text, [])
    assert not is_payload(text)


@given(
    st.binary(min_size=600, max_size=2_000).filter(lambda data: len(set(data)) > 60),
    st.text(st.characters(codec="utf-8", categories=["L"]), max_size=20),
    st.booleans(),
)
def test_base64_is_found_between_words(data: bytes, word: str, is_url_safe: bool) -> None:
    encoded = (base64.urlsafe_b64encode if is_url_safe else base64.b64encode)(data).decode()
    assert is_payload(encoded)
    assert without_payloads(f"{word} {encoded} {word}") == f"{word} [data] {word}"
    assert without_payloads(json.dumps([word, encoded], ensure_ascii=False)) == json.dumps(
        [word, "[data]"], ensure_ascii=False
    )


def test_lines_of_mail_and_data_urls_are_found() -> None:
    assert MAIL[200:260] not in without_payloads(f"see\n{MAIL}")
    assert MAIL[200:260] not in without_payloads(json.dumps({"file": MAIL}))
    assert split_payloads(f"![a](data:image/png;base64,{DATA}) is it")[0] == "![a]([picture]) is it"
    assert split_payloads(f"<img src='data:audio/wav;base64,{DATA}'>") == ("<img src='[sound]'>", ["audio"])


def test_data_counts_as_a_part_of_its_kind() -> None:
    estimates = {"image": 100, "document": 2_000, "image_url": 100}
    one = count_parts([{"type": "thing", "v": PNG}], count_default, estimates)
    two = count_parts([{"type": "thing", "v": [PNG, PNG]}], count_default, estimates)
    assert 90 <= two - one <= 110
    assert count_message(Message("tool", DATA, tool_call_id="c"), count_default, estimates) <= 110


def test_the_stand_in_keeps_the_mark_beside_a_sentence() -> None:
    text = "This is my boat Petrel at the quay.\n[picture] petrel.png"
    line = TranscriptLine(1, "user", None, text, datetime.now(UTC))
    summary, _topics = roll_summary(SummaryTask("", (line,), 100))
    assert summary == "User: This is my boat Petrel at the quay. [picture] petrel.png"
