"""Facts as hits of a search: found beside messages, with where they come from, and never once they ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import pytest

from strandline import ConfigurationError, FactExtractionMemoryBlock, Memory, VectorMemoryBlock
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.search import FoundMessage
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.opened_rows import clear_only
from tests.support.workers.draining import drain_everything

Remember = Callable[..., Memory]

FACTS: list[Any] = ["fact"]
BOTH: list[Any] = ["message", "fact"]
BERGEN = "I live in Bergen with my sister Ida."
BEES = "My hobby is keeping bees on the roof."
CHATTER = ("Good morning to you.", "The weather is fine today.", "I see, tell me more.")


@pytest.fixture
def remember(make_memory: MakeMemory, database: Database, database_url: str) -> Remember:
    """Puts what a user says, each answered with chatter, flushes, and derives facts and vectors of it."""
    local = load_settings(database_url=database_url, embedding_backend="local", text_backend="local")

    def put(session_id: str, texts: Sequence[str], **options: Any) -> Memory:
        options.setdefault("memory_blocks", ["facts", "vectors"])
        options.setdefault("user_id", "maren")
        memory = make_memory(session_id, **options)
        for at, text in enumerate(texts):
            memory.put({"role": "user", "content": text})
            memory.put({"role": "assistant", "content": CHATTER[at % len(CHATTER)]})
        memory.flush(all=True)
        drain_everything(database, database_url, local)
        return memory

    return put


def found(memory: Memory, query: str, **options: Any) -> list[str]:
    return [hit.text for hit in memory.search(query, kinds=FACTS, **options)]


def test_a_fact_is_found_with_where_it_comes_from(remember: Remember) -> None:
    memory = remember("s", [BERGEN, BEES])
    hits = memory.search("Who lives in Bergen?", kinds=BOTH)
    assert {hit.kind for hit in hits} == {"message", "fact"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    (said,) = (hit for hit in hits if isinstance(hit, FoundMessage) and hit.text == BERGEN)
    fact = next(hit for hit in hits if isinstance(hit, FoundFact))
    assert "Bergen" in fact.text
    assert said.message.id in fact.fact.message_ids
    assert memory.facts.get(fact.fact.fact_id) == fact.fact
    # By meaning, a fact is as near as the message that it comes from.
    assert fact.similarity == said.similarity
    assert all(0 < hit.score <= 1 for hit in hits)


def test_of_equal_facts_the_last_said_comes_first(remember: Remember) -> None:
    """In the database, and by the index that a process has after its first searches."""
    memory = remember("s", [BEES])
    cities = ["Porto", "Lisbon", "Rome", "Oslo", "Bergen", "Paris"]
    for city in cities:
        memory.facts.add(f"Maren lives in {city}.")
    newest_first = [f"Maren lives in {city}." for city in reversed(cities)]
    query = "Where does Maren live?"
    assert [hit.text for hit in memory.facts.search(query, limit=6)] == newest_first
    for _ in range(3):
        assert found(memory, query, scope="owner", limit=6) == newest_first
        memory.get(query)


def test_messages_alone_are_found_where_nothing_else_is_asked_for(remember: Remember) -> None:
    memory = remember("s", [BERGEN, BEES])
    alone = memory.search("Who lives in Bergen?")
    assert alone
    assert all(isinstance(hit, FoundMessage) for hit in alone)
    assert memory.search("Who lives in Bergen?", kinds=["message"]) == alone
    assert all(hit.kind == "fact" for hit in memory.search("bees", kinds=FACTS))


def test_what_people_do_to_facts_shows_at_once(remember: Remember) -> None:
    memory = remember("s", [BERGEN])
    added = memory.facts.add("Maren plays the cello.")
    assert found(memory, "cello", scope="owner")[0] == "Maren plays the cello."
    memory.facts.replace(added.fact_id, "Maren plays the viola.")
    assert "Maren plays the cello." not in found(memory, "cello viola", scope="owner")
    assert found(memory, "viola", scope="owner")[0] == "Maren plays the viola."
    memory.facts.delete(added.fact_id)
    assert "Maren plays the viola." not in found(memory, "viola", scope="owner")
    memory.facts.clear()
    assert found(memory, "Bergen sister Ida viola", scope="owner") == []
    assert memory.search("Bergen", kinds=BOTH)  # what was said is still there


@clear_only("changes a fact by SQL, by its text")
def test_a_fact_that_ended_is_not_found(remember: Remember, database_url: str) -> None:
    memory = remember("s", [BERGEN, BEES])
    ended = found(memory, "Bergen sister Ida", limit=1)
    rows_of(
        database_url,
        "UPDATE strandline.fact SET live = false, invalidated_at = now() WHERE text = %s RETURNING 1",
        *ended,
    )
    assert ended[0] not in found(memory, "Bergen sister Ida")
    assert found(memory, "bees on the roof")
    memory.reset(derived=True)
    assert found(memory, "bees on the roof", scope="owner") == []


def test_facts_of_a_session_and_of_its_owner(remember: Remember) -> None:
    first, second = remember("first", [BERGEN]), remember("second", [BEES])
    second.facts.add("Maren plays the cello.")
    query = "Bergen sister bees roof cello"
    assert all("Bergen" in text for text in found(first, query))
    assert all("bees" in text for text in found(second, query))
    assert len(found(first, query)) < len(found(first, query, scope="owner"))
    assert "Maren plays the cello." in found(first, query, scope="owner")
    others = found(first, query, scope="owner", exclude_current=True)
    assert any("bees" in text for text in others) and not any("Bergen" in text for text in others)


def test_nobody_elses_facts_are_found(remember: Remember) -> None:
    remember("of-lars", [BERGEN], user_id="lars")
    remember("elsewhere", [BERGEN], namespace="south")
    memory = remember("of-maren", [BEES])
    assert not any("Bergen" in text for text in found(memory, "Bergen sister Ida", scope="owner"))


def section(memory: Memory, query: str, name: str = "vector_memory") -> str:
    text = memory.get(query)[0].text
    return text.partition(f"<{name}>")[2].partition(f"</{name}>")[0]


def test_a_block_shows_no_fact_that_a_facts_block_was_given(
    remember: Remember, make_memory: MakeMemory
) -> None:
    remember("s", [BERGEN, BEES])
    searching = VectorMemoryBlock(kinds=FACTS, similarity_top_k=5)
    alone = make_memory("s", user_id="maren", memory_blocks=[searching])
    assert "<fact>" in section(alone, "Who lives in Bergen?")
    beside = make_memory("s", user_id="maren", memory_blocks=[FactExtractionMemoryBlock(), searching])
    shown = beside.get("Who lives in Bergen?")[0].text
    assert "Bergen" in shown and "vector_memory" not in shown
    few = make_memory("s", user_id="maren", memory_blocks=[FactExtractionMemoryBlock(max_facts=1), searching])
    shown = few.get("Bergen and bees")[0].text
    facts = [line for line in shown.splitlines() if line.startswith("<fact>")]
    assert len(facts) == len(set(facts)) > 1


def test_a_fact_whose_messages_are_still_shown_is_not_found(rig: Rig, remember: Remember) -> None:
    block = VectorMemoryBlock(kinds=BOTH, similarity_top_k=5)
    memory = remember("s", [BERGEN], memory_blocks=["facts", block])
    reading = rig.memory("s", user_id="maren", memory_blocks=[block])
    assert "<fact>" in section(reading, "Bergen")
    excluding = VectorMemoryBlock(kinds=BOTH, scope="owner", exclude_current=True, similarity_top_k=5)
    assert "Bergen" not in str(rig.memory("s", user_id="maren", memory_blocks=[excluding]).get("Bergen"))
    assert memory.search("Bergen", kinds=BOTH)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kinds": ["summary"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"kinds": "fact"}, "kinds"),
        ({"exclude_current": True}, "exclude_current"),
        ({"exclude_current": "yes", "scope": "owner"}, "exclude_current"),
        ({"scope": "shared", "kinds": ["fact"]}, "never shared"),
        ({"scope": "shared"}, "shared_scope"),
    ],
)
def test_search_arguments_that_do_not_go_together_are_refused(
    make_memory: MakeMemory, wrong: Any, named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        make_memory("s").search("x", **wrong)
    if wrong != {"scope": "shared"}:
        with pytest.raises(ConfigurationError, match=named):
            VectorMemoryBlock(**wrong)


def ranking(hits: Sequence[Any]) -> list[tuple[Any, float, float | None]]:
    return [(hit.fact.fact_id, hit.score, hit.similarity) for hit in hits]


def test_facts_rank_alike_in_both_searches(remember: Remember) -> None:
    """On the shipped conversation and its questions: the same facts, scores and similarities."""
    folder = resources.files("strandline") / "samples"
    lines = (folder / "conversation.jsonl").read_text(encoding="utf-8").splitlines()
    asked = json.loads((folder / "conversation.qa.json").read_text(encoding="utf-8"))
    memory = remember("s", [json.loads(line)["content"] for line in lines[:60]])
    memory.facts.add("The harbour master keeps the spare key.")
    compared = 0
    for question in [one["question"] for one in asked] + ["Who keeps the spare key?"]:
        found_alone = ranking(memory.facts.search(question, limit=20))
        assert found_alone == ranking(memory.search(question, kinds=FACTS, scope="owner", limit=20))
        compared += len(found_alone)
    assert compared > len(asked)


def test_facts_of_an_owner_without_messages_to_search_are_ranked_by_rare_words(
    make_memory: MakeMemory,
) -> None:
    memory = make_memory("s", user_id="maren", memory_blocks=["facts"])
    for text in ("Maren sails the boat on Sunday", "Maren paints the boat", "Maren rows the heron boat"):
        memory.facts.add(text)
    assert memory.facts.search("boat heron", limit=1)[0].text == "Maren rows the heron boat"
    best, *others = memory.facts.search("boat heron")
    assert all(other.score < best.score / 2 for other in others)
    found_beside = memory.search("boat heron", kinds=FACTS, scope="owner")
    assert ranking(found_beside) == ranking([best, *others])
