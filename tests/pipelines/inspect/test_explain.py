"""Explain: from a message to what became of it at every stage, and from a fact all the way back."""

from __future__ import annotations

import json
from typing import Unpack

import pytest

from strandline import Memory
from strandline.pipelines.engine.dead_letters import drop_dead_letter, list_dead_letters
from strandline.pipelines.inspect.directory import Whose
from strandline.pipelines.inspect.explain_message import explain
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.wire.explanations import FactExplanation, MessageExplanation, StageTrace
from tests.conftest import MakeMemory, Rig
from tests.pipelines.conftest import Drain
from tests.support.processes.commands import run_here
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest

POISON = "zyzzyva"
MOVED = "Oslo is where I live now"


def answer(request: RecordedRequest) -> Raw | str | None:
    """Extract refuses one word; one candidate takes a fact's place."""
    prompt = json.dumps(request.body)
    if "<candidates>" in prompt:
        operation = {"op": "invalidate", "candidate": 1, "fact": 1, "text": None}
        return json.dumps({"operations": [operation]}) if MOVED in prompt else None
    refused = POISON in prompt and "<summary_so_far>" not in prompt
    return Raw(400, b'{"error": {"message": "no such words"}}') if refused else None


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    model_server.behave(responder=answer)
    return load_settings(database_url=database_url, embedding_backend="local", batch_token_budget=20)


def say(memory: Memory, id: str, content: str, role: str = "user") -> None:
    memory.put({"role": role, "content": content, "id": id})
    memory.flush(all=True)


def message(database: Database, id: str, **where: Unpack[Whose]) -> MessageExplanation:
    found = explain(database, id, **where)
    assert isinstance(found, MessageExplanation)
    return found


def stages(found: MessageExplanation) -> dict[str, StageTrace]:
    return {trace.stage: trace for trace in found.stages}


def test_a_message_that_was_remembered(make_memory: MakeMemory, database: Database, drain: Drain) -> None:
    memory = make_memory("s", user_id="anna")
    say(memory, "m1", "Bergen is where I live")
    drain()
    found = message(database, "m1")
    assert (found.session_id, found.user_id, found.place) == ("s", "anna", "covered")
    assert found.event is not None and found.event.cause == "manual"
    assert {trace.state for trace in found.stages} == {"applied"}
    (call,) = stages(found)["extract"].calls
    assert call.model and call.prompt_hash and call.input_tokens > 0
    # A single candidate with nothing to compare it with needs no model.
    assert stages(found)["merge"].calls == ()
    (fact,) = memory.facts.list()
    assert [(cited.fact_id, cited.operations) for cited in found.facts] == [(fact.fact_id, ("add",))]
    assert [candidate.text for candidate in found.candidates] == ["Bergen is where I live"]
    assert [(chunk.from_seq, chunk.pieces) for chunk in found.chunks] == [(1, 1)]
    assert "Bergen" in found.states[0].excerpt
    assert found.why == ("It was remembered: 1 fact cites it, 1 of them live.",)


def test_a_fact_leads_back_to_its_messages(make_memory: MakeMemory, database: Database, drain: Drain) -> None:
    memory = make_memory("s", user_id="anna")
    say(memory, "m1", "Bergen is where I live")
    drain()
    say(memory, "m2", MOVED)
    drain()
    ended = next(fact for fact in memory.facts.list(with_invalidated=True) if fact.invalidated_at)
    found = explain(database, str(ended.fact_id))
    assert isinstance(found, FactExplanation)
    assert (found.text, found.live, found.replacement) == ("Bergen is where I live", False, MOVED)
    assert [revision.operation for revision in found.revisions] == ["add", "invalidate"]
    first, second = found.revisions
    assert [(source.id, source.said_by, source.excerpt) for source in first.messages] == [
        ("m1", "user", "Bergen is where I live")
    ]
    assert [source.id for source in second.messages] == ["m2"]
    assert first.session_id == "s" and first.cause == "manual" and first.flushed_at is not None
    assert [call.step.partition("-")[0] for call in second.calls] == ["extract", "merge"]
    assert message(database, "m1").why == ("It was remembered: 1 fact cites it, 0 of them live.",)


