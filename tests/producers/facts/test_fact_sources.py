"""Facts made of messages that are in no chat: kept as sources, idempotent, replayed, forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import ConfigurationError, ConflictError, Facts, InvalidMessageError
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.sessions import list_sessions
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import FACTS
from strandline.schemas.wire.explanations import FactExplanation
from tests.conftest import MakeMemory, Rig, rows_of
from tests.pipelines.replay.test_replay import replay_new
from tests.producers.facts.conftest import Derive
from tests.support.stored import stored_chunks, stored_messages

NAME = {"role": "user", "content": "My name is Ana."}
HOME = {"role": "user", "content": "I live in Graz."}


def texts(facts: Any) -> set[str]:
    return {fact.text for fact in facts.list()}


def test_facts_are_made_of_messages_with_their_provenance_and_no_chat_is_seen(
    rig: Rig, facts: Facts, derive: Derive
) -> None:
    rig.memory("chat", user_id="ana", memory_blocks=["facts"]).put(NAME)
    before = facts.create_from([NAME, {"role": "assistant", "content": "Hello!"}, HOME], key="form-1")
    assert not before.is_complete and before.added == ()
    derive()
    changes = facts.create_from([NAME, {"role": "assistant", "content": "Hello!"}, HOME], key="form-1")
    assert changes.is_complete and changes.source_id == before.source_id
    assert {fact.text for fact in changes.added} == {"My name is Ana.", "I live in Graz."} == texts(facts)
    (fact,) = [fact for fact in changes.added if fact.text == "I live in Graz."]
    assert fact.message_ids == ("3",)
    explained = explain(rig.database, str(fact.fact_id), user_id="ana")
    assert isinstance(explained, FactExplanation) and explained.revisions[0].cause == "source"
    assert [state.session_id for state in list_sessions(rig.database, user_id="ana").sessions] == ["chat"]
    assert [state.session_id for state in list_sessions(rig.database, namespace="default").sessions] == [
        "chat"
    ]
    assert [state.session_id for state in list_sessions(rig.database).sessions] == ["chat"]
    assert verify(rig.database, deep=True).violations == ()
    assert stored_chunks(rig.url) == 0


def test_a_repeated_call_is_the_same_source_and_other_messages_are_a_conflict(
    facts: Facts, database_url: str
) -> None:
    first = facts.create_from([NAME, HOME], key="k")
    assert facts.create_from([NAME, HOME], key="k").source_id == first.source_id
    for others in ([NAME], [NAME, HOME, NAME], [HOME, NAME]):
        with pytest.raises(ConflictError):
            facts.create_from(others, key="k")
    assert stored_messages(database_url) == 2
    assert rows_of(database_url, "SELECT cause, message_count FROM strandline.flush_event") == [("source", 2)]
    assert facts.create_from([NAME, HOME]).source_id != facts.create_from([NAME, HOME]).source_id


def test_with_wait_the_changes_are_returned(
    facts: Facts, model_settings: Settings, make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    memory = make_memory("chat", user_id="ana", memory_blocks=["facts"], consume="background")
    memory.get()
    changes = memory.facts.create_from([HOME], wait=60)
    assert changes.is_complete and [fact.text for fact in changes.added] == ["I live in Graz."]


def test_a_source_is_derived_again_and_forgotten(
    rig: Rig, facts: Facts, derive: Derive, model_settings: Settings
) -> None:
    source = facts.create_from([NAME, HOME])
    kept = facts.create_from([{"role": "user", "content": "I keep bees."}])
    derive()
    replay_new(rig.database, model_settings, FACTS, force=True)
    assert texts(facts) == {"My name is Ana.", "I live in Graz.", "I keep bees."}
    facts.forget_source(source.source_id)
    derive()
    assert texts(facts) == {"I keep bees."}
    assert stored_messages(rig.url) == 1
    assert verify(rig.database, deep=True).violations == ()
    facts.clear()
    derive()
    assert texts(facts) == set() and kept.source_id != source.source_id


def test_a_call_without_its_result_is_read_as_well_and_rules_alone_give_nothing(
    facts: Facts, derive: Derive, database: Database
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    facts.create_from([HOME, {"role": "assistant", "content": None, "tool_calls": [call]}], key="open")
    facts.create_from([{"role": "system", "content": "Be brief."}], key="rules")
    derive()
    assert facts.create_from([{"role": "system", "content": "Be brief."}], key="rules").is_complete
    assert texts(facts) == {"I live in Graz."}
    assert verify(database).violations == ()


def test_users_and_namespaces_have_sources_of_their_own(
    facts: Facts, derive: Derive, database_url: str
) -> None:
    ben = Facts.for_owner(user_id="ben", database_url=database_url)
    abroad = Facts.for_owner(user_id="ana", namespace="abroad", database_url=database_url)
    ids = {one.create_from([HOME], key="k").source_id for one in (facts, ben, abroad)}
    assert len(ids) == 3
    derive()
    (mine,) = {facts.create_from([HOME], key="k").source_id} & ids
    with pytest.raises(Exception, match="belongs to another owner"):
        ben.forget_source(mine)
    assert texts(facts) == texts(ben) == {"I live in Graz."}
    ben.close()
    abroad.close()


@pytest.mark.parametrize("messages", [[], "text", None, [7], [{"role": "nobody"}], {"role": "user"}])
def test_what_cannot_be_kept_is_refused(facts: Facts, database_url: str, messages: Any) -> None:
    with pytest.raises(InvalidMessageError):
        facts.create_from(messages)
    with pytest.raises(InvalidMessageError):
        facts.create_from([HOME], key="")
    with pytest.raises(InvalidMessageError):
        facts.forget_source("chat")
    alone = Facts.for_owner(session_id="s", database_url=database_url)
    with pytest.raises(ConfigurationError):
        alone.create_from([HOME])
    alone.close()
    assert stored_messages(database_url) == 0
