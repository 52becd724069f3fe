"""What other systems' messages say, in whichever block or field, is in the imported ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline import Message
from strandline.chat_import.agno import SessionRuns
from strandline.chat_import.exports import anthropic, openai
from strandline.chat_import.llamaindex import read_chat_message
from strandline.chat_import.records import Place, Record, SourceMessage
from strandline.pipelines.transcript import full_text

Json = dict[str, Any]
W = "WORDS"
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}


def messages_of(records: Sequence[Record]) -> list[Message]:
    return [Message.from_openai(one.message) for one in records if isinstance(one, SourceMessage)]


CLAUDE: Mapping[str, list[Json]] = {
    "a page's title": [
        USE,
        {"type": "tool_result", "content": [{"type": "knowledge", "title": W}]},
    ],
    "a file's name": [USE, {"type": "tool_result", "content": [{"type": "local_resource", "name": W}]}],
    "an object": [USE, {"type": "tool_result", "content": {"a": W}}],
    "a note spoken": [{"type": "voice_note", "title": "t", "text": W}],
}


@pytest.mark.parametrize("blocks", CLAUDE.values(), ids=CLAUDE)
def test_the_words_of_blocks_of_claude(blocks: list[Json], tmp_path: Path) -> None:
    chat = {"uuid": "c", "chat_messages": [{"uuid": "m", "sender": "assistant", "content": blocks}]}
    (tmp_path / "conversations.json").write_text(json.dumps([chat]))
    taken = messages_of([*anthropic.open_export(tmp_path).records()])
    assert W in full_text(taken[-1]) and (taken[-1].answers or len(blocks) == 1)


@pytest.mark.parametrize(
    "content",
    [
        {"content_type": "citable_code_output", "output_str": W},
        {"content_type": "computer_output", "state": {"url": W}},
        {"content_type": "super_widget", "widgets": [W]},
    ],
)
def test_the_words_of_a_content_of_chatgpt(content: Json, tmp_path: Path) -> None:
    message = {"author": {"role": "assistant"}, "content": content}
    chat = {"id": "c", "mapping": {"n": {"id": "n", "message": message}}, "current_node": "n"}
    (tmp_path / "conversations.json").write_text(json.dumps([chat]))
    (taken,) = messages_of([*openai.open_export(tmp_path).records()])
    assert W in full_text(taken)


AGNO: Mapping[str, Json] = {
    "an alt text": {"role": "user", "content": "see", "images": [{"url": "https://e.org/a", "alt_text": W}]},
    "sound": {"role": "user", "content": None, "audio": [{"content": "UklGRg==", "transcript": W}]},
    "a file": {"role": "user", "content": "see", "files": [{"filename": W, "url": "https://e.org/a"}]},
    "an answer in sound": {
        "role": "assistant",
        "content": "so",
        "audio_output": {"id": "a", "transcript": W},
    },
    "a picture made": {
        "role": "assistant",
        "content": None,
        "image_output": {"id": "a", "revised_prompt": W},
    },
}


@pytest.mark.parametrize("message", AGNO.values(), ids=AGNO)
def test_the_words_of_media_of_agno(message: Json) -> None:
    (taken,) = messages_of([*SessionRuns(Place("agno", "t", "r"), "s", None).read([{"messages": [message]}])])
    assert W in full_text(taken)


def test_the_results_of_several_calls_in_one_message_of_agno() -> None:
    called = [{"id": one, "function": {"name": "f", "arguments": "{}"}} for one in "ab"]
    results = [{"tool_call_id": one, "tool_name": "f", "content": f"{one} {W}"} for one in "ab"]
    run = [
        {"role": "assistant", "tool_calls": called},
        {"role": "tool", "content": ["x"], "tool_calls": results},
    ]
    records = [*SessionRuns(Place("agno", "t", "r"), "s", None).read([{"messages": run}])]
    taken = messages_of(records)
    assert [(one.answers, one.text) for one in taken[1:]] == [(("a",), f"a {W}"), (("b",), f"b {W}")]
    assert len({one.place.message_id for one in records if isinstance(one, SourceMessage)}) == 3


def test_the_words_of_blocks_of_llamaindex() -> None:
    quoted = [{"block_type": "text", "text": "a"}, {"block_type": "document", "data": "QUJD", "title": W}]
    thought = {"block_type": "thinking", "content": "hm", "additional_information": {"signature": "s"}}
    source, problems = read_chat_message(
        {"role": "user", "blocks": [thought, {"block_type": "citable", "title": "t", "content": quoted}]}
    )
    assert problems == [] and source["content"][0]["additional_information"] == {"signature": "s"}
    assert W in full_text(Message.from_openai(source))
