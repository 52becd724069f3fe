"""Tables that LlamaIndex's own ``Memory`` made, in SQLite and Postgres."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")
pytest.importorskip("aiosqlite", reason="LlamaIndex brings it")

from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.memory import Memory as LlamaIndexMemory
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from strandline.adapters.llamaindex.messages import chat_message_of, message_of
from strandline.chat_import.records import HistorySource
from strandline.chat_import.sources import open_source
from strandline.pipelines.inspect.verify import verify
from tests.conftest import Rig, lock_is_awaited, wait_until
from tests.support.imports.outcome import import_all, stored_log
from tests.support.processes import forking

ANAS = [
    ChatMessage(role="system", content="You help."),
    ChatMessage(role="user", content="我的貓叫湯姆。"),
    ChatMessage(
        role="assistant",
        blocks=[
            TextBlock(text="Let me look."),
            ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"name": "Tom"}),
        ],
    ),
    ChatMessage(role="tool", content="A cat.", additional_kwargs={"tool_call_id": "c1", "name": "look"}),
    ChatMessage(role="assistant", content="Tom is a cat."),
    ChatMessage(
        role="user",
        blocks=[
            TextBlock(text="See:"),
            ImageBlock(image=b"png", image_mimetype="image/png", detail="low"),
            ImageBlock(url="https://example.org/tom.png"),
            AudioBlock(audio=b"wav", format="wav"),
            DocumentBlock(data=b"pdf", title="tom.pdf", document_mimetype="application/pdf"),
        ],
    ),
    ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Hm."), TextBlock(text="Nice.")]),
    ChatMessage(
        role="assistant",
        content="",
        additional_kwargs={
            "tool_calls": [{"id": "c2", "type": "function", "function": {"name": "end", "arguments": "{}"}}]
        },
    ),
]


def put(uri: str, sessions: dict[str, Sequence[ChatMessage]], table: str = "llama_index_memory") -> None:
    """Chats in LlamaIndex's own memory, whose short window flushes the first of them."""

    async def put_all() -> None:
        for session, messages in sessions.items():
            memory = LlamaIndexMemory.from_defaults(
                session, async_database_uri=uri, table_name=table, token_limit=100, token_flush_size=10
            )
            for message in messages:
                await memory.aput(message)
            assert isinstance(memory.sql_store, SQLAlchemyChatStore)
            assert memory.sql_store._async_engine is not None
            await memory.sql_store._async_engine.dispose()

    asyncio.run(put_all())


@pytest.fixture(params=["sqlite", "pg"])
def uri(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'chats.sqlite'}"
    return database_url.replace("postgresql://", "postgresql+psycopg://")


