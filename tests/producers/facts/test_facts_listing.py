"""Listing facts: what is known of an owner, and the messages, event, prompt and model that it came from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import pytest

from strandline import ConfigurationError, Facts, InvalidMessageError, Memory
from strandline.cli.entry import run
from strandline.pipelines.inspect.verify import verify
from strandline.producers import namespace_facts as facts_namespace
from strandline.producers.facts.listing import Fact
from strandline.producers.namespace_facts import Clearing, NamespaceFacts
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.processes.commands import run_here
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

SAID = (
    "My sister Inga lives in Husum.",
    "I am allergic to mussels.",
    "My ferry to Amrum leaves on Friday.",
    "I prefer black tea without sugar.",
    "I moved to Hamburg in March.",
)
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def _model(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that finds one fact in each line."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")


@pytest.fixture
def memory(make_memory: MakeMemory, database_url: str, _model: None) -> Memory:
    """Two sessions of one user, told five things with a day between each, all of it derived."""
    for session_id, said in (("one", SAID[:3]), ("two", SAID[3:])):
        told = make_memory(session_id, user_id="maren", consume="background")
        for text in said:
            number = SAID.index(text)
            at = BEGAN + timedelta(days=number)
            told.put({"role": "user", "content": text, "id": f"m{number}", "created_at": at})
        told.flush(all=True)
        wait_until(lambda: nothing_due(database_url), timeout=30, what="everything to be consumed")
    told.close()
    return make_memory("three", user_id="maren")


def known(facts: Any) -> list[str]:
    return [fact.text for fact in facts]


def fact_about(facts: Any, word: str) -> Fact:
    (found,) = (fact for fact in facts if word in fact.text)
    assert isinstance(found, Fact)
    return found


def test_facts_are_the_owners_from_all_sessions_newest_first(memory: Memory) -> None:
    facts = memory.facts.list()
    assert len(facts) == 5
    for word in ("Inga", "mussels", "Amrum", "tea", "Hamburg"):
        assert word in fact_about(facts, word).text
    assert [fact.said_at for fact in facts] == [BEGAN + timedelta(days=day) for day in (4, 3, 2, 1, 0)]


def test_a_fact_names_where_it_came_from(memory: Memory, make_memory: MakeMemory, database_url: str) -> None:
    fact = fact_about(memory.facts.list(), "mussels")
    assert fact.message_ids == ("m1",)
    assert fact.invalidated_at is None
    assert fact.invalidated_by is None
    assert fact.created_at.tzinfo is not None
    assert fact.updated_at >= fact.created_at
    (revision,) = fact.revisions
    assert (revision.operation, revision.text, revision.seqs) == ("add", fact.text, (2,))
    assert revision.model
    assert revision.prompt_hash
    events = rows_of(database_url, "SELECT event_id FROM strandline.flush_event WHERE through_seq >= 2")
    assert revision.event_id in {event_id for (event_id,) in events}
    history = make_memory("one", user_id="maren").get_all()
    (source,) = (message for message in history if message.id in fact.message_ids)
    assert "mussels" in source.text
    assert source.seq in revision.seqs


def test_a_fact_said_again_has_both_messages(rig: Rig, memory: Memory) -> None:
    again = rig.memory("four", user_id="maren", consume="background")
    again.put({"role": "user", "content": SAID[1], "id": "again"})
    again.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="everything to be consumed")
    facts = memory.facts.list()
    assert len(facts) == 5
    fact = fact_about(facts, "mussels")
    assert fact.message_ids == ("m1", "again")
    assert [revision.operation for revision in fact.revisions] == ["add", "duplicate"]


def test_facts_are_listed_in_pages(memory: Memory) -> None:
    everything = known(memory.facts.list())
    pages = [known(memory.facts.list(limit=2, offset=offset)) for offset in (0, 2, 4, 6)]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert [text for page in pages for text in page] == everything


def test_what_is_no_longer_true_is_listed_when_asked_for(memory: Memory, database_url: str) -> None:
    gone, successor = memory.facts.list()[:2]
    rows_of(
        database_url,
        "UPDATE strandline.fact SET live = false, invalidated_at = clock_timestamp(), invalidated_by = %s"
        " WHERE fact_id = %s RETURNING 1",
        successor.fact_id,
        gone.fact_id,
    )
    assert gone.text not in known(memory.facts.list())
    assert len(memory.facts.list()) == 4
    (found,) = (f for f in memory.facts.list(with_invalidated=True) if f.fact_id == gone.fact_id)
    assert found.invalidated_at is not None
    assert found.invalidated_by == successor.fact_id
    assert gone.text not in str(memory.get())


def test_only_the_generation_that_serves_is_listed(memory: Memory, database_url: str) -> None:
    rows_of(
        database_url,
        "UPDATE strandline.generation SET state = 'retired' WHERE pipeline = 'facts' RETURNING 1",
    )
    assert memory.facts.list() == []


def test_facts_of_a_user_are_not_listed_for_other_owners(memory: Memory, make_memory: MakeMemory) -> None:
    for options in ({"user_id": "tove"}, {"user_id": "maren", "namespace": "elsewhere"}, {}):
        assert make_memory("fresh", **options).facts.list() == []


# The first and last facts, topics, and figures of users: in Python and on the command line.
MakeFacts = Callable[..., Facts]
HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
def facts_of(database_url: str) -> MakeFacts:
    def make(user_id: str = "maren", **options: Any) -> Facts:
        return Facts.for_owner(user_id=user_id, database_url=database_url, **options)

    return make


def test_the_first_and_the_last_are_given_in_the_order_in_which_they_were_said(facts_of: MakeFacts) -> None:
    facts = facts_of()
    for number in range(6):
        facts.add(f"fact {number}", topics=["even"] if number % 2 == 0 else None)
    assert [fact.text for fact in facts.list(last_n=2)] == ["fact 4", "fact 5"]
    assert [fact.text for fact in facts.list(first_n=2)] == ["fact 0", "fact 1"]
    assert [fact.text for fact in facts.list(last_n=2, topics=["even"])] == ["fact 2", "fact 4"]
    assert len(facts.list(last_n=100)) == 6
    none = facts.list(last_n=0)
    assert (none, none.total) == ([], 6) and facts.list(first_n=0) == []
    assert asyncio.run(facts.alist(last_n=1))[0].text == "fact 5"
    for wrong in (
        {"last_n": 1, "first_n": 1},
        {"last_n": 1, "offset": 1},
        {"first_n": 1, "sort": "oldest"},
        {"last_n": -1},
        {"first_n": 1_001},
        {"last_n": True},
    ):
        with pytest.raises((ConfigurationError, InvalidMessageError), match=next(iter(wrong))):
            facts.list(**wrong)


def test_facts_of_one_moment_are_given_in_the_order_in_which_they_were_made(
    facts_of: MakeFacts, database_url: str
) -> None:
    facts = facts_of()
    told = [f"fact {number}" for number in range(8)]
    for text in told:
        facts.add(text)
    rows_of(database_url, "UPDATE strandline.fact SET said_at = now() RETURNING 1")
    assert [fact.text for fact in facts.list(sort="oldest")] == told
    assert [fact.text for fact in facts.list()] == told[::-1]
    assert [fact.text for fact in facts.list(first_n=3)] == told[:3]
    assert [fact.text for fact in facts.list(last_n=5)] == told[3:]


def test_of_the_facts_that_match_the_first_or_the_last_are_given(facts_of: MakeFacts) -> None:
    facts = facts_of()
    for number in range(6):
        facts.add(f"boat {number}", topics=["even"] if number % 2 == 0 else None)
        facts.add(f"house {number}")
    assert [fact.text for fact in facts.search("boat", last_n=2)] == ["boat 4", "boat 5"]
    assert [fact.text for fact in facts.search("boat", first_n=2)] == ["boat 0", "boat 1"]
    assert [fact.text for fact in facts.search("boat", last_n=2, topics=["even"])] == ["boat 2", "boat 4"]
    assert [fact.text for fact in facts.search("boat", limit=1, last_n=100)] == [
        f"boat {n}" for n in range(6)
    ]
    assert (
        facts.search("boat", last_n=0)
        == facts.search("boat", first_n=0)
        == facts.search("car", last_n=5)
        == []
    )
    assert asyncio.run(facts.asearch("boat", first_n=1))[0].text == "boat 0"
    wrong_ones: tuple[dict[str, Any], ...] = ({"last_n": 1, "first_n": 1}, {"last_n": -1}, {"first_n": 1_001})
    for wrong in wrong_ones:
        with pytest.raises((ConfigurationError, InvalidMessageError), match=next(iter(wrong))):
            facts.search("boat", **wrong)


def test_topics_are_counted_over_live_facts_of_one_owner(facts_of: MakeFacts) -> None:
    facts = facts_of()
    facts.add("one", topics=["boats", "home"])
    facts.add("two", topics=["boats"])
    gone = facts.add("three", topics=["food"])
    facts.delete(gone.fact_id)
    facts_of("bo").add("four", topics=["boats"])
    assert [(one.topic, one.facts) for one in facts.topics()] == [("boats", 2), ("home", 1)]
    assert [one.topic for one in facts.topics(limit=1)] == ["boats"] and facts.topics(limit=0) == []
    assert asyncio.run(facts.atopics()) == facts.topics()
    with pytest.raises(ConfigurationError):
        facts.topics(limit=1_001)


def test_figures_count_what_the_logs_hold(rig: Rig, facts_of: MakeFacts) -> None:
    memory = rig.memory("a", user_id="maren", token_limit=200, token_flush_size=30, memory_blocks=[])
    memory.put({"role": "system", "content": "You are the harbour's clerk."})
    for number in range(40):
        memory.put({"role": "user", "content": f"one two three four five {number}"})
    memory.pop()
    again = rig.memory("b", user_id="maren", memory_blocks=[])
    again.put({"role": "user", "content": "before the reset"})
    again.flush(all=True)
    again.reset()
    again.put_messages([{"role": "user", "content": "after the reset"}] * 2)
    rig.memory("c", user_id="bo", memory_blocks=[]).put({"role": "user", "content": "Bo's own"})
    facts = facts_of()
    facts.add("one")
    facts.add("two")
    figures = facts.figures()
    logs = [*memory.get_all(), *again.get_all()]
    assert rows_of(rig.url, "SELECT count(*) > 3 FROM strandline.flush_event") == [(True,)]
    assert (figures.facts, figures.sessions, figures.messages) == (2, 2, 42) and len(logs) == 42
    assert figures.tokens == sum(message.tokens or 0 for message in logs)
    assert figures.oldest_fact_at is not None and figures.newest_fact_at is not None
    assert figures.oldest_fact_at <= figures.newest_fact_at
    assert figures.first_session_at is not None and figures.last_put_at is not None
    assert figures.first_session_at <= figures.last_put_at
    nobody = facts_of("nobody").figures()
    assert (nobody.facts, nobody.sessions, nobody.tokens, nobody.last_put_at) == (0, 0, 0, None)
    assert asyncio.run(facts.afigures()) == figures
    facts.create_from([{"role": "user", "content": "I like every boat."}])
    facts.instruct("Forget the boats.")
    assert facts.figures() == figures  # neither was said in a session


async def test_users_of_a_namespace_come_page_by_page(rig: Rig, facts_of: MakeFacts) -> None:
    for name in ("ana", "bo", "cleo"):
        for session in ("1", "2"):
            rig.memory(f"{name}-{session}", user_id=name, memory_blocks=[]).put(HELLO)
    rig.memory("alone", memory_blocks=[]).put(HELLO)
    rig.memory("z", user_id="zoe", namespace="other", memory_blocks=[]).put(HELLO)
    facts_of("bo").add("Bo has a boat.")
    everyone = Facts.of_namespace("default", database_url=rig.url)
    first = everyone.users(limit=2)
    assert [one.user_id for one in first] == ["ana", "bo"] and first.after == "bo"
    assert [(one.figures.sessions, one.figures.facts) for one in first] == [(2, 0), (2, 1)]
    rest = await everyone.ausers(limit=2, after=first.after)
    assert [one.user_id for one in rest] == ["cleo"] and rest.after is None
    for wrong in (0, 201, -1):
        with pytest.raises(ConfigurationError, match="limit"):
            everyone.users(limit=wrong)


def test_the_command_line_shows_the_same(
    rig: Rig, facts_of: MakeFacts, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.memory("s", user_id="maren", memory_blocks=[]).put(HELLO)
    rig.memory("t", user_id="bo", memory_blocks=[]).put(HELLO)
    facts_of().add("Maren has a boat.", topics=["boats"])
    target = ["--database-url", rig.url]
    assert run(["facts", "figures", "--user", "maren", *target]) == 0
    shown = capsys.readouterr().out
    assert "1 live fact, said" in shown and "1 session" in shown and "boats" in shown
    assert run(["facts", "figures", "--session", "s", "--json", *target]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["topics"] == [{"topic": "boats", "facts": 1}] and report["figures"]["messages"] == 1
    assert run(["facts", "users", "--limit", "1", *target]) == 0
    assert "--after bo" in capsys.readouterr().out
    assert run(["facts", "users", "--after", "bo", "--json", *target]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [user["user_id"] for user in report["users"]] == ["maren"] and report["after"] is None
    assert run(["facts", "users", "--after", "zoe", *target]) == 0
    assert "no more users" in capsys.readouterr().out
    for command in ("figures", "users"):
        assert run(["facts", command, "--json-schema"]) == 0


# Clearing the facts of a whole namespace: of every owner in it, of no other owner, in steps.
USERS = ("ana", "bo", "cleo")


@pytest.fixture
def consume(database: Database, database_url: str, model_settings: Settings) -> Callable[[], None]:
    def consumed() -> None:
        drain_everything(database, database_url, model_settings, (EXTRACT_STAGE, MERGE_STAGE))
        assert nothing_due(database_url)

    return consumed


@pytest.fixture
def shop(database_url: str) -> NamespaceFacts:
    return Facts.of_namespace("shop", database_url=database_url)


def memory_of(make_memory: MakeMemory, user_id: str | None, **options: Any) -> Memory:
    options = {"namespace": "shop", "memory_blocks": ["facts"]} | options
    return make_memory(f"of {user_id}", user_id=user_id, **options)


def clearings(url: str) -> list[tuple[int, str | None]]:
    return rows_of(
        url, "SELECT count(*), min(actor) FROM strandline.fact_event WHERE kind = 'clear' GROUP BY shard_key"
    )


def test_every_owner_of_the_namespace_is_cleared_once_and_nobody_else(
    rig: Rig, consume: Callable[[], None], shop: NamespaceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users, a session without one, an owner without any session, and one who is still to be read."""
    monkeypatch.setattr(facts_namespace, "OWNERS_PER_PAGE", 2)
    for user_id in (*USERS, None):
        say(memory_of(rig.memory, user_id), "I live in Bergen", "I own a boat")
    other = memory_of(rig.memory, "ana", namespace="elsewhere")
    say(other, "I live in Oslo")
    archive = memory_of(rig.memory, "dee", memory_blocks=[])
    say(archive, "I live in Husum")
    consume()
    by_hand = Facts.for_owner(user_id="no session yet", namespace="shop", database_url=rig.url)
    by_hand.add("Likes tea")
    Facts.for_owner(user_id="ana", namespace="elsewhere", database_url=rig.url).add("Likes cocoa")
    late = memory_of(rig.memory, "eve")
    say(late, "I live in Rome")

    assert shop.to_clear() == Clearing(owners=6, facts=9)
    assert asyncio.run(_looked_at(shop)) == Clearing(owners=6, facts=9)
    assert clearings(rig.url) == [], "looking changes nothing"

    first = list(islice(shop.clear_each(actor="ops"), 2))
    assert [cleared.owners for cleared in first] == [1, 1]
    assert shop.to_clear().owners == 4, "what was done stays done"
    assert sum(first, shop.clear(actor="ops")) == Clearing(owners=6, facts=9)
    assert clearings(rig.url) == [(1, "ops")] * 6
    assert shop.clear() == shop.to_clear() == Clearing()

    consume()
    for memory in (*(memory_of(rig.memory, user_id) for user_id in (*USERS, None)), late):
        assert memory.facts.list(with_invalidated=True).total == 0, "what was still to be read stays away too"
    assert by_hand.list().total == 0
    assert sorted(fact.text for fact in other.facts.list()) == ["I live in Oslo", "Likes cocoa"]
    assert len(memory_of(rig.memory, "ana").get_all()) == 2, "messages stay"

    say(memory_of(rig.memory, "bo"), "I sold the boat")
    consume()
    assert [fact.text for fact in memory_of(rig.memory, "bo").facts.list()] == ["I sold the boat"]
    assert shop.to_clear() == Clearing(owners=1, facts=1)
    assert asyncio.run(_cleared(shop)) == Clearing(owners=1, facts=1)
    assert verify(rig.database, deep=True).violations == ()


async def _looked_at(facts: NamespaceFacts) -> Clearing:
    return await facts.ato_clear()


async def _cleared(facts: NamespaceFacts) -> Clearing:
    return await facts.aclear(actor="ops")


def test_the_command_says_what_it_would_do_and_does_it_when_told(database_url: str) -> None:
    facts = Facts.for_owner(user_id="ana", namespace="shop", database_url=database_url)
    facts.add("Likes tea")
    facts.add("Likes cocoa")

    clear = partial(run_here, "facts", "clear", "--namespace", "shop", on=database_url)
    assert clear().out == "shop: would clear 2 live facts of 1 owner; add --yes to do it\n"
    assert facts.list().total == 2
    cleared = clear("--yes", "--actor", "ops", "--json").json
    assert cleared == {"namespace": "shop", "dry_run": False, "owners": 1, "facts": 2}
    assert facts.list().total == 0
    assert clearings(database_url) == [(1, "ops")]


def test_a_namespace_must_be_a_name(database_url: str) -> None:
    with pytest.raises(InvalidMessageError, match="namespace"):
        Facts.of_namespace("", database_url=database_url)
