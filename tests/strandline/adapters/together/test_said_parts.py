"""The words of a part: no form and no library loses them, whoever wrote the part and wherever it stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("agents", reason="needs the extras of all adapters")
pytest.importorskip("langchain_core", reason="needs the extras of all adapters")
pytest.importorskip("llama_index.core", reason="needs the extras of all adapters")
pytest.importorskip("pydantic_ai", reason="needs the extras of all adapters")

from strandline import Message
from strandline.adapters.agents.items import items_of
from strandline.adapters.converter import with_leftovers
from strandline.adapters.llamaindex import messages as llamaindex
from strandline.adapters.pydantic_ai import messages as pydantic_ai
from strandline.pipelines.transcript import full_text
from strandline.producers.reading.call_pairs import settled
from strandline.producers.tokens import count_default, count_message
from tests.support.providers.parts import DATA, PDF, PNG, SAYING, B, W
from tests.support.providers.rules import chat_problems, responses_problems
from tests.support.providers.shapes import used

# LangChain is given parts of others as they are.
FORMS: Mapping[str, Callable[[Message], str]] = {
    "search": full_text,
    "openai": lambda message: json.dumps(message.openai_forms()),
    "agents": lambda message: json.dumps(items_of(message)),
    "llamaindex": lambda message: repr(llamaindex.chat_messages_of([message])),
    "pydantic_ai": lambda message: repr(pydantic_ai.model_messages_of([message])),
}
# Where a part may stand.
PLACES: Mapping[str, Callable[[Mapping[str, Any]], Message]] = {
    "user": lambda part: Message("user", [part]),
    "system": lambda part: Message("system", [part]),
    "assistant": lambda part: Message("assistant", [part]),
    "tool": lambda part: Message("tool", [part], tool_call_id="c"),
    "result": lambda part: Message("user", [used("c", [part])]),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("library", SAYING)
def test_the_words_of_a_part_are_in_every_form(library: str, place: str) -> None:
    lost = []
    for part in SAYING[library]:
        message = PLACES[place](part)
        lost += [
            (form, part)
            for form, said in FORMS.items()
            # A document's bytes may be the words.
            if W not in (text := said(message)) and B not in text and not (DATA in text and form != "openai")
        ]
        sent = message.openai_forms()
        calls = [] if sent[0]["role"] != "tool" else [{"id": "c", "function": {"name": "f"}}]
        asked = Message("assistant", None, tool_calls=calls or None).openai_forms() if calls else []
        assert chat_problems([*asked, *sent]) == [], part
        items = items_of(message)
        called = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}] if calls else []
        assert responses_problems([*called, *items]) == [], part
        assert f"\n{W}\n{W}" not in full_text(message)
    assert lost == []


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "file", "file": {"file_id": "f"}}, {"type": "file", "file": {"file_id": "f"}}),
        ({"type": "file", "file": {"filename": "a.pdf"}}, "[document] a.pdf"),
        ({"type": "file", "file": {"file_data": None, "filename": None}}, "[document]"),
        ({"type": "image_url", "image_url": {}}, "[picture]"),
        ({"type": "image_url", "image_url": {"detail": "low"}, "alt": "Red."}, "[picture]\nRed."),
        ({"type": "input_audio", "input_audio": {"data": DATA}}, "[sound]"),
        ({"type": "hologram", "id": None, "list": []}, "[hologram]"),
        ({"type": "hologram", "a": {"b": {"c": "Red."}}}, "[hologram] Red."),
        ({"type": "poll", "question": "Red?", "votes": 2}, '[poll] {"question": "Red?", "votes": 2}'),
        ({"type": "blob", "a": 1, "deep": [DATA]}, '[blob] {"a": 1, "deep": ["[data]"]}'),
        ({"type": "compaction", "encrypted_content": "x", "metadata": {"a": 1}}, "[compaction]"),
        ({"type": "file", "mediaType": "text/plain", "url": "data:text/plain,a%20b"}, "[document]\na b"),
        ({"type": "file", "file_id": "f", "mime_type": PDF}, "[document]"),
        ({"type": "binary", "data": DATA, "media_type": PNG}, "[picture]"),
    ],
)
def test_a_part_that_the_api_cannot_take_is_text(part: dict[str, Any], said: Any) -> None:
    form = said if isinstance(said, dict) else {"type": "text", "text": said}
    assert Message("user", [part]).to_openai()["content"] == [form]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"file_id": "f", "content": W}},
        {"type": "file", "file": {"file_id": "f"}, "context": W},
        {"type": "video_url", "video_url": {"url": "https://e.org/a.mp4"}, "text": W},
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "ogg"}, "transcript": W},
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}, "alt": W},
        {"type": "input_image", "file_id": "f", "alt": W},
    ],
)
def test_the_words_of_a_part_are_given_once(part: dict[str, Any]) -> None:
    message = Message("user", [part])
    also = json.dumps(message.openai_forms(also=(part["type"],)))
    said = {"also": also, **{form: say(message) for form, say in FORMS.items()}}
    assert {form: text.count(W) for form, text in said.items()} == dict.fromkeys(said, 1)


def test_of_two_places_of_a_file_one_is_sent() -> None:
    part = {"type": "file", "file": {"file_id": "f", "filename": "a", "file_data": "QUJD"}}
    sent = {"type": "file", "file": {"filename": "a", "file_data": "QUJD"}}
    assert Message("user", [part]).to_openai()["content"] == [sent]


def test_what_stands_with_a_picture_follows_it() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}
    shown = Message("user", [{**picture, "alt": "Red."}]).to_openai()["content"]
    assert shown == [picture, {"type": "text", "text": "Red."}]


@pytest.mark.parametrize(
    ("extra", "content", "said"),
    [
        ({"images": [DATA]}, "see", [{"type": "text", "text": "see"}, {"type": "text", "text": "[picture]"}]),
        ({"attachments": [{"name": "a.pdf", "url": "u"}]}, None, "[document] a.pdf"),
        ({"audio": {"transcript": "Red."}}, None, "[sound]\nRed."),
        ({"audio": {"id": "a", "transcript": "Red."}}, None, ""),
        ({"reasoning_content": "hm", "annotations": []}, "so", "so"),
    ],
)
def test_what_stands_in_further_fields_is_said(extra: dict[str, Any], content: Any, said: Any) -> None:
    message = Message("assistant", content, extra=extra)
    assert message.to_openai()["content"] == said
    words = [one for one in ("[picture]", "a.pdf", "Red.") if one in full_text(message)]
    for form in ("agents", "pydantic_ai"):
        assert all(one in FORMS[form](message) for one in words)


def test_what_stands_beside_a_result_follows_it() -> None:
    message = Message("tool", "a chart", tool_call_id="c", extra={"images": [DATA], "refusal": "no"})
    assert [one["text"] for one in message.to_openai()["content"]] == ["a chart", "[picture]\nno"]
    (item,) = items_of(message)
    assert [one["text"] for one in item["output"]] == ["a chart", "[picture]\nno"]


def test_a_place_of_a_file_that_can_be_used_is_sent() -> None:
    part = {"type": "file", "file": {"file_id": "f", "filename": "a", "file_data": "no base64!!"}}
    sent = {"type": "file", "file": {"file_id": "f", "filename": "a"}}
    assert Message("user", [part]).to_openai()["content"] == [sent]


def test_a_text_says_the_same_to_a_model_and_to_derived_memory() -> None:
    message = Message("user", [{"type": "text", "text": "see", "context": "page 3", "caption": "x"}])
    assert full_text(message) == "see"
    assert message.to_openai()["content"] == [{"type": "text", "text": "see"}]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"type": "computer_screenshot", "image_url": f"data:{PNG};base64,{DATA}"}, "[picture]"),
        ({"chart": DATA, "rows": 2}, '{"chart": "[data]", "rows": 2}'),
        ({"type": "content", "value": [{"type": "text", "text": "Red."}]}, "Red."),
        ([{"stdout": "Red.", "stderr": ""}], '[{"stdout": "Red.", "stderr": ""}]'),
    ],
)
def test_the_data_of_a_result_is_no_text(output: Any, said: str) -> None:
    result = {"type": "function_call_output", "call_id": "c", "output": output}
    assert Message("tool", [result], tool_call_id="c").to_openai()["content"] == said


# As adapters keep what has no place in a message of ours.
WHOLE: list[dict[str, Any]] = [
    {"type": "mcp_call", "item": {"type": "mcp_call", "name": "f", "output": W}},
    {"type": "file_search_call", "item": {"type": "file_search_call", "results": [{"text": W}]}},
    {"type": "code_interpreter_call", "item": {"outputs": [{"type": "logs", "logs": W}]}},
    {"type": "compaction", "pydantic_ai": {"part_kind": "compaction", "content": W}},
    {"type": "speech", "pydantic_ai": {"part_kind": "speech", "speaker": "user", "transcript": W}},
]


@pytest.mark.parametrize("part", WHOLE)
def test_the_words_of_what_an_adapter_keeps_whole_are_in_every_form(part: dict[str, Any]) -> None:
    message = Message("assistant", [part])
    shown = {form: say(message) for form, say in FORMS.items()}
    assert [form for form, text in shown.items() if W not in text] == []
    assert full_text(message).endswith(W)


@pytest.mark.parametrize(
    "thought",
    [
        {"type": "reasoning_content", "reasoning_content": {"text": W, "signature": DATA}},
        {"type": "reasoningContent", "reasoningContent": {"reasoningText": {"text": W}}},
        {"type": "text", "text": W, "thought": True},
        {"type": "part", "text": W, "thought": True},
        {"type": "text_reasoning", "text": W},
    ],
)
def test_a_thought_is_never_said(thought: dict[str, Any]) -> None:
    message = Message("assistant", [thought, {"type": "text", "text": "so"}])
    assert full_text(message) == "so"
    assert [say(message) for say in FORMS.values() if W in say(message)] == []


def test_what_an_adapter_keeps_in_a_part_is_neither_said_nor_counted() -> None:
    plain = Message("user", "see")
    message = with_leftovers(plain, "library", {"artifact": "SECRET " * 2_000})
    assert len(message.content or ()) == 2 and full_text(message) == "see"
    assert message.to_openai()["content"] == [{"type": "text", "text": "see"}]
    assert count_message(message, count_default) == count_message(plain, count_default)
    for said in FORMS.values():
        assert "SECRET" not in said(message)


def test_what_stands_beside_a_result_in_a_tool_s_message_is_kept() -> None:
    denied = {"type": "tool-approval-response", "approvalId": "p", "approved": False, "reason": "no"}
    asked = {"type": "tool-approval-request", "approvalId": "p", "toolCallId": "c"}
    result = {"type": "tool-result", "toolCallId": "c", "output": {"type": "text", "value": "out"}}
    call = {"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {}}
    log = [Message("assistant", [call, asked]), Message("tool", [denied, result], tool_call_id="c")]
    assert settled(log) is log
    said = log[1].to_openai()["content"]
    assert [one["text"].partition(" ")[0] for one in said] == ["out", "[tool-approval-response]"]