def test_every_message_comes_as_it_was_and_once(rig: Rig, uri: str) -> None:
    chatter = [ChatMessage(role="user", content=f"Harbour {n}.") for n in range(40)]
    put(uri, {"ana/1": ANAS, "bo": chatter})
    done = import_all(open_source("llamaindex", uri), rig.url, user="ana", token_limit=100)
    assert (done.progress.sessions, done.progress.added, done.omissions) == (2, 48, [])
    assert done.progress.events > 0

    stored = rig.memory("ana/1", user_id="ana").get_all()
    for message, was in zip(stored, ANAS, strict=True):
        back = chat_message_of(message)
        assert (back.role, back.content) == (was.role, was.content)
        assert message.to_openai() == message_of(was).to_openai()
        assert message.metadata["import_source"] == "llamaindex"
        assert message.metadata["import_table"] == "llama_index_memory"
        assert message.created_at is not None
    assert stored[0].metadata["import_row"] == "1"
    bos = rig.memory("bo", user_id="ana").get_all()
    assert [message.text for message in bos] == [message.content for message in chatter]

    log = stored_log(rig.url)
    put(uri, {"bo": [ChatMessage(role="user", content="One more.")]})
    again = import_all(open_source("llamaindex", uri), rig.url, user="ana").progress
    assert (again.added, again.known) == (1, 48)
    assert [row for row in stored_log(rig.url) if "One more." not in row[4]] == log
    assert verify(rig.database).violations == ()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def rows(file: Path, *values: tuple[str, str], table: str = "chats") -> str:
    """A table as LlamaIndex makes it, with rows of session and data."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            f"CREATE TABLE {quoted(table)} (id INTEGER PRIMARY KEY, key, timestamp, role, data JSON)"
        )
        connection.executemany(
            f"INSERT INTO {quoted(table)} (key, timestamp, data) VALUES (?, 1700000000000000000, ?)",
            values,
        )
    return str(file)


def test_bad_rows_are_named_and_stop_nothing(database_url: str, tmp_path: Path) -> None:
    def said(content: object, role: str = "user") -> str:
        return json.dumps({"role": role, "content": content, "additional_kwargs": {}})

    file = rows(
        tmp_path / "bad.sqlite",
        ("s", said("first")),
        ("s", "{"),
        ("s", "[" * 100_000),
        ("s", "{}"),
        ("s", said("x", "wizard")),
        ("s", said("a\0b")),
        ("s", said("x" * 1_000_001)),
        ("", said("x")),
        ("s", said("last")),
        ("s", json.dumps({"role": "user", "blocks": [7, {"block_type": "image", "path": "/etc/passwd"}]})),
        table='a "table"; of ours',
    )
    done = import_all(open_source("llamaindex", file), database_url)
    neither = "column data is neither a JSON object nor a Python dict"
    reasons = {place: reason.split(";")[0].split(", over")[0] for place, reason in done.reasons.items()}
    assert reasons == {
        ("2", ""): neither,
        ("3", ""): neither,
        ("4", ""): "column data has no role",
        ("5", ""): "message.role: 'wizard' is unknown",
        ("6", ""): "message.content: holds a NUL character at position 1",
        ("7", ""): "message.content: is 1,000,015 bytes as JSON",
        ("8", ""): "session: is empty",
        ("10", "blocks[0]"): "is not a content block",
        ("10", "blocks[1]"): "names a file by its path, and the file is not in the table",
    }
    texts = [json.loads(row[4])["content"] for row in stored_log(database_url)]
    assert texts == ["first", "last", ""]
    assert {row[5] for row in stored_log(database_url) if "last" in row[4]} == {
        '{"import_row":"9","import_source":"llamaindex","import_table":"a \\"table\\"; of ours"}'
    }


def test_a_row_that_was_changed_stays_as_it_was_imported_and_new_ones_are_added(
    database_url: str, tmp_path: Path
) -> None:
    def said(number: int) -> tuple[str, str]:
        return "s", json.dumps({"role": "user", "content": str(number)})

    file = tmp_path / "chats.sqlite"
    rows(file, *map(said, range(9)))
    import_all(open_source("llamaindex", str(file)), database_url)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE chats SET data = ? WHERE id = 3", [said(33)[1]])
        connection.execute(
            "INSERT INTO chats SELECT 10, key, timestamp, role, ? FROM chats WHERE id = 1",
            [said(9)[1]],
        )
    done = import_all(open_source("llamaindex", str(file)), database_url)
    assert (done.progress.added, done.progress.known, list(done.reasons)) == (1, 8, [("3", "")])
    assert "is here with other content, which stays" in done.reasons["3", ""]
    assert [json.loads(row[4])["content"] for row in stored_log(database_url)] == [str(n) for n in range(10)]


def test_rows_of_another_database_with_the_same_numbers_are_reported_or_told_apart(
    database_url: str, tmp_path: Path
) -> None:
    def source(name: str) -> HistorySource:
        file = tmp_path / f"{name}.sqlite"
        if not file.exists():
            rows(file, *(("s", json.dumps({"role": "user", "content": f"{name}{n}"})) for n in range(3)))
        return open_source("llamaindex", str(file))

    import_all(source("a"), database_url)
    other = import_all(source("b"), database_url)
    assert (other.progress.added, other.progress.known, other.progress.left_out) == (0, 0, 3)
    assert {"--source-name tells two apart" in reason for reason in other.reasons.values()} == {True}
    for added, known in ((3, 0), (0, 3)):
        named = import_all(source("b"), database_url, source_name="b")
        assert (named.progress.added, named.progress.known, named.omissions) == (added, known, [])
    texts = [json.loads(row[4])["content"] for row in stored_log(database_url)]
    assert texts == ["a0", "a1", "a2", "b0", "b1", "b2"]
    names = [json.loads(row[5]).get("import_name") for row in stored_log(database_url)]
    assert names == [None] * 3 + ["b"] * 3


def test_a_session_of_another_user_here_stays_untouched(rig: Rig, tmp_path: Path) -> None:
    rig.memory("s", user_id="bo", memory_blocks=[]).put({"role": "user", "content": "mine"})
    file = rows(
        tmp_path / "chats.sqlite",
        ("s", '{"role": "user", "content": "x"}'),
        ("t", '{"role": "user", "content": "y"}'),
    )
    done = import_all(open_source("llamaindex", file), rig.url, user="ana")
    assert done.reasons == {("1", ""): "belongs to a session that another user has here"}
    assert [(row[0], row[1]) for row in stored_log(rig.url)] == [("s", "bo"), ("t", "ana")]


def test_an_import_that_is_killed_is_finished_by_the_next(rig: Rig, tmp_path: Path) -> None:
    """It is killed at the third session, whose row another transaction holds."""
    said = [(f"s{n // 9}", json.dumps({"role": "user", "content": f"Harbour {n}."})) for n in range(45)]
    file = rows(tmp_path / "many.sqlite", *said)
    argv = [sys.executable, "-m", "strandline", "import", file, "--from", "llamaindex", "--json"]
    argv += ["--database-url", rig.url, "--token-limit", "400", "--token-flush-size", "60"]
    rig.memory("s2", memory_blocks=[]).put({"role": "user", "content": "Harbour."})
    with psycopg.connect(rig.url) as holder:
        holder.execute("SELECT FROM strandline.session FOR UPDATE")
        with forking.Popen(argv, stdout=subprocess.DEVNULL) as doomed:
            wait_until(lambda: lock_is_awaited(rig.url), timeout=30, what="the third session")
            doomed.send_signal(signal.SIGKILL)
    assert len(stored_log(rig.url)) == 2 * 9 + 1
    done = import_all(open_source("llamaindex", file), rig.url, token_limit=400).progress
    assert (done.added, done.known) == (3 * 9, 2 * 9)
    assert len({row[2] for row in stored_log(rig.url)}) == 46
    assert verify(rig.database).violations == ()