def test_explain_says_why_a_message_is_not_remembered_yet(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s")
    memory.put({"role": "system", "content": "Be kind.", "id": "m0"})
    memory.put({"role": "user", "content": "I keep bees", "id": "m1"})
    assert message(rig.database, "m0").place == "pinned"
    assert "pinned head" in message(rig.database, "m0").why[0]
    assert message(rig.database, "m1").place == "window"
    assert "has not been flushed" in message(rig.database, "m1").why[0]

    memory.flush(all=True)
    found = message(rig.database, "m1")
    assert (found.place, stages(found)["extract"].state, stages(found)["merge"].state) == (
        "tail",
        "due",
        "waiting",
    )
    assert found.why == ("stage extract has not processed it yet: no worker has taken it up.",)

    drain("extract", "summary", "vectors")
    found = message(rig.database, "m1")
    assert (found.place, stages(found)["merge"].state) == ("tail", "due")
    assert found.why[0].startswith("Extract found something in it; stage merge has not processed it yet")
    drain()
    assert message(rig.database, "m1").place == "covered"


def test_explain_says_why_a_message_was_not_remembered(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s")
    say(memory, "m1", "Anything else?", role="assistant")
    say(memory, "m2", f"I met a {POISON}")
    archive = rig.memory("archive", memory_blocks=["summary"])
    say(archive, "m3", "I keep bees")
    drain()
    assert message(rig.database, "m1").why == ("Extract read it and found no fact in it.",)
    dead = message(rig.database, "m2")
    assert (dead.place, stages(dead)["extract"].state) == ("tail", "dead")
    assert "gave up on it" in dead.why[0] and "dead-letters retry" in dead.why[0]
    assert stages(dead)["extract"].reason
    (letter,) = list_dead_letters(rig.database)
    drop_dead_letter(rig.database, letter)
    dropped = message(rig.database, "m2")
    assert (dropped.place, stages(dropped)["extract"].state) == ("covered", "dropped")
    assert message(rig.database, "m3").why == (
        "Its session does not feed the pipeline 'facts', so no facts are extracted.",
    )


def test_a_lane_that_waits_says_why(rig: Rig, drain: Drain) -> None:
    say(rig.memory("s"), "m1", "I keep bees")
    rig.model.behave(status=503)
    drain("extract")
    found = message(rig.database, "m1")
    assert stages(found)["extract"].next_attempt_at is not None
    assert "its lane waits after an error" in found.why[0]


def test_explain_says_that_a_message_was_reset(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s")
    say(memory, "m1", "I keep bees")
    memory.reset()
    drain()
    found = message(rig.database, "m1")
    assert (found.place, {trace.state for trace in found.stages}) == ("reset", {"void", "waiting"})
    assert "reset" in found.why[0]
    say(memory, "m1", "I keep wasps")
    assert message(rig.database, "m1").message.excerpt == "I keep wasps", "what is in the log now is meant"


def test_an_id_that_is_not_clear_is_an_error(make_memory: MakeMemory, database: Database) -> None:
    for session in ("one", "two"):
        make_memory(session).put({"role": "user", "content": session, "id": "same"})
    with pytest.raises(ConfigurationError, match=r"several sessions \(one, two\)"):
        explain(database, "same")
    assert message(database, "same", session_id="two").message.excerpt == "two"
    with pytest.raises(ConfigurationError, match="no message and no fact 'nothing'"):
        explain(database, "nothing")
    with pytest.raises(ConfigurationError, match="Namespace 'other' is unknown"):
        explain(database, "same", namespace="other")


def test_the_command_prints_both_ways(make_memory: MakeMemory, database_url: str, drain: Drain) -> None:
    memory = make_memory("s", user_id="anna")
    say(memory, "m1", "Bergen is where I live")
    drain()
    (fact,) = memory.facts.list()
    shown = run_here("explain", "m1", "--session", "s", on=database_url)
    assert shown.code == 0 and "\x1b" not in shown.out
    for piece in (
        "message m1",
        "why: It was remembered",
        str(fact.fact_id),
        "extract: applied",
        "answered by",
    ):
        assert piece in shown.out
    back = run_here("explain", str(fact.fact_id), "--user", "anna", on=database_url).out
    assert "1. add" in back and "message m1 (seq 1) of session s" in back
    as_json = json.loads(run_here("explain", "m1", "--json", on=database_url).out)
    assert MessageExplanation.model_validate(as_json).place == "covered"
    schemas = json.loads(run_here("explain", "m1", "--json-schema", on=database_url).out)
    assert set(schemas) == {"MessageExplanation", "FactExplanation", "RemovedFactExplanation"}
    unknown = run_here("explain", "nothing", on=database_url)
    assert unknown.code == 1 and unknown.err.startswith("strandline: Namespace 'default' has no message")
