"""Tables that Agno 1, 2 and 3 made (``agno/make_tables.py``), in SQLite and Postgres."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from strandline import ConfigurationError, Facts, Memory
from strandline.chat_import.records import HistorySource
from strandline.chat_import.sources import open_source
from strandline.pipelines.facts.edits import apply_fact_events
from strandline.pipelines.inspect.verify import verify
from tests.conftest import Rig, rows_of
from tests.support.imports.outcome import Stop, import_all, stored_facts, stored_log
from tests.support.opened_rows import clear_only

TABLES = Path(__file__).parent / "agno"

TRIP = [
    "system: You help.",
    "user: I moved to Lisbon in May.",
    "assistant: You said: I moved to Lisbon in May.",
    "user: How is the weather?",
    "assistant: ",
    "tool: Sunny in Lisbon.",
    "assistant: You said: Sunny in Lisbon.",
    "user: Thank you, and good night.",
    "assistant: You said: Thank you, and good night.",
]
CREW = ["Plan a trip for me.", "Make it three days."]
FACTS = ['Ana says "it\'s fine".', "Ana's cat is called Tom.", "Bo likes tea."]

MakeSource = Callable[[], HistorySource]


def location_of(release: int, engine: str, database_url: str) -> str:
    if engine == "sqlite":
        return str(TABLES / f"agno{release}.sqlite")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute((TABLES / f"agno{release}.sql").read_bytes())
    # As Agno spells it.
    return database_url.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture(
    params=[(1, "sqlite"), (2, "sqlite"), (3, "sqlite"), (1, "pg"), (2, "pg"), (3, "pg")], ids=str
)
def agno(request: pytest.FixtureRequest, database_url: str) -> MakeSource:
    release, engine = request.param
    location = location_of(release, engine, database_url)
    return lambda: open_source("agno", location)


def texts(memory: Memory) -> list[str]:
    return [str(message) for message in memory.get_all()]


def test_sessions_and_memories_are_taken_as_they_are_once(rig: Rig, agno: MakeSource) -> None:
    done = import_all(agno(), rig.url)
    counts = done.progress
    assert (counts.sessions, counts.added, counts.known, counts.facts_added) == (4, 20, 0, 3)
    assert [one.reason for one in done.omissions] == ["names no user; say whose it is with --user"]
    assert counts.portion.done == counts.portion.total == 8

    trip = rig.memory("trip", user_id="ana")
    assert texts(trip) == TRIP
    assert len(rig.memory("desk", user_id="bo").get_all()) == 3
    assert texts(rig.memory("old")) == TRIP[:3]
    crew = [f"{who}{text}" for text in CREW for who in ("user: ", "assistant: You said: ")]
    assert texts(rig.memory("crew", user_id="ana"))[1:] == crew
    calling, answer = trip.get_all()[4:6]
    assert [call["id"] for call in calling.tool_calls or ()] == [answer.tool_call_id]
    assert {"import_source", "import_table", "import_row", "import_part"} == set(answer.metadata)
    assert answer.metadata["import_row"] == "trip"
    assert answer.created_at is not None
    assert answer.created_at.year == 2026

    facts = stored_facts(rig.url)
    assert [fact[1] for fact in facts] == FACTS
    assert (facts[1][2], facts[1][3]) == (["pets"], "My cat Tom")
    assert all(fact[8].startswith("import agno ") for fact in facts)

    log = stored_log(rig.url)
    again = import_all(agno(), rig.url).progress
    assert (again.added, again.known, again.facts_added, again.facts_known) == (0, 20, 0, 3)
    assert stored_log(rig.url) == log
    assert stored_facts(rig.url) == facts
    assert verify(rig.database).violations == ()


def test_an_import_that_ends_anywhere_is_finished_by_the_next(database_url: str) -> None:
    source = TABLES / "agno3.sqlite"
    for at in range(1, 24, 4):
        with pytest.raises(KeyboardInterrupt):
            import_all(open_source("agno", str(source)), database_url, check=Stop(at))
    stopped = len(stored_log(database_url))
    assert 0 < stopped < 20
    done = import_all(open_source("agno", str(source)), database_url).progress
    assert (done.added, done.known) == (20 - stopped, stopped)
    assert len(stored_facts(database_url)) == 3
    assert [row[2] for row in stored_log(database_url)] == list(
        dict.fromkeys(row[2] for row in stored_log(database_url))
    )


def test_facts_have_their_time_and_what_else_was_known_of_them(database_url: str) -> None:
    import_all(open_source("agno", str(TABLES / "agno2.sqlite")), database_url, user="cy")
    facts = {fact[1]: fact for fact in stored_facts(database_url)}
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    assert {fact[6:8] for fact in facts.values()} == {(at, at)}
    assert facts[FACTS[0]][5] == "right"
    assert facts["Bo likes tea."][4] == "helper"
    # What Agno keeps for nobody in particular belongs to the user that the command names.
    cys = Facts.for_owner(user_id="cy", database_url=database_url)
    assert [fact.text for fact in cys.list()] == ["Someone runs."]


def test_a_fact_that_was_deleted_changed_or_cleared_stays_so(database_url: str) -> None:
    def import_again() -> None:
        import_all(open_source("agno", str(TABLES / "agno1.sqlite")), database_url)

    import_again()
    anas = Facts.for_owner(user_id="ana", database_url=database_url)
    cat, fine = sorted(anas.list(), key=lambda fact: fact.text, reverse=True)
    assert anas.delete(cat.fact_id)
    anas.replace(fine.fact_id, "Ana says that all is well.")
    bos = Facts.for_owner(user_id="bo", database_url=database_url)
    assert bos.clear() == 1
    import_again()
    assert [fact.text for fact in anas.list()] == ["Ana says that all is well."]
    assert bos.list().total == 0


def test_a_clearing_before_an_import_takes_nothing_of_it_when_it_is_applied_again(rig: Rig) -> None:
    """Each derivation applies all events twice; an imported fact is older than its event."""
    anas = Facts.for_owner(user_id="ana", database_url=rig.url)
    anas.add("Ana is new here.")
    assert anas.clear() == 1
    import_all(open_source("agno", str(TABLES / "agno2.sqlite")), rig.url)
    revisions = "SELECT f.fact_id, r.created_at FROM strandline.fact f JOIN strandline.fact_revision r"
    revisions += " USING (shard_key, generation_id, fact_id) ORDER BY 1, 2"
    before = rows_of(rig.url, revisions)
    ((shard_key, generation),) = rows_of(
        rig.url, "SELECT shard_key, generation_id FROM strandline.fact WHERE text = %s", FACTS[1]
    )
    with rig.database.transaction() as transaction:
        transaction.run(apply_fact_events(shard_key, generation))
    assert rows_of(rig.url, revisions) == before
    assert anas.clear() == 2


@clear_only("an encrypted suite encrypts a namespace only after its first fact")
def test_a_fact_that_is_known_already_stays_one(database_url: str) -> None:
    anas = Facts.for_owner(user_id="ana", database_url=database_url)
    known = anas.add(FACTS[1])
    import_all(open_source("agno", str(TABLES / "agno1.sqlite")), database_url)
    assert anas.get(known.fact_id) is not None
    assert anas.list().total == 2
    assert anas.delete(known.fact_id)
    assert (
        import_all(open_source("agno", str(TABLES / "agno1.sqlite")), database_url).progress.facts_added == 0
    )
    assert anas.list().total == 1


def changed(tmp_path: Path, release: int, *statements: str) -> HistorySource:
    """A copy of a release's tables after some changes."""
    file = tmp_path / "changed.sqlite"
    shutil.copy(TABLES / f"agno{release}.sqlite", file)
    with sqlite3.connect(file) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return open_source("agno", str(file))


