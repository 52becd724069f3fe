"""What ``reset(derived=True)`` leaves of a session in what other sessions of its user gave rise to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid5

import psycopg
import pytest
from psycopg import sql

from strandline import Facts
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.facts import condense, decisions
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.normal_form import fingerprint
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


TAKEN: dict[str, Callable[[Facts, UUID], Any]] = {
    "delete": lambda facts, fact_id: facts.delete(fact_id),
    "replace": lambda facts, fact_id: facts.replace(fact_id, "User sails."),
    "clear": lambda facts, _: facts.clear(),
}


@pytest.mark.parametrize("deed", TAKEN)
def test_a_fingerprint_alone_stays_of_a_forgotten_sessions_facts(
    rig: Rig, tell: Tell, facts: Facts, deed: str
) -> None:
    tell("one", "I live in Porto")
    tell("two", "I like herring")
    (porto,) = facts.list(contains="Porto")
    TAKEN[deed](facts, porto.fact_id)
    rig.memory("one", user_id="maren").reset(derived=True)
    rows = rows_of(rig.url, "SELECT jsonb_array_elements(traces) FROM strandline.fact_event")
    forgotten = [trace for (trace,) in rows if trace["fingerprint"] == fingerprint("I live in Porto").hex()]
    assert forgotten and all(set(trace) == {"fingerprint"} for trace in forgotten)
    others = [trace for (trace,) in rows if trace not in forgotten]
    assert all(trace["lexemes"] for trace in others) and bool(others) == (deed == "clear")


# The phases of forgetting (``forget_facts_v1``), each a function, on rows made by hand.
OWNER, FORGOTTEN, SIBLING, OTHER = (UUID(int=number) for number in (1, 2, 3, 4))
BATCH, EVENT, CONDENSING = (UUID(int=number) for number in (10, 11, 12))


class Known:
    """The facts of one owner in one generation, named by letters."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def insert(self, table: str, **values: object) -> None:
        values = {"shard_key": OWNER, "generation_id": 1, **values}
        self._connection.execute(
            sql.SQL("INSERT INTO strandline.{} ({}) VALUES ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, values)),
                sql.SQL(", ").join(sql.Placeholder() * len(values)),
            ),
            list(values.values()),
        )

    def fact(self, name: str, text: str, **values: object) -> UUID:
        self.insert(
            "fact", fact_id=named(name), **wording(text), **{"topics": [], "said_at": MOMENT} | values
        )
        return named(name)

    def revision(self, name: str, number: int, session: UUID, text: str, **values: object) -> None:
        """One step of a fact's history; ``own`` is what the session's candidate said by itself."""
        own = values.pop("own", None)
        if own is not None:
            values |= {f"own_{column}": value for column, value in wording(str(own)).items()}
        source = dict.fromkeys(("extract_batch_id", "merge_batch_id"), BATCH) | {"event_id": session}
        described = {
            "model": "m",
            "prompt_hash": "p",
            "seqs": [1],
            "operation": "add",
            "session_key": session,
        }
        row = wording(text) | source | described | values
        self.insert("fact_revision", fact_id=named(name), revision=number, **row)

    def call(self, function: str, *arguments: object) -> Any:
        places = sql.SQL(", ").join(sql.Placeholder() * (1 + len(arguments)))
        call = sql.SQL("SELECT * FROM strandline.{}({})").format(sql.Identifier(function), places)
        rows = self._connection.execute(call, [OWNER, *arguments]).fetchall()
        return rows[0][0] if rows and len(rows[0]) == 1 else rows

    def texts(self) -> dict[str, str]:
        """The texts of the facts, by name."""
        rows = self._connection.execute("SELECT fact_id, text FROM strandline.fact").fetchall()
        return {name_of(fact_id): text for fact_id, text in rows}

    def history(self) -> list[tuple[str, int, str, str]]:
        """The steps of all histories: fact, number, operation and words."""
        rows = self._connection.execute(
            "SELECT fact_id, revision, operation, text FROM strandline.fact_revision"
        ).fetchall()
        return sorted((name_of(fact_id), *rest) for fact_id, *rest in rows)

    def column(self, name: str, column: str) -> Any:
        query = sql.SQL("SELECT {} FROM strandline.fact WHERE fact_id = %s").format(sql.Identifier(column))
        ((value,),) = self._connection.execute(query, [named(name)]).fetchall()
        return value


MOMENT = "2026-01-02 03:04:05+00"
BEFORE, AFTER = "2026-01-01 00:00:00+00", "2026-01-03 00:00:00+00"


def named(name: str) -> UUID:
    return uuid5(OWNER, name)


def name_of(fact_id: UUID) -> str:
    names = {named(letter): letter for letter in "abcdefgh"}
    return names.get(fact_id, "alone")


def wording(text: str) -> dict[str, object]:
    return {"text": text, "fingerprint": text.encode(), "lexemes": text.split()}


