"""What was deleted does not come back by an assistant, another chat, a fork, an import or an agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline import Facts, Memory
from strandline.pipelines.facts.edits import apply_fact_events
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.conftest import Rig, nothing_due, rows_of
from tests.support.servers.model_server import RecordedRequest
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

OWNER = identify_user("default", "maren").shard_key
PORTO, LISBON = "User lives in Porto.", "User lives in Lisbon."
FOUND = {
    # The line, and the fact that the model finds in it.
    "I live in Porto": PORTO,
    "You live in Porto, so it is sunny": PORTO,
    "Porto is sunny, and your home": "The user's home is in Porto.",
    "my flat in Porto is where Ana and I live": "User lives with Ana in a flat in Porto.",
    "I live in Lisbon": LISBON,
    "I do not like coffee": "User likes coffee.",
}


class World:
    """One user's chat in which they said where they live, and the model that reads all chats."""

    def __init__(self, rig: Rig, settings: Settings) -> None:
        self.rig, self.settings = rig, settings
        self.facts = Facts.for_owner(user_id="maren", database_url=rig.url)
        self.found = dict(FOUND)
        rig.model.behave(responder=self._answer)
        self.chat = self.memory("s")

    def memory(self, session_id: str) -> Memory:
        return self.rig.memory(session_id, user_id="maren", memory_blocks=["facts"])

    def _answer(self, request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<transcript>" not in prompt:
            return None
        shown = prompt.rpartition("<transcript>\n")[2].partition("</transcript>")[0]
        rows = map(json.loads, shown.splitlines())
        facts = [
            {"text": self.found[row["text"]], "messages": [row["n"]]}
            for row in rows
            if self.found.get(row["text"])
        ]
        return json.dumps({"facts": facts})

    def drain(self) -> None:
        drain_everything(self.rig.database, self.rig.url, self.settings, (EXTRACT_STAGE, MERGE_STAGE))
        assert nothing_due(self.rig.url)

    @property
    def live(self) -> list[str]:
        return sorted(fact.text for fact in self.facts.list())

    def the(self, text: str) -> UUID:
        (found,) = (fact for fact in self.facts.list() if fact.text == text)
        return found.fact_id

    def derive_again(self) -> None:
        """Have all events of the owner derived again, in a generation that serves then."""
        ((generation_id,),) = rows_of(
            self.rig.url,
            "INSERT INTO strandline.generation (pipeline, version, state, entry_stage, config, prompts)"
            " SELECT pipeline, version, 'feeding', entry_stage, config, prompts FROM strandline.generation"
            " WHERE pipeline = 'facts' AND state = 'serving' RETURNING generation_id",
        )
        with self.rig.database.transaction() as tx:
            tx.run(apply_fact_events(OWNER, generation_id))
        rows_of(
            self.rig.url,
            "INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,"
            " scope_key, event_id, incarnation, tokens, namespace) SELECT shard_key, session_key, %s,"
            " 'extract', from_seq, through_seq, session_key, event_id, incarnation, tokens, 'default'"
            " FROM strandline.flush_event RETURNING 1",
            generation_id,
        )
        self.drain()
        rows_of(
            self.rig.url,
            "WITH old AS (UPDATE strandline.generation SET state = 'retired' WHERE state = 'serving'"
            " AND pipeline = 'facts' RETURNING 1) UPDATE strandline.generation SET state = 'serving'"
            " WHERE generation_id = %s AND (SELECT count(*) FROM old) = 1 RETURNING 1",
            generation_id,
        )


@pytest.fixture
def world(rig: Rig, model_settings: Settings) -> World:
    world = World(rig, model_settings)
    say(world.chat, "I live in Porto")
    world.drain()
    assert world.live == [PORTO]
    return world


def put(memory: Memory, text: str, role: str = "user", at: datetime | None = None) -> None:
    memory.put({"role": role, "content": text, **({} if at is None else {"created_at": at})})


ECHOES = ["You live in Porto, so it is sunny", "Porto is sunny, and your home"]
Way = Callable[[World, Callable[[], Any], str], None]


def echo(world: World, take: Callable[[], Any], text: str) -> None:
    take()
    put(world.chat, text, "assistant")
    world.chat.flush(all=True)


def echo_elsewhere(world: World, take: Callable[[], Any], text: str) -> None:
    take()
    put(world.memory("other"), text, "assistant")
    world.memory("other").flush(all=True)


def delivered_later(world: World, take: Callable[[], Any], text: str) -> None:
    put(world.memory("other"), text)
    take()
    world.memory("other").flush(all=True)


def fast_clock(world: World, take: Callable[[], Any], text: str) -> None:
    put(world.memory("other"), text, at=datetime.now(UTC) + timedelta(hours=3))
    take()
    world.memory("other").flush(all=True)


def not_read_yet(world: World, take: Callable[[], Any], text: str) -> None:
    say(world.memory("other"), text)
    take()


def imported(world: World, take: Callable[[], Any], text: str) -> None:
    take()
    at = datetime.now(UTC) - timedelta(days=30)
    world.memory("other").import_messages(
        [{"id": "old-1", "role": "user", "content": text, "created_at": at}]
    )


def forked_later(world: World, take: Callable[[], Any], text: str) -> None:
    take()
    world.chat.fork("branch")
    world.found["I live in Porto"] = FOUND[text]
    world.derive_again()


def forked_before(world: World, take: Callable[[], Any], text: str) -> None:
    world.chat.fork("branch")
    take()
    world.found["I live in Porto"] = FOUND[text]
    world.derive_again()


OTHERS = ["I live in Porto", "my flat in Porto is where Ana and I live"]
WAYS: list[tuple[Way, list[str]]] = [
    (echo, ECHOES),
    (echo_elsewhere, ECHOES),
    (delivered_later, OTHERS),
    (fast_clock, OTHERS),
    (not_read_yet, OTHERS),
    (imported, OTHERS),
    (forked_later, OTHERS),
    (forked_before, OTHERS),
]
TAKEN: dict[str, Callable[[World], Any]] = {
    "delete": lambda world: world.facts.delete(world.the(PORTO)),
    "replace": lambda world: world.facts.replace(world.the(PORTO), "User sails."),
    "clear": lambda world: world.facts.clear(),
}


@pytest.mark.parametrize("deed", TAKEN)
@pytest.mark.parametrize(
    ("way", "text"),
    [(way, text) for way, texts in WAYS for text in texts],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_what_was_taken_away_stays_away(world: World, way: Way, text: str, deed: str) -> None:
    way(world, lambda: TAKEN[deed](world), text)
    world.drain()
    assert world.live == (["User sails."] if deed == "replace" else [])
    say(world.chat, "I live in Lisbon")
    put(world.memory("other"), "I live in Porto")
    world.memory("other").flush(all=True)
    world.found["I live in Porto"] = PORTO
    world.drain()
    later = {LISBON, PORTO} | ({"User sails."} if deed == "replace" else set())
    assert set(world.live) == later, "what the user says later is new"
    assert verify(world.rig.database, deep=True).violations == ()


def test_a_better_answer_to_the_same_message_is_not_held_back(world: World) -> None:
    say(world.chat, "I do not like coffee")
    world.drain()
    world.facts.delete(world.the("User likes coffee."))
    world.found["I do not like coffee"] = "User does not like coffee."
    world.derive_again()
    assert world.live == ["User does not like coffee.", PORTO]


def test_an_agent_does_not_add_again_what_was_deleted(world: World) -> None:
    other = world.chat.call_tool("add_memory", {"text": "User sails."})
    world.facts.delete(world.the(PORTO))
    for text in (PORTO, "User lives with Ana in a flat in Porto."):
        refused = world.chat.call_tool("add_memory", {"text": text})
        assert refused["error"] == "deleted"
        refused = world.chat.call_tool("update_memory", {"id": other["memory"]["id"], "text": text})
        assert refused["error"] == "deleted"
    assert world.live == ["User sails."]
    assert world.chat.call_tool("add_memory", {"text": LISBON})["memory"]["text"] == LISBON
    world.facts.add(PORTO)
    assert PORTO in world.live, "a person may"
