"""The first and last facts, topics, and figures of users: in Python and on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from strandline import ConfigurationError, Facts, InvalidMessageError
from strandline.cli.entry import run
from tests.conftest import Rig, rows_of

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
