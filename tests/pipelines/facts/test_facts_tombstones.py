"""What people did outlives derivation: deleted facts do not come back, corrections stay, new words count."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Facts, Memory
from strandline.pipelines.facts.edits import apply_fact_events
from strandline.pipelines.facts.tombstones import (
    Tombstone,
    Trace,
    Utterance,
    are_alike,
    read_traces,
    trace_of,
    write_traces,
)
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from strandline.schemas.values.normal_form import fingerprint
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, lock_is_awaited, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer, RecordedRequest, answer_to
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import HandWorker, say

FACTS_STAGES = (EXTRACT_STAGE, MERGE_STAGE)
OWNER = identify_user("default", "maren").shard_key


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url)


@pytest.fixture
def facts(database_url: str, settings: Settings) -> Facts:
    return Facts.for_owner(user_id="maren", database_url=database_url)


@pytest.fixture
def memory(make_memory: MakeMemory, settings: Settings) -> Memory:
    return make_memory("s", user_id="maren", memory_blocks=["facts"])


@pytest.fixture
def drain(database: Database, database_url: str, settings: Settings) -> Callable[[], None]:
    def drained() -> None:
        drain_everything(database, database_url, settings, FACTS_STAGES)
        assert nothing_due(database_url)

    return drained


def live(facts: Facts) -> list[str]:
    return sorted(fact.text for fact in facts.list())


def the(facts: Facts, word: str) -> UUID:
    (found,) = (fact for fact in facts.list() if word in fact.text)
    return found.fact_id


def other_prompt(server: ModelServer, wording: dict[str, str | None]) -> None:
    """From now on the model words what it finds in these lines otherwise; None: as another fact entirely."""

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        answer = answer_to(prompt)
        for fact in answer.get("facts", []):
            fact["text"] = wording.get(fact["text"]) or fact["text"]
        return json.dumps(answer)

    server.behave(responder=respond)


def derive_again(database: Database, database_url: str, *owners: UUID) -> int:
    """A second derivation of all facts beside the one that serves, fed with every flush there was."""
    ((generation_id,),) = rows_of(
        database_url,
        "INSERT INTO strandline.generation (pipeline, version, state, entry_stage, config, prompts)"
        " SELECT pipeline, version, 'feeding', entry_stage, config, prompts FROM strandline.generation"
        " WHERE pipeline = 'facts' AND state = 'serving' RETURNING generation_id",
    )
    for owner in owners:
        with database.transaction() as tx:
            tx.run(apply_fact_events(owner, generation_id))
    rows_of(
        database_url,
        "INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq,"
        " scope_key, event_id, incarnation, tokens, namespace) SELECT shard_key, session_key, %s, 'extract',"
        " from_seq, through_seq, session_key, event_id, incarnation, tokens, 'default'"
        " FROM strandline.flush_event RETURNING 1",
        generation_id,
    )
    assert isinstance(generation_id, int)
    return generation_id


def switch_to(database_url: str, generation_id: int) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE strandline.generation SET state = 'retired'"
            " WHERE pipeline = 'facts' AND generation_id <> %s",
            (generation_id,),
        )
        connection.execute(
            "UPDATE strandline.generation SET state = 'serving' WHERE generation_id = %s", (generation_id,)
        )


def test_another_prompt_does_not_bring_back_what_was_deleted(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "my flat is at Torggate 4", "herring is what I like", "my boat is blue", "I have two cats")
    drain()
    assert facts.delete(the(facts, "Torggate"))
    assert facts.replace(the(facts, "boat"), "my boat is green") is not None
    facts.add("Maren rows")
    facts.delete(facts.add("Maren sails").fact_id)
    facts.feedback(the(facts, "cats"), "good")
    other_prompt(
        rig.model,
        {
            "my flat is at Torggate 4": "The user's flat: Torggate 4.",
            "my boat is blue": "The user has a blue boat.",
            "herring is what I like": "The user likes herring.",
        },
    )
    generation_id = derive_again(rig.database, rig.url, OWNER)
    drain()
    switch_to(rig.url, generation_id)
    assert live(facts) == [
        "I have two cats",
        "Maren rows",
        "The user likes herring.",
        "my boat is green",
    ]
    assert [r.operation for r in facts.list(contains="green")[0].revisions] == ["replace"]
    assert verify(rig.database, deep=True).violations == ()
    # Applied once more, feedback finds what was derived since, and all else stays as it is.
    with rig.database.transaction() as tx:
        assert tx.run(apply_fact_events(OWNER, generation_id)) == 6
    assert len(live(facts)) == 4
    assert facts.list(contains="cats")[0].feedback == "good"
    assert verify(rig.database, deep=True).violations == ()


def test_an_edit_reaches_every_derivation_that_is_kept(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "my flat is at Torggate 4", "my boat is blue", "herring is what I like")
    drain()
    other_prompt(
        rig.model,
        {
            "my flat is at Torggate 4": "Flat: Torggate 4",
            "my boat is blue": "Boat: blue",
            "herring is what I like": "Herring: likes",
        },
    )
    generation_id = derive_again(rig.database, rig.url, OWNER)
    drain()
    facts.delete(the(facts, "Torggate"))
    facts.replace(the(facts, "boat"), "my boat is green")
    facts.feedback(the(facts, "herring"), "good")
    facts.add("Maren rows")
    switch_to(rig.url, generation_id)
    assert live(facts) == ["Herring: likes", "Maren rows", "my boat is green"]
    assert facts.list(contains="herring")[0].feedback == "good"
    assert verify(rig.database, deep=True).violations == ()


def test_what_was_cleared_stays_away_and_what_is_said_later_comes_in(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "I like herring", "I live in Bergen")
    drain()
    say(memory, "I own a boat")  # delivered, and not read yet
    facts.clear()
    drain()
    assert live(facts) == []
    say(memory, "I like herring")
    drain()
    assert live(facts) == ["I like herring"]
    facts.add("Maren rows")
    generation_id = derive_again(rig.database, rig.url, OWNER)
    drain()
    with rig.database.transaction() as tx:
        tx.run(apply_fact_events(OWNER, generation_id))
    switch_to(rig.url, generation_id)
    assert live(facts) == ["I like herring", "Maren rows"]
    assert verify(rig.database, deep=True).violations == ()


def test_a_deleted_fact_is_told_apart_from_one_that_is_said_again(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    memory.put({"id": "m1", "role": "user", "content": "I like herring"})
    memory.flush(all=True)
    drain()
    # Utterance by then in another session, and not read yet.
    pending = rig.memory("t", user_id="maren", memory_blocks=["facts"])
    pending.put({"id": "m2", "role": "user", "content": "I like herring!"})
    pending.put({"id": "m3", "role": "user", "content": "I like cod"})
    pending.flush(all=True)
    facts.delete(the(facts, "herring"))
    drain()
    assert live(facts) == ["I like cod"]
    why = explain(rig.database, "m2", session_id="t")
    assert isinstance(why, MessageExplanation)
    assert why.why == ("Extract found something in it, and a person has since deleted that fact.",)
    assert [candidate.dropped_because for candidate in why.candidates] == ["delete"]
    say(memory, "I like herring")
    drain()
    assert live(facts) == ["I like cod", "I like herring"]
    ((generation_id,),) = rows_of(
        rig.url, "SELECT generation_id FROM strandline.generation WHERE pipeline = 'facts'"
    )
    with rig.database.transaction() as tx:
        tx.run(apply_fact_events(OWNER, generation_id))
    assert live(facts) == ["I like cod", "I like herring"], "the deletion was of what was said before"
    assert verify(rig.database, deep=True).violations == ()


def test_the_old_wording_gives_way_to_the_correction(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "I live in Bergn")
    drain()
    say(rig.memory("t", user_id="maren", memory_blocks=["facts"]), "i live in BERGN")
    facts.replace(the(facts, "Bergn"), "I live in Bergen")
    drain()
    assert live(facts) == ["I live in Bergen"]
    say(memory, "I live in Bergn")
    drain()
    assert live(facts) == ["I live in Bergen", "I live in Bergn"], "said again, it is new"
    assert verify(rig.database, deep=True).violations == ()


def test_what_ended_stays_ended_when_a_person_deletes_its_successor(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "I live in Bergen")
    other = rig.memory("t", user_id="maren", memory_blocks=["facts"])
    say(other, "I like cod")
    drain()
    decide(rig.model, ("invalidate", "I live in Oslo", "I live in Bergen", None))
    say(memory, "I live in Oslo")
    drain()
    rig.model.behave()
    assert facts.delete(the(facts, "Oslo"))
    other.reset(derived=True)
    (ended,) = facts.list(with_invalidated=True)
    assert (ended.text, ended.is_live, ended.invalidated_by) == ("I live in Bergen", False, None)
    assert verify(rig.database, deep=True).violations == ()


def decide(server: ModelServer, *operations: tuple[str, str, str | None, str | None]) -> None:
    """Answer merges by text: (operation, candidate, known fact or None, new wording or None)."""

    def rows(prompt: str, tag: str) -> dict[str, int]:
        section = prompt.rpartition(f"<{tag}>\n")[2].partition(f"</{tag}>")[0]
        return {row["text"]: row["n"] for row in map(json.loads, section.splitlines())}

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<candidates>" not in prompt:
            return None
        candidates, known = rows(prompt, "candidates"), rows(prompt, "known")
        made = [
            {"op": op, "candidate": candidates[said], "fact": known[fact] if fact else None, "text": text}
            for op, said, fact, text in operations
        ]
        return json.dumps({"operations": made})

    server.behave(responder=respond)


Deed = Callable[[Facts, UUID], object]
RED = "my ship is red"
BOTH = "my boat is new and blue"
DURING: Sequence[tuple[str, str | None, Deed, list[str]]] = [
    ("update", BOTH, lambda facts, known: facts.replace(known, RED), ["boat is blue", RED]),
    ("update", BOTH, lambda facts, known: facts.delete(known), ["boat is blue"]),
    ("update", BOTH, lambda facts, known: facts.feedback(known, "good"), [BOTH]),
    ("duplicate", None, lambda facts, known: facts.delete(known), []),
    ("duplicate", None, lambda facts, known: facts.replace(known, RED), [RED]),
    ("invalidate", None, lambda facts, known: facts.replace(known, RED), ["boat is blue", RED]),
    ("invalidate", None, lambda facts, known: facts.delete(known), ["boat is blue"]),
    ("add", None, lambda facts, _known: facts.clear(), []),
    ("add", None, lambda facts, _known: facts.add("boat is blue"), ["boat is blue", "my boat is new"]),
]


@pytest.mark.parametrize(
    ("op", "text", "deed", "expected"), DURING, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_person_wins_over_a_merge_that_was_planned_before(
    rig: Rig,
    op: str,
    text: str | None,
    deed: Deed,
    expected: list[str],
    memory: Memory,
    facts: Facts,
    drain: Callable[[], None],
) -> None:
    """The person acts when the model has answered already, and its answer is stored."""
    say(memory, "my boat is new")
    drain()
    known = None if op == "add" else "my boat is new"
    decide(rig.model, (op, "boat is blue", known, text))
    say(memory, "boat is blue")
    stages = prepare_stages(rig.database, rig.settings, FACTS_STAGES)
    HandWorker(rig.database, stages).drain_all(rig.url)
    fact_id = the(facts, "new")
    done: list[object] = []

    def act(point: str) -> None:
        if point == "stored" and not done:
            done.append(deed(facts, fact_id))

    assert HandWorker(rig.database, stages, reach=act).drain_all(rig.url) == ["drained"]
    assert done
    assert live(facts) == expected
    assert nothing_due(rig.url)
    assert verify(rig.database, deep=True).violations == ()


def test_what_a_person_worded_is_not_overruled_by_what_was_said_before(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "I live in Bergen")
    facts.add("I live in Tromsø")
    decide(rig.model, ("invalidate", "I live in Bergen", "I live in Tromsø", None))
    drain()
    assert live(facts) == ["I live in Tromsø"]
    decide(rig.model, ("invalidate", "I live in Oslo", "I live in Tromsø", None))
    say(memory, "I live in Oslo")
    drain()
    assert live(facts) == ["I live in Oslo"], "said later, it counts"
    (tromso,) = (fact for fact in facts.list(with_invalidated=True) if not fact.is_live)
    assert tromso.valid_until is not None and tromso.valid_until >= tromso.valid_from
    assert verify(rig.database, deep=True).violations == ()


def test_an_edit_waits_for_a_merge_that_is_just_writing(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    """A clear that comes while a merge writes leaves nothing of what the merge wrote."""
    say(memory, "I like herring")
    stages = prepare_stages(rig.database, rig.settings, FACTS_STAGES)
    HandWorker(rig.database, stages).drain_all(rig.url)
    clearing: list[threading.Thread] = []

    def clear_meanwhile(point: str) -> None:
        if point == "applying":
            clearing.append(threading.Thread(target=facts.clear))
            clearing[0].start()
            wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the clear to wait")

    assert HandWorker(rig.database, stages, reach=clear_meanwhile).drain_all(rig.url) == ["drained"]
    clearing[0].join(100)
    assert not clearing[0].is_alive()
    assert live(facts) == []
    assert verify(rig.database, deep=True).violations == ()


def test_edits_and_merges_at_once_lose_nothing_and_never_lock_up(rig: Rig, facts: Facts) -> None:
    """Four people and two workers at one owner; what each person added and did not delete is there."""
    stages = prepare_stages(rig.database, rig.settings, FACTS_STAGES)
    sessions = [rig.memory(f"s{n}", user_id="maren", memory_blocks=["facts"]) for n in range(4)]
    over = threading.Event()

    def work() -> None:
        worker = HandWorker(rig.database, stages)
        while not over.is_set() or due_lanes(rig.url, FACTS_STAGES):
            worker.drain_all(rig.url)

    def live_through(person: int) -> list[str]:
        kept = []
        for number in range(6):
            say(sessions[person], f"person {person} said {number}")
            fact = facts.add(f"person {person} noted {number}", actor=f"p{person}")
            if number % 3 == 0:
                assert facts.delete(fact.fact_id)
            elif number % 3 == 1:
                assert facts.replace(fact.fact_id, f"person {person} corrected {number}")
                kept.append(f"person {person} corrected {number}")
            else:
                kept.append(f"person {person} noted {number}")
        return kept

    with ThreadPoolExecutor(6) as pool:
        workers = [pool.submit(work) for _ in range(2)]
        kept = [text for texts in pool.map(live_through, range(4)) for text in texts]
        over.set()
        for worker in workers:
            worker.result(300)
    said = [f"person {person} said {number}" for person in range(4) for number in range(6)]
    assert live(facts) == sorted(kept + said)
    numbers = rows_of(rig.url, "SELECT array_agg(number ORDER BY number) FROM strandline.fact_event")
    assert numbers == [(list(range(1, 4 * (6 + 2 + 2) + 1)),)], "one order, without a gap"
    assert rows_of(rig.url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [
        (0,)
    ]
    assert verify(rig.database, deep=True).violations == ()


NOW = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = st.lists(
    st.sampled_from(["herring", "Bergen", "boat", "blue", "two", "cats", "海"]), min_size=1, max_size=6
)


@given(
    WORDS,
    WORDS,
    st.sets(st.integers(1, 4), min_size=1),
    st.sets(st.integers(1, 4), min_size=1),
    st.integers(-2, 2),
)
def test_a_tombstone_holds_back_what_it_recognises_and_what_was_said_before(
    words: list[str], others: list[str], seqs: set[int], cited: set[int], minutes: int
) -> None:
    session = uuid4()
    stone = Tombstone(1, "delete", uuid4(), (trace_of(" ".join(words), "Maren", session, seqs),), NOW)
    text = " ".join(others)
    said_at = NOW + timedelta(minutes=minutes)
    said = Utterance(trace_of(text, "Maren", session, cited), said_at, said_at)
    same = fingerprint(text) == fingerprint(" ".join(words))
    (trace,) = stone.traces
    alike = bool(seqs & cited) and are_alike(trace.lexemes, said.trace.lexemes)
    # Other names or numbers make another statement, as test_deleted_words.py lists.
    alike = alike and not trace.is_contrary_to(said.trace)
    assert stone.holds_back(said) == (minutes <= 0 and (same or alike))
    assert stone.holds_back(Utterance(said.trace, said_at, NOW)) == (same or alike), (
        "delivered before, so said before"
    )
    elsewhere = Utterance(trace_of(text, "Maren", uuid4(), cited), NOW, NOW)
    assert stone.holds_back(elsewhere) == same
    everything = Tombstone(2, "clear", None, (), NOW)
    assert everything.holds_back(said) == (minutes <= 0)


@given(
    st.lists(
        st.builds(
            Trace,
            st.binary(min_size=16, max_size=16),
            st.one_of(st.none(), st.uuids()),
            st.frozensets(st.integers(1, 9)),
            st.frozensets(st.text("abc", min_size=1)),
        )
    )
)
def test_stored_traces_recognise_what_they_did(traces: list[Trace]) -> None:
    stored = read_traces(write_traces(traces))
    assert {trace.fingerprint for trace in stored} == {trace.fingerprint for trace in traces}
    for trace in traces:
        assert any(kept.recognises(trace) for kept in stored)


def test_a_model_does_not_word_something_else_as_what_was_deleted(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "my boat is old", "my boat is blue")
    drain()
    say(memory, "the boat was painted")
    facts.delete(the(facts, "blue"))
    decide(rig.model, ("invalidate", "the boat was painted", "my boat is old", "My boat is blue."))
    drain()
    assert live(facts) == ["the boat was painted"]
    decide(rig.model, ("invalidate", "a boat in blue", "the boat was painted", "My boat is blue."))
    say(memory, "a boat in blue")
    drain()
    assert live(facts) == ["My boat is blue."], "said since then, it is new"
    assert verify(rig.database, deep=True).violations == ()


def test_a_correction_holds_where_another_derivation_had_ended_the_fact(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "my boat is blue", "herring is what I like")
    drain()
    generation_id = derive_again(rig.database, rig.url, OWNER)
    drain()
    rows_of(
        rig.url,
        "UPDATE strandline.fact f SET live = false, invalidated_at = clock_timestamp(), invalidated_by ="
        " (SELECT o.fact_id FROM strandline.fact o WHERE o.generation_id = f.generation_id"
        " AND o.text LIKE 'herring%%') WHERE f.generation_id = %s AND f.text = 'my boat is blue' RETURNING 1",
        generation_id,
    )
    facts.replace(the(facts, "boat"), "my boat is green")
    switch_to(rig.url, generation_id)
    assert live(facts) == ["herring is what I like", "my boat is green"]
    assert verify(rig.database, deep=True).violations == ()


def test_a_deletion_reaches_a_derivation_that_was_begun_while_it_waited(
    rig: Rig, memory: Memory, facts: Facts, drain: Callable[[], None]
) -> None:
    say(memory, "my flat is at Torggate 4")
    drain()
    fact_id = the(facts, "Torggate")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(rig.url) as connection:
        connection.execute("SELECT FROM strandline.lane WHERE stage = 'merge' FOR UPDATE")
        deleting = pool.submit(facts.delete, fact_id)
        wait_until(lambda: lock_is_awaited(rig.url), timeout=60, what="the deletion to wait")
        generation_id = derive_again(rig.database, rig.url)
        drain()
        live_in = "SELECT text FROM strandline.fact WHERE generation_id = %s AND live"
        assert rows_of(rig.url, live_in, generation_id) == [("my flat is at Torggate 4",)]
        connection.rollback()
        assert deleting.result(300)
    assert rows_of(rig.url, live_in, generation_id) == []
    assert verify(rig.database, deep=True).violations == ()


def test_a_speakers_name_makes_two_facts_no_more_alike() -> None:
    session = uuid4()
    tea, coffee = (trace_of(f"Maren likes {drink}", "Maren", session, [1]) for drink in ("tea", "coffee"))
    assert not tea.recognises(coffee)
    assert tea.recognises(trace_of("The user likes tea with milk", "user", session, [1, 2]))
