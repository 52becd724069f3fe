"""The sample conversation: its form, and that it still holds what the README promises of it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from importlib import resources
from itertools import pairwise
from typing import Any

import pytest

from strandline.producers.tokens import count_default, count_message
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


@pytest.fixture(scope="module")
def sessions(lines: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    grouped: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        grouped.setdefault(line["metadata"]["session"], []).append(line)
    return grouped


def test_messages_are_accepted_as_they_stand(lines: list[dict[str, Any]]) -> None:
    limits = PutLimits(max_content_bytes=65_536, max_metadata_bytes=4_096)
    for line in lines:
        message = Message.from_openai(line, where=line["id"])
        assert message.extra == {}, line["id"]
        assert prepare(message, line["id"], limits).id == line["id"]


def test_ids_are_unique_and_name_session_and_place(
    lines: list[dict[str, Any]], sessions: dict[int, list[dict[str, Any]]]
) -> None:
    assert len({line["id"] for line in lines}) == len(lines)
    for session, group in sessions.items():
        expected = [f"s{session:02d}-m{number:02d}" for number in range(1, len(group) + 1)]
        assert [line["id"] for line in group] == expected


def test_there_are_enough_turns_in_eight_to_twelve_sessions(
    lines: list[dict[str, Any]], sessions: dict[int, list[dict[str, Any]]]
) -> None:
    assert len(lines) >= 150
    assert 8 <= len(sessions) <= 12
    assert list(sessions) == list(range(1, len(sessions) + 1))
    assert min(map(len, sessions.values())) >= 6


def test_there_are_enough_tokens(lines: list[dict[str, Any]]) -> None:
    assert sum(count_message(Message.from_openai(line), count_default) for line in lines) >= 11_000


def test_each_session_starts_with_the_user_and_then_alternates(
    sessions: dict[int, list[dict[str, Any]]],
) -> None:
    names = {"user": "Maren", "assistant": "Assistant", "tool": None}
    for group in sessions.values():
        assert (group[0]["role"], group[-1]["role"]) == ("user", "assistant")
        spoken = [line["role"] for line in group if line["role"] != "tool" and not line.get("tool_calls")]
        assert all(a != b for a, b in pairwise(spoken))
        assert all(line.get("name") == names[line["role"]] for line in group)


def test_each_tool_call_is_followed_by_its_result_and_an_answer(lines: list[dict[str, Any]]) -> None:
    calling = [index for index, line in enumerate(lines) if line.get("tool_calls")]
    assert len(calling) == sum(line["role"] == "tool" for line in lines) >= 1
    for index in calling:
        call, result, answer = lines[index : index + 3]
        assert call["role"] == "assistant"
        assert not call["content"]
        assert [item["id"] for item in call["tool_calls"]] == [result["tool_call_id"]]
        assert all(item["type"] == "function" for item in call["tool_calls"])
        assert all(isinstance(json.loads(i["function"]["arguments"]), dict) for i in call["tool_calls"])
        assert (result["role"], answer["role"]) == ("tool", "assistant")
        assert answer["content"]


def test_timestamps_ascend_and_sessions_lie_days_apart(
    lines: list[dict[str, Any]], sessions: dict[int, list[dict[str, Any]]]
) -> None:
    times = [datetime.fromisoformat(line["created_at"]) for line in lines]
    assert {time.utcoffset() for time in times} == {timedelta(hours=1), timedelta(hours=2)}
    assert all(a < b for a, b in pairwise(times))
    assert timedelta(days=100) < times[-1] - times[0] < timedelta(days=140)
    for earlier, later in pairwise(sessions.values()):
        end, start = (datetime.fromisoformat(line["created_at"]) for line in (earlier[-1], later[0]))
        assert start - end > timedelta(days=1)


def test_hard_cases_are_there(lines: list[dict[str, Any]]) -> None:
    texts = [line["content"] or "" for line in lines]
    assert [line["role"] for line in lines if "</memory>" in (line["content"] or "")] == ["user"]
    assert max(text.count("\n") for text in texts) >= 30
    assert sum(any("\u4e00" <= letter <= "\u9fff" for letter in text) for text in texts) >= 5
    assert any("müde" in text for text in texts)


def test_questions_name_existing_messages(
    lines: list[dict[str, Any]], questions: list[dict[str, Any]]
) -> None:
    ids = {line["id"] for line in lines}
    assert 15 <= len(questions) <= 20
    assert {question["category"] for question in questions} == {1, 2, 3, 4}
    assert len({question["question"] for question in questions}) == len(questions)
    for question in questions:
        assert set(question) == {"question", "answer", "category", "evidence"}
        assert question["answer"]
        assert question["evidence"]
        assert set(question["evidence"]) <= ids, question["question"]
        assert len(set(question["evidence"])) == len(question["evidence"])
