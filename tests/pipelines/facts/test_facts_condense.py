"""Condensing: many facts become fewer, with all their sources, and nothing is lost by accident."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from strandline import FactExtractionMemoryBlock, Facts
from strandline.pipelines.facts.condense import MAX_SHOWN_FACTS
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of
from tests.support.opened_rows import clear_only
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.stored import dead_letters
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import HandWorker, say

FACTS_STAGES = (EXTRACT_STAGE, MERGE_STAGE)
DRINKS = ("Maren likes tea", "Maren likes coffee", "Maren likes cocoa")
LIKES = "Maren likes tea, coffee and cocoa"
OTHERS = ("Lars lives in Husum", "Inga owns 2 boats")

Groups = Callable[[dict[str, int]], list[tuple[str, list[str]]]]


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Condense above four facts."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url, max_facts=4)


@pytest.fixture
def facts(database_url: str, settings: Settings) -> Facts:
    return Facts.for_owner(user_id="maren", database_url=database_url)


@pytest.fixture
def tell(
    make_memory: MakeMemory, database: Database, database_url: str, settings: Settings
) -> Callable[..., None]:
    def told(*texts: str, session: str = "s") -> None:
        say(make_memory(session, user_id="maren", memory_blocks=["facts"]), *texts)
        drain_everything(database, database_url, settings, FACTS_STAGES)
        assert nothing_due(database_url)

    return told


def condense_into(server: ModelServer, *groups: tuple[str, tuple[str, ...]], forget: int = 0) -> list[str]:
    """Answer condensing by text; ``forget`` leaves so many facts out.  Returns the prompts."""
    seen: list[str] = []

    def respond(request: RecordedRequest) -> str | None:
        # The second message, also where a repair is asked for: the answer does not get better.
        prompt = request.body["messages"][1]["content"]
        if "<facts>" not in prompt:
            return None
        seen.append(prompt)
        section = prompt.rpartition("<facts>\n")[2].partition("</facts>")[0]
        numbers = {row["text"]: row["n"] for row in map(json.loads, section.splitlines())}
        wanted = [(text, parts) for text, parts in groups if set(parts) <= set(numbers)]
        merged = [{"text": text, "merged": [numbers[part] for part in parts]} for text, parts in wanted]
        gone = {part for _text, parts in wanted for part in parts}
        kept = [number for text, number in numbers.items() if text not in gone]
        return json.dumps({"facts": merged, "kept": kept[forget:]})

    server.behave(responder=respond)
    return seen


def live(facts: Facts) -> list[str]:
    return sorted(fact.text for fact in facts.list())


def attempts(url: str) -> list[tuple[str, int, int]]:
    return rows_of(
        url, "SELECT outcome, facts_before, facts_after FROM strandline.condensation ORDER BY created_at"
    )


def forget_attempts(url: str) -> None:
    """As if none had been made, so that the next merge condenses."""
    rows_of(url, "DELETE FROM strandline.condensation RETURNING 1")


def test_facts_above_the_limit_are_condensed_with_all_their_sources(
    rig: Rig, tell: Callable[..., None], facts: Facts
) -> None:
    prompts = condense_into(rig.model, (LIKES, DRINKS))
    tell(*DRINKS[:2])
    tell(DRINKS[2], *OTHERS, session="t")
    assert not prompts, "there were never more than four before a merge"
    before = {fact.text: fact for fact in facts.list()}
    tell("Maren rows", session="t")
    assert len(prompts) == 1
    assert live(facts) == sorted([LIKES, *OTHERS, "Maren rows"])
    (condensed,) = facts.list(contains=LIKES)
    parts = [fact for fact in facts.list(with_invalidated=True) if fact.condensed_into == condensed.fact_id]
    assert sorted(part.text for part in parts) == sorted(DRINKS)
    assert all(part.invalidated_at is None and part.valid_until is None for part in parts), "still true"
    assert condensed.message_ids == tuple(before[text].message_ids[0] for text in DRINKS)
    assert {revision.operation for revision in condensed.revisions} == {"condense"}
    assert condensed.valid_from == min(before[text].said_at for text in DRINKS)
    assert condensed.said_at == max(before[text].said_at for text in DRINKS)
    assert condensed.topics == ("maren",), "what all of them are about"
    assert attempts(rig.url) == [("applied", 5, 4)]
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize(
    ("groups", "forget"),
    [
        ([(LIKES, DRINKS)], 1),
        ([], 5),
        ([("Maren is nice", DRINKS)], 0),
        ([("Lars lives in Husum, Inga owns boats", OTHERS)], 0),
    ],
    ids=["forgets-one", "returns-nothing", "says-nothing", "drops-a-number"],
)
def test_an_answer_that_would_lose_facts_is_refused_and_the_facts_stay(
    rig: Rig, groups: list[tuple[str, tuple[str, ...]]], forget: int, tell: Callable[..., None], facts: Facts
) -> None:
    tell(*DRINKS, *OTHERS)
    condense_into(rig.model, *groups, forget=forget)
    tell("Maren rows")
    assert live(facts) == sorted([*DRINKS, *OTHERS, "Maren rows"])
    assert attempts(rig.url) == [("refused", 5, 6)]
    ((reason,),) = rows_of(rig.url, "SELECT reason FROM strandline.condensation")
    assert reason and "Maren" not in reason
    assert dead_letters(rig.url) == 0
    assert verify(rig.database, deep=True).violations == ()


def test_a_model_that_refuses_to_condense_holds_no_merge_up(
    rig: Rig, tell: Callable[..., None], facts: Facts
) -> None:
    tell(*DRINKS, *OTHERS)

    def refuse(request: RecordedRequest) -> Raw | None:
        said = request.body["messages"][-1]["content"]
        is_condensing = "<facts>" in said and DRINKS[0] in said  # a probe has no facts of hers
        return Raw(400, b'{"error": {"message": "no such words"}}') if is_condensing else None

    rig.model.behave(responder=refuse)
    tell("Maren rows")
    assert "Maren rows" in live(facts)
    assert attempts(rig.url) == [("refused", 5, 6)]


def test_a_blocks_limit_reaches_the_workers(rig: Rig, facts: Facts) -> None:
    """The limit of a session's block applies to batches with that session's messages, up to the setting."""
    workers = rig.settings.model_copy(update={"max_facts": 6})

    def tell(session: str, max_facts: int, *texts: str) -> None:
        block = FactExtractionMemoryBlock(max_facts=max_facts)
        say(rig.memory(session, user_id="maren", memory_blocks=[block]), *texts)
        drain_everything(rig.database, rig.url, workers, FACTS_STAGES)

    prompts = condense_into(rig.model, (LIKES, DRINKS))
    tell("wide", 5, *DRINKS, *OTHERS)
    tell("wide", 5, "Maren rows")
    assert not prompts, "five facts are not more than five"
    tell("narrow", 3, "Maren sails")
    assert len(prompts) == 1 and "At most 3 facts are wanted" in prompts[0]
    assert live(facts) == sorted([LIKES, *OTHERS, "Maren rows", "Maren sails"])
    tell("as the workers say", 500, "Maren skis", "Maren climbs", "Maren dives", "Maren swims")
    tell("as the workers say", 500, "Maren dances")
    assert len(prompts) == 2 and "At most 6 facts are wanted" in prompts[1]
    assert verify(rig.database, deep=True).violations == ()


def test_facts_that_cannot_be_condensed_are_not_tried_with_each_merge(
    rig: Rig, tell: Callable[..., None]
) -> None:
    prompts = condense_into(rig.model)
    tell(*DRINKS, *OTHERS)
    for number in range(4):
        tell(f"Maren has walked {number} miles")
    assert attempts(rig.url) == [("unchanged", 5, 6), ("unchanged", 9, 9)][: len(prompts)]
    assert 1 <= len(prompts) <= 2


def test_what_people_worded_or_judged_is_not_condensed(
    rig: Rig, tell: Callable[..., None], facts: Facts
) -> None:
    tell(*DRINKS, *OTHERS)
    facts.feedback(facts.list(contains="coffee")[0].fact_id, "good")
    facts.add("Maren likes water")
    prompts = condense_into(rig.model, ("Maren likes tea and cocoa", (DRINKS[0], DRINKS[2])))
    tell("Maren rows")
    (prompt,) = prompts
    assert "coffee" not in prompt and "water" not in prompt
    assert {"Maren likes coffee", "Maren likes water", "Maren likes tea and cocoa"} <= set(live(facts))
    assert verify(rig.database, deep=True).violations == ()


def test_a_person_is_quicker_than_the_model(rig: Rig, tell: Callable[..., None], facts: Facts) -> None:
    tell(*DRINKS, *OTHERS)
    condense_into(rig.model, (LIKES, DRINKS))
    stages = prepare_stages(rig.database, rig.settings, FACTS_STAGES)
    say(rig.memory("s", user_id="maren", memory_blocks=["facts"]), "Maren rows")
    HandWorker(rig.database, stages).drain_all(rig.url)
    done: list[bool] = []

    def delete(point: str) -> None:
        if point == "stored" and not done:
            done.append(facts.delete(facts.list(contains="tea")[0].fact_id))

    assert HandWorker(rig.database, stages, reach=delete).drain_all(rig.url) == ["drained"]
    assert done == [True]
    assert live(facts) == sorted([*DRINKS[1:], *OTHERS, "Maren rows"])
    assert attempts(rig.url) == [("refused", 5, 5)]
    assert verify(rig.database, deep=True).violations == ()


def test_deleting_a_condensed_fact_deletes_what_it_was_made_of(
    rig: Rig, tell: Callable[..., None], facts: Facts
) -> None:
    tell(*DRINKS, *OTHERS)
    condense_into(rig.model, (LIKES, DRINKS))
    tell("Maren rows")
    rig.model.behave()
    assert facts.delete(facts.list(contains=LIKES)[0].fact_id)
    assert sorted(fact.text for fact in facts.list(with_invalidated=True)) == sorted([*OTHERS, "Maren rows"])
    assert verify(rig.database, deep=True).violations == ()


def test_a_forgetful_reset_takes_a_condensed_fact_apart(
    rig: Rig, tell: Callable[..., None], facts: Facts
) -> None:
    tell(*DRINKS[:2])
    tell(DRINKS[2], *OTHERS, session="t")
    condense_into(rig.model, (LIKES, DRINKS))
    tell("Maren rows", session="t")
    rig.model.behave()
    rig.memory("s", user_id="maren").reset(derived=True)
    assert live(facts) == sorted([DRINKS[2], *OTHERS, "Maren rows"])
    assert "tea" not in "".join(fact.text for fact in facts.list(with_invalidated=True))
    assert verify(rig.database, deep=True).violations == ()


def test_of_many_facts_those_that_belong_together_are_shown(rig: Rig, tell: Callable[..., None]) -> None:
    words = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(3 * (MAX_SHOWN_FACTS + 20))]
    alone = [" ".join(words[n : n + 3]) for n in range(0, len(words), 3)]
    tell(*alone[:60])
    tell("the harbour has a crane", *alone[60:], "the crane of the harbour is red")
    prompts = condense_into(rig.model)
    forget_attempts(rig.url)
    tell("Maren rows")
    assert "harbour has a crane" in prompts[-1] and "crane of the harbour" in prompts[-1]
    assert prompts[-1].count('"n":') == MAX_SHOWN_FACTS


@clear_only("changes stored texts by SQL")
def test_without_a_model_only_repetitions_are_condensed(rig: Rig) -> None:
    settings = load_settings(
        database_url=rig.url, text_backend="local", embedding_backend="local", max_facts=2
    )
    said = (
        "I live in Bergen with my two cats.",
        "My sister Inga works at the harbour.",
        "I bought a boat in May.",
        "I moved to Oslo with my dog.",
    )
    memory = rig.memory("s", user_id="maren", memory_blocks=["facts"])
    for text in said:
        say(memory, text)
        drain_everything(rig.database, rig.url, settings, FACTS_STAGES)
    assert len(memory.facts.list()) == 4
    # Facts that came in beside each other, so that no merge compared them.
    rows_of(
        rig.url,
        "UPDATE strandline.fact SET text = 'User: I live in Bergen with my 2 cats.' WHERE text LIKE %s"
        " RETURNING 1",
        "%boat%",
    )
    rows_of(
        rig.url,
        "UPDATE strandline.fact SET text = 'User: I live in Bergen, with my 2 cats!' WHERE text LIKE %s"
        " RETURNING 1",
        "%Inga%",
    )
    forget_attempts(rig.url)
    say(memory, "My brother Lars teaches in Husum.")
    drain_everything(rig.database, rig.url, settings, FACTS_STAGES)
    texts = [fact.text for fact in memory.facts.list()]
    assert len(texts) == 4 and sum("2 cats" in text for text in texts) == 1


def test_what_others_said_of_a_condensed_fact_outlives_a_source_that_is_forgotten(
    rig: Rig, tell: Callable[..., None], facts: Facts
) -> None:
    condense_into(rig.model, (LIKES, DRINKS))
    tell(*DRINKS[:2])
    tell(DRINKS[2], *OTHERS, session="t")
    tell("Maren rows", session="t")
    rig.model.behave()
    tell(LIKES, session="u")
    assert [r.operation for r in facts.list(contains=LIKES)[0].revisions] == ["condense"] * 3 + ["duplicate"]
    rig.memory("s", user_id="maren").reset(derived=True)
    assert LIKES in live(facts), "session u said so itself"
    assert verify(rig.database, deep=True).violations == ()


def test_a_correction_of_a_condensed_fact_outlives_a_source_that_is_forgotten(
    rig: Rig, tell: Callable[..., None], facts: Facts
) -> None:
    condense_into(rig.model, (LIKES, DRINKS))
    tell(*DRINKS[:2])
    tell(DRINKS[2], *OTHERS, session="t")
    tell("Maren rows", session="t")
    rig.model.behave()
    assert facts.replace(facts.list(contains=LIKES)[0].fact_id, "Maren drinks water")
    rig.memory("s", user_id="maren").reset(derived=True)
    assert live(facts) == sorted(["Maren drinks water", *OTHERS, "Maren rows"]), "the parts stay corrected"
    assert verify(rig.database, deep=True).violations == ()
