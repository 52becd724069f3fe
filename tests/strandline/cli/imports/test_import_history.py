"""``strandline import --from``: what it prints, what it refuses, and its dry run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.cli.entry import run
from tests.conftest import rows_of

Capture = pytest.CaptureFixture[str]

AGNO = str(Path(__file__).parents[2] / "chat_import" / "agno" / "agno2.sqlite")
COUNTS = "SELECT (SELECT count(*) FROM strandline.message), (SELECT count(*) FROM strandline.fact)"


def test_an_import_says_what_it_added_and_what_it_could_not_take(
    database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    left_out = tmp_path / "left-out.jsonl"
    command = ["import", AGNO, "--from", "agno", "--database-url", database_url]
    assert run([*command, "--left-out", str(left_out)]) == 0
    printed = capfd.readouterr()
    assert printed.out.splitlines() == [
        "20 messages added; 4 sessions, 0 flush events for the workers; 3 facts added",
        "1 place could not be taken, or only in part:",
        "  1 × names no user; say whose it is with --user",
    ]
    (line,) = left_out.read_text().splitlines()
    fields = json.loads(line)
    assert (fields["source"], fields["table"], fields["part"]) == ("agno", "agno_memories", "")
    assert fields["row"] in printed.err
    assert fields["reason"] == "names no user; say whose it is with --user"

    assert run([*command, "--user", "cy", "--map-user", "ana=Ana", "--namespace", "other", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["source"], report["namespace"], report["dry_run"]) == ("agno", "other", False)
    assert (report["added"], report["facts_added"], report["left_out"]) == (20, 4, 0)
    users = "SELECT DISTINCT user_id FROM strandline.session WHERE namespace = 'other' ORDER BY 1"
    assert rows_of(database_url, users) == [("Ana",), ("bo",), ("cy",)]

    assert run(command) == 0
    assert capfd.readouterr().out.startswith(
        "0 messages added, 20 were there already; 4 sessions, 0 flush events for the workers;"
        " 0 facts added, 3 known\n"
    )


def test_an_import_that_takes_nothing_fails_and_asks_whether_it_is_of_another_system(
    database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([{"uuid": "u", "chat_messages": []}]))
    assert run(["import", str(file), "--from", "openai", "--database-url", database_url]) == 1
    printed = capfd.readouterr().out.splitlines()
    assert (
        printed[0] == f"nothing of {file} could be taken. Or is it of another system? `--from` says of which."
    )
    assert printed[-1] == "  1 × has no conversation_id"
    file.write_text("[]")
    assert run(["import", str(file), "--from", "openai", "--database-url", database_url]) == 0
    assert capfd.readouterr().out == f"{file} holds nothing to import\n"


def test_a_dry_run_reads_everything_and_stores_nothing(
    database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    assert run(["import", AGNO, "--from", "agno", "--dry-run", "--database-url", database_url]) == 0
    assert capfd.readouterr().out.startswith("20 messages and 3 facts of 4 sessions can be imported\n")
    lines = tmp_path / "chats.jsonl"
    good, bad = ({"role": role, "content": "x", "session_id": "s"} for role in ("user", "wizard"))
    dry = ["import", str(lines), "--dry-run", "--database-url", database_url]
    lines.write_text(json.dumps(good))
    assert run(dry) == 0
    assert capfd.readouterr().out == "1 message of 1 session can be imported\n"
    lines.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    assert run(dry) == 1
    error = capfd.readouterr().err
    assert "line 2: message.role: 'wizard' is unknown" in error
    assert "Nothing of the file was stored." in error
    assert rows_of(database_url, COUNTS) == [(0, 0)]


def test_an_import_that_fails_says_how_to_go_on(
    database_url: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a worker that ever ran there is no place for facts; the messages are stored."""
    rows_of(database_url, "DELETE FROM strandline.generation WHERE pipeline = 'facts' RETURNING 1")
    command = ["import", AGNO, "--from", "agno", "--table", "agno_memories", "--database-url", database_url]
    assert run(command) == 1
    error = capfd.readouterr().err
    assert "No worker has registered the pipeline 'facts'" in error
    assert "0 messages and 0 facts are stored, and perhaps some more; run the same import again" in error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--from", "agno", "--session", "s"], "--session does not apply to --from agno."),
        (["--from", "openai", "--table", "t"], "--table does not apply to --from openai."),
        (["--table", "t"], "--table does not apply to --from jsonl."),
        (["--map-user", "a=b"], "--map-user does not apply to --from jsonl."),
        (["--from", "agno", "--map-user", "ana"], "must be THEIRS=OURS."),
        (["--from", "mem0"], "'mem0' is not one of"),
    ],
)
def test_options_that_say_nothing_of_a_source_are_refused(
    arguments: list[str], sentence: str, capfd: Capture
) -> None:
    assert run(["import", AGNO, *arguments]) == 2
    assert sentence in capfd.readouterr().err


def test_a_file_of_what_is_left_out_must_be_writable(
    database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    file = str(tmp_path / "none" / "file")
    assert run(["import", AGNO, "--from", "agno", "--left-out", file, "--database-url", database_url]) == 1
    assert f"{file} cannot be written: No such file or directory." in capfd.readouterr().err
