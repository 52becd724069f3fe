"""Optimizing: a preview with tokens before and after, applied whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from strandline import ConflictError, Facts, InvalidMessageError
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.errors import PermanentModelError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from tests.conftest import Rig, rows_of
from tests.producers.facts.conftest import Derive
from tests.support.servers.model_server import ModelServer, RecordedRequest

TEA = "I like green tea from Japan."
COFFEE = "I like black coffee from Peru."
BEES = "I keep 12 bees."
BOTH = "I like green tea from Japan and black coffee from Peru."


@pytest.fixture
def facts(model_settings: Settings, database: Database, database_url: str, derive: Derive) -> Iterator[Facts]:
    facts = Facts.for_owner(user_id="ana", database_url=database_url)
    facts.create_from([{"role": "user", "content": text} for text in (TEA, COFFEE, BEES)])
    derive()
    yield facts
    facts.close()


def texts(facts: Any) -> set[str]:
    return {fact.text for fact in facts.list()}


def merging(server: ModelServer, sentence: str = BOTH) -> None:
    """Answers every request to condense with one sentence for the two tastes."""

    def respond(request: RecordedRequest) -> str | None:
        data = str(request.body["messages"][-1]["content"])
        if "facts are wanted in all" not in data:
            return None
        rows = [json.loads(line) for line in data.splitlines() if line.startswith("{")]
        merged = [row["n"] for row in rows if row["text"] in (TEA, COFFEE)]
        kept = [row["n"] for row in rows if row["n"] not in merged]
        return json.dumps(
            {"facts": [{"text": sentence, "merged": merged, "topics": ["taste"]}], "kept": kept}
        )

    server.behave(responder=respond)


def test_a_preview_changes_nothing_and_its_application_does_what_it_said(
    rig: Rig, facts: Facts, derive: Derive
) -> None:
    merging(rig.model)
    preview = facts.optimize()
    assert texts(facts) == {TEA, COFFEE, BEES}
    (one,) = preview.merged
    assert (one.text, set(one.parts)) == (BOTH, {TEA, COFFEE})
    assert (preview.facts_before, preview.facts_after) == (3, 2)
    assert 0 < preview.tokens_after < preview.tokens_before
    facts.apply_optimization(preview)
    assert texts(facts) == {BOTH, BEES}
    assert facts.optimize().tokens_before == preview.tokens_after
    (merged,) = [fact for fact in facts.list() if fact.text == BOTH]
    assert set(merged.message_ids) == {"1", "2"}, "it has the sources of its parts"
    assert verify(rig.database, deep=True).violations == ()
    outcomes = rows_of(rig.url, "SELECT outcome, facts_before, facts_after FROM strandline.condensation")
    assert outcomes == [("applied", 3, 2)]
    with pytest.raises(ConflictError):
        facts.apply_optimization(preview)
    assert texts(facts) == {BOTH, BEES}


def test_a_clearing_takes_the_sentence_and_its_parts_away(rig: Rig, facts: Facts, derive: Derive) -> None:
    merging(rig.model)
    facts.apply_optimization(facts.optimize())
    facts.clear()
    derive()
    assert texts(facts) == set()
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("change", ["replace", "delete", "add", "feedback", "merge"])
def test_whatever_changed_since_the_preview_keeps_it_from_being_applied(
    rig: Rig, facts: Facts, derive: Derive, change: str
) -> None:
    merging(rig.model)
    preview = facts.optimize()
    tea = next(fact for fact in facts.list() if fact.text == TEA)
    if change == "replace":
        facts.replace(tea.fact_id, "I like no tea.")
    elif change == "delete":
        facts.delete(tea.fact_id)
    elif change == "add":
        facts.add("I like water.")
    elif change == "feedback":
        facts.feedback(tea.fact_id, "right")
    else:
        facts.create_from([{"role": "user", "content": "I have a dog."}])
        derive()
    before = texts(facts)
    with pytest.raises(ConflictError, match="changed since"):
        facts.apply_optimization(preview)
    assert texts(facts) == before
    assert verify(rig.database, deep=True).violations == ()


def test_a_sentence_that_loses_something_is_not_proposed(facts: Facts, model_server: ModelServer) -> None:
    merging(model_server, "I like drinks.")
    preview = facts.optimize()
    assert preview.merged == () and preview.tokens_after == preview.tokens_before
    model_server.behave(responder=lambda _request: '{"facts": [], "kept": [1]}')
    with pytest.raises(PermanentModelError):
        facts.optimize()
    assert texts(facts) == {TEA, COFFEE, BEES}


def test_facts_of_people_stay_and_nothing_is_asked_where_nothing_can_be_merged(
    rig: Rig, facts: Facts
) -> None:
    other = Facts.for_owner(user_id="ben", database_url=rig.url)
    other.add(TEA)
    other.add(COFFEE)
    asked = len(rig.model.requests)
    preview = other.optimize()
    assert (preview.merged, preview.facts_before, preview.model) == ((), 2, "")
    assert len(rig.model.requests) == asked
    with pytest.raises(InvalidMessageError):
        facts.apply_optimization(preview)
    with pytest.raises(InvalidMessageError):
        facts.apply_optimization(None)  # type: ignore[arg-type]
    other.close()


async def test_the_async_twins_do_the_same(facts: Facts, model_server: ModelServer) -> None:
    merging(model_server)

    await facts.aapply_optimization(await facts.aoptimize())
    assert {fact.text for fact in await facts.alist()} == {BOTH, BEES}
    await facts.aclose()
