"""What ``reset(derived=True)`` leaves of a session in what other sessions of its user gave rise to."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from strandline import Facts
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.facts import condense, decisions
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of
from tests.pipelines.facts.test_facts_merge import rows_in
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import HandWorker, say

Tell = Callable[[str, str], None]

ANSWERS = (
    "SELECT convert_from(body, 'UTF8') FROM strandline.answer a JOIN strandline.batch b USING (batch_id)"
)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wordings of other facts' words, as a model makes them: what quotes is looked at here, not what may."""
    for module in (condense, decisions):
        monkeypatch.setattr(module, "is_made_of", lambda *_: True)


@pytest.fixture
def tell(make_memory: MakeMemory, database: Database, database_url: str, model_settings: Settings) -> Tell:
    """Say something in a session of the user ``maren``, by the session's name, and have it merged."""

    def told(session: str, text: str) -> None:
        memory = make_memory(session, user_id="maren", memory_blocks=["facts"])
        memory.put({"role": "user", "content": text, "name": session})
        memory.flush(all=True)
        drain_everything(database, database_url, model_settings)
        assert nothing_due(database_url)

    return told


@pytest.fixture
def facts(database_url: str) -> Facts:
    return Facts.for_owner(user_id="maren", database_url=database_url)


def decide(server: ModelServer, *operations: tuple[str, str, str]) -> None:
    """Decide on each next candidate by itself: (operation, the known fact, wording)."""
    left = list(operations)

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<candidates>" not in prompt:
            return None
        known = {row["text"]: row["n"] for row in rows_in(prompt, "known")}
        op, fact, text = left.pop(0)
        return json.dumps({"operations": [{"op": op, "candidate": 1, "fact": known[fact], "text": text}]})

    server.behave(responder=respond)


def tables_with(url: str, word: str) -> list[str]:
    """The tables in which a word can still be read, also as a lexeme, a topic or a name."""
    tables = rows_of(
        url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'strandline'"
    )
    return [
        table
        for (table,) in tables
        if any(
            word.casefold() in row.casefold()
            for (row,) in rows_of(url, f"SELECT t::text FROM strandline.{table} t")
        )
    ]


class Killed(BaseException):
    """Stands for the end of a worker's process."""


def test_a_merge_that_a_worker_left_open_is_closed_with_its_session(
    rig: Rig, model_settings: Settings
) -> None:
    memory = rig.memory("one", user_id="maren", memory_blocks=["facts"])
    say(memory, "My cat is called Otto.")
    drain_everything(rig.database, rig.url, model_settings, ("extract",))

    def die(_point: StopPoint) -> None:
        raise Killed

    worker = HandWorker(rig.database, prepare_stages(rig.database, model_settings, ("merge",)), reach=die)
    with pytest.raises(Killed):
        worker.drain_all(rig.url)
    batches = "SELECT state FROM strandline.batch WHERE stage = 'merge'"
    assert rows_of(rig.url, batches) == [("open",)]

    memory.reset(derived=True)

    assert nothing_due(rig.url)
    assert rows_of(rig.url, batches) == [("void",)], "nobody comes to this lane any more"
    assert verify(rig.database, deep=True).violations == ()


def of_maren(facts: Facts, *, ended: bool = False) -> list[str]:
    return sorted(fact.text for fact in facts.list(with_invalidated=ended))


def chatty(request: RecordedRequest) -> str | None:
    """A merge model that says why: it adds what is new, and quotes what it knows."""
    prompt = json.dumps(request.body)
    if "<candidates>" not in prompt:
        return None
    known = "beside Otto the cat" if "Otto" in prompt else ""
    return json.dumps({"operations": [{"op": "add", "candidate": 1, "fact": None, "text": f"New {known}"}]})