def test_bad_rows_are_named_and_stop_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.chat_import.tables.reader.MAX_VALUE_CHARACTERS", 6_000)
    long = "x" * 7_000
    plain = {"runs": [{"messages": [{"role": "user", "content": "x"}]}]}
    messages = [{"content": "x"}, {"role": "wizard", "content": "x"}, {"role": "user", "content": "kept"}]
    odd = {"runs": [7, {"messages": messages}]}
    evil = "__import__('os').abort()"
    done = import_all(
        changed(
            tmp_path,
            1,
            "UPDATE agent_sessions SET memory = '{' WHERE session_id = 'desk'",
            f"INSERT INTO agent_sessions (session_id, memory) VALUES ('long', '\"{long}\"')",
            f"INSERT INTO agent_sessions (session_id, memory) VALUES ('odd', '{json.dumps(odd)}')",
            "INSERT INTO agent_sessions (session_id, memory)"
            f" VALUES (CAST(x'ff' AS TEXT), '{json.dumps(plain)}')",
            f"INSERT INTO user_memories (id, user_id, memory) VALUES ('evil', 'bo', \"{evil}\")",
            "INSERT INTO user_memories (id, user_id, memory) VALUES ('deep', 'bo', '" + "[" * 3_000 + "')",
            "INSERT INTO user_memories (id, user_id, memory) VALUES ('none', 'bo', '{}')",
            "INSERT INTO user_memories (id, user_id, memory)"
            f" VALUES ('wide', 'bo', '{{\"memory\": \"{long[:1_001]}\"}}')",
        ),
        database_url,
        user="cy",
    )
    reasons = {place: reason.split(":")[0] for place, reason in done.reasons.items()}
    neither = "column memory is neither a JSON object nor a Python dict"
    assert reasons == {
        ("desk", ""): "its runs",
        ("long", ""): "column memory is too long to be read",
        ("odd", "runs[0]"): "is not a run",
        ("odd", "runs[1]/messages[0]"): "is not a message with a role",
        ("odd", "runs[1]/messages[1]"): "message.role",
        ("\udcff", "runs[0]/messages[0]"): "session",
        ("evil", ""): neither,
        ("deep", ""): neither,
        ("none", ""): "has no text",
        ("wide", ""): "text",
    }
    kept = [row for row in stored_log(database_url) if row[0] == "odd"]
    assert len(kept) == 1
    assert (done.progress.added, done.progress.facts_added) == (20 - 3 + 1, 4)


