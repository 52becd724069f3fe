"""The pointer of a fault in a message's parts leads to it, whatever the keys on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.producers.writing.validate import PutLimits, PutRules
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.wire.messages import PutMessages
from strandline.service.gate.bodies import read_model
from strandline.service.gate.places import MAX_POINTER_CHARACTERS, place_of_invalid
from strandline.service.gate.problems import ProblemError

SCOPE = {"headers": [(b"content-type", b"application/json")]}
LIMITS = PutLimits(1_000_000, 64_000)
KEYS = st.sampled_from(
    ["text", "a/b", "~1", "m~n", "", " ", "0", "content", "metadata", "[1]", "a.b", "k" * 300, "é", "\x07"]
) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
STEPS = st.lists(KEYS | st.integers(0, 3), max_size=12)
FAULTS = ["a\0", "\ud83d", float("inf"), float("nan")]


def body_with(steps: list[str | int], fault: Any, field: str) -> dict[str, Any]:
    """A body with a fault at these steps of a part, or of a call's arguments, behind sound ones."""
    value = fault
    for step in reversed(steps):
        value = {"before": 1, step: value} if isinstance(step, str) else [*([{"x": "y"}] * step), value]
    message: dict[str, Any]
    sound, faulty = {"type": "text", "text": "x"}, {"type": "thing", "deep": value}
    if field == "content":
        message = {"role": "assistant", "content": [sound, faulty]}
    else:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": value}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"messages": [{"role": "user", "content": "x"}, message]}


def pointer_to_fault(body: dict[str, Any]) -> str:
    """As a put tells it: of the body as it is read, or of its messages."""
    try:
        read_model(PutMessages, SCOPE, json.dumps(body).encode())
    except ProblemError as error:
        (place,) = error.places
        return place.pointer
    last = len(body["messages"]) - 1
    with pytest.raises(InvalidMessageError) as refused:
        PutRules(LIMITS).prepare(body["messages"][last], f"messages[{last}]")
    told = place_of_invalid(refused.value, PutMessages)
    assert told is not None
    return told.pointer


def resolve(body: Any, pointer: str) -> Any:
    """As RFC 6901 has it."""
    value = {"body": body}
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def holds(value: Any, fault: Any) -> bool:
    if isinstance(value, dict):
        return any(holds(one, fault) for one in value.values())
    if isinstance(value, list):
        return any(holds(one, fault) for one in value)
    return value is fault


@given(steps=STEPS, fault=st.sampled_from(FAULTS), field=st.sampled_from(["content", "tool_calls"]))
def test_a_pointer_leads_to_the_fault(steps: list[str | int], fault: Any, field: str) -> None:
    body = body_with(steps, fault, field)
    told = pointer_to_fault(body)
    value = resolve(body, told)
    assert holds(value, fault)
    whole = 60 + sum(2 * len(str(one)) + 1 for one in steps)
    assert value is fault or whole > MAX_POINTER_CHARACTERS
    assert len(told) <= MAX_POINTER_CHARACTERS


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([{"type": "text", "text": "x"}, {"type": "text", "text": 5}], "/1/text"),
        ([{"type": "text", "text": "x"}, {"type": 5}], "/1"),
        ([{"type": "text", "text": "x"}, 5], "/1"),
        ([{"type": "image_url", "image_url": {"url": "\ud83d"}}], "/0/image_url/url"),
        ([{"type": "x", "a/b": {"~": ["", "\0"]}}], "/0/a~1b/~0/1"),
        ([{"type": "x", "bad\0key": 1}], "/0"),
        ([{"type": "x", "deep": {"\ud83d": {"a": "\0"}}}], "/0/deep"),
        ([{"type": "x", "k" * 400: {"j" * 400: "\0"}}], f"/0/{'k' * 400}"),
        ([{"type": "x", "d": json.loads('{"a":' * 70 + "1" + "}" * 70)}], "/0/d" + "/a" * 61),
        ("a\0", ""),
        (5, ""),
    ],
)
def test_the_place_of_a_bad_part(content: Any, told: str) -> None:
    body = {"messages": [{"role": "user", "content": content}]}
    assert pointer_to_fault(body) == f"/body/messages/0/content{told}"


def test_the_names_in_metadata_are_the_client_s() -> None:
    body = {"messages": [{"role": "user", "content": "x", "metadata": {"ana@example.org": ["\0"]}}]}
    assert pointer_to_fault(body) == "/body/messages/0/metadata"