@pytest.fixture
def known(database_url: str) -> Iterator[Known]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Known(connection)


def test_what_a_session_said_is_read_from_the_history(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, FORGOTTEN, "boat", own="boat red", created_at=MOMENT)
    known.revision("a", 2, SIBLING, "harbour", created_at=BEFORE)
    known.fact("b", "tide")
    known.revision("b", 1, FORGOTTEN, "tide", operation="invalidate", created_at=AFTER)
    ((fact_ids, said, since),) = known.call("read_event_words_v1", [FORGOTTEN])
    assert set(fact_ids) == {named("a"), named("b")}
    assert set(said) == {"boat", "red"}, "what it ended, it did not say"
    assert since.isoformat() == "2026-01-02T03:04:05+00:00"


def test_what_was_worded_beside_a_session_begins_with_its_batch(known: Known) -> None:
    known.fact("a", "boat")
    known.revision("a", 1, FORGOTTEN, "boat", created_at=MOMENT)
    batch = {"batch_id": BATCH, "scope_key": OWNER, "stage": "merge", "lease_epoch": 1, "event_ids": [EVENT]}
    known.insert("batch", **batch, created_at=BEFORE)
    ((_, _, since),) = known.call("read_event_words_v1", [FORGOTTEN])
    assert since.isoformat() == "2026-01-01T00:00:00+00:00"


def test_a_session_without_a_part_in_any_fact_said_nothing(known: Known) -> None:
    assert known.call("read_event_words_v1", [FORGOTTEN]) == []


def condensed(known: Known, name: str, text: str, session: UUID, made: str = AFTER, **values: object) -> None:
    known.fact(name, text, **values)
    known.revision(
        name, 1, session, text, operation="condense", condense_batch_id=CONDENSING, created_at=made
    )


def part(known: Known, name: str, text: str, session: UUID, of: str) -> None:
    known.fact(name, text, live=False, condensed_into=named(of))
    known.revision(name, 1, session, text)


def test_condensed_facts_that_hold_or_quote_a_session_are_found(known: Known) -> None:
    condensed(known, "a", "tide", FORGOTTEN)
    condensed(known, "b", "boat harbour", SIBLING)
    part(known, "c", "harbour", SIBLING, of="b")
    condensed(known, "d", "boat tide", SIBLING)
    part(known, "e", "boat", SIBLING, of="d")
    condensed(known, "f", "boat rope", SIBLING, made=BEFORE)
    found = known.call("find_condensed_quotes_v1", [FORGOTTEN], ["boat"], MOMENT)
    # d has its boat from another session, f is older than what was said.
    assert {name_of(fact_id) for fact_id in found} == {"a", "b"}


def test_what_holds_a_condensed_quote_is_found_with_it(known: Known) -> None:
    condensed(known, "a", "tide", FORGOTTEN, live=False, condensed_into=named("b"))
    condensed(known, "b", "tide rope", SIBLING, made=BEFORE)
    found = known.call("find_condensed_quotes_v1", [FORGOTTEN], ["tide"], MOMENT)
    assert {name_of(fact_id) for fact_id in found} == {"a", "b"}
    assert known.call("find_condensed_quotes_v1", [OTHER], ["rope"], AFTER) is None


def test_a_wording_that_quotes_gets_its_own_words_back(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, SIBLING, "boat harbour", own="harbour", created_at=AFTER)
    known.fact("b", "rope harbour")
    known.revision("b", 1, SIBLING, "rope harbour", own="harbour", created_at=AFTER)
    touched = known.call("replace_quotes_v1", [FORGOTTEN], ["boat"], MOMENT)
    assert set(touched) == {named("a")}
    assert known.history() == [("a", 1, "add", "harbour"), ("b", 1, "add", "rope harbour")]


def test_an_addition_that_quotes_stands_alone(known: Known) -> None:
    known.fact("a", "harbour boat rope")
    known.revision("a", 1, OTHER, "harbour", created_at=BEFORE)
    known.revision("a", 2, SIBLING, "harbour boat rope", own="rope", operation="update", created_at=AFTER)
    touched = known.call("replace_quotes_v1", [FORGOTTEN], ["boat"], MOMENT)
    assert {name_of(fact_id) for fact_id in touched} == {"a", "alone"}
    assert known.history() == [("a", 1, "add", "harbour"), ("alone", 1, "add", "rope")]
    assert known.texts() == {"a": "harbour boat rope", "alone": "rope"}


def test_facts_that_only_the_forgotten_session_said_are_deleted(known: Known) -> None:
    known.fact("a", "boat")
    known.revision("a", 1, FORGOTTEN, "boat")
    known.fact("b", "harbour")
    known.revision("b", 1, SIBLING, "harbour")
    known.revision("b", 2, FORGOTTEN, "harbour", operation="duplicate")
    known.call("drop_unsourced_v1", [FORGOTTEN], [named("a"), named("b")])
    assert known.texts() == {"b": "harbour"}
    assert known.history() == [("b", 1, "add", "harbour")]


