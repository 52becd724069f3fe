"""Deleting a fact together with the messages it came from, in all chats of its owner."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from strandline import Facts, Memory
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.settings import Settings
from strandline.schemas.values.message import DELETED_CONTENT
from tests.conftest import Rig, nothing_due, rows_of
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

PORTO = "I live in Porto"
FOUND = ["Lives in Porto.", "Has a cat.", "Has a dog."]
BLOCKS = ["facts", "summary", "vectors"]


@pytest.fixture
def drain(rig: Rig, model_settings: Settings) -> Callable[[], None]:
    def drained() -> None:
        drain_everything(rig.database, rig.url, model_settings)
        assert nothing_due(rig.url)

    return drained


def contents(memory: Memory) -> list[Any]:
    return [message.content for message in memory.history()]


def live(facts: Facts) -> list[str]:
    return sorted(fact.text for fact in facts.list())


def shown(memory: Memory) -> str:
    """All that reads and searches of all kinds show."""
    found = [hit.text for hit in memory.search("Where is Porto?", limit=50, scope="owner")]
    return " ".join([message.text for message in memory.get("Porto?")] + found)


def test_a_fact_goes_with_its_messages_everywhere(rig: Rig, drain: Callable[[], None]) -> None:
    memory = rig.memory("s", user_id="maren", memory_blocks=BLOCKS)
    other = rig.memory("other", user_id="maren", memory_blocks=BLOCKS)
    foreign = rig.memory("s2", user_id="tove", memory_blocks=BLOCKS)
    facts = Facts.for_owner(user_id="maren", database_url=rig.url)
    memory.put({"role": "user", "content": "I like tea"})
    memory.put({"role": "user", "content": PORTO})
    memory.flush(all=True)
    say(other, "my boat is blue", PORTO)
    say(foreign, PORTO)
    drain()
    branch = memory.fork("branch")
    fact = next(one for one in facts.list() if one.text == PORTO)
    assert facts.delete(fact.fact_id, actor="maren", with_messages=True)
    for each in (memory, other, rig.memory(branch.session_id, user_id="maren", memory_blocks=BLOCKS)):
        assert PORTO not in contents(each)
        assert contents(each).count(DELETED_CONTENT) == 1
        assert "Porto" not in shown(each), "before anything is derived again"
    drain()
    assert live(facts) == ["I like tea", "my boat is blue"]
    assert "Porto" not in shown(memory)
    assert contents(foreign) == [PORTO]
    assert not facts.delete(fact.fact_id, with_messages=True), "once"
    acts = rows_of(
        rig.url,
        "SELECT act, count(*) FROM (SELECT act, actor FROM strandline.audit_entry UNION ALL"
        " SELECT act, actor FROM strandline.audit_sealed) AS t WHERE actor IS NOT NULL GROUP BY 1 ORDER BY 1",
    )
    assert acts == [("facts.delete", 1), ("replace", 3)]
    assert verify(rig.database, deep=True).violations == ()


def test_other_facts_of_the_same_message_go_unless_they_have_other_sources(
    rig: Rig, drain: Callable[[], None]
) -> None:
    rig.model.behave(
        responder=lambda request: (
            json.dumps({"facts": [{"text": text, "messages": [1]} for text in FOUND]})
            if "I live in Porto with a cat and a dog" in request.body["messages"][-1]["content"]
            and "<transcript>" in request.body["messages"][-1]["content"]
            else None
        )
    )
    memory = rig.memory("s", user_id="maren", memory_blocks=["facts"])
    facts = Facts.for_owner(user_id="maren", database_url=rig.url)
    say(memory, "I live in Porto with a cat and a dog")
    drain()
    say(rig.memory("t", user_id="maren", memory_blocks=["facts"]), "Has a dog.")
    drain()
    assert live(facts) == ["Has a cat.", "Has a dog.", "Lives in Porto."]
    fact = next(one for one in facts.list() if "Porto" in one.text)
    assert facts.delete(fact.fact_id, with_messages=True)
    drain()
    assert live(facts) == ["Has a dog."]
    assert verify(rig.database, deep=True).violations == ()


def test_a_fact_of_a_person_has_no_messages_to_delete(rig: Rig) -> None:
    facts = Facts.for_owner(user_id="maren", database_url=rig.url)
    rig.memory("s", user_id="maren", memory_blocks=["facts"]).put({"role": "user", "content": PORTO})
    assert facts.delete(facts.add("Maren sails").fact_id, with_messages=True)
    assert not facts.delete("no id", with_messages=True)
