"""Ids, feedback and sources of facts last where their words and messages do, whatever is derived again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from strandline import Facts, Memory
from strandline.pipelines.generations.registry import kept_generations
from strandline.pipelines.inspect.explain_message import explain_fact_alone
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection, claim_replay
from strandline.pipelines.replay.switching import serve_everybody
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, FACTS, MERGE_STAGE
from strandline.schemas.wire.explanations import FactExplanation
from tests.conftest import Rig, nothing_due
from tests.support.servers.model_server import RecordedRequest, answer_to
from tests.support.workers.draining import drain_everything

SAID = ["I like herring", "my boat is blue", "I live in Bergen"]


class Told:
    """One user's chat with three facts of one event, the first of which was judged."""

    def __init__(self, rig: Rig, settings: Settings) -> None:
        self.rig, self.settings = rig, settings
        self.memory: Memory = rig.memory("s", user_id="maren", memory_blocks=["facts"])
        self.facts = Facts.for_owner(user_id="maren", database_url=rig.url)
        for text in SAID:
            self.memory.put({"role": "user", "content": text})
        assert len(self.memory.flush(all=True)) == 1
        self.drain()
        self.facts.feedback(self.ids[SAID[0]], "good")
        self.before = self.ids

    def drain(self) -> None:
        drain_everything(self.rig.database, self.rig.url, self.settings, (EXTRACT_STAGE, MERGE_STAGE))

    @property
    def ids(self) -> dict[str, UUID]:
        return {fact.text: fact.fact_id for fact in self.facts.list()}


def replaced(told: Told) -> None:
    told.memory.replace(2, "my boat is green")


def rewound(told: Told) -> None:
    told.memory.rewind(3)


def popped(told: Told) -> None:
    told.memory.pop()


def replayed(told: Told) -> None:
    """Another prompt words one of them otherwise."""

    def respond(request: RecordedRequest) -> str:
        answer = answer_to(request.body["messages"][-1]["content"])
        for fact in answer.get("facts", []):
            fact["text"] = fact["text"].replace("my boat is blue", "the boat: blue")
        return json.dumps(answer)

    told.rig.model.behave(responder=respond)
    replay = begin_generation(told.rig.database, FACTS, told.settings, force=True, hold=True)
    filled = threading.Event()

    def look(progress: Progress) -> None:
        if progress.phase not in ("waiting", "filling"):
            filled.set()

    derive_generation(told.rig.database, replay, on_progress=look, stop=filled)
    told.drain()
    derive_generation(told.rig.database, claim_replay(told.rig.database, replay.replay_id))
    newest = [one for one in kept_generations(told.rig.database) if one.pipeline == FACTS][-1]
    serve_everybody(told.rig.database, newest)


def replayed_in_place(told: Told) -> None:
    replay_in_place(told.rig.database, begin_in_place(told.rig.database, FACTS, Selection()), told.settings)


# What is done, the facts that stay, and the words that succeed those that go.
DEEDS: list[tuple[Callable[[Told], None], list[str], list[str]]] = [
    (replaced, [SAID[0], SAID[2]], ["my boat is green"]),
    (rewound, SAID[:2], []),
    (popped, SAID[:2], []),
    (replayed, [SAID[0], SAID[2]], ["the boat: blue"]),
    (replayed_in_place, SAID, []),
]


@pytest.mark.parametrize(
    ("deed", "stay", "successors"), DEEDS, ids=lambda value: getattr(value, "__name__", "")
)
def test_facts_whose_words_stay_keep_their_ids(
    rig: Rig,
    model_settings: Settings,
    deed: Callable[[Told], None],
    stay: list[str],
    successors: list[str],
) -> None:
    told = Told(rig, model_settings)
    deed(told)
    told.drain()
    after = told.ids
    assert {text: after.get(text) for text in stay} == {text: told.before[text] for text in stay}
    assert not {told.before[text] for text in SAID if text not in stay} & set(after.values())
    for text in SAID:
        explained = explain_fact_alone(rig.database, str(told.before[text]), user_id="maren")
        found = [fact.text for fact in explained.successors]
        assert found == ([] if text in stay else successors)
        assert isinstance(explained, FactExplanation) == (text in stay or deed is replayed)
    judged = {fact.text: fact.feedback for fact in told.facts.list()}
    assert judged[SAID[0]] == "good" and set(judged.values()) == {"good", None}
    assert verify(rig.database, deep=True).violations == ()


def test_words_that_end_and_come_again_in_one_event_are_two_facts(rig: Rig, model_settings: Settings) -> None:
    """The second has an id of its own, and the event can be derived again."""
    told = Told(rig, model_settings)
    oslo, bergen = "I live in Oslo", SAID[2]

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<candidates>" not in prompt:
            return None
        known = prompt.rpartition("<known>\n")[2].partition("</known>")[0]
        numbers = {row["text"]: row["n"] for row in map(json.loads, known.splitlines())}
        ending = [
            {"op": "invalidate", "candidate": 1, "fact": numbers.get(bergen), "text": None},
            {"op": "add", "candidate": 2, "fact": None, "text": None},
        ]
        return json.dumps({"operations": ending})

    rig.model.behave(responder=respond)
    for text in (oslo, bergen):
        told.memory.put({"role": "user", "content": text})
    told.memory.flush(all=True)
    told.drain()
    facts = told.facts.list(with_invalidated=True)
    assert [fact.text for fact in facts].count(bergen) == 2
    assert told.ids[bergen] != told.before[bergen]
    told.memory.replace(4, "I live in Oslo now")
    told.drain()
    assert nothing_due(rig.url)
    assert verify(rig.database, deep=True).violations == ()
