"""``strandline import`` names the option that a file needs."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from strandline import ConfigurationError
from strandline.chat_import.chat_import import ChatImport, Whose
from strandline.cli.entry import run

Capture = pytest.CaptureFixture[str]


def test_a_session_of_two_users_in_a_file_is_told_with_the_option(
    database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    file = tmp_path / "two.jsonl"
    lines = ({"role": "user", "content": "a", "session_id": "s", "user_id": name} for name in ("ana", "bo"))
    file.write_text("\n".join(map(json.dumps, lines)))
    assert run(["import", str(file), "--database-url", database_url]) == 1
    said = capfd.readouterr().err
    assert "line 2 belongs to another user" in said
    assert "Name the field that has the user with --user-field" in said


def test_what_refuses_an_import_and_what_is_stored_are_two_sentences(
    database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"role": "user", "content": "a"}))
    chats = ChatImport(file, Whose("s"), options={"token_limit": -5, "database_url": database_url})
    with pytest.raises(ConfigurationError, match=r"at most 2147483647\. Nothing of the file was stored\.$"):
        chats.run()


def test_a_pipe_is_read_to_its_end(database_url: str, tmp_path: Path, capfd: Capture) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = json.dumps({"role": "user", "content": "a"})
    writer = threading.Thread(target=pipe.write_text, args=[line], daemon=True)
    writer.start()
    assert run(["import", str(pipe), "--session", "s", "--database-url", database_url]) == 0
    writer.join()
    assert "1 message added" in capfd.readouterr().out
