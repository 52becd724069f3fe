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
from strandline.pipelines.replay.switching import prune, serve_everybody
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, FACTS, MERGE_STAGE
from strandline.schemas.wire.explanations import FactExplanation
from tests.conftest import Rig, nothing_due
from tests.support.servers.model_server import RecordedRequest, answer_to
from tests.support.workers.draining import drain_everything

SAID = ["I like herring", "my boat is blue", "I live in Bergen"]


class Owner:
    """A user whose facts are derived on call."""

    def __init__(self, rig: Rig, settings: Settings) -> None:
        self.rig, self.settings = rig, settings
        self.facts = Facts.for_owner(user_id="maren", database_url=rig.url)

    def chat(self, session_id: str) -> Memory:
        return self.rig.memory(session_id, user_id="maren", memory_blocks=["facts"])

    def drain(self) -> None:
        drain_everything(self.rig.database, self.rig.url, self.settings, (EXTRACT_STAGE, MERGE_STAGE))

    @property
    def ids(self) -> dict[str, UUID]:
        return {fact.text: fact.fact_id for fact in self.facts.list()}


class Told(Owner):
    """One user's chat with three facts of one event, the first of which was judged."""

    def __init__(self, rig: Rig, settings: Settings) -> None:
        super().__init__(rig, settings)
        self.memory = self.chat("s")
        for text in SAID:
            self.memory.put({"role": "user", "content": text})
        assert len(self.memory.flush(all=True)) == 1
        self.drain()
        self.facts.feedback(self.ids[SAID[0]], "good")
        self.before = self.ids


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
    derive_anew(told)


def derive_anew(told: Owner) -> None:
    """Let another generation serve, which derives all that is in the log."""
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


# Where the same words are said, message by message: its session, and whether workers have a look after it.
PLACES = {
    "one event": [("s", ""), ("s", ""), ("s", "flush drain")],
    "one batch": [("s", "flush"), ("s", "flush"), ("s", "flush drain")],
    "three batches": [("s", "flush drain"), ("s", "flush drain"), ("s", "flush drain")],
    "three sessions at once": [("a", "flush"), ("b", "flush"), ("c", "flush drain")],
    "three sessions": [("a", "flush drain"), ("b", "flush drain"), ("c", "flush drain")],
}
REPEATED, OTHER = "I like herring", "my boat is blue"


class ToldRepeatedly(Owner):
    """Three messages with the same words, of which a person judged the fact."""

    def __init__(self, rig: Rig, settings: Settings, place: str) -> None:
        super().__init__(rig, settings)
        self.chats = [self.chat(session_id) for session_id, _ in PLACES[place]]
        self.seqs = []
        for chat, (_, then) in zip(self.chats, PLACES[place], strict=True):
            self.seqs.append(chat.put({"role": "user", "content": REPEATED}))
            if "flush" in then:
                chat.flush(all=True)
            if "drain" in then:
                self.drain()
        (self.fact,) = self.facts.list()
        self.facts.feedback(self.fact.fact_id, "good")

    def replace(self, number: int) -> None:
        self.chats[number].replace(self.seqs[number], OTHER)

    def take_back(self, number: int) -> None:
        """This message, and what stands behind it in its chat."""
        self.chats[number].rewind(self.seqs[number])

    def forget(self, number: int) -> None:
        """The whole chat of this message."""
        self.chats[number].reset(derived=True)

    def replay(self, _number: int) -> None:
        derive_anew(self)

    def replace_and_replay(self, number: int) -> None:
        self.replace(number)
        self.drain()
        derive_anew(self)

    def replay_and_replace(self, number: int) -> None:
        derive_anew(self)
        self.replace(number)

    def replace_each_in_turn(self, number: int) -> None:
        """All but this one, with a look of the workers between."""
        for other in range(3):
            if other != number:
                self.replace(other)
                self.drain()


