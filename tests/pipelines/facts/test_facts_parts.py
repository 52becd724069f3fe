"""What people do to a part of a fact, in each derivation: it goes, the others stay, nothing comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from strandline import DatabaseBusyError, Facts
from strandline.pipelines.facts import decisions
from strandline.pipelines.facts.edits import apply_fact_events
from strandline.pipelines.generations.registry import find
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.switching import switch_owner
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.pipelines.facts.test_facts_tombstones import OWNER, derive_again, live, the
from tests.schemas.postgres.test_isolation import put_up
from tests.support.servers.model_server import ModelServer, RecordedRequest, answer_to
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

Tell = Callable[..., None]
TEA, COFFEE, BOTH = "Maren likes tea", "Maren likes coffee", "Maren likes tea and coffee"


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wordings of other facts' words, as a model makes them: what quotes is looked at here, not what may."""
    monkeypatch.setattr(decisions, "is_made_of", lambda *_: True)


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url, max_facts=1)


@pytest.fixture
def facts(database_url: str, settings: Settings) -> Facts:
    return Facts.for_owner(user_id="maren", database_url=database_url)


@pytest.fixture
def drain(database: Database, database_url: str, settings: Settings) -> Callable[[], None]:
    def drained() -> None:
        drain_everything(database, database_url, settings, (EXTRACT_STAGE, MERGE_STAGE))
        assert nothing_due(database_url)

    return drained


@pytest.fixture
def tell(make_memory: MakeMemory, drain: Callable[[], None]) -> Tell:
    """Say something in a session of the user ``maren``, and have it merged."""

    def told(session: str, *texts: str) -> None:
        say(make_memory(session, user_id="maren", memory_blocks=["facts"]), *texts)
        drain()

    return told


def live_in(url: str, generation_id: int) -> list[str]:
    rows = rows_of(
        url, "SELECT text FROM strandline.fact WHERE generation_id = %s AND live ORDER BY text", generation_id
    )
    return [text for (text,) in rows]


def answer(
    server: ModelServer,
    *,
    updates: Mapping[str, tuple[str, str]] | None = None,
    said_as: Mapping[str, str] | None = None,
    condensed: str | None = None,
) -> None:
    """Set the model's behaviour from now on.

    Args:
        updates: of a candidate, which known fact it changes and into what; other candidates are added.
        said_as: how it words what it finds in a message.
        condensed: what it condenses all facts into.
    """

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][1]["content"]
        answered = answer_to(prompt)
        if "<facts>" in prompt and condensed is not None and len(answered["kept"]) > 1:
            return json.dumps({"facts": [{"text": condensed, "merged": answered["kept"]}], "kept": []})
        if "<candidates>" in prompt:
            known = rows(prompt, "known")
            operations = [decided(n, text, known) for text, n in rows(prompt, "candidates").items()]
            return json.dumps({"operations": operations})
        for fact in answered.get("facts", []):
            fact["text"] = (said_as or {}).get(fact["text"], fact["text"])
        return json.dumps(answered)

    def rows(prompt: str, section: str) -> dict[str, int]:
        lines = prompt.rpartition(f"<{section}>\n")[2].partition(f"</{section}>")[0].splitlines()
        return {row["text"]: row["n"] for row in map(json.loads, lines)}

    def decided(number: int, text: str, known: Mapping[str, int]) -> dict[str, object]:
        if text in (updates or {}):
            changed, wording = (updates or {})[text]
            return {"op": "update", "candidate": number, "fact": known[changed], "text": wording}
        return {"op": "add", "candidate": number, "fact": None, "text": None}

    server.behave(responder=respond)


def condense(facts: Facts, tell: Tell, server: ModelServer, url: str) -> None:
    """Have both drinks condensed into one sentence, beside another fact."""
    answer(server)
    tell("s", TEA)
    tell("t", COFFEE)
    answer(server, condensed=BOTH)
    rows_of(url, "DELETE FROM strandline.condensation RETURNING 1")
    tell("u", "Lars rows")
    answer(server)
    assert live(facts) == ["Lars rows", BOTH]