def test_what_a_fact_that_is_gone_had_ended_is_ended_by_what_ended_it(known: Known) -> None:
    ended = {"live": False, "invalidated_at": MOMENT}
    known.fact("a", "boat", **ended, invalidated_by=named("b"))
    known.revision("a", 1, SIBLING, "boat")
    known.fact("b", "ship", **ended, invalidated_by=named("c"))
    known.revision("b", 1, FORGOTTEN, "ship")
    known.fact("c", "raft")
    known.revision("c", 1, SIBLING, "raft")
    known.call("drop_unsourced_v1", [FORGOTTEN], [named("b")])
    assert known.texts() == {"a": "boat", "c": "raft"}
    assert known.column("a", "invalidated_by") == named("c")


def test_a_fact_goes_back_to_what_is_left_of_its_history(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, SIBLING, "harbour")
    known.revision("a", 2, SIBLING, "boat", operation="duplicate")
    known.revision("a", 3, SIBLING, "boat harbour", operation="invalidate")
    assert known.call("restate_facts_v1", [named("a")]) == []
    assert known.texts() == {"a": "harbour"}
    assert known.history()[2] == ("a", 3, "invalidate", "harbour"), "what ended it says what ended"


def test_a_fact_whose_words_another_one_says_gives_it_its_sources(known: Known) -> None:
    known.fact("a", "boat harbour")
    known.revision("a", 1, SIBLING, "harbour")
    known.fact("b", "harbour")
    known.revision("b", 1, OTHER, "harbour")
    known.fact("c", "pier", live=False, invalidated_at=MOMENT, invalidated_by=named("a"))
    assert known.call("restate_facts_v1", [named("a")]) == [named("b")]
    assert known.texts() == {"b": "harbour", "c": "pier"}
    assert known.history() == [("b", 1, "add", "harbour"), ("b", 2, "duplicate", "harbour")]
    assert known.column("c", "invalidated_by") == named("b")


def test_a_fact_that_ended_keeps_its_words_beside_one_that_lives(known: Known) -> None:
    known.fact("a", "boat harbour", live=False, invalidated_at=MOMENT)
    known.revision("a", 1, SIBLING, "harbour")
    known.fact("b", "harbour")
    known.revision("b", 1, OTHER, "harbour")
    assert known.call("restate_facts_v1", [named("a")]) == []
    assert known.texts() == {"a": "harbour", "b": "harbour"}


def test_topics_and_times_are_those_of_the_sources_that_are_left(known: Known) -> None:
    known.fact("a", "harbour", topics=["boats", "work"], said_by="ida", said_at=AFTER)
    known.revision("a", 1, SIBLING, "harbour")
    candidate = {
        "event_id": SIBLING,
        "batch_id": BATCH,
        "session_key": SIBLING,
        "text": "harbour",
        "fingerprint": wording("harbour")["fingerprint"],
        "seqs": [1],
    }
    known.insert(
        "fact_candidate",
        **candidate | {"ordinal": 0, "topics": ["work"], "said_by": "maren", "said_at": MOMENT},
        model="m",
        prompt_hash="p",
    )
    known.call("refresh_facts_v1", [named("a")])
    assert known.column("a", "topics") == ["work"]
    assert known.column("a", "said_by") == "maren"
    assert known.column("a", "said_at").isoformat() == "2026-01-02T03:04:05+00:00"


def test_a_fact_without_sources_keeps_what_it_has(known: Known) -> None:
    known.fact("a", "harbour", topics=["work"], said_by="ida")
    known.call("refresh_facts_v1", [named("a")])
    assert (known.column("a", "topics"), known.column("a", "said_by")) == (["work"], "ida")


def test_facts_live_again_whose_end_is_gone(known: Known) -> None:
    known.fact("a", "boat", live=False, invalidated_at=MOMENT, invalidated_by=named("g"))
    known.fact("b", "rope", live=False, condensed_into=named("c"))
    known.fact("c", "rope tide")
    assert known.call("revive_facts_v1") == [named("a")]
    assert known.column("a", "live") is True
    assert known.column("b", "live") is False


def test_parts_of_a_condensed_fact_that_ended_are_ended_as_it_was(known: Known) -> None:
    condensed(known, "a", "boat rope", SIBLING, live=False, invalidated_at=MOMENT, invalidated_by=named("c"))
    part(known, "b", "boat", SIBLING, of="a")
    known.fact("c", "raft")
    assert known.call("take_apart_v1", [named("a")], [FORGOTTEN]) == []
    assert known.column("b", "condensed_into") is None
    assert known.column("b", "invalidated_by") == named("c")
