"""The sample conversation: its messages can be put, and its questions are about them."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.values.message import Message

SAMPLES = resources.files("strandline") / "samples"


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    text = (SAMPLES / "conversation.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((SAMPLES / "conversation.qa.json").read_text(encoding="utf-8"))
    return loaded


def test_messages_are_accepted_as_they_stand(lines: list[dict[str, Any]]) -> None:
    limits = PutLimits(max_content_bytes=65_536, max_metadata_bytes=4_096)
    for line in lines:
        message = Message.from_openai(line, where=line["id"])
        assert message.extra == {}, line["id"]
        assert prepare(message, line["id"], limits).id == line["id"]


def test_questions_name_existing_messages(
    lines: list[dict[str, Any]], questions: list[dict[str, Any]]
) -> None:
    ids = {line["id"] for line in lines}
    assert len(ids) == len(lines)
    assert 15 <= len(questions) <= 20
    assert {question["category"] for question in questions} == {1, 2, 3, 4}
    assert len({question["question"] for question in questions}) == len(questions)
    for question in questions:
        assert set(question) == {"question", "answer", "category", "evidence"}
        assert question["answer"]
        assert question["evidence"]
        assert set(question["evidence"]) <= ids, question["question"]
        assert len(set(question["evidence"])) == len(question["evidence"])