def test_answers_to_other_sessions_do_not_quote_what_is_forgotten(rig: Rig, model_settings: Settings) -> None:
    rig.model.behave(responder=chatty)
    one, two = (rig.memory(name, user_id="maren", memory_blocks=["facts"]) for name in ("one", "two"))
    other = rig.memory("three", user_id="nils", memory_blocks=["facts"])
    say(one, "My cat is called Otto.")
    drain_everything(rig.database, rig.url, model_settings)
    for memory in (two, other):
        say(memory, "My cat sleeps all day.")
        say(memory, "My cat likes herring.")
    drain_everything(rig.database, rig.url, model_settings)
    merges = rows_of(rig.url, f"{ANSWERS} WHERE b.stage = 'merge'")
    assert any("Otto" in body for (body,) in merges), "a sibling's answer quotes it"
    one.reset(derived=True)
    assert all("Otto" not in body for (body,) in rows_of(rig.url, ANSWERS))
    assert tables_with(rig.url, "Otto") == []
    # Memory derived from the others stays, as do the answers to another user's sessions.
    assert sorted(fact.text for fact in two.facts.list()) == [
        "My cat likes herring.",
        "My cat sleeps all day.",
    ]
    assert len(rows_of(rig.url, f"{ANSWERS} WHERE b.stage = 'merge'")) == 1
    extracted = f"{ANSWERS} JOIN strandline.session s ON s.session_key = b.scope_key WHERE s.session_id = %s"
    assert rows_of(rig.url, extracted, "two"), "extract has seen its own session alone"
    say(two, "My cat is grey.")
    drain_everything(rig.database, rig.url, model_settings)
    assert nothing_due(rig.url)
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("wording", "quoted"),
    [("The cat Otto sleeps all day", "Otto"), ("A tomcat sleeps all day", "tomcat")],
    ids=["by-name", "in-other-words"],
)
def test_a_siblings_wording_of_the_same_fact_gives_way_to_its_own_words(
    rig: Rig, wording: str, quoted: str, tell: Tell, facts: Facts
) -> None:
    tell("one", "Otto is my cat")
    decide(rig.model, ("update", "Otto is my cat", wording))
    tell("two", "my cat sleeps all day")
    decide(rig.model, ("duplicate", wording, ""))
    tell("three", "my cat sleeps a lot")
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts, ended=True) == ["my cat sleeps all day"]
    (fact,) = facts.list()
    assert fact.topics == ("my",) and fact.said_by == "two"
    assert len(fact.message_ids) == 2, "both of the others support it"
    assert tables_with(rig.url, quoted) == []
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.usefixtures("unchecked")
def test_an_addition_that_quotes_what_is_forgotten_stands_alone(rig: Rig, tell: Tell, facts: Facts) -> None:
    """It was made to a fact that the session had no part in, which says again what it said before."""
    tell("two", "my boat is blue")
    decide(rig.model, ("update", "my boat is blue", "The owned boat is blue with red sails"))
    tell("two", "my boat has red sails")
    rig.model.behave()
    tell("two", "my cat is grey")
    decide(rig.model, ("add", "my cat is grey", "Otto is my cat"))
    tell("one", "Otto is my cat")
    decide(
        rig.model,
        ("update", "my cat is grey", "The cat Otto is grey and likes herring"),
        (
            "update",
            "The owned boat is blue with red sails",
            "The boat possessed is blue with red sails, and fast",
        ),
    )
    tell("two", "my cat likes herring")
    tell("two", "my boat is fast")
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts, ended=True) == [
        "The boat possessed is blue with red sails, and fast",
        "my cat is grey",
        "my cat likes herring",
    ], "a wording of other things stays"
    assert tables_with(rig.url, "Otto") == []
    assert verify(rig.database, deep=True).violations == ()
    assert facts.search("herring")[0].fact.revisions[0].operation == "add"


def test_what_a_sibling_ended_is_gone_and_what_ended_it_quotes_it_no_more(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    tell("two", "I live in Husum")
    decide(
        rig.model,
        ("invalidate", "I live in Husum", "I live in Oslo now"),
        ("invalidate", "I live in Oslo now", "I moved from Oslo to Bergen"),
    )
    tell("one", "I live in Oslo now")
    tell("two", "I live in Bergen since May")
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts) == ["I live in Bergen since May"]
    assert of_maren(facts, ended=True) == ["I live in Bergen since May", "I live in Husum"]
    (live,) = facts.list()
    ended = next(fact for fact in facts.list(with_invalidated=True) if fact.text == "I live in Husum")
    assert ended.invalidated_by == live.fact_id, "it did not become true again"
    assert tables_with(rig.url, "Oslo") == []
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.usefixtures("unchecked")
def test_a_wording_that_ended_quotes_nothing_either(rig: Rig, tell: Tell, facts: Facts) -> None:
    """Its parts ended as it did, and its history is told in the words that stay."""
    tell("two", "my cat is grey")
    decide(
        rig.model,
        ("add", "my cat is grey", ""),
        ("update", "my cat is grey", "The cat Otto is grey and fat"),
        ("invalidate", "The cat Otto is grey and fat", "my cat is white"),
    )
    tell("one", "Otto is my cat")
    tell("two", "my cat is fat")
    tell("two", "my cat is white")
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts) == ["my cat is white"]
    assert of_maren(facts, ended=True) == ["my cat is fat", "my cat is grey", "my cat is white"]
    assert tables_with(rig.url, "Otto") == []
    assert verify(rig.database, deep=True).violations == ()


