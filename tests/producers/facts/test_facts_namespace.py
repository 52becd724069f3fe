"""Clearing the facts of a whole namespace: of every owner in it, of no other owner, in steps."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from strandline import Facts, InvalidMessageError, Memory
from strandline.pipelines.inspect.verify import verify
from strandline.producers import namespace_facts as facts_namespace
from strandline.producers.namespace_facts import Clearing, NamespaceFacts
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of
from tests.support.processes import forking
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

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

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "strandline", "facts", "clear", *arguments]
        done = forking.run(
            [*command, "--database-url", database_url],
            capture_output=True,
            check=True,
            timeout=600,
        )
        return done.stdout

    assert run("--namespace", "shop") == "shop: would clear 2 live facts of 1 owner; add --yes to do it\n"
    assert facts.list().total == 2
    report = json.loads(run("--namespace", "shop", "--yes", "--actor", "ops", "--json"))
    assert report == {"namespace": "shop", "dry_run": False, "owners": 1, "facts": 2}
    assert facts.list().total == 0
    assert clearings(database_url) == [(1, "ops")]


def test_a_namespace_must_be_a_name(database_url: str) -> None:
    with pytest.raises(InvalidMessageError, match="namespace"):
        Facts.of_namespace("", database_url=database_url)