def test_what_is_no_part_of_the_chat_is_left_out_as_in_agno(database_url: str, tmp_path: Path) -> None:
    done = import_all(
        changed(
            tmp_path,
            3,
            "UPDATE agno_runs SET status = 'ERROR' WHERE session_id = 'trip' AND run_index = 1",
            "UPDATE agno_runs SET parent_run_id = 'x' WHERE session_id = 'crew' AND run_index = 1",
            "UPDATE agno_sessions SET summary = '{\"summary\": \"x\"}' WHERE session_id = 'old'",
            "UPDATE agno_sessions SET session_type = 'workflow' WHERE session_id = 'desk'",
            "DELETE FROM agno_memories",
        ),
        database_url,
    )
    assert sorted(one.reason.split(",")[0] for one in done.omissions) == [
        "is a run with the status ERROR",
        "is a summary; workers derive one from the messages",
        "is a team member's run",
        "is the session of a workflow",
    ]
    assert done.progress.added == 20 - 4 - 2 - 3


def test_runs_that_agno_3_has_not_moved_from_the_sessions_are_taken_once(
    database_url: str, tmp_path: Path
) -> None:
    """As after an update to Agno 3: the run of one session in both places, that of another in the old one."""
    moved = "SELECT json_group_array(json(run_data)) FROM agno_runs r WHERE r.session_id = s.session_id"
    done = import_all(
        changed(
            tmp_path,
            3,
            "ALTER TABLE agno_sessions ADD COLUMN runs JSON",
            f"UPDATE agno_sessions AS s SET runs = ({moved})",
            "DELETE FROM agno_runs WHERE session_id IN ('desk', 'crew')",
        ),
        database_url,
    )
    assert done.progress.added == 20
    before = stored_log(database_url)
    again = import_all(open_source("agno", str(TABLES / "agno3.sqlite")), database_url).progress
    assert (again.added, again.known) == (0, 20)
    assert stored_log(database_url) == before


def test_a_table_by_name_and_a_database_without_any(database_url: str, tmp_path: Path) -> None:
    file = str(TABLES / "agno1.sqlite")
    done = import_all(open_source("agno", file, ["team_sessions"]), database_url).progress
    assert (done.sessions, done.added, done.facts_added) == (1, 5, 0)
    with pytest.raises(ConfigurationError, match="'tables' is not a table of Agno; the database has 'agent_"):
        open_source("agno", file, ["tables"])
    with pytest.raises(ConfigurationError, match="has no tables of LlamaIndex"):
        open_source("llamaindex", file)
    text = tmp_path / "text"
    text.write_text("no database")
    with pytest.raises(ConfigurationError, match="is not a SQLite database"):
        open_source("agno", str(text))
    with pytest.raises(ConfigurationError, match="is neither a Postgres nor a SQLite database"):
        open_source("agno", "mysql://root:secret@localhost/x")
    with pytest.raises(ConfigurationError, match=r"postgresql://ana:\*\*\*@127.0.0.1:1/x cannot be read"):
        open_source("agno", "postgresql://ana:secret@127.0.0.1:1/x")