def test_facts_of_the_same_words_that_come_back_are_one(rig: Rig, tell: Tell, facts: Facts) -> None:
    for _ in range(2):
        tell("two", "I live in Husum")
        decide(rig.model, ("invalidate", "I live in Husum", "I live in Oslo now"))
        tell("one", "I live in Oslo now")
        rig.model.behave()
        decide(rig.model, ("add", "I live in Oslo now", ""))
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts) == ["I live in Husum"]
    assert verify(rig.database, deep=True).violations == ()


def test_own_words_that_another_fact_says_too_are_one_fact(rig: Rig, tell: Tell, facts: Facts) -> None:
    tell("one", "Otto is my cat")
    decide(
        rig.model,
        ("update", "Otto is my cat", "The cat Otto sleeps"),
        ("add", "The cat Otto sleeps", ""),
    )
    tell("two", "my cat sleeps")
    tell("three", "my cat sleeps")
    assert of_maren(facts) == ["The cat Otto sleeps", "my cat sleeps"]
    rig.memory("one", user_id="maren").reset(derived=True)
    (fact,) = facts.list(with_invalidated=True)
    assert fact.text == "my cat sleeps" and len(fact.message_ids) == 2
    assert tables_with(rig.url, "Otto") == []
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.usefixtures("unchecked")
def test_a_condensed_fact_that_quotes_what_is_forgotten_is_taken_apart(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    tell("two", "my cat is grey")
    tell("two", "my cat likes herring")
    tell("one", "Otto is my cat")
    rows_of(rig.url, "UPDATE strandline.session SET max_facts = 2 RETURNING 1")

    def condense(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][1]["content"]
        if "<facts>" not in prompt:
            return None
        numbers = {row["text"]: row["n"] for row in rows_in(prompt, "facts")}
        merged = [numbers["my cat is grey"], numbers["my cat likes herring"]]
        kept = sorted(set(numbers.values()) - set(merged))
        fact = {"text": "my cat Otto is grey and likes herring", "merged": merged}
        return json.dumps({"facts": [fact], "kept": kept})

    rig.model.behave(responder=condense)
    tell("two", "I row")
    assert "my cat Otto is grey and likes herring" in of_maren(facts)
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts, ended=True) == ["I row", "my cat is grey", "my cat likes herring"]
    assert tables_with(rig.url, "Otto") == []
    assert verify(rig.database, deep=True).violations == ()


def test_words_that_were_deleted_are_not_given_back_with_what_ended_them(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    tell("two", "my boat is blue")
    decide(rig.model, ("invalidate", "my boat is blue", "my boat is red"))
    tell("one", "the boat is red now")
    decide(rig.model, ("add", "my boat is red", ""))
    tell("three", "my boat is blue")
    (again,) = facts.list(contains="blue")
    assert facts.delete(again.fact_id)
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts, ended=True) == [], "the deletion was of these words"
    assert verify(rig.database, deep=True).violations == ()


def test_a_fact_does_not_go_back_to_words_that_were_deleted_meanwhile(
    rig: Rig, tell: Tell, facts: Facts
) -> None:
    tell("two", "my boat is blue")
    decide(rig.model, ("update", "my boat is blue", "my boat is blue and fast"))
    tell("one", "my boat is fast")
    decide(rig.model, ("add", "my boat is blue and fast", ""))
    tell("three", "my boat is blue")
    (again,) = (fact for fact in facts.list() if fact.text == "my boat is blue")
    assert facts.delete(again.fact_id)
    assert of_maren(facts) == ["my boat is blue and fast"], "in other words, said by another session as well"
    rig.memory("one", user_id="maren").reset(derived=True)
    assert of_maren(facts, ended=True) == []
    assert verify(rig.database, deep=True).violations == ()
