"""``strandline import`` names the option that a file needs."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from strandline import ConfigurationError
from strandline.chat_import.file_lines import PIECE_BYTES
from strandline.chat_import.lines_import import ChatImport, Whose
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
    options = {"token_limit": -5, "database_url": database_url}
    chats = ChatImport(file, Whose("s"), max_line_bytes=1_000, options=options)
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


def test_a_line_longer_than_any_message_is_refused(
    database_url: str, tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_MAX_CONTENT_BYTES", "100")
    monkeypatch.setenv("STRANDLINE_MAX_METADATA_BYTES", "2")
    file = tmp_path / "long.jsonl"
    line = json.dumps({"role": "user", "content": "a"})
    bound = 6 * (100 + 2) + 65_536
    for size, code in ((bound, 0), (bound + 1, 1)):
        file.write_text(f"{line}\n{line.ljust(size - 1)}\n")
        arguments = ["import", str(file), "--session", "s", "--namespace", str(size)]
        assert run([*arguments, "--database-url", database_url]) == code
    assert capfd.readouterr().err == (
        f"strandline: {file}, line 2 is longer than {bound:,} bytes, and no message that a put accepts is;"
        " the file must have one message per line. Nothing of the file was stored.\n"
    )


def test_an_import_looks_for_signals_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_bytes(b" " * 10 * PIECE_BYTES)
    looks: list[None] = []

    def end_at_the_third() -> None:
        looks.append(None)
        if len(looks) == 3:
            raise KeyboardInterrupt

    chats = ChatImport(file, Whose("s"), max_line_bytes=100 * PIECE_BYTES, check=end_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        chats.run()


@pytest.mark.parametrize(
    "words",
    ["{}".encode("utf-16"), "{}".encode("utf-16-be"), "{}".encode("utf-32-le"), b"\xff\xfe\xfa", b'"\x80"'],
)
def test_a_file_that_is_not_utf_8_is_refused_as_such(
    words: bytes, database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    file = tmp_path / "bin.jsonl"
    file.write_bytes(words)
    assert run(["import", str(file), "--database-url", database_url]) == 1
    assert capfd.readouterr().err == (
        f"strandline: {file}, line 1 is not UTF-8 text. Nothing of the file was stored.\n"
    )


def test_a_byte_order_mark_is_no_part_of_the_first_message(
    database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    file = tmp_path / "mark.jsonl"
    file.write_text(json.dumps({"role": "user", "content": "a"}), encoding="utf-8-sig")
    assert run(["import", str(file), "--session", "s", "--database-url", database_url]) == 0
    assert "1 message added" in capfd.readouterr().out


@pytest.mark.parametrize("words", ["", "\n \n"])
def test_a_file_without_messages_is_named(
    words: str, database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    file = tmp_path / "none.jsonl"
    file.write_text(words)
    assert run(["import", str(file), "--database-url", database_url]) == 0
    assert capfd.readouterr().out == f"{file} holds no messages\n"


@pytest.mark.parametrize("whose", ["session", "user"])
def test_a_fixed_name_excludes_a_field_to_read_it_from(whose: str, tmp_path: Path, capfd: Capture) -> None:
    arguments = [f"--{whose}", "x", f"--{whose}-field", "y"]
    assert run(["import", str(tmp_path / "none.jsonl"), *arguments]) == 2
    assert f"--{whose} excludes --{whose}-field." in capfd.readouterr().err


def test_long_messages_wait_in_memory_by_their_bytes(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "chats.jsonl"
    lines = [{"role": "user", "content": "a" * 100, "session_id": f"s{n}"} for n in (1, 2, 3, 3, 3)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setattr("strandline.chat_import.lines_import.MAX_BYTES_IN_MEMORY", 300)
    monkeypatch.setattr("strandline.chat_import.lines_import.MAX_BYTES_PER_CHUNK", 250)
    added: list[int] = []
    chats = ChatImport(
        file,
        Whose(),
        max_line_bytes=1_000,
        options={"database_url": database_url},
        report=lambda progress: added.append(progress.added),
    )
    assert chats.run().added == 5
    assert added == [1, 2, 4, 5]


def test_short_values_wait_in_memory_by_what_they_take_there(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of one megabyte that holds half a million empty lists takes forty when it is read."""
    file = tmp_path / "chats.jsonl"
    lines = [{"role": "user", "content": "a", "session_id": f"s{n}", "more": [[]] * 50} for n in (1, 2, 1, 1)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setattr("strandline.chat_import.lines_import.MAX_BYTES_IN_MEMORY", 12_000)
    monkeypatch.setattr("strandline.chat_import.lines_import.MAX_BYTES_PER_CHUNK", 10_000)
    added: list[int] = []
    chats = ChatImport(
        file,
        Whose(),
        max_line_bytes=1_000,
        options={"database_url": database_url},
        report=lambda progress: added.append(progress.added),
    )
    assert chats.run().added == 4
    assert added == [1, 2, 4]
