"""Doubts: what a model may not do to a known fact stands beside it, is shown, and is settled by a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import pytest

from strandline import ConflictError, Facts, InvalidMessageError
from strandline.cli.facts import FactsReport
from strandline.pipelines.facts.edits import apply_fact_events
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.text.lexemes import remembered
from strandline.producers.facts.listing import Fact
from strandline.schemas.settings import Settings
from strandline.schemas.values.doubts import DOUBT_SENTENCES, Settlement
from strandline.schemas.values.identity import identify_user
from strandline.schemas.wire.explanations import FactExplanation
from tests.conftest import Rig, nothing_due, rows_of
from tests.pipelines.facts.test_facts_merge import FACTS_STAGES, rows_in
from tests.pipelines.facts.test_facts_tombstones import derive_again, switch_to
from tests.support.processes.commands import run_here
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

OLD, NEW, SKY = "I live in Porto", "I live in Lisbon", "The sky is blue."
MAREN = identify_user("default", "maren").shard_key
Tell = Callable[[str], None]
Doubtful = Callable[[], tuple[Facts, Fact, Fact]]


def mislead(server: ModelServer, old: str = OLD, meanwhile: Callable[[], object] = list) -> None:
    """Each candidate that is shown with ``old`` rewords it to the sky; ``meanwhile`` comes first."""

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        known = {row["text"]: row["n"] for row in rows_in(prompt, "known")} if "<known>" in prompt else {}
        if old not in known:
            return None
        meanwhile()
        ops = [
            {"op": "update", "candidate": row["n"], "fact": known[old], "text": SKY}
            for row in rows_in(prompt, "candidates")
        ]
        return json.dumps({"operations": ops})

    server.behave(responder=respond)


@pytest.fixture
def facts(rig: Rig) -> Facts:
    return Facts.for_owner(user_id="maren", database_url=rig.url)


@pytest.fixture
def tell(rig: Rig, model_settings: Settings) -> Tell:
    """Say something as the user ``maren``, and have it extracted and merged."""

    def told(text: str) -> None:
        say(rig.memory("s", user_id="maren", memory_blocks=["facts"]), text)
        drain_everything(rig.database, rig.url, model_settings, FACTS_STAGES)

    return told


@pytest.fixture
def doubtful(rig: Rig, tell: Tell, facts: Facts) -> Doubtful:
    """An old fact, and one beside it, since its rewording was refused."""

    def doubt() -> tuple[Facts, Fact, Fact]:
        tell(OLD)
        mislead(rig.model)
        tell(NEW)
        new, old = facts.list()
        return facts, old, new

    return doubt


def live(facts: Facts) -> list[str]:
    return sorted(fact.text for fact in facts.list())


def test_a_refused_decision_leaves_a_doubtful_fact(rig: Rig, doubtful: Doubtful) -> None:
    facts, old, new = doubtful()
    assert (old.text, new.text) == (OLD, NEW)
    assert (old.is_doubtful, old.doubt) == (False, None) and new.is_doubtful and new.doubt is not None
    assert (new.doubt.operation, new.doubt.fact_id) == ("update", old.fact_id)
    assert new.doubt.reason == DOUBT_SENTENCES["loses"]
    assert facts.list(doubtful=True) == [new] == [facts.get(new.fact_id)]
    assert facts.list(doubtful=True, limit=0).total == 1
    assert {hit.fact.text: hit.fact.is_doubtful for hit in facts.search("live")} == {OLD: False, NEW: True}
    assert rows_of(rig.url, "SELECT act, actor, count FROM strandline.audit_entry") == [
        ("facts.doubt", "worker", 1)
    ]
    assert verify(rig.database, deep=True).violations == ()


def test_a_refusal_is_explained_and_listed(rig: Rig, doubtful: Doubtful) -> None:
    _facts, old, new = doubtful()
    explained = explain(rig.database, str(new.fact_id))
    assert isinstance(explained, FactExplanation) and explained.is_doubtful and explained.doubt is not None
    assert (explained.doubt.operation, explained.doubt.text) == ("update", OLD)
    explained = explain(rig.database, str(old.fact_id))
    assert isinstance(explained, FactExplanation) and explained.doubted_by == (new.fact_id,)
    shown = run_here("explain", str(new.fact_id), "--user", "maren", on=rig.url)
    assert f"doubtful: it may contradict fact {old.fact_id}: {OLD}\n  refused: update. " in shown.out
    assert f"facts settle {new.fact_id}" in shown.out
    listed = run_here("facts", "list", "--doubtful", "--user", "maren", "--json", on=rig.url)
    (fact,) = FactsReport.model_validate(listed.json).facts
    assert fact.doubt is not None and fact.doubt.fact_id == old.fact_id
    plain = run_here("facts", "list", "--user", "maren", on=rig.url).out
    assert plain.count("doubtful") == 1 and f"{new.fact_id} may contradict {old.fact_id}" in plain


SETTLED: dict[Settlement, list[str]] = {"both": [NEW, OLD], "new": [NEW], "old": [OLD]}


@pytest.mark.parametrize(("keep", "texts"), SETTLED.items())
def test_a_doubt_is_settled_in_every_derivation(
    keep: Settlement, texts: list[str], rig: Rig, doubtful: Doubtful, model_settings: Settings
) -> None:
    facts, old, new = doubtful()
    earlier = derive_again(rig.database, rig.url, MAREN)
    kept = facts.settle(new.fact_id, keep, actor="ana")
    assert kept is not None and kept.text == (OLD if keep == "old" else NEW) and not kept.is_doubtful
    assert kept.said_at == (old if keep == "old" else new).said_at, "nothing was said again"
    assert live(facts) == texts and not facts.list(doubtful=True)
    acts = rows_of(rig.url, "SELECT act, actor FROM strandline.audit_entry ORDER BY created_at")
    assert acts[-1] == ("facts.settle", "ana")
    with pytest.raises(ConflictError, match="not doubtful"):
        facts.settle(kept.fact_id, "both")
    later = derive_again(rig.database, rig.url, MAREN)
    drain_everything(rig.database, rig.url, model_settings, FACTS_STAGES)
    for generation_id in (earlier, later):
        with rig.database.transaction() as tx:
            tx.run(apply_fact_events(MAREN, generation_id))
        assert nothing_due(rig.url)
        rows = rows_of(
            rig.url,
            "SELECT text, doubt_operation FROM strandline.fact WHERE live AND generation_id = %s ORDER BY 1",
            generation_id,
        )
        assert rows == [(text, None) for text in texts]
    switch_to(rig.url, later)
    assert live(facts) == texts and not facts.list(doubtful=True)
    assert verify(rig.database, deep=True).violations == ()


def test_what_is_in_doubt_no_more_is_not_marked(rig: Rig, tell: Tell, doubtful: Doubtful) -> None:
    """A person's wording, the old fact's end or deletion: each ends the doubt."""
    facts, old, new = doubtful()
    added = facts.add(NEW, as_is=True)
    assert (added.fact_id, added.is_doubtful) == (new.fact_id, False)
    mislead(rig.model)
    tell("I live in Rome")
    (rome,) = facts.list(doubtful=True)
    worded = facts.replace(rome.fact_id, "I lived in Rome once")
    assert worded is not None and not worded.is_doubtful
    mislead(rig.model)
    tell("I live in Bern")
    assert len(facts.list(doubtful=True)) == 1
    facts.delete(old.fact_id)
    assert not facts.list(doubtful=True) and len(facts.list()) == 3


def test_a_candidate_that_is_known_marks_nothing(rig: Rig, tell: Tell, doubtful: Doubtful) -> None:
    facts, _old, _new = doubtful()
    facts.add(NEW, as_is=True)
    mislead(rig.model)
    tell(NEW)
    assert live(facts) == [NEW, OLD] and not facts.list(doubtful=True)
    acts = rows_of(rig.url, "SELECT act FROM strandline.audit_entry WHERE act = 'facts.doubt'")
    assert len(acts) == 2, "each refusal is in the trail, also where no fact is added"


def test_a_refusal_is_in_the_trail_though_its_candidate_is_cleared_at_once(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    tell(OLD)
    mislead(rig.model, meanwhile=facts.clear)
    tell(NEW)
    assert facts.list() == []
    counts = rows_of(rig.url, "SELECT count FROM strandline.audit_entry WHERE act = 'facts.doubt'")
    assert counts == [(1,)]
    assert verify(rig.database, deep=True).violations == ()


def test_a_worker_remembers_no_text_beyond_its_turn(tell: Tell) -> None:
    texts: list[str] = []
    read = remembered(texts.append)
    for _ in range(2):
        read("a")
        tell(OLD)
    assert texts == ["a", "a"]


def test_only_a_doubtful_fact_is_settled(doubtful: Doubtful) -> None:
    facts, old, new = doubtful()
    with pytest.raises(ConflictError, match="not doubtful"):
        facts.settle(old.fact_id, "new")
    with pytest.raises(InvalidMessageError, match="'both'"):
        facts.settle(new.fact_id, "neither")  # type: ignore[arg-type]
    assert facts.settle(uuid4(), "new") is facts.settle("no id", "new") is None
    assert live(facts) == [NEW, OLD]
