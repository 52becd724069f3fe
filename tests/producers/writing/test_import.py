"""``strandline import``: much history at once, exactly once, whatever interrupts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline import ConflictError, OwnerError
from strandline.pipelines.inspect.verify import verify
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.support.processes import forking
from tests.support.stored import stored_sessions

Run = Callable[..., subprocess.CompletedProcess[str]]

LIMITS = ("--token-limit", "400", "--token-flush-size", "60")
LOG = (
    "SELECT s.session_id, m.seq, m.id, m.role, m.tokens, m.envelope::text FROM strandline.message m"
    " JOIN strandline.session s USING (shard_key, session_key) ORDER BY 1, 2"
)


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Run:
    def run_import(lines: Sequence[Any], *arguments: str) -> subprocess.CompletedProcess[str]:
        return forking.run(
            command(written(tmp_path, lines), database_url, *arguments),
            capture_output=True,
            timeout=600,
            check=False,
        )

    return run_import


def command(file: Path, database_url: str, *arguments: str) -> list[str]:
    target = ("--database-url", database_url)
    return [sys.executable, "-m", "strandline", "import", str(file), *target, *LIMITS, *arguments]


def written(folder: Path, lines: Sequence[Any]) -> Path:
    file = folder / "chats.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return file


def chats(sessions: int, turns: int) -> list[dict[str, Any]]:
    """Sessions of two users, their lines mixed as in a log, with a tool call in each turn."""
    return [
        line | {"session_id": f"s{number}", "user_id": f"u{number % 2}"}
        for turn in range(turns)
        for number in range(sessions)
        for line in turn_of(number, turn)
    ]


def turn_of(number: int, turn: int) -> list[dict[str, Any]]:
    call = {"id": f"c{turn}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"What about harbour {turn} of {number}?", "metadata": {"turn": turn}},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "deep", "tool_call_id": f"c{turn}"},
        {
            "role": "assistant",
            "content": f"Harbour {turn} is deep.",
            "created_at": "2026-01-02T03:04:05+00:00",
        },
    ]


def test_what_is_imported_is_what_would_have_been_put(rig: Rig, run: Run) -> None:
    lines = chats(3, 20)
    done = run(lines, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["sessions"], said["added"], said["known"]) == (3, 240, 0)
    events = rows_of(rig.url, "SELECT cause, count(*) FROM strandline.flush_event GROUP BY 1")
    assert events == [("import", said["events"])]
    for number in range(3):
        memory = rig.memory(f"s{number}", user_id=f"u{number % 2}", token_limit=400)
        kept = [message.to_openai() for message in memory.get_all()]
        put = rig.memory(f"put{number}", user_id="other", memory_blocks=[])
        put.put_messages([line for turn in range(20) for line in turn_of(number, turn)])
        assert kept == [message.to_openai() for message in put.get_all()]
        assert memory.get().tokens <= 400
    assert verify(rig.database).violations == ()


def test_importing_a_file_again_adds_only_its_new_messages(run: Run, database_url: str) -> None:
    run(chats(2, 10))
    before = rows_of(database_url, LOG)
    again = run(chats(2, 10))
    assert again.stdout.startswith("0 messages added, 80 were there already")
    assert rows_of(database_url, LOG) == before
    longer = run(chats(2, 12), "--json")
    assert json.loads(longer.stdout)["added"] == 16
    assert [row[:3] for row in rows_of(database_url, LOG) if row[1] <= 40] == [row[:3] for row in before]


def test_an_import_that_was_killed_is_finished_by_the_next(rig: Rig, run: Run, tmp_path: Path) -> None:
    lines = chats(400, 3)
    count = "SELECT count(*) FROM strandline.message"
    file = written(tmp_path, lines)
    with forking.Popen(command(file, rig.url), stdout=subprocess.DEVNULL) as doomed:
        wait_until(lambda: rows_of(rig.url, count)[0][0] > 100, timeout=30, what="a beginning")
        doomed.send_signal(signal.SIGKILL)
    begun = rows_of(rig.url, count)[0][0]
    assert begun < len(lines)
    said = json.loads(run(lines, "--json").stdout)
    assert said["added"] + said["known"] == len(lines)
    assert said["known"] >= begun
    assert rows_of(rig.url, count) == [(len(lines),)]
    assert verify(rig.database).violations == ()


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_import_that_is_interrupted_says_what_is_stored(
    database_url: str, tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    """It reads from a pipe, so that it waits for more of the file when the signal comes."""
    count = "SELECT count(*) FROM strandline.message"
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    argv = command(pipe, database_url, "--session", "s")
    with forking.Popen(argv, stderr=subprocess.PIPE, text=True) as doomed, pipe.open("w") as lines:
        for place in range(4_001):
            lines.write(json.dumps({"role": "user", "content": f"Harbour {place}."}) + "\n")
        lines.flush()
        wait_until(lambda: rows_of(database_url, count) == [(4_000,)], timeout=60, what="two chunks")
        doomed.send_signal(number)
        _, said = doomed.communicate(timeout=600)
    assert doomed.returncode == exit_code
    # The second chunk may be stored, and this not yet be known.
    assert re.search(r"interrupted: [24],000 messages of the file are stored, and perhaps some more", said)
    assert "run the same import again: it adds the missing ones, and nothing twice" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", 'line 2 must be a JSON object with "role" and "content"'),
        ({"role": "wizard", "content": "x", "session_id": "s"}, "line 2: message.role: 'wizard' is unknown"),
        ({"role": "user", "content": "a\u0000b", "session_id": "s"}, "line 2: message.content"),
        ({"role": "user", "content": "x"}, "line 2 has no 'session_id'; name the field"),
        (
            {"role": "user", "content": "x", "session_id": "s", "user_id": "eve"},
            "line 2 belongs to another user",
        ),
    ],
)
def test_a_line_that_cannot_be_put_is_named(run: Run, line: Any, sentence: str) -> None:
    good = {"role": "user", "content": "x", "session_id": "s"}
    done = run([good, line, good])
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_sessions_by_another_field_or_one_for_all(run: Run, database_url: str) -> None:
    lines = [{"role": "user", "content": f"{n}", "metadata": {"session": n % 2}} for n in range(4)]
    assert run(lines, "--session-field", "metadata.session", "--user", "ann").returncode == 0
    assert run(lines, "--session", "all").returncode == 0
    sessions = "SELECT session_id, user_id, next_seq - 1 FROM strandline.session ORDER BY 1"
    assert rows_of(database_url, sessions) == [("0", "ann", 2), ("1", "ann", 2), ("all", None, 4)]


def test_an_import_and_puts_share_a_session(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put({"role": "user", "content": "now", "id": "a"})
    older = [{"role": "user", "content": "now", "id": "a"}, {"role": "user", "content": "then", "id": "b"}]
    imported = memory.import_messages(older)
    assert (imported.known, imported.added) == (1, 1)
    assert [message.text for message in memory.get_all()] == ["now", "then"]
    with pytest.raises(ConflictError, match="'b' was already used"):
        memory.import_messages(
            [older[1] | {"content": "else"}, {"role": "user", "content": "new", "id": "c"}]
        )
    assert len(memory.get_all()) == 2
    with pytest.raises(OwnerError):
        make_memory("s", user_id="eve", memory_blocks=[]).import_messages([older[1] | {"id": "z"}])
    assert memory.import_messages([]).added == 0


@pytest.mark.parametrize("field", ["session_id", "user_id"])
@pytest.mark.parametrize("value", [{"a": 1}, {}, ["s"], [], True, False, 1.5])
def test_a_session_or_user_that_is_neither_text_nor_a_number_is_refused(
    run: Run, database_url: str, field: str, value: object
) -> None:
    good = {"role": "user", "content": "hello", "session_id": "s", "user_id": "u"}
    done = run([good, {**good, field: value}])
    assert (done.returncode, done.stdout) == (1, "")
    assert f"chats.jsonl, line 2: '{field}' is " in done.stderr
    assert "must be text or a whole number" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert stored_sessions(database_url) == 0


@pytest.mark.parametrize(
    ("value", "problem"),
    [("x" * 600, "longer than 512 bytes"), ("\ud800", "lone surrogate"), (10**600, "longer than 512 bytes")],
)
def test_a_session_that_cannot_be_named_is_told_of_with_its_line(
    run: Run, value: object, problem: str
) -> None:
    lines = [{"role": "user", "content": "hello", "session_id": number} for number in (7, value)]
    done = run([json.dumps(line) for line in lines])
    assert done.returncode == 1
    assert "chats.jsonl, line 2: session_id: " in done.stderr and problem in done.stderr


def test_numbers_name_sessions_and_users(run: Run, database_url: str) -> None:
    done = run([{"role": "user", "content": "hello", "session_id": 7, "user_id": 8}])
    assert done.returncode == 0, done.stderr
    assert rows_of(database_url, "SELECT session_id, user_id FROM strandline.session") == [("7", "8")]
