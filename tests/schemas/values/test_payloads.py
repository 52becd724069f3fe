"""Data that is no text: found by its form wherever it stands, never counted or read, and shown by a mark."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import random
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import (
    AudioPart,
    ConfigurationError,
    DocumentPart,
    ImagePart,
    InvalidMessageError,
    Memory,
    Message,
    StaticMemoryBlock,
    TextPart,
    VideoPart,
)
from strandline.pipelines.models.contract import SummaryTask, TranscriptLine
from strandline.pipelines.models.local.extractive import roll_summary
from strandline.pipelines.transcript import full_text
from strandline.producers.blocks.render import message_line, speech_line
from strandline.producers.tokens import count_default, count_message, count_parts
from strandline.schemas.values.content_parts import is_payload, split_payloads, without_payloads
from tests.conftest import MakeMemory

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
        ({"type": "thing", "value": 1}, "[thing] 1"),
        (PARTS["Agents SDK"], "[picture]"),
        ({"type": "tool_use", "id": "c", "input": {"mime_type": "text/html"}}, ""),
    ],
)
def test_a_part_leaves_a_mark_with_its_name_and_captions(part: dict[str, Any], text: str) -> None:
    assert Message("user", [part]).shown_text == text
    beside = Message("user", [{"type": "text", "text": "before"}, part, {"type": "text", "text": "after"}])
    assert beside.shown_text == "\n".join(line for line in ("before", text, "after") if line)


URL = "https://e.org/boat.png?sig=secret"
# How libraries and providers name what is no text, with its mark.
NAMED: list[tuple[dict[str, Any], str]] = [
    ({"type": "image_file", "image_file": {"file_id": "file-1"}}, "[picture]"),
    ({"type": "output_image", "image_url": URL}, "[picture] boat.png"),
    ({"type": "image-url", "url": URL}, "[picture] boat.png"),
    ({"type": "image-data", "data": DATA, "mediaType": "image/png"}, "[picture]"),
    ({"type": "image", "image": URL}, "[picture] boat.png"),
    ({"type": "screenshot", "data": DATA}, "[picture]"),
    ({"type": "audio_url", "audio_url": {"url": "https://e.org/a.mp3"}}, "[sound] a.mp3"),
    ({"type": "output_audio", "data": DATA, "transcript": "Hello."}, "[sound]\nHello."),
    ({"type": "voice", "url": "https://e.org/a.ogg", "transcription": "Hi."}, "[sound] a.ogg\nHi."),
    ({"type": "input_video", "video_url": "https://e.org/v.mp4"}, "[video] v.mp4"),
    ({"type": "document_url", "document_url": "https://e.org/a.pdf"}, "[document] a.pdf"),
    ({"type": "media", "mime_type": "image/png", "file_uri": "gs://b/a.png"}, "[picture]"),
    ({"type": "part", "file_data": {"mime_type": "video/mp4", "file_uri": "gs://b/a"}}, "[video]"),
    ({"type": "file", "data": DATA, "mediaType": "image/png", "filename": "b.png"}, "[picture] b.png"),
    ({"type": "file", "file": {"file_data": "data:image/png;base64," + DATA}}, "[picture]"),
    ({"type": "image_url", "image_url": {"url": URL}, "altText": "A boat."}, "[picture] boat.png\nA boat."),
    ({"type": "image", "source": SOURCE, "description": "A boat."}, "[picture]\nA boat."),
    ({"type": "langchain_part", "value": {"text": "A boat."}}, "A boat."),
]


PAGE = {"url": "https://e.org/x", "contentType": "text/html", "content": "BOAT"}
FETCHED: list[dict[str, Any]] = [
    {"type": "attachment", "name": "notes.txt", "content": "BOAT"},
    {"type": "attachment", "name": "notes.txt", "contentType": "text/plain", "content": "BOAT"},
    {"type": "web_page", **PAGE},
    {"type": "tool-result", "toolCallId": "a", "toolName": "f", "result": PAGE},
    {"type": "tool-result", "toolCallId": "a", "output": {"type": "json", "value": PAGE}},
    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "fetched", **PAGE}]},
    {"type": "functionResponse", "functionResponse": {"name": "f", "response": PAGE}},
    {"type": "tool-result", "output": {"type": "json", "value": {"type": "voice", "line": "BOAT", "no": 7}}},
    {"type": "tool-result", "output": {"type": "json", "value": [{"type": "document", "snippet": "BOAT"}]}},
    {"type": "tool-result", "output": {"type": "json", "value": {"type": "photo", "content": "BOAT"}}},
]


@pytest.mark.parametrize("part", FETCHED)
def test_a_file_given_as_text_and_what_a_tool_fetched_are_text(part: dict[str, Any]) -> None:
    short = Message("user", [json.loads(json.dumps(part).replace("BOAT", BOAT))])
    assert BOAT in full_text(short) and count_message(short, count_default) < 100
    assert BOAT in json.dumps(short.to_openai())
    long = Message("user", [json.loads(json.dumps(part).replace("BOAT", "word " * 30_000))])
    assert 29_000 < count_message(long, count_default) < 33_000


@pytest.mark.parametrize(
    "part",
    [
        {"type": "mcp_output", "output": "data:image/png;base64," + DATA},
        {"type": "web_search_tool_result", "content": [{"type": "r", "title": "T", "encrypted": DATA}]},
        {"type": "code_interpreter_call", "outputs": [{"image": "data:image/png;base64," + DATA}]},
        {"type": "code_execution_result", "output": DATA},
        {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": PDF}},
    ],
)
def test_no_data_is_sent_as_text(part: dict[str, Any]) -> None:
    assert DATA[100:200] not in json.dumps(Message("assistant", [part]).to_openai())


@pytest.mark.parametrize("field", ["transcript", "description", "alt"])
@pytest.mark.parametrize("kind", ["audio_url", "image_url", "document_url", "document"])
def test_captions_count_since_they_are_sent(kind: str, field: str) -> None:
    source = {"source": {"type": "text", "data": BOAT}} if kind == "document" else {kind: {"url": URL}}
    message = Message("user", [{"type": kind, **source, field: "word " * 24_000}])
    assert count_message(message, count_default) >= count_default(str(message.to_openai()["content"])) - 50


@pytest.mark.parametrize(("part", "text"), NAMED)
def test_a_kind_is_known_by_whatever_name_it_has(part: dict[str, Any], text: str) -> None:
    assert full_text(Message("user", [part])) == text
    result = {"type": "tool-result", "toolCallId": "a", "output": {"type": "content", "value": [part]}}
    assert full_text(Message("user", [result])) == text
    kind = {"[p": 256, "[s": 256, "[v": 256, "[d": 2_048}.get(text[:2], 0)
    assert kind <= count_message(Message("user", [part]), count_default) <= kind + 20


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ({"images": [DATA]}, "[picture]"),
        ({"images": [{"type": "image_url", "image_url": {"url": URL}}]}, "[picture] boat.png"),
        ({"attached": [{"name": "b.png", "contentType": "image/png", "url": URL}]}, "[picture] b.png"),
        ({"attachments": [{"file_id": "f", "name": "charter.pdf"}]}, "[document] charter.pdf"),
        ({"audio": {"id": "a", "transcript": "Hello."}}, "[sound]\nHello."),
        ({"annotations": [{"type": "url_citation", "url_citation": {"url": URL}}]}, ""),
        ({"reasoning_content": "hm"}, ""),
        ({"voice": {"name": "alloy"}}, ""),
        ({"audio": {"voice": "alloy", "format": "wav"}}, ""),
        ({"documents": [{"text": "Red."}, {"title": "T", "snippet": "Red."}]}, "[document] T"),
        ({"attachments": [{"name": "n.txt", "content": "Red."}]}, "[document] n.txt"),
        ({"attachments": [{"description": "Red."}]}, ""),
        ({"images": [{"url": URL, "description": "Red."}, URL]}, "[picture] boat.png\n[picture] boat.png"),
        ({"attachments": [], "file": {"text": "Red."}}, ""),
    ],
)  # fmt: skip
def test_data_in_another_field_leaves_a_mark(field: dict[str, Any], text: str) -> None:
    assert full_text(Message("user", "", extra=field)) == text


def test_what_a_tool_is_given_is_counted_as_text() -> None:
    given = {"mime_type": "text/html", "data": "boats " * 5_000}
    part = {"type": "tool_use", "id": "c", "name": "f", "input": given}
    assert full_text(Message("assistant", [part])) == f"f({json.dumps(given)})"
    assert count_message(Message("assistant", [part]), count_default) > 4_000


def test_the_transcript_of_an_answer_is_read() -> None:
    extra = {"audio": {"id": "a", "data": DATA, "expires_at": 1, "transcript": "Petrel lies in Bergen."}}
    assert full_text(Message("assistant", None, extra=extra)) == "[sound]\nPetrel lies in Bergen."
    assert full_text(Message("assistant", "Hello.", extra={"reasoning_content": "no"})) == "Hello."


def lines(width: int, before: str = "", after: str = "") -> str:
    return "\n".join(f"{before}{DATA[at : at + width]}{after}" for at in range(0, 60_000, width))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"png": DATA}).replace("/", "\\/"),
        json.dumps(json.dumps({"png": lines(76)})),
        DATA.replace("+", "\\u002B").replace("/", "\\u002f"),
        "img=" + DATA.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D") + "&x=1",
        DATA.replace("+", "&#43;").replace("/", "&#x2F;"),
        "data: |\n" + lines(76, "    "),
        "data: >\n  " + lines(72).replace("\n", " "),
        lines(76, "> "), lines(76, "> > "), lines(64, " * "), lines(76, "+"), lines(40), lines(48),
        lines(70, "    '", "'"), lines(76, '"', '" +'), lines(75, "", "="), lines(76).replace("\n", "\r\n\t"),
        lines(76, "  12  "), lines(76, "a.txt:3:"), lines(200, "row9,"),
        json.dumps(lines(76).split("\n"), indent=2),
        json.dumps("data:image/png;base64," + DATA).replace("/", "\\/"),
        "data:image/png;base64,\n" + lines(76),
    ],
)  # fmt: skip
def test_data_is_found_however_it_is_written(text: str) -> None:
    message = Message("tool", text, tool_call_id="c")
    assert count_message(message, count_default) < 1_000
    assert len(full_text(message)) < 200


BOAT = "The boat Petrel is red."
SPOKEN: list[dict[str, Any]] = [
    {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": BOAT}},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": BOAT}]}},
    {"type": "document", "source": {"type": "content", "content": BOAT}},
    {"type": "search_result", "source": "u", "title": "t", "content": [{"type": "text", "text": BOAT}]},
    {"type": "tool_result", "tool_use_id": "a", "content": BOAT},
    {"type": "x", "toolResult": {"toolUseId": "a", "content": [{"text": BOAT}]}},
    {"type": "x", "toolResult": {"toolUseId": "a", "content": [{"json": {"colour": BOAT}}]}},
    {"type": "functionResponse", "functionResponse": {"name": "f", "response": {"output": BOAT}}},
    {"type": "codeExecutionResult", "codeExecutionResult": {"outcome": "OUTCOME_OK", "output": BOAT}},
    {"type": "function_call_output", "call_id": "a", "output": BOAT},
    {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": BOAT, "stderr": ""}]},
    {"type": "mcp_call", "id": "m", "name": "f", "server_label": "s", "arguments": "{}", "output": BOAT},
    {"type": "code_interpreter_call", "id": "m", "code": "1", "outputs": [{"type": "logs", "logs": BOAT}]},
    {"type": "file_search_call", "id": "m", "queries": ["x"], "results": [{"file_id": "f", "text": BOAT}]},
    {"type": "tool-result", "toolCallId": "a", "toolName": "f", "output": {"type": "text", "value": BOAT}},
    {"type": "tool-result", "toolCallId": "a", "output": {"type": "error-text", "value": BOAT}},
    {"type": "tool-result", "output": {"type": "content", "value": [{"type": "text", "text": BOAT}]}},
    {"type": "code_execution_tool_result", "tool_use_id": "a", "content": {"type": "r", "stdout": BOAT}},
    {"type": "web_search_tool_result", "tool_use_id": "a", "content": [{"type": "r", "title": BOAT}]},
    {"type": "refusal", "refusal": BOAT},
    {"type": "resource", "resource": {"uri": "f:///a", "mimeType": "text/plain", "text": BOAT}},
]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"filename": "n.txt", "file_data": "data:text/plain;base64,DATA"}},
        {"type": "part", "inlineData": {"mimeType": "text/markdown", "data": "DATA"}},
        {"type": "file", "base64": "DATA", "mime_type": "text/csv"},
    ],
)
def test_a_text_in_base64_is_read_as_text(part: dict[str, Any]) -> None:
    for text, least in ((BOAT, 1), ("word " * 3_000, 2_500)):
        data = base64.b64encode(text.encode()).decode()
        message = Message("user", [json.loads(json.dumps(part).replace("DATA", data))])
        assert text.strip() in full_text(message)
        assert least < count_message(message, count_default) < least + 900
    broken = Message("user", [json.loads(json.dumps(part).replace("DATA", "%%"))])
    assert full_text(broken).startswith("[document]")


@pytest.mark.parametrize("part", SPOKEN, ids=lambda part: part["type"])
def test_text_in_documents_and_results_is_read_in_every_form(part: dict[str, Any]) -> None:
    assert BOAT in full_text(Message("user", [part]))
    long = json.loads(json.dumps(part).replace(BOAT, "word " * 3_000))
    assert 2_500 < count_message(Message("user", [long]), count_default) < 3_500


def test_a_call_is_read_in_every_form_and_a_thought_in_none() -> None:
    for part in (
        {"type": "tool_use", "id": "a", "name": "note", "input": {"text": BOAT}},
        {"type": "functionCall", "functionCall": {"name": "note", "args": {"text": BOAT}}},
    ):
        assert full_text(Message("assistant", [part])) == f"note({json.dumps({'text': BOAT})})"
    nothing: tuple[Any, ...] = (None, {}, "")
    for arguments in nothing:
        call: dict[str, Any] = {
            "id": "a",
            "type": "function",
            "function": {"name": "now", "arguments": arguments},
        }
        none: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "now", "input": arguments}
        assert full_text(Message("assistant", None, tool_calls=[call])) == "now()"
        assert full_text(Message("assistant", [none])) == "now()"
    thoughts: list[Any] = [
        {"type": "reasoning", "id": "r", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
    ]
    assert full_text(Message("assistant", [*thoughts, {"type": "text", "text": BOAT}])) == BOAT


@pytest.mark.parametrize(
    "text",
    [
        "x" * 150_000, "ab " * 1_000, "港は深く古い。" * 1_000, "word" * 500, "0123456789abcdef" * 100,
        "The key is AKIAIOSFODNN7EXAMPLE.", "a/b/c" * 200, json.dumps({"n": list(range(2_000))}), "=" * 1_000,
        "\n".join(f"/Users/Ana/Projects/Strandline/Docs/{n}/Quarterly/Reports/Final" for n in range(20)),
        "\n".join(f"File{n}.txt: {hashlib.sha256(bytes([n])).hexdigest()}" for n in range(20)),
        "\n".join(f"https://Example.org/Articles/2026/Some-Long-Slug-About-Boats-{n}" for n in range(20)),
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


# Content parts: typed values and OpenAI's dicts mean the same, and count by estimates that can be set.
PART_DATA = b"\x89PNG"
ENCODED = b64encode(PART_DATA).decode()
FORMS: list[tuple[Any, dict[str, Any]]] = [
    (TextPart("Hello"), {"type": "text", "text": "Hello"}),
    (ImagePart("https://a/b.png"), {"type": "image_url", "image_url": {"url": "https://a/b.png"}}),
    (
        ImagePart.from_bytes(PART_DATA, "image/png", detail="low"),
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}", "detail": "low"}},
    ),
    (AudioPart(PART_DATA, "wav"), {"type": "input_audio", "input_audio": {"data": ENCODED, "format": "wav"}}),
    (VideoPart("https://a/b.mp4"), {"type": "video_url", "video_url": {"url": "https://a/b.mp4"}}),
    (
        VideoPart.from_bytes(PART_DATA, "video/mp4"),
        {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{ENCODED}"}},
    ),
    (
        DocumentPart(PART_DATA, filename="chart.pdf"),
        {
            "type": "file",
            "file": {"filename": "chart.pdf", "file_data": f"data:application/pdf;base64,{ENCODED}"},
        },
    ),
    (DocumentPart(file_id="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
]
ITS_PARTS = [part for part, _form in FORMS]


@pytest.mark.parametrize(("part", "form"), FORMS, ids=lambda value: type(value).__name__)
def test_a_part_is_the_mapping_that_it_stands_for(part: Any, form: dict[str, Any]) -> None:
    assert part == form and dict(part) == form and part.to_openai() == form
    assert len(part) == len(form) and part["type"] == form["type"]
    assert pickle.loads(pickle.dumps(part)) == form  # noqa: S301
    assert ENCODED not in repr(part) and "PNG" not in repr(part), "a picture is no matter for a log"


def test_typed_parts_are_stored_and_sent_as_openai_spells_them(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put(Message("user", ITS_PARTS, id="a"))
    memory.put({"id": "a", "role": "user", "content": [form for _part, form in FORMS]})
    (stored,) = memory.get_all()
    assert stored.content == ITS_PARTS
    assert all(type(part) is dict for part in stored.content or ())
    sent = memory.get().to_openai(also=["video_url"])
    assert sent == [{"role": "user", "content": [form for _part, form in FORMS]}]
    assert str(stored) == "user: Hello"
    assert stored.shown_text.startswith("Hello\n[picture] b.png\n[picture]\n[sound]\n")


@pytest.mark.parametrize(
    ("given", "image", "document"), [(None, 256, 2048), ({"image": 800, "document": 0}, 800, 0)]
)
def test_parts_count_by_their_estimates(
    make_memory: MakeMemory, given: dict[str, int] | None, image: int, document: int
) -> None:
    memory = make_memory("s", memory_blocks=[], part_tokens=given)
    memory.put({"role": "user", "content": ITS_PARTS})
    assert memory.get().tokens == count_default("Hello") + 2 * image + 3 * 256 + 2 * document


def test_the_estimates_hold_for_blocks_as_well(make_memory: MakeMemory) -> None:
    block = StaticMemoryBlock(
        name="chart", static_content=[TextPart("Our <chart>:"), ImagePart("https://a/b.png")]
    )
    contexts = [
        make_memory("s", memory_blocks=[block], part_tokens={"image": tokens}).get() for tokens in (0, 900)
    ]
    assert contexts[1].tokens - contexts[0].tokens == 900
    text, image = contexts[0][0].to_openai(also=["image_url"])["content"]
    assert "<chart>\nOur &lt;chart&gt;:\n</chart>" in text["text"]
    assert image == ImagePart("https://a/b.png")


@pytest.mark.parametrize("given", [{"picture": 3}, {"image": -1}, {"image": 1.5}, {"image": True}])
def test_estimates_that_make_no_sense_are_refused(make_memory: MakeMemory, given: Any) -> None:
    with pytest.raises(ConfigurationError, match="part_tokens"):
        make_memory("s", part_tokens=given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ImagePart(b"bytes"),  # type: ignore[arg-type]
        lambda: ImagePart(""),
        lambda: ImagePart.from_bytes("text", "image/png"),  # type: ignore[arg-type]
        lambda: AudioPart("text", "wav"),  # type: ignore[arg-type]
        lambda: AudioPart(PART_DATA, ""),
        DocumentPart,
        lambda: DocumentPart(PART_DATA, file_id="file-1"),
    ],
)
def test_parts_that_cannot_be_sent_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidMessageError):
        make()


def test_reasoning_and_refusals_count_since_they_are_sent_back(make_memory: MakeMemory) -> None:
    memory: Memory = make_memory("s", memory_blocks=[])
    thinking = {"type": "thinking", "thinking": "Nine times nine is eighty-one.", "signature": "x" * 99}
    memory.put({"role": "assistant", "content": [thinking, {"type": "text", "text": "81"}]})
    memory.put({"role": "assistant", "content": "81", "reasoning_content": "Nine times nine is eighty-one."})
    expected = count_default("81") + count_default("Nine times nine is eighty-one.")
    assert [message.tokens for message in memory.get()] == [expected, expected]


# JSON values come back as they were put: in metadata, content parts, tool calls and further fields.
# Values that a put refuses (NUL, lone surrogates) are tested in test_bad_input.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
numbers = st.one_of(
    st.integers(),
    st.integers(-(10**300), 10**300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e308, 5e-324, -0.0, 1e16, 1e22, 2.0, 2**53 + 1, 0.1]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts.filter(bool), values, max_size=4)


def exactly(value: Any) -> str:
    """A value's JSON: tells 1 from 1.0 and from true, and 0.0 from -0.0."""
    return json.dumps(value, sort_keys=True)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(metadata=objects, part=objects, arguments=objects, extra=objects, more=objects)
def test_json_comes_back_as_it_was_put(
    make_memory: MakeMemory,
    metadata: dict[str, Any],
    part: dict[str, Any],
    arguments: dict[str, Any],
    extra: dict[str, Any],
    more: dict[str, Any],
) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.reset()
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}]
    content = [{"type": "input_other", "value": part}]
    first = {"role": "user", "content": content, "metadata": metadata, "x_extra": {"value": extra}}
    second = {"role": "assistant", "tool_calls": [calls[0] | {"more": more}], "metadata": metadata}
    # By itself, and together with another: these are two ways through the database.
    memory.put(first)
    memory.put_messages([first, second])
    for message, given_ in zip(memory.get_all(), (first, first, second), strict=True):
        assert exactly(message.metadata) == exactly(given_["metadata"])
        shown = message.to_dict()
        for field in ("content", "tool_calls", "x_extra"):
            assert exactly(shown.get(field)) == exactly(given_.get(field))
