"""Exports of ChatGPT and Claude: the current branch of each conversation, from a file, a folder or a zip."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from strandline import ConfigurationError
from strandline.chat_import.exports import source as export_files
from strandline.chat_import.exports.source import ElementScanner, read_elements
from strandline.chat_import.records import Place
from strandline.chat_import.sources import open_source
from strandline.chat_import.tables.values import MAX_LITERAL_CHARACTERS, read_json, read_mapping, read_moment
from tests.conftest import Rig
from tests.support.imports.outcome import import_all, stored_log


def node(
    key: str, parent: str | None, role: str = "user", text: object = None, **more: Any
) -> dict[str, Any]:
    """A node of a ChatGPT conversation."""
    content = more.pop("content", {"content_type": "text", "parts": [key if text is None else text]})
    author = {"role": role, "name": more.pop("name", None), "metadata": {}}
    message = {"id": key, "author": author, "content": content, "create_time": 1_700_000_000.5, **more}
    return {"id": key, "message": message, "parent": parent, "children": []}


def chatgpt(name: str, *nodes: dict[str, Any], current: str | None, **more: Any) -> dict[str, Any]:
    root: dict[str, Any] = {"id": "root", "message": None, "parent": None, "children": []}
    mapping = {one["id"]: one for one in (root, *nodes)}
    return {
        "title": name,
        "id": name,
        "conversation_id": name,
        "mapping": mapping,
        "current_node": current,
        **more,
    }


CHAT = chatgpt(
    "chat",
    node("hidden", "root", "system", ""),
    node("profile", "hidden", content={"content_type": "user_editable_context", "user_profile": "x"}),
    node("question", "profile"),
    node("first answer", "question", "assistant"),
    node("second answer", "question", "assistant"),
    node("thoughts", "second answer", "assistant", content={"content_type": "thoughts", "thoughts": []}),
    node("print(1)", "thoughts", "assistant", recipient="python",
         content={"content_type": "code", "text": "print(1)"}),
    node("1", "print(1)", "tool", name="python", content={"content_type": "execution_output", "text": "1"}),
    node("picture", "1", content={"content_type": "multimodal_text", "parts": [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}, "What is this?"]}),
    node("the end", "picture", "assistant"),
    current="the end",
)  # fmt: skip


def written(path: Path, conversations: object) -> Path:
    path.write_text(json.dumps(conversations, ensure_ascii=False), encoding="utf-8")
    return path


def test_the_current_branch_of_a_chatgpt_conversation(rig: Rig, tmp_path: Path) -> None:
    file = written(tmp_path / "conversations.json", [CHAT])
    done = import_all(open_source("openai", str(file)), rig.url, user="ana")
    messages = rig.memory("chat", user_id="ana").get_all()
    assert [str(message) for message in messages] == [
        "user: question",
        "assistant: second answer",
        "assistant: ",
        "tool: 1",
        "user: [image]\nWhat is this?",
        "assistant: the end",
    ]
    calls = messages[2].tool_calls or ()
    assert [call["function"]["name"] for call in calls] == ["python"]
    assert messages[3].tool_call_id == calls[0]["id"]
    assert messages[0].metadata == {
        "import_source": "openai",
        "import_table": "conversations",
        "import_row": "chat",
        "import_part": "question",
    }
    assert {part: reason.split(",")[0].split(";")[0] for (_, part), reason in done.reasons.items()} == {
        "profile": "are the person's custom instructions",
        "thoughts": "is the model's reasoning",
        "picture/parts[0]": "is a file",
    }
    again = import_all(open_source("openai", str(file)), rig.url, user="ana").progress
    assert (again.added, again.known) == (0, 6)


@pytest.mark.parametrize("current", [None, "gone"])
def test_without_a_current_node_the_newest_leaf_is_taken_and_circles_end(
    database_url: str, tmp_path: Path, current: str | None
) -> None:
    forked = chatgpt(
        "fork", node("a", "root"), node("b", "a", create_time=1.0), node("c", "a"), current=current
    )
    circle = chatgpt("circle", node("x", "y"), node("y", "x"), current="x")
    file = written(tmp_path / "conversations.json", [forked, circle])
    done = import_all(open_source("openai", str(file)), database_url)
    assert [json.loads(row[4])["content"] for row in stored_log(database_url)] == ["y", "x", "a", "c"]
    assert done.omissions == []


def test_an_export_in_parts_as_folder_and_as_zip(database_url: str, tmp_path: Path) -> None:
    """Large exports are cut into numbered files; ids do not depend on which one a conversation is in."""
    folder = tmp_path / "export" / "data"
    folder.mkdir(parents=True)
    names = ["a", "b", "c"]
    chats = {
        name: chatgpt(name, node(f"said in {name}", "root"), current=f"said in {name}") for name in names
    }
    written(folder / "conversations-000.json", [chats["a"], chats["b"]])
    written(folder / "conversations-001.json", [chats["c"]])
    written(folder / "shared_conversations.json", [{"id": "not one"}])
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("export/conversations.json", json.dumps(list(chats.values())))
        whole.writestr("__MACOSX/export/conversations.json", "no JSON")
        whole.writestr("export/user.json", "{}")
    first = import_all(open_source("openai", str(tmp_path / "export")), database_url)
    assert (first.progress.added, first.omissions) == (3, [])
    assert first.progress.portion.done == first.progress.portion.total
    second = import_all(open_source("openai", str(archive)), database_url)
    assert (second.progress.added, second.progress.known, second.omissions) == (0, 3, [])


CLAUDE = {
    "uuid": "talk",
    "name": "A talk",
    "account": {"uuid": "ana"},
    "chat_messages": [
        {
            "uuid": "m1",
            "sender": "human",
            "text": "Look at this.",
            "content": [{"type": "text", "text": "Look at this."}],
            "attachments": [{"file_name": "notes.txt", "extracted_content": "Tom is a cat."}],
            "files": [{"file_name": "tom.png"}],
            "created_at": "2025-01-02T03:04:05.678Z",
        },
        {
            "uuid": "m2",
            "sender": "assistant",
            "text": "",
            "content": [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "name": "web_search", "input": {"query": "Tom"}},
                {
                    "type": "tool_result",
                    "name": "web_search",
                    "content": [{"type": "text", "text": "A cat."}],
                },
                {"type": "text", "text": "He is a cat."},
            ],
            "created_at": "2025-01-02T03:04:06Z",
        },
        {"uuid": "m3", "sender": "human", "text": "As older exports say it.", "created_at": "2025-01-02"},
        {"uuid": "m4", "sender": "human", "text": "", "content": []},
    ],
}


def test_a_conversation_of_claude_with_tools_and_files(rig: Rig, tmp_path: Path) -> None:
    file = written(tmp_path / "conversations.json", [CLAUDE])
    done = import_all(open_source("anthropic", str(file)), rig.url)
    messages = rig.memory("talk", user_id="ana").get_all()
    assert [str(message) for message in messages] == [
        "user: Look at this.\n\nnotes.txt:\nTom is a cat.\n\n[tom.png]",
        "assistant: Let me see.",
        "tool: A cat.",
        "assistant: He is a cat.",
        "user: As older exports say it.",
    ]
    calls = messages[1].tool_calls or ()
    assert json.loads(calls[0]["function"]["arguments"]) == {"query": "Tom"}
    assert messages[2].tool_call_id == calls[0]["id"]
    assert messages[0].created_at is not None
    assert messages[0].created_at.isoformat() == "2025-01-02T03:04:05.678000+00:00"
    assert {part: reason for (_, part), reason in done.reasons.items()} == {
        "m1/files[0]": "is a file; the message has only its name",
        "m2/content[0]": "is the model's reasoning",
        "m4": "is empty",
    }
    again = import_all(open_source("anthropic", str(file)), rig.url).progress
    assert (again.added, again.known) == (0, 5)


@pytest.mark.parametrize(("leaf", "texts"), [(None, ["a", "c"]), ("b", ["a", "b"])])
def test_the_current_branch_of_a_conversation_of_claude(
    database_url: str, tmp_path: Path, leaf: str | None, texts: list[str]
) -> None:
    parents = {"a": "00000000-0000-4000-8000-000000000000", "b": "a", "c": "a"}
    said = [
        {
            "uuid": key,
            "sender": "human",
            "text": key,
            "parent_message_uuid": parent,
            "created_at": f"2025-01-0{n}",
        }
        for n, (key, parent) in enumerate(parents.items(), start=1)
    ]
    talk = {"uuid": "talk", "chat_messages": said} | ({"current_leaf_message_uuid": leaf} if leaf else {})
    import_all(open_source("anthropic", str(written(tmp_path / "one.json", talk))), database_url)
    assert [json.loads(row[4])["content"] for row in stored_log(database_url)] == texts


def test_the_accounts_of_an_organisation_stay_apart(database_url: str, tmp_path: Path) -> None:
    """``--user`` names the user of what names none; an account may be mapped to another user."""
    talks = [
        {
            "uuid": f"t{n}",
            "account": {"uuid": name},
            "chat_messages": [{"uuid": "m", "sender": "human", "text": name}],
        }
        for n, name in enumerate(("ana", "bo"))
    ]
    file = str(written(tmp_path / "conversations.json", talks))
    import_all(open_source("anthropic", file), database_url, user="cy", users={"ana": "Ana", "cy": "x"})
    assert [row[1] for row in stored_log(database_url)] == ["Ana", "bo"]


@pytest.mark.parametrize("source", ["openai", "anthropic"])
def test_bad_conversations_are_named_and_stop_nothing(
    source: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.chat_import.exports.source.MAX_ELEMENT_BYTES", 5_000)
    good = CHAT if source == "openai" else CLAUDE
    broken = [
        {"uuid": 7, "id": 7},
        {"uuid": "a", "id": "a"},
        {"uuid": "b", "id": "b", "mapping": {"x": 7}, "chat_messages": [7]},
    ]
    elements = [
        *map(json.dumps, broken),
        '{"id": nothing}',
        json.dumps("x" * 6_000),
        f'["{"x" * 6_000}"]',
        "7",
        json.dumps(good),
    ]
    file = tmp_path / "conversations.json"
    file.write_text(f'[{", ".join(elements)}, {{"id": ')
    done = import_all(open_source(source, str(file)), database_url)  # type: ignore[arg-type]
    rows = [one.place.row for one in done.omissions if one.place.row not in ("chat", "talk")]
    assert rows == ["conversations.json[0]", "a", "b", *(f"conversations.json[{n}]" for n in (3, 4, 5, 6, 8))]
    reasons = [one.reason for one in done.omissions if one.place.row.startswith("conversations.json")]
    assert reasons[1].startswith("is not JSON")
    too_long = "is longer than 5,000 bytes, or has more than 500,000 values"
    assert reasons[2:] == [too_long, too_long, "is not a conversation", "the file ends before its JSON does"]
    assert done.progress.added in (5, 6)


def test_what_is_no_export_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        open_source("openai", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"has no conversations\.json"):
        open_source("anthropic", str(tmp_path))


@pytest.mark.parametrize("wrong", [{}, [], 7, None])
def test_wrong_types_in_a_node_are_left_out_and_stop_nothing(
    database_url: str, tmp_path: Path, wrong: object
) -> None:
    kind = node("kind", "root", content={"content_type": wrong, "parts": [{"text": {}}]})
    role = node("role", "root", role=wrong)  # type: ignore[arg-type]
    chats = [chatgpt("a", kind, current="kind"), chatgpt("b", role, current="role"), CHAT]
    done = import_all(
        open_source("openai", str(written(tmp_path / "conversations.json", chats))), database_url
    )
    assert done.progress.added == 7
    assert {"a", "b"} <= {one.place.row for one in done.omissions}


def test_a_device_in_a_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "conversations.json").symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match=r"has no conversations\.json"):
        open_source("openai", str(tmp_path))


def test_a_zip_that_was_not_downloaded_whole_is_named(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([CHAT]))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ConfigurationError, match="a zip that is not complete"):
        open_source("openai", str(path))


def test_a_damaged_zip_is_named(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([CHAT] * 50))
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 40] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match="cannot be unpacked"):
        import_all(open_source("openai", str(path)), database_url)


# What imports are read with: arrays of any size, values as text, places that are the same each time.
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    values=some.lists(JSON, max_size=5),
    size=some.integers(1, 40),
    indent=some.none() | some.integers(0, 2),
    ascii_only=some.booleans(),
)
def test_an_array_is_cut_into_its_elements_wherever_the_pieces_end(
    values: list[object], size: int, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    scanner = ElementScanner(export_files.MAX_ELEMENT_BYTES)
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    elements = [element for piece in pieces for element in scanner.feed(piece)]
    assert [json.loads(element or b"") for element in elements] == values
    assert not scanner.is_within


def test_an_element_of_too_many_values_is_dropped_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "PIECE_BYTES", 100)
    monkeypatch.setattr(export_files, "MAX_ELEMENT_VALUES", 50)
    elements = [{"a": [{}] * 30}, {"b": [{}] * 20, "c": ",[{" * 100}, [[1]] * 40, {"d": 1}]
    kept = read_elements(io.BytesIO(json.dumps(elements).encode()), lambda _size: None, 10_000)
    assert [None if one is None else json.loads(one) for one in kept] == [None, elements[1], None, {"d": 1}]


@settings(max_examples=40)
@given(noise=some.binary(max_size=200))
def test_bytes_that_are_no_json_do_no_harm(noise: bytes) -> None:
    with suppress(ValueError):  # it ends too early, and that is said
        assert None not in read_elements(io.BytesIO(noise), lambda _size: None, 1_000)


def test_only_so_much_of_an_element_is_kept_as_may_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "PIECE_BYTES", 100)
    elements = [{"a": "x" * 1_000}, {"b": 1}]
    counted: list[int] = []
    file = io.BytesIO(json.dumps(elements).encode())
    assert list(read_elements(file, counted.append, 500)) == [None, b'{"b": 1}']
    assert sum(counted) == len(file.getvalue())


@settings(max_examples=40)
@given(some.dictionaries(some.text(), JSON))
def test_a_dict_is_read_as_json_encoded_twice_or_as_python_writes_it(value: dict[str, object]) -> None:
    assert read_mapping(json.dumps(value)) == value
    assert read_json(json.dumps(json.dumps(value))) == value
    assert read_mapping(str(value)) == value


@pytest.mark.parametrize(
    "text", ["__import__('os')", "{1: print(2)}", "[1]", "{" * 10_000, "(" * 500, None, "", "{'a': b'", "nan"]
)
def test_nothing_else_is_read(text: str | None) -> None:
    with pytest.raises(ValueError, match="neither a JSON object nor a Python dict"):
        read_mapping(text)


def test_a_long_python_dict_is_refused_unread() -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_LITERAL_CHARACTERS:,} characters"):
        read_mapping("{'a': '" + "x" * MAX_LITERAL_CHARACTERS + "'}")


MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [1_700_000_000, "1700000000", "1700000000.0", 1_700_000_000_000, 1_700_000_000_000_000,
     "1700000000000000000", "2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "2023-11-14 23:13:20+01"],
)  # fmt: skip
def test_moments_in_all_their_forms(value: object) -> None:
    assert read_moment(value) == MOMENT


@settings(max_examples=40)
@given(
    some.none()
    | some.booleans()
    | some.text()
    | some.floats()
    | some.integers()
    | some.lists(some.integers())
)
def test_what_is_no_moment_is_none(value: object) -> None:
    moment = read_moment(value)
    assert moment is None or moment.tzinfo is not None


@settings(max_examples=40)
@given(some.lists(some.tuples(*[some.text() for _field in range(5)]), unique=True, max_size=6))
def test_each_place_has_an_id_of_its_own(places: list[tuple[str, str, str, str, str]]) -> None:
    assert len({Place(*fields).message_id for fields in places}) == len(places)
