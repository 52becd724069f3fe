"""An export of Strandline, imported elsewhere: the same messages and facts, once, and no deleted ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from strandline import Memory
from strandline.chat_import.history_import import HistoryImport
from strandline.cli.entry import run
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.conftest import MakeMemory, rows_of
from tests.support.workers.draining import drain_everything

SAID = datetime(2026, 3, 1, 10, tzinfo=UTC)
Capture = pytest.CaptureFixture[str]


def drain(database: Database, url: str) -> None:
    settings = load_settings(database_url=url, embedding_backend="local", text_backend="local")
    drain_everything(database, url, settings, [EXTRACT_STAGE, MERGE_STAGE])


@pytest.fixture
def export(make_memory: MakeMemory, database: Database, database_url: str, tmp_path: Path) -> Path:
    """Two sessions, delivered but for the last messages; a fact added, one deleted, one corrected."""
    for name in ("one", "two"):
        memory = make_memory(name, user_id="ana", namespace="old")
        for number in range(6):
            memory.put(
                {
                    "role": ("user", "assistant")[number % 2],
                    "content": f"I live in {name} town {number}.",
                    "id": f"{name}-{number}",
                    "created_at": SAID,
                    "metadata": {"n": number, "project": name},
                }
            )
        memory.replace(1, f"I live in {name} village.", actor="ana")
        memory.flush(all=True)
        drain(database, database_url)
        memory.put({"role": "user", "content": f"My dog in {name} is Bolt.", "id": f"{name}-waits"})
    facts = memory.facts.list(sort="oldest")
    assert len(facts) >= 3
    memory.facts.delete(facts[0].fact_id)
    memory.facts.replace(facts[1].fact_id, "Ana lives in the village of two.", topics=["home"])
    memory.facts.add("Ana sails.", topics=["sport"], agent_id="a")
    memory.facts.feedback(memory.facts.list()[0].fact_id, "right")
    file = tmp_path / "ana.jsonl"
    assert run(["export", "--user", "ana", "--namespace", "old", "--out", str(file), *at(database_url)]) == 0
    return file


def at(url: str) -> list[str]:
    return ["--database-url", url]


def take(file: Path, url: str, *options: str) -> int:
    command = ["import", str(file), "--from", "strandline", "--namespace", "new", *options, *at(url)]
    return run(command)


def shown(memory: Memory) -> list[Any]:
    return [(one.id, one.role, one.text, one.created_at, one.metadata) for one in memory.get_all()]


def stated(memory: Memory) -> set[Any]:
    return {
        (one.text, one.topics, one.agent_id, one.feedback, one.said_at, one.valid_from, one.about_date)
        for one in memory.facts.list(limit=1_000)
    }


def test_a_round_trip_has_the_same_messages_and_facts_and_changes_nothing_again(
    make_memory: MakeMemory, export: Path, database: Database, database_url: str, capfd: Capture
) -> None:
    assert take(export, database_url) == 0
    drain(database, database_url)
    old, new = (
        [make_memory(name, user_id="ana", namespace=space) for name in ("one", "two")]
        for space in ("old", "new")
    )
    assert [shown(memory) for memory in new] == [shown(memory) for memory in old]
    assert stated(new[0]) == stated(old[0])
    assert (
        make_memory("one", user_id="ana", namespace="new").set_policy().pipelines
        == old[0].set_policy().pipelines
    )
    tables = ("message", "fact", "fact_event", "flush_event", "policy_change")
    counts = [rows_of(database_url, f"SELECT count(*) FROM strandline.{table}") for table in tables]
    capfd.readouterr()
    assert take(export, database_url) == 0
    assert "0 messages added, 14 were there already" in capfd.readouterr().out
    drain(database, database_url)
    assert [rows_of(database_url, f"SELECT count(*) FROM strandline.{table}") for table in tables] == counts
    # What was not delivered there is delivered here, and gives its facts.
    new[0].flush(all=True)
    drain(database, database_url)
    assert "Bolt" in str(stated(new[0]))
    assert verify(database).violations == ()


def test_an_import_that_was_interrupted_is_run_again(
    make_memory: MakeMemory,
    export: Path,
    database: Database,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        put, seen = HistoryImport._put, []

        def fail_later(self: HistoryImport, *arguments: Any) -> None:
            put(self, *arguments)
            seen.append(1)
            if len(seen) == 1:
                raise KeyboardInterrupt

        patch.setattr(HistoryImport, "_put", fail_later)
        assert take(export, database_url) != 0
    assert take(export, database_url) == 0
    drain(database, database_url)
    old, new = (make_memory("one", user_id="ana", namespace=space) for space in ("old", "new"))
    assert shown(new) == shown(old)
    assert stated(new) == stated(old)


def test_another_user_and_another_name_can_have_it(
    make_memory: MakeMemory, database_url: str, tmp_path: Path
) -> None:
    """An anonymous session becomes a user's."""
    anonymous = make_memory("visit", namespace="new")
    anonymous.put({"role": "user", "content": "I live in Porto.", "id": "m"})
    anonymous.facts.add("Lives in Porto.")
    file = tmp_path / "visit.jsonl"
    assert (
        run(["export", "--session", "visit", "--namespace", "new", "--out", str(file), *at(database_url)])
        == 0
    )
    assert take(file, database_url, "--user", "ana", "--session", "ana-visit") == 0
    memory = make_memory("ana-visit", user_id="ana", namespace="new")
    assert shown(memory) == shown(anonymous)
    assert [fact.text for fact in memory.facts.list()] == ["Lives in Porto."]


@pytest.mark.parametrize("cut", ["trailer", "header", "all", "other"])
def test_what_is_no_whole_export_is_refused(
    export: Path, database_url: str, capfd: Capture, cut: str
) -> None:
    lines = export.read_text().splitlines(keepends=True)
    kept = {"trailer": lines[:-1], "header": lines[1:], "all": [], "other": ['{"role": "user"}\n']}[cut]
    export.write_text("".join(kept))
    assert take(export, database_url) == 1
    assert "export" in capfd.readouterr().err
    assert rows_of(database_url, "SELECT count(*) FROM strandline.session WHERE namespace = 'new'") == [(0,)]


def test_what_stays_behind_is_told(export: Path, database_url: str, capfd: Capture) -> None:
    capfd.readouterr()
    assert take(export, database_url, "--json") == 0
    report = json.loads(capfd.readouterr().out)
    assert report["source"] == "strandline"
    assert report["added"] == 14
