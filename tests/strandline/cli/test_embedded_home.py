"""Commands that do one thing and go, on an embedded home with nothing beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.entry import run
from strandline.deploy.embedded.stack import running_stack
from tests.support.processes.commands import run_here

CHAT = [
    {"role": "user", "content": f"My name is Anna and I live in house number {number} in Bergen."}
    for number in range(40)
]


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRANDLINE_DATABASE_URL", "STRANDLINE_BROKER_URL", "STRANDLINE_EMBEDDED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRANDLINE_TEXT_BACKEND", "local")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")


def command(*arguments: str) -> tuple[Any, str]:
    """What ``strandline … --json`` prints, once it has ended well, and what it says beside that."""
    ended = run_here(*arguments, "--json")
    printed = ended.json
    assert running_stack(Path(os.environ["STRANDLINE_HOME"])) is None, "it left a server running"
    return printed, ended.err


def test_each_command_works_where_nothing_runs(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text("".join(json.dumps(line) + "\n" for line in CHAT))
    options = ("--session", "s1", "--user", "anna", "--token-limit", "200", "--token-flush-size", "100")
    imported, said = command("import", str(chat), *options)
    assert imported["added"] == len(CHAT)
    assert imported["events"] > 0
    assert "No worker runs here now" in said

    assert command("verify")[0]["violations"] == []
    assert command("status")[0]
    assert command("dead-letters", "list")[0] is not None
    assert command("limits", "list")[0] is not None
    flushed, said = command("flush", "s1", "--user", "anna", "--all")
    assert flushed["events"]
    assert "No worker runs here now" in said

    # Nothing was derived yet; a replay starts its own workers.
    assert command("facts", "list", "--user", "anna")[0]["facts"] == []
    replayed, _said = command("replay", "--new", "--force", "--hold", "--pipeline", "facts")
    (replay,) = replayed["replays"]
    assert replay["state"] == "done"
    assert command("generations", "promote", str(replay["generation"]))[0]
    facts = command("facts", "list", "--user", "anna")[0]["facts"]
    assert facts
    assert command("explain", facts[0]["fact_id"])[0]
    assert command("generations", "list")[0]


def test_a_home_that_was_never_used_holds_nothing_to_look_at(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["verify"]) == 1
    said = capfd.readouterr().err
    assert "does not exist" in said
    assert "strandline up" in said
    assert not (Path(os.environ["STRANDLINE_HOME"]) / "postgres").exists()
