"""What other systems' messages say, in whichever block or field, is in the imported ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Message
from strandline.chat_import.agno import SessionRuns
from strandline.chat_import.exports import anthropic, openai
from strandline.chat_import.llamaindex import read_chat_message
from strandline.chat_import.records import Omission, Place, Record, SourceMessage
from strandline.pipelines.transcript import full_text
from strandline.schemas.errors import InvalidMessageError

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


CHATGPT: Sequence[Json] = [
    {"content_type": "citable_code_output", "output_str": W},
    {"content_type": "computer_output", "state": {"url": W}},
    {"content_type": "super_widget", "widgets": [W]},
]


@pytest.mark.parametrize("content", CHATGPT)
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


RESULTS: Json = {"role": "tool", "content": ["x"], "tool_calls": [{"tool_call_id": "a", "content": "c"}]}
RUNS = [{"run_id": "r", "messages": [one, RESULTS]} for one in AGNO.values()]
NODE = {"parent": None, "message": {"author": {"role": "assistant"}, "content": {}}}
CHATS: Sequence[tuple[Any, Json]] = [
    *(
        (anthropic, {"uuid": "c", "chat_messages": [{"uuid": "m", "content": one}]})
        for one in CLAUDE.values()
    ),
    *(
        (openai, {"id": "c", "mapping": {"n": {**NODE, "message": {"content": one}}}, "current_node": "n"})
        for one in CHATGPT
    ),
]
_names = st.sampled_from(["id", "content", "type", "role", "tool_call_id", "tool_calls", "text", "data"])
_junk = st.recursive(
    st.sampled_from([None, True, -1, float("nan"), 2**70, "", "x", "\0", "user"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)


def places_in(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places_in(inner, (*at, key))


def replaced(value: Any, at: tuple[Any, ...], junk: object) -> Any:
    if not at:
        return junk
    copied = value.copy()
    copied[at[0]] = replaced(value[at[0]], at[1:], junk)
    return copied


@given(st.data())
def test_no_value_in_any_place_of_a_message_ends_an_import(data: st.DataObject) -> None:
    system, sample = data.draw(st.sampled_from([*((None, run) for run in RUNS), *CHATS]))
    broken = replaced(sample, data.draw(st.sampled_from([*places_in(sample)])), data.draw(_junk))
    with TemporaryDirectory() as folder:
        (Path(folder) / "conversations.json").write_text(json.dumps([broken]))
        of_agno = SessionRuns(Place("agno", "t", "r"), "s", None).read([broken])
        for record in system.open_export(Path(folder)).records() if system else of_agno:
            with suppress(InvalidMessageError):  # which the import reports, as it does an omission
                assert isinstance(record, Omission) or messages_of([record])
