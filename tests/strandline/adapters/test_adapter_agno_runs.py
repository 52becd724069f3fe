"""Strandline under Agno 3: agents and teams keep their runs, and are shown memories that fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("agno.session.agent", reason="needs the extra agno")

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.message import Message as AgnoMessage
from agno.models.response import ModelResponse
from agno.run.agent import RunOutput
from agno.run.team import TeamRunOutput
from agno.team import Team

from strandline import Facts, Memory
from strandline.adapters.agno import StrandlineMemoryManager, StrandlineSummaryManager
from tests.conftest import MakeMemory, StartWorker, rows_of
from tests.support.agents.scripted_agno import UNSEEN, ScriptedModel, call, text, texts_of
from tests.support.agents.thirty_turns import FIRST, TURNS, Conversations, sayings
from tests.support.servers.model_server import ModelServer

AnyRun = RunOutput | TeamRunOutput | None
MakeManager = Callable[..., StrandlineMemoryManager]


@pytest.fixture
def make_manager(database_url: str) -> Iterator[MakeManager]:
    made: list[StrandlineMemoryManager] = []

    def make(**options: Any) -> StrandlineMemoryManager:
        made.append(StrandlineMemoryManager(database_url=database_url, **options))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


def hooks_of(manager: StrandlineMemoryManager) -> dict[str, Any]:
    return {"pre_hooks": [manager.recall], "post_hooks": [manager.keep], "memory_manager": manager, **UNSEEN}


def async_hooks_of(manager: StrandlineMemoryManager) -> dict[str, Any]:
    return {**hooks_of(manager), "pre_hooks": [manager.arecall], "post_hooks": [manager.akeep]}


# Thirty turns.


def count_boats(pier: str) -> str:
    """Count the boats at a pier."""
    return f"three boats, {pier}"


def make_agent(manager: StrandlineMemoryManager, last_texts: dict[str, list[str]]) -> Agent:
    """An agent that counts boats in each turn, and notes what its model is asked at the turn's begin."""

    def answer(messages: Sequence[AgnoMessage], run: AnyRun) -> ModelResponse:
        if messages[-1].role != "user":
            return text(f"Done: {messages[-1].content}")
        assert run is not None and run.user_id is not None
        last_texts[run.user_id] = texts_of(messages)
        return call("count_boats", '{"pier": "all"}', uuid4().hex)

    return Agent(
        name="Sailor",
        model=ScriptedModel(answer=answer),
        db=InMemoryDb(),
        tools=[count_boats],
        add_history_to_context=True,
        num_history_runs=3,
        update_memory_on_run=True,
        **async_hooks_of(manager),
    )


def make_team(manager: StrandlineMemoryManager, last_texts: dict[str, list[str]]) -> Team:
    """A team whose leader asks that agent in each turn; the agent has the same memory and hooks."""

    def answer(messages: Sequence[AgnoMessage], run: AnyRun) -> ModelResponse:
        if messages[-1].role != "user":
            return text(f"Told: {messages[-1].content}")
        assert run is not None and run.user_id is not None
        last_texts[run.user_id] = texts_of(messages)
        task = {"member_id": "sailor", "task": "Count all boats."}
        return call("delegate_task_to_member", json.dumps(task), uuid4().hex)

    return Team(
        name="Harbour",
        members=[make_agent(manager, {})],
        model=ScriptedModel(answer=answer),
        db=InMemoryDb(),
        add_history_to_context=True,
        num_history_runs=3,
        update_memory_on_run=True,
        **async_hooks_of(manager),
    )


@pytest.mark.parametrize("make", [make_agent, make_team])
def test_two_users_know_what_has_left_their_windows(
    make: Callable[..., Agent | Team],
    database_url: str,
    broker_url: str,
    start_worker: StartWorker,
    model_server: ModelServer,
) -> None:
    conversations = Conversations(database_url, broker_url, start_worker, model_server)
    options: Any = conversations.options
    manager = StrandlineMemoryManager(**options)
    last_texts: dict[str, list[str]] = {}
    runner = make(manager, last_texts)

    async def take(user: str, said: str) -> None:
        run = await runner.arun(said, user_id=user, session_id=f"{user}-talks")
        assert "three boats" in str(run.content)

    async def whole() -> None:
        await conversations.talk(take)
        conversations.check(last_texts, form="\n- {}")
        for user in FIRST:
            assert len([one for one in last_texts[user] if "counts pier" in one and "\n- " not in one]) == 3
            memory = Memory.from_defaults(f"{user}-talks", user_id=user, **options)
            stored = await memory.aget_all()
            assert [message.text for message in stored if message.role == "user"] == sayings(user)
            assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"] * TURNS
        await manager.aclose()

    asyncio.run(whole())
    doubled = "SELECT text FROM strandline.fact_candidate GROUP BY shard_key, text HAVING count(*) > 1"
    assert rows_of(database_url, doubled) == [], "each fact is found once"
    kinds = "SELECT DISTINCT kind FROM strandline.session_owner"
    assert rows_of(database_url, kinds) == [("chat",)], "Agno's own calls make no facts beside the runs"
