"""The command line at its first use: advice that works where it is given, and refusals before any work."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from strandline.cli.entry import run
from tests.conftest import Rig

Capture = pytest.CaptureFixture[str]

CHAT = [{"role": "user", "content": f"I live in house number {number} in Bergen."} for number in range(40)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An embedded home that nobody has used yet, and that commands may use."""
    for name in ("STRANDLINE_DATABASE_URL", "STRANDLINE_BROKER_URL", "STRANDLINE_EMBEDDED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRANDLINE_TEXT_BACKEND", "local")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    home = tmp_path / "first"
    monkeypatch.setenv("STRANDLINE_HOME", str(home))
    return home


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    file = tmp_path / "chat.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in CHAT))
    return file


def test_advice_on_a_stopped_home_is_what_works_there(home: Path, chat: Path, capfd: Capture) -> None:
    limits = ("--token-limit", "200", "--token-flush-size", "100")
    assert run(["import", str(chat), "--session", "s1", *limits]) == 0
    capfd.readouterr()
    assert run(["status"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "no worker is alive; `strandline up` starts one"


def test_status_of_configured_servers_names_a_worker(rig: Rig, capfd: Capture) -> None:
    assert run(["status", "--database-url", rig.url, "--broker-url", rig.broker_url]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "no worker is alive; `strandline worker` starts one"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["none.jsonl"], 1, "none.jsonl cannot be read: No such file or directory."),
        (["."], 1, "cannot be read: Is a directory."),
        (["{chat}", "--token-limit", "-5"], 2, "Invalid value for '--token-limit': -5 is not in the range"),
        (["{chat}", "--token-flush-size", "0"], 2, "'--token-flush-size': 0 is not in the range"),
        (["{chat}", "--session", "x" * 600], 2, "Invalid value for '--session': is longer than 512 bytes"),
        (["{chat}", "--user", ""], 2, "Invalid value for '--user': is empty"),
    ],
)
def test_an_import_that_cannot_work_makes_no_database(
    home: Path, chat: Path, capfd: Capture, arguments: list[str], code: int, says: str
) -> None:
    assert run(["import", *(argument.format(chat=chat) for argument in arguments)]) == code
    assert says in capfd.readouterr().err
    assert not home.exists()


def test_a_home_that_cannot_be_made_is_said_beside_a_configured_database(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", "postgresql://127.0.0.1:1/x")
    home.write_text("")
    assert run(["up"]) == 1
    said = capfd.readouterr().err
    assert f"The home directory {home} cannot be written (it is a file, not a directory)." in said


@pytest.mark.parametrize("command", [["status"], ["worker"]])
def test_a_home_that_does_not_exist_is_told_from_one_where_nothing_runs(
    home: Path, capfd: Capture, command: list[str]
) -> None:
    assert run(command) == 1
    said = capfd.readouterr().err
    assert f"the home directory {home} does not exist" in said
    assert "`strandline up`" in said
    home.mkdir()
    assert run(command) == 1
    assert f"no embedded one runs in {home}" in capfd.readouterr().err


def test_a_home_that_is_a_file_is_not_to_be_started(home: Path, capfd: Capture) -> None:
    home.write_text("")
    assert run(["status"]) == 1
    said = capfd.readouterr().err
    assert f"STRANDLINE_HOME, {home}, is not a directory" in said
    assert "strandline up" not in said


def test_what_is_no_id_of_a_dead_letter_is_told_with_both_forms(database_url: str, capfd: Capture) -> None:
    assert run(["dead-letters", "drop", "99", "--database-url", database_url]) == 2
    said = capfd.readouterr().err
    assert "'99' is not an id; `strandline dead-letters list` shows them (EVENT or EVENT/STAGE)" in said


def test_a_replay_of_a_stopped_home_says_what_is_due_to_live_workers(
    home: Path, chat: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    limits = ("--token-limit", "200", "--token-flush-size", "100")
    assert run(["import", str(chat), "--session", "s1", *limits]) == 0
    capfd.readouterr()
    assert run(["status", "--json"]) == 0
    pipelines = json.loads(capfd.readouterr().out)["pipelines"]
    (due,) = [pipeline["due"] for pipeline in pipelines if pipeline["name"] == "facts"]
    assert due > 1
    # No model answers, so that the replay's own threads derive nothing.
    monkeypatch.setenv("STRANDLINE_TEXT_BACKEND", "openai")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert run(["replay", "--pipeline", "facts"]) == 0
    said = capfd.readouterr()
    assert said.out == "replay 1 of facts, generation 1, is done: 1 owner\n"
    left = f"facts: {due:,} events are due and not derived yet; `strandline up` derives them"
    assert said.err.splitlines()[-1] == left


def test_the_help_of_replay_shows_an_example_of_a_time(capfd: Capture) -> None:
    assert run(["replay", "--help"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "--since TIME" in said
    assert "--until TIME" in said
    assert "such as 2026-01-31 or 2026-01-31T09:30:00" in said
    assert "%Y" not in said


def test_make_help_lists_its_commands_in_columns() -> None:
    folder = Path(__file__).parents[3]
    done = subprocess.run(["make", "help"], cwd=folder, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("  make ")]
    entries = [re.match(r"  make \S+ {2,}", line) for line in lines]
    assert len({entry and entry.end() for entry in entries}) == 1, done.stdout