# To which of the messages each of these is done.
EACH = [
    (ToldRepeatedly.replace, (0, 1, 2)),
    (ToldRepeatedly.take_back, (0, 1, 2)),
    (ToldRepeatedly.forget, (0, 1, 2)),
    (ToldRepeatedly.replay, (0,)),
    (ToldRepeatedly.replace_and_replay, (0, 2)),
    (ToldRepeatedly.replay_and_replace, (0, 2)),
    (ToldRepeatedly.replace_each_in_turn, (0, 1, 2)),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("deed", "number"),
    [(deed, number) for deed, numbers in EACH for number in numbers],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_fact_lasts_while_one_message_says_it(
    rig: Rig, model_settings: Settings, place: str, number: int, deed: Callable[[ToldRepeatedly, int], None]
) -> None:
    told = ToldRepeatedly(rig, model_settings, place)
    is_one_chat = len({session_id for session_id, _ in PLACES[place]}) == 1
    takes_all = is_one_chat and (
        deed is ToldRepeatedly.forget or (deed is ToldRepeatedly.take_back and not number)
    )
    deed(told, number)
    told.drain()
    before = told.fact
    facts = {fact.text: fact for fact in told.facts.list()}
    explained = explain_fact_alone(rig.database, str(before.fact_id), user_id="maren")
    if takes_all:
        assert REPEATED not in facts and not explained.successors
        return
    after = facts[REPEATED]
    assert (after.fact_id, after.feedback, after.created_at) == (before.fact_id, "good", before.created_at)
    assert not explained.successors and isinstance(explained, FactExplanation)
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("deed", [ToldRepeatedly.replace, ToldRepeatedly.forget])
def test_a_fact_lasts_while_a_fork_says_it(
    rig: Rig, model_settings: Settings, deed: Callable[[ToldRepeatedly, int], None]
) -> None:
    told = ToldRepeatedly(rig, model_settings, "three batches")
    told.chats[0].fork("fork", through_seq=told.seqs[0])
    deed(told, 0)
    for number in (1, 2):
        if deed is ToldRepeatedly.replace:
            told.replace(number)
    told.drain()
    (after,) = (fact for fact in told.facts.list() if fact.text == REPEATED)
    assert (after.fact_id, after.feedback, after.created_at) == (
        told.fact.fact_id,
        "good",
        told.fact.created_at,
    )


def test_a_fact_that_was_made_more_exact_lasts_by_each_of_its_statements(
    rig: Rig, model_settings: Settings
) -> None:
    told = Owner(rig, model_settings)
    chat, exact = told.chat("s"), "I like smoked herring"

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<candidates>" not in prompt or exact not in prompt or REPEATED not in prompt:
            return None
        return json.dumps({"operations": [{"op": "update", "candidate": 1, "fact": 1, "text": exact}]})

    rig.model.behave(responder=respond)
    for text in (REPEATED, exact):
        chat.put({"role": "user", "content": text})
        chat.flush(all=True)
        told.drain()
    before = told.ids
    assert list(before) == [exact]
    chat.replace(1, OTHER)
    told.drain()
    assert told.ids.get(exact) == before[exact]
    chat.replace(1, REPEATED)
    chat.replace(2, OTHER)
    told.drain()
    assert told.ids.get(REPEATED) == before[exact]


def test_an_id_that_only_a_pruned_derivation_had_is_found(rig: Rig, model_settings: Settings) -> None:
    told = Told(rig, model_settings)
    replayed(told)
    old = next(one for one in kept_generations(rig.database) if one.pipeline == FACTS)
    prune(rig.database, old.generation_id)
    explained = explain_fact_alone(rig.database, str(told.before[SAID[1]]), user_id="maren")
    assert [fact.text for fact in explained.successors] == ["the boat: blue"]
    rig.model.behave()
    derive_anew(told)
    assert told.ids == told.before


def test_the_id_of_a_deleted_fact_is_not_given_again(rig: Rig, model_settings: Settings) -> None:
    """What was said after the deletion is a fact of its own, also where a correction derives both again."""
    told = ToldRepeatedly(rig, model_settings, "one event")
    told.replace(0)
    told.drain()
    told.facts.delete(told.fact.fact_id)
    told.chats[0].put({"role": "user", "content": REPEATED})
    told.chats[0].flush(all=True)
    told.drain()
    told.replace(1)
    told.drain()
    assert REPEATED in told.ids and told.ids[REPEATED] != told.fact.fact_id
    assert {fact.feedback for fact in told.facts.list()} == {None}
