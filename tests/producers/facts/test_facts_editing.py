"""People's edits of facts: seen at once, kept as an event, and without effect on other owners' facts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from strandline import ConfigurationError, Facts, InvalidMessageError, Memory, UnknownPipelineError
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, VECTORS_STAGE
from strandline.schemas.wire.explanations import FactExplanation, RemovedFactExplanation
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.servers.model_server import ModelServer
from tests.support.whole_words import says
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

MakeFacts = Callable[..., Facts]


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A model that finds one fact in each line of a user."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url)


@pytest.fixture
def facts_of(database_url: str, settings: Settings) -> MakeFacts:
    def make(user_id: str = "maren", **options: Any) -> Facts:
        return Facts.for_owner(user_id=user_id, database_url=database_url, **options)

    return make


@pytest.fixture
def tell(
    make_memory: MakeMemory, database: Database, database_url: str, settings: Settings
) -> Callable[..., None]:
    def told(*texts: str, session: str = "s", user_id: str = "maren") -> None:
        say(make_memory(session, user_id=user_id, memory_blocks=["facts", "vectors"]), *texts)
        drain_everything(database, database_url, settings, (EXTRACT_STAGE, MERGE_STAGE, VECTORS_STAGE))

    return told


def texts(facts: Any) -> list[str]:
    return [fact.text for fact in facts]


def test_of_a_date_with_a_time_the_day_counts(facts_of: MakeFacts) -> None:
    facts = facts_of()
    moment = datetime(2026, 3, 3, 23, 59, tzinfo=UTC)
    assert facts.add("Maren rows on Tuesdays.", about_date=moment).about_date == date(2026, 3, 3)


def test_a_fact_is_added_seen_and_kept(facts_of: MakeFacts, make_memory: MakeMemory) -> None:
    facts = facts_of()
    given = facts.add(
        "  Maren rows on Tuesdays. ",
        topics=["Sport", "sport"],
        about_date=date(2026, 3, 3),
        input="I row on Tuesdays, did I say?",
        agent_id="coach",
        team_id="club",
        actor="maren",
    )
    assert (given.text, given.topics, given.input) == (
        "Maren rows on Tuesdays.",
        ("sport",),
        "I row on Tuesdays, did I say?",
    )
    assert (given.agent_id, given.team_id, given.user_id, given.namespace) == (
        "coach",
        "club",
        "maren",
        "default",
    )
    assert (given.about_date, given.feedback, given.is_live) == (date(2026, 3, 3), None, True)
    (revision,) = given.revisions
    assert (revision.operation, revision.fact_event, revision.actor, revision.event_id) == (
        "add",
        1,
        "maren",
        None,
    )
    assert facts.get(given.fact_id) == facts.get(str(given.fact_id)) == given
    memory = make_memory("any", user_id="maren", memory_blocks=["facts"])
    memory.put({"role": "user", "content": "Hello"})
    assert "Maren rows on Tuesdays." in str(memory.get()), "the next read has it"
    assert memory.facts.list() == [given]


def test_adding_a_fact_in_the_same_words_adds_no_second_fact(
    facts_of: MakeFacts, tell: Callable[..., None]
) -> None:
    tell("I like herring")
    facts = facts_of()
    (known,) = facts.list()
    again = facts.add("I LIKE herring!", topics=["food"], agent_id="cook")
    assert (again.fact_id, again.text, again.agent_id) == (known.fact_id, "I like herring", "cook")
    assert set(again.topics) == {*known.topics, "food"}
    assert [revision.operation for revision in again.revisions] == ["add", "duplicate"]
    assert facts.add("I like herring").fact_id == known.fact_id
    assert len(facts.list()) == 1


def test_a_correction_keeps_what_was(facts_of: MakeFacts, tell: Callable[..., None]) -> None:
    tell("I live in Bergn")
    facts = facts_of()
    (wrong,) = facts.list()
    right = facts.replace(wrong.fact_id, "I live in Bergen", actor="support")
    assert right is not None
    assert (right.fact_id, right.text, right.created_at) == (
        wrong.fact_id,
        "I live in Bergen",
        wrong.created_at,
    )
    assert right.updated_at > wrong.updated_at and right.valid_from == wrong.valid_from
    assert [(r.operation, r.text, r.actor) for r in right.revisions] == [
        ("add", "I live in Bergn", None),
        ("replace", "I live in Bergen", "support"),
    ]
    assert right.topics == wrong.topics
    moved = date(2026, 1, 31)
    assert facts.replace(right.fact_id, "I live in Bergen", topics=["home"], about_date=moved) is not None
    (now,) = facts.list()
    assert (now.topics, now.about_date) == (("home",), moved)


def test_a_correction_to_what_is_known_leaves_one(facts_of: MakeFacts) -> None:
    facts = facts_of()
    one, other = facts.add("Maren rows"), facts.add("Maren sails")
    kept = facts.replace(one.fact_id, "maren SAILS")
    assert kept is not None and kept.fact_id == other.fact_id
    assert texts(facts.list(with_invalidated=True)) == ["Maren sails"]
    assert facts.get(one.fact_id) is None


def test_what_is_deleted_is_gone_with_its_words(
    rig: Rig, facts_of: MakeFacts, tell: Callable[..., None]
) -> None:
    tell("my pin is 4711")
    facts = facts_of()
    added = facts.add("Maren has a secret garden", input="secret garden")
    assert facts.replace(added.fact_id, "Maren has a very secret garden") is not None
    (derived,) = [fact for fact in facts.list() if "pin" in fact.text]
    assert facts.delete(added.fact_id, actor="maren") and facts.delete(derived.fact_id)
    assert facts.list(with_invalidated=True) == []
    assert facts.get(added.fact_id) is None
    assert not facts.delete(added.fact_id), "once"
    for table in ("fact", "fact_revision", "fact_event"):
        content = "".join(row[0] for row in rows_of(rig.url, f"SELECT t::text FROM strandline.{table} t"))
        assert "garden" not in content, table
    removed = explain(rig.database, str(added.fact_id), user_id="maren")
    assert isinstance(removed, RemovedFactExplanation)
    assert [(event.kind, event.actor) for event in removed.events] == [
        ("add", None),
        ("replace", None),
        ("delete", "maren"),
    ]
    assert verify(rig.database, deep=True).violations == ()


def test_clearing_takes_everything_of_one_owner(
    rig: Rig, facts_of: MakeFacts, tell: Callable[..., None]
) -> None:
    tell("I like herring", "I live in Bergen")
    tell("I like tea", session="t", user_id="tove")
    facts = facts_of()
    facts.add("Maren rows", input="a word to forget")
    assert facts.clear(actor="maren") == 3
    assert facts.list(with_invalidated=True) == [] and facts.clear() == 0
    assert texts(facts_of("tove").list()) == ["I like tea"]
    payloads = rows_of(rig.url, "SELECT payload FROM strandline.fact_event WHERE kind = 'add'")
    assert payloads == [(None,)]
    assert texts([facts.add("Maren rows again")]) == texts(facts.list())
    assert verify(rig.database, deep=True).violations == ()


def test_feedback_is_kept_and_taken_back(facts_of: MakeFacts, database: Database) -> None:
    facts = facts_of()
    fact = facts.add("Maren rows")
    judged = facts.feedback(fact.fact_id, "helpful")
    assert judged is not None and (judged.feedback, judged.text) == ("helpful", "Maren rows")
    back = facts.feedback(fact.fact_id, None)
    assert back is not None and back.feedback is None
    shown = explain(database, str(fact.fact_id), user_id="maren")
    assert isinstance(shown, FactExplanation)
    assert [event.kind for event in shown.events] == ["add", "feedback", "feedback"]


def test_an_unknown_id_is_nobody(facts_of: MakeFacts) -> None:
    facts = facts_of()
    for unknown in (uuid4(), str(uuid4()), "no id", ""):
        assert facts.get(unknown) is None
        assert facts.replace(unknown, "x") is None
        assert facts.feedback(unknown, "good") is None
        assert not facts.delete(unknown)


def test_nobody_reaches_anothers_facts_by_id(facts_of: MakeFacts) -> None:
    mine = facts_of().add("Maren rows")
    strangers = (facts_of("tove"), facts_of("maren", namespace="elsewhere"))
    for stranger in strangers:
        assert stranger.get(mine.fact_id) is None
        assert stranger.replace(mine.fact_id, "taken over") is None
        assert stranger.feedback(mine.fact_id, "bad") is None
        assert not stranger.delete(mine.fact_id)
        assert stranger.clear() == 0
        assert stranger.list() == [] and stranger.search("rows") == []
    assert facts_of().list() == [mine]


def test_pages_sorts_filters_and_totals(facts_of: MakeFacts) -> None:
    facts = facts_of()
    for number in range(5):
        facts.add(f"Fact {number} of Øystein", topics=[f"t{number % 2}"], agent_id=f"a{number % 2}")
    whole = facts.list()
    assert texts(whole) == [f"Fact {n} of Øystein" for n in (4, 3, 2, 1, 0)] and whole.total == 5
    assert texts(facts.list(sort="oldest", limit=2)) == texts(whole)[::-1][:2], "the first n"
    page = facts.list(limit=2, offset=4)
    assert (len(page), page.total) == (1, 5)
    none = facts.list(limit=0)
    assert (none, none.total) == ([], 5)
    beyond = facts.list(offset=50)
    assert (beyond, beyond.total) == ([], 5)
    assert texts(facts.list(topics=["T1"])) == ["Fact 3 of Øystein", "Fact 1 of Øystein"]
    assert facts.list(agent_id="a0").total == 3 and facts.list(team_id="none").total == 0
    found = facts.list(contains="fact 3 OF ø", limit=1)
    assert texts(found) == ["Fact 3 of Øystein"] and found.total == 1
    assert facts.list(contains="%").total == 0
    facts.feedback(whole[-1].fact_id, "good")
    assert texts(facts.list(sort="updated", limit=1)) == ["Fact 0 of Øystein"]


def test_a_search_ranks_by_words_and_by_where_a_fact_comes_from(
    facts_of: MakeFacts, tell: Callable[..., None]
) -> None:
    tell("My sister Inga lives in Husum", "I am allergic to mussels", "The ferry leaves on Friday")
    facts = facts_of()
    facts.add("Maren owns a trombone", topics=["music"])
    assert [found.fact.text for found in facts.search("trombone", limit=1)] == ["Maren owns a trombone"]
    ranked = facts.search("Where does my sister live?")
    assert ranked[0].fact.text == "My sister Inga lives in Husum"
    assert [found.score for found in ranked] == sorted((f.score for f in ranked), reverse=True)
    # Not a word in common; what it was taken from is near in meaning.
    assert facts.search("seafood", limit=1)[0].fact.text == "I am allergic to mussels"
    assert facts.search("trombone", topics=["food"]) == []
    assert facts.search("sister", limit=0) == [] and facts.search("  ") == []


def test_what_cannot_be_kept_is_refused_and_named(facts_of: MakeFacts) -> None:
    facts = facts_of()
    known = facts.add("Maren rows")
    refused: list[tuple[str, Callable[[], object]]] = [
        ("text", lambda: facts.add(" ")),
        ("text", lambda: facts.add("x" * 1_001)),
        ("text", lambda: facts.add("a\x00b")),
        ("text", lambda: facts.replace(known.fact_id, "\ud800")),
        ("topics", lambda: facts.add("x", topics=["y"] * 9)),
        ("topics", lambda: facts.add("x", topics="music")),
        ("input", lambda: facts.add("x", input="y" * 8_001)),
        ("agent_id", lambda: facts.add("x", agent_id="")),
        ("about_date", lambda: facts.add("x", about_date="today")),  # type: ignore[arg-type]
        ("feedback", lambda: facts.feedback(known.fact_id, "y" * 1_001)),
        ("actor", lambda: facts.delete(known.fact_id, actor="")),
        ("sort", lambda: facts.list(sort="random")),  # type: ignore[arg-type]
        ("query", lambda: facts.search("a\x00b")),
    ]
    for field, call in refused:
        with pytest.raises(InvalidMessageError) as caught:
            call()
        assert caught.value.field.startswith(field)
    numbers: list[tuple[str, Callable[[], object]]] = [
        ("limit is -1", lambda: facts.list(limit=-1)),
        ("limit is 1001", lambda: facts.search("x", limit=1_001)),
        ("offset is -1", lambda: facts.list(offset=-1)),
    ]
    for words, call in numbers:
        with pytest.raises(ConfigurationError, match=words):
            call()
    assert facts.list() == [known]
    with pytest.raises(ConfigurationError, match="user_id=, or session_id="):
        Facts.for_owner()


def test_before_any_worker_ran_there_is_nowhere_to_keep_facts(facts_of: MakeFacts, database_url: str) -> None:
    rows_of(database_url, "DELETE FROM strandline.generation RETURNING 1")
    with pytest.raises(UnknownPipelineError, match="start a worker"):
        facts_of().add("Maren rows")
    assert facts_of().list() == []


def test_a_session_without_a_user_has_facts_of_its_own(rig: Rig) -> None:
    memory = rig.memory("alone", memory_blocks=["facts"])
    fact = memory.facts.add("The guest speaks Frisian")
    alone = Facts.for_owner(session_id="alone", database_url=rig.url)
    assert alone.list() == [fact] and alone.user_id is None


def test_a_forgetful_reset_leaves_what_people_added(
    rig: Rig, facts_of: MakeFacts, tell: Callable[..., None]
) -> None:
    tell("I like herring", "I live in Bergn", "my pin is 4711")
    facts = facts_of()
    by_word = {fact.text.split()[-1]: fact for fact in facts.list()}
    facts.add("Maren rows")
    facts.replace(by_word["Bergn"].fact_id, "I live in Bergen")
    facts.delete(by_word["4711"].fact_id)
    facts.feedback(by_word["herring"].fact_id, "good")
    rig.memory("s", user_id="maren").reset(derived=True)
    assert sorted(texts(facts.list(with_invalidated=True))) == ["I live in Bergen", "Maren rows"]
    (traces,) = rows_of(rig.url, "SELECT traces::text FROM strandline.fact_event WHERE kind = 'delete'")
    assert not says(traces[0], "4711") and "fingerprint" in traces[0], "of the words a digest stays"
    assert verify(rig.database, deep=True).violations == ()


DEEDS = st.sampled_from(["say", "add", "replace", "delete", "clear", "feedback", "consume", "forget"])


@given(deeds=st.lists(st.tuples(DEEDS, st.integers(0, 4)), min_size=6, max_size=18))
@examples(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_people_do_in_whatever_order_verifies_clean(rig: Rig, deeds: list[tuple[str, int]]) -> None:
    """Facts are said and derived meanwhile; what was deleted last is never live."""
    user = uuid4().hex
    memory = Memory.from_defaults(uuid4().hex, user_id=user, memory_blocks=["facts"], database_url=rig.url)
    facts = memory.facts
    for deed, which in deeds:
        chosen = facts.list(limit=1, offset=which)
        if deed == "say":
            say(memory, f"I own {which} red boats")
        elif deed == "add":
            facts.add(f"{user} has {which} sisters")
        elif deed == "clear" and which == 0:
            facts.clear()
            assert facts.list() == []
        elif deed == "consume":
            drain_everything(rig.database, rig.url, rig.settings, (EXTRACT_STAGE, MERGE_STAGE))
        elif deed == "forget":
            memory.reset(derived=True)
        elif deed == "delete" and chosen:
            facts.delete(chosen[0].fact_id)
            assert chosen[0].text not in texts(facts.list())
        elif deed == "replace" and chosen:
            facts.replace(chosen[0].fact_id, f"I own {which + 1} red boats")
        elif deed == "feedback" and chosen:
            facts.feedback(chosen[0].fact_id, "good")
    owner = identify_user("default", user).shard_key
    wrong = [v.sentence for v in verify(rig.database, deep=True).violations]
    assert wrong == [], owner


def test_a_fact_that_was_just_added_is_valid_from_now_on_without_an_end(
    facts_of: MakeFacts, make_memory: MakeMemory
) -> None:
    before = datetime.now(UTC)
    fact = facts_of().add("Maren rows")
    assert abs((fact.created_at - before).total_seconds()) < 60
    assert fact.valid_from == fact.said_at == fact.created_at
    assert (fact.valid_until, fact.invalidated_at, fact.condensed_into) == (None, None, None)
