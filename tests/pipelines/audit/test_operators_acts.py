"""What operators do with derivations, dead letters, limits and explanations is in the trail, once."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import acting
from strandline.cli.entry import run
from strandline.pipelines.engine.dead_letters import drop_dead_letter, list_dead_letters, retry_dead_letter
from strandline.pipelines.inspect.explain_message import explain, explain_fact_alone, explain_message_alone
from strandline.pipelines.inspect.sessions import list_sessions, show_session
from strandline.pipelines.replay.in_place import begin_in_place
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection, claim_replay
from strandline.pipelines.replay.switching import prune, roll_back
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from tests.conftest import MakeMemory, rows_of

ACTS = """
SELECT namespace, act, actor, detail::text FROM strandline.audit_entry WHERE act <> 'put' ORDER BY created_at
"""
# As a worker leaves it: the event is over, and its lane went past it.
MAKE_DEAD = """
WITH over AS (DELETE FROM strandline.due RETURNING *)
INSERT INTO strandline.dead_letter (shard_key, session_key, generation_id, stage, from_seq, through_seq,
    scope_key, event_id, incarnation, batch_id, reason)
SELECT d.shard_key, d.session_key, d.generation_id, d.stage, d.from_seq, d.through_seq, d.scope_key,
    d.event_id, d.incarnation, gen_random_uuid(), 'a test' FROM over d RETURNING 1
"""
RECORD_ALL = "INSERT INTO strandline.audit_level VALUES ('default', 'all'), ('*', 'all') RETURNING 1"


def acts(url: str) -> list[tuple[str, str, str, str | None]]:
    rows: list[Any] = rows_of(url, ACTS)
    return rows


@pytest.fixture(autouse=True)
def _operator() -> Any:
    with acting(actor="ops", origin="192.0.2.7"):
        yield


def test_derivations(database: Database, database_url: str, settings: Settings) -> None:
    replay = begin_generation(database, "summary", settings, force=True)
    derive_generation(database, replay)
    back = roll_back(database, "summary")
    prune(database, replay.generation_id)
    in_place = begin_in_place(database, "facts", Selection(namespace="shop"))
    rows_of(database_url, "UPDATE strandline.replay SET state = 'stopped' RETURNING 1")
    claim_replay(database, in_place.replay_id)
    done = [(namespace, act, actor) for namespace, act, actor, _detail in acts(database_url)]
    assert done == [
        ("*", "replay.start", "ops"),
        ("*", "generations.serve", "ops"),
        ("*", "generations.rollback", "ops"),
        ("*", "generations.prune", "ops"),
        ("shop", "replay.start", "ops"),
        ("shop", "replay.resume", "ops"),
    ]
    assert f'"generation": {back.generation_id}' in (acts(database_url)[2][3] or "")


def test_dead_letters(make_memory: MakeMemory, database: Database, database_url: str) -> None:
    memory = make_memory("chat", user_id="ann", memory_blocks=["summary"])
    memory.put({"role": "user", "content": "hello"})
    memory.flush(all=True)
    rows_of(database_url, MAKE_DEAD)
    (letter,) = list_dead_letters(database)
    assert drop_dead_letter(database, letter)
    assert not drop_dead_letter(database, letter)
    rows_of(database_url, "UPDATE strandline.dead_letter SET dropped_at = NULL RETURNING 1")
    assert retry_dead_letter(database, letter).outcome == "due"
    done = [(act, actor) for _namespace, act, actor, _detail in acts(database_url)]
    assert done == [("dead_letters.drop", "ops"), ("dead_letters.retry", "ops")]


def test_limits(database_url: str) -> None:
    target = ["--database-url", database_url]
    assert run(["limits", "set", "shop", "--lanes", "3", "--agents-read-only", *target]) == 0
    assert run(["limits", "clear", "shop", "--lanes", *target]) == 0
    assert [(act, detail) for _namespace, act, _actor, detail in acts(database_url)] == [
        ("limits", '{"set": ["max_lanes", "agents_read_only"]}'),
        ("limits", '{"cleared": ["max_lanes"]}'),
    ]


def test_what_operators_are_shown(make_memory: MakeMemory, database: Database, database_url: str) -> None:
    memory = make_memory("chat", user_id="ann", memory_blocks=[])
    memory.put({"role": "user", "content": "hello", "id": "m1"})
    fact = memory.facts.add("Ann is here.")
    rows_of(
        database_url, "INSERT INTO strandline.audit_level VALUES ('default', 'all'), ('*', 'all') RETURNING 1"
    )
    before = len(acts(database_url))
    explain(database, "m1")
    explain_message_alone(database, "m1")
    explain_fact_alone(database, str(fact.fact_id))
    list_sessions(database)
    show_session(database, "chat")
    assert [row[:3] for row in acts(database_url)[before:]] == [
        *[("default", "explain", "ops")] * 3,
        ("*", "directory.read", "ops"),
        ("default", "directory.read", "ops"),
    ]
