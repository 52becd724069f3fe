"""What OpenAI's chat API is given of a message: what its reference has, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schemas.values.message import Message
from tests.support.providers.rules import chat_problems

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("given_", "sent"),
    [
        (Message("user", "x", name="Ana López"), {"role": "user", "content": "x", "name": "Ana_López"}),
        (Message("user", "x", name="a<b|c>/\\ d" * 20), {"name": ("a_b_c____d" * 20)[:64]}),
        (Message("user", []), {"content": ""}),
        (Message("assistant", [], tool_calls=[CALL]), {"content": None, "tool_calls": [CALL]}),
        (Message("assistant", None, extra={"refusal": "no"}), {"content": "", "refusal": "no"}),
        (
            Message(
                "assistant", "x", extra={"parsed": {"a": 1}, "annotations": [], "reasoning_content": "hm"}
            ),
            {},
        ),
        (Message("assistant", "x", extra={"audio": {"id": "a1", "data": "AAAA"}}), {"audio": {"id": "a1"}}),
        (Message("assistant", "x", extra={"audio": {"data": "AAAA"}, "function_call": {"name": "f"}}), {}),
        (
            Message("tool", "r", name="f", tool_call_id="c1"),
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
        ),
        (
            Message("user", [{"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}}]),
            {"content": [{"type": "text", "text": "t"}]},
        ),
        (
            Message(
                "user", [{"type": "image_url", "image_url": "https://e.org/x.png"}, {"type": "hologram"}]
            ),
            {
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://e.org/x.png"}},
                    {"type": "text", "text": "[hologram]"},
                ]
            },
        ),
        (
            Message("tool", [{"type": "image_url", "image_url": {"url": "u"}}], tool_call_id="c1"),
            {"tool_call_id": "c1", "content": [{"type": "text", "text": "[image_url]"}]},
        ),
        (
            Message(
                "assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "output_text", "text": "t"}]
            ),
            {"content": [{"type": "text", "text": "t"}]},
        ),
    ],
)
def test_a_message_is_given_as_the_reference_has_it(given_: Message, sent: dict[str, Any]) -> None:
    found = given_.to_openai()
    assert {**found, **sent} == found
    assert chat_problems([one for one in [found] if one["role"] != "tool"], may_wait=True) == []
    assert not found.keys() - {"role", "content"} - sent.keys()


@pytest.mark.parametrize(
    ("call", "sent"),
    [
        ({"id": "c", "function": {"name": "look up", "arguments": {"page": 1}}}, ("look_up", '{"page": 1}')),
        ({"id": "c", "index": 0, "type": "function", "function": {"name": "f"}}, ("f", "{}")),
        ({"id": "c", "type": "retrieval", "retrieval": {"query": "q"}}, ("retrieval", '{"query": "q"}')),
    ],
)
def test_a_call_is_a_function_with_its_arguments_as_text(call: dict[str, Any], sent: tuple[str, str]) -> None:
    (found,) = Message("assistant", None, tool_calls=[call]).to_openai()["tool_calls"]
    assert found == {"id": "c", "type": "function", "function": {"name": sent[0], "arguments": sent[1]}}


def test_a_long_id_is_shortened_for_a_call_and_its_result_alike() -> None:
    call = Message("assistant", None, tool_calls=[{**CALL, "id": "c" * 400}]).to_openai()
    result = Message("tool", "r", tool_call_id="c" * 400).to_openai()
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] != "c" * 40
    assert chat_problems([call, result]) == []


def test_results_in_one_message_are_several_there_before_what_stands_beside_them() -> None:
    results = [
        {"type": "tool_result", "tool_use_id": one, "content": [{"type": "text", "text": one}]}
        for one in "ab"
    ]
    message = Message("user", [*results, {"type": "text", "text": "go on"}])
    roles = [(one["role"], one["content"]) for one in message.openai_forms()]
    assert roles == [("tool", "a"), ("tool", "b"), ("user", [{"type": "text", "text": "go on"}])]


def test_what_another_server_takes_is_given_by_name() -> None:
    thought = Message("assistant", "x", extra={"reasoning_content": "hm", "parsed": 1})
    assert thought.to_openai(["reasoning_content"]) == {
        "role": "assistant", "content": "x", "reasoning_content": "hm",
    }  # fmt: skip
    film = {"type": "video_url", "video_url": {"url": "u"}, "fps": 1}
    assert Message("user", [film]).to_openai({"video_url"})["content"] == [film]
    signed = {**CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    given_ = Message("assistant", None, tool_calls=[signed]).to_openai(["extra_content"])
    assert given_["tool_calls"] == [signed]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one, max_size=2)
)
PART = st.dictionaries(
    st.sampled_from(["type", "text", "image_url", "refusal", "id", "name", "input"]), JSON
).map(lambda part: {**part, "type": str(part.get("type")), "text": str(part.get("text"))})
CALLS = st.lists(
    st.builds(
        lambda call_id, name, arguments: {"id": call_id, "function": {"name": name, "arguments": arguments}},
        st.text(min_size=1),
        st.text(),
        JSON,
    ),
    max_size=2,
)


@given(
    role=st.sampled_from(["user", "assistant", "system"]),
    content=st.none() | st.text() | st.lists(PART, max_size=3),
    name=st.none() | st.text(),
    calls=CALLS,
    extra=st.dictionaries(st.sampled_from(["refusal", "audio", "parsed", "x"]), JSON),
)
def test_whatever_a_message_holds_the_reference_allows_what_is_sent(
    role: Any, content: Any, name: str | None, calls: list[dict[str, Any]], extra: dict[str, Any]
) -> None:
    listed = calls if role == "assistant" else None
    message = Message(role, content, name=name, tool_calls=listed or None, extra=extra)
    sent = message.openai_forms()
    assert chat_problems(sent, may_wait=True) == []
    json.dumps(sent)