def test_deleting_a_part_that_was_condensed_meanwhile_leaves_the_other_part(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    condense(facts, tell, rig.model, rig.url)
    assert facts.delete(_part(facts, TEA))
    assert live(facts) == ["Lars rows", COFFEE]
    assert verify(rig.database, deep=True).violations == ()


def _part(facts: Facts, text: str) -> UUID:
    (part,) = (fact for fact in facts.list(with_invalidated=True) if fact.text == text)
    assert not part.is_live
    return part.fact_id


def test_a_deletion_takes_its_part_of_what_another_derivation_condensed(
    rig: Rig, tell: Tell, drain: Callable[[], None], facts: Facts
) -> None:
    condense(facts, tell, rig.model, rig.url)
    answer(rig.model, said_as={TEA: "Tea: Maren likes it", COFFEE: "Coffee: Maren likes it"})
    other = derive_again(rig.database, rig.url, OWNER)
    drain()
    assert live_in(rig.url, other) == ["Coffee: Maren likes it", "Lars rows", "Tea: Maren likes it"]
    switch_serving(rig.url, other)
    assert facts.delete(the(facts, "Tea"))
    first = first_generation(rig.url)
    assert live_in(rig.url, first) == ["Lars rows", COFFEE]
    assert verify(rig.database, deep=True).violations == ()


def test_a_correction_takes_the_place_of_its_part_of_what_another_derivation_condensed(
    rig: Rig, tell: Tell, drain: Callable[[], None], facts: Facts
) -> None:
    condense(facts, tell, rig.model, rig.url)
    answer(rig.model, said_as={TEA: "Tea: Maren likes it", COFFEE: "Coffee: Maren likes it"})
    other = derive_again(rig.database, rig.url, OWNER)
    drain()
    switch_serving(rig.url, other)
    assert facts.replace(the(facts, "Tea"), "Maren likes water")
    assert live_in(rig.url, first_generation(rig.url)) == ["Lars rows", COFFEE, "Maren likes water"]
    assert verify(rig.database, deep=True).violations == ()


def test_a_part_of_what_a_person_worded_anew_goes_by_itself(rig: Rig, tell: Tell, facts: Facts) -> None:
    condense(facts, tell, rig.model, rig.url)
    assert facts.replace(the(facts, BOTH), "Maren drinks water")
    assert facts.delete(_part(facts, TEA))
    assert live(facts) == ["Lars rows", "Maren drinks water"]
    assert verify(rig.database, deep=True).violations == ()


def test_a_source_of_the_condensed_sentence_itself_outlives_its_part(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    condense(facts, tell, rig.model, rig.url)
    answer(rig.model)
    tell("v", BOTH)
    assert facts.delete(_part(facts, TEA))
    assert live(facts) == ["Lars rows", COFFEE, BOTH], "session v said it itself"
    assert verify(rig.database, deep=True).violations == ()


def test_a_deletion_of_a_fact_that_a_person_began_takes_what_was_added_to_it_elsewhere(
    rig: Rig, tell: Tell, drain: Callable[[], None], facts: Facts
) -> None:
    """The person's fact has one id everywhere; what a merge added to it stands alone elsewhere."""
    answer(rig.model)
    tell("s", "Lars rows")
    own = facts.add("Maren has a cat").fact_id
    answer(rig.model, updates={"the cat of Maren is grey": ("Maren has a cat", "Maren has a grey cat")})
    tell("t", "the cat of Maren is grey")
    assert live(facts) == ["Lars rows", "Maren has a grey cat"]
    answer(rig.model)
    other = derive_again(rig.database, rig.url, OWNER)
    drain()
    assert live_in(rig.url, other) == ["Lars rows", "Maren has a cat", "the cat of Maren is grey"]
    assert facts.delete(own)
    assert live_in(rig.url, other) == ["Lars rows"]
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.usefixtures("unchecked")
def test_what_a_person_replaced_is_not_given_back_in_other_words_by_a_forgetting_reset(
    rig: Rig, tell: Tell, drain: Callable[[], None], facts: Facts
) -> None:
    """Another derivation words it otherwise, as an addition to a fact, and quotes what is forgotten."""
    answer(rig.model, updates={"my boat is small": ("my boat is loud", "my boat is loud, and small as Otto")})
    tell("base", "my boat is loud")
    tell("one", "Otto is a cat")
    tell("two", "my boat is small")
    first = first_generation(rig.url)
    answer(rig.model, said_as={"my boat is small": "Small is my boat", "my boat is loud, says Otto": "Loud"})
    other = derive_again(rig.database, rig.url, OWNER)
    drain()
    switch_serving(rig.url, other)
    assert live(facts) == ["Otto is a cat", "Small is my boat", "my boat is loud"]
    assert facts.replace(the(facts, "Small"), "my tea is green")
    assert live_in(rig.url, first) == ["Otto is a cat", "my tea is green"]
    rig.memory("one", user_id="maren").reset(derived=True)
    assert live_in(rig.url, first) == ["my tea is green"]
    assert live(facts) == ["my boat is loud", "my tea is green"]
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.usefixtures("unchecked")
def test_a_fact_can_lose_an_addition_to_a_forgetting_reset_again_and_again(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    """Each leaves the number of the revision free for the next one."""
    answer(rig.model)
    tell("base", "my boat is blue")
    for n, cat in enumerate(("Otto", "Emil"), 1):
        said, session = f"my boat has sail {n}", f"quoted-{n}"
        answer(rig.model)
        tell(session, f"{cat} is a cat")
        answer(rig.model, updates={said: ("my boat is blue", f"my boat is blue, and {cat} likes sail {n}")})
        tell("adding", said)
        rig.memory(session, user_id="maren").reset(derived=True)
        assert said in live(facts) and cat not in "".join(live(facts))
    assert live(facts) == ["my boat has sail 1", "my boat has sail 2", "my boat is blue"]
    assert verify(rig.database, deep=True).violations == ()


def test_words_of_a_person_that_a_merge_went_on_with_elsewhere_are_not_written_there_twice(
    rig: Rig, tell: Tell, drain: Callable[[], None], facts: Facts
) -> None:
    """Before a derivation serves, all that people did is applied to it once more."""
    answer(rig.model)
    tell("s", "my cat is grey")
    other = derive_again(rig.database, rig.url, OWNER)
    drain()
    assert facts.replace(the(facts, "cat"), "my boat is red")
    answer(rig.model, updates={"my boat is small": ("my boat is red", "my boat is red and small")})
    tell("t", "my boat is small")
    assert live_in(rig.url, other) == ["my boat is red and small"]
    with rig.database.transaction() as tx:
        tx.run(apply_fact_events(OWNER, other))
    assert live_in(rig.url, other) == ["my boat is red and small"]
    assert verify(rig.database, deep=True).violations == ()


def test_edits_and_replays_that_find_a_new_derivation_do_not_wait_for_each_other(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    """The edit waits behind another one while the derivation is begun, and is the first to see its lane."""
    answer(rig.model)
    tell("s", "my cat is grey")
    waiting = (
        "SELECT count(*)::int FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    def wait_for(number: int) -> None:
        wait_until(lambda: rows_of(rig.url, waiting) == [(number,)], timeout=60, what="locks")

    with ThreadPoolExecutor(2) as threads, psycopg.connect(rig.url) as other:
        other.execute("SELECT FROM strandline.lane WHERE stage = 'merge' FOR UPDATE")
        added = threads.submit(facts.add, "Lars rows")
        wait_for(1)
        generation = find(rig.database, derive_again(rig.database, rig.url))
        assert generation is not None
        switched = threads.submit(switch_owner, rig.database, generation, OWNER)
        wait_for(2)
        other.rollback()
        assert added.result(300).text == "Lars rows"
        assert not switched.result(300), "it has derived nothing yet"
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert rows_of(rig.url, deadlocks) == [(0,)]


async def test_an_edit_that_was_rolled_back_for_another_is_done_again_and_once(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    answer(rig.model)
    tell("s", "my cat is grey")
    put_up(rig.url, "40P01", times=2, moment="INSERT ON strandline.fact_event")
    assert facts.add("Maren rows").text == "Maren rows"
    rows_of(rig.url, "SELECT setval('hurdle', 1, false)")

    assert (await facts.aadd("Lars rows")).text == "Lars rows"
    assert rows_of(rig.url, "SELECT number FROM strandline.fact_event ORDER BY number") == [(1,), (2,)]
    rows_of(rig.url, "SELECT setval('hurdle', -1000, false)")
    with pytest.raises(DatabaseBusyError, match="another transaction"):
        facts.add("Nils rows")
    assert live(facts) == ["Lars rows", "Maren rows", "my cat is grey"]


def first_generation(url: str) -> int:
    ((generation_id,),) = rows_of(
        url, "SELECT min(generation_id) FROM strandline.generation WHERE pipeline = 'facts'"
    )
    assert isinstance(generation_id, int)
    return generation_id


def switch_serving(url: str, generation_id: int) -> None:
    """Have another generation serve; the one before is kept."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE strandline.generation SET state = 'feeding'"
            " WHERE pipeline = 'facts' AND state = 'serving'"
        )
        connection.execute(
            "UPDATE strandline.generation SET state = 'serving' WHERE generation_id = %s", (generation_id,)
        )
