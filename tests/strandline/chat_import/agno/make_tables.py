"""Makes the tables of the tests of ``strandline import --from agno``, with the Agno that is installed.

It is run once per release, in an environment of its own (``pip install "agno==1.8.4" sqlalchemy
"psycopg[binary]" greenlet``; so 2.9.0 and 3.1.10), and what it makes stands beside it:

    python make_tables.py agno1.sqlite
    python make_tables.py postgresql://postgres@127.0.0.1/empty && pg_dump --no-owner --inserts … > agno1.sql

Agents and a team of each release run here with a model that answers by script.
"""

# Each release has modules that the others do not have.
# mypy: ignore-errors
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.team import Team

RELEASE = int(version("agno").split(".")[0])

# What each agent is asked, in one run each; "weather" makes it call its tool.
ANAS = ["I moved to Lisbon in May.", "How is the weather?", "Thank you, and good night."]
BOS = ["My sister's name is Mia."]
CREWS = ["Plan a trip for me.", "Make it three days."]


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}."


@dataclass
class Scripted(Model):
    """Answers each message with its words, and one that speaks of the weather with a call first."""

    id: str = "scripted"
    calls: int = field(default=0)

    def invoke(self, messages: Any = None, *_: Any, **more: Any) -> ModelResponse:
        messages = messages or more.get("messages") or []
        last = messages[-1]
        text = str(last.content)
        if last.role == "user" and "weather" in text:
            self.calls += 1
            function = {"name": "weather", "arguments": '{"city": "Lisbon"}'}
            return ModelResponse(
                role="assistant",
                tool_calls=[{"id": f"call-{self.calls}", "type": "function", "function": function}],
            )
        return ModelResponse(role="assistant", content=f"You said: {text}")

    async def ainvoke(self, *arguments: Any, **more: Any) -> ModelResponse:
        return self.invoke(*arguments, **more)

    def invoke_stream(self, *arguments: Any, **more: Any) -> Iterator[ModelResponse]:
        yield self.invoke(*arguments, **more)

    async def ainvoke_stream(self, *arguments: Any, **more: Any) -> AsyncIterator[ModelResponse]:
        yield self.invoke(*arguments, **more)

    def parse_provider_response(self, response: ModelResponse, **_: Any) -> ModelResponse:
        return response

    def parse_provider_response_delta(self, response: ModelResponse) -> ModelResponse:
        return response

    _parse_provider_response = parse_provider_response
    _parse_provider_response_delta = parse_provider_response_delta


def make_first(url: str) -> None:
    """The tables of Agno 1: sessions of agents and of a team, and memories of its two memory classes."""
    from agno.memory.agent import AgentMemory
    from agno.memory.v2.memory import Memory
    from agno.memory.v2.schema import UserMemory

    if url.startswith("sqlite"):
        from agno.memory.v2.db.sqlite import SqliteMemoryDb as MemoryDb
        from agno.storage.sqlite import SqliteStorage as Storage
    else:
        from agno.memory.v2.db.postgres import PostgresMemoryDb as MemoryDb
        from agno.storage.postgres import PostgresStorage as Storage

    def memory() -> Any:
        return Memory(model=Scripted(), db=MemoryDb(table_name="user_memories", db_url=url))

    def agent(mind: Any, session: str, user: str | None) -> Any:
        return Agent(
            model=Scripted(), tools=[weather], memory=mind, session_id=session, user_id=user,
            agent_id="helper", system_message="You help.", add_history_to_messages=True,
            storage=Storage(table_name="agent_sessions", db_url=url), telemetry=False,
        )  # fmt: skip

    for mind, session, user, words in (
        (memory(), "trip", "ana", ANAS),
        (memory(), "desk", "bo", BOS),
        (AgentMemory(), "old", None, ANAS[:1]),
    ):
        talker = agent(mind, session, user)
        for text in words:
            talker.run(text)
    team = Team(
        members=[agent(memory(), "member", "ana")], model=Scripted(), memory=memory(), user_id="ana",
        session_id="crew", storage=Storage(table_name="team_sessions", db_url=url, mode="team"),
        system_message="You lead.", telemetry=False,
    )  # fmt: skip
    for text in CREWS:
        team.run(text)
    facts = memory()
    facts.add_user_memory(
        UserMemory(memory="Ana's cat is called Tom.", topics=["pets"], input="My cat Tom"), user_id="ana"
    )
    facts.add_user_memory(UserMemory(memory='Ana says "it\'s fine".'), user_id="ana")
    facts.add_user_memory(UserMemory(memory="Bo likes tea."), user_id="bo")
    facts.add_user_memory(UserMemory(memory="Someone runs."))


def make_later(url: str) -> None:
    """The tables of Agno 2 and 3: sessions of agents and of a team, and memories."""
    from agno.db.schemas.memory import UserMemory
    from agno.memory import MemoryManager

    if url.startswith("sqlite"):
        from agno.db.sqlite import SqliteDb as Db
    else:
        from agno.db.postgres import PostgresDb as Db

    db = Db(db_url=url)
    for session, user, words in (("trip", "ana", ANAS), ("desk", "bo", BOS), ("old", None, ANAS[:1])):
        agent = Agent(
            id="helper", model=Scripted(), tools=[weather], db=db, session_id=session, user_id=user,
            system_message="You help.", add_history_to_context=True, telemetry=False,
        )  # fmt: skip
        for text in words:
            agent.run(text)
    team = Team(
        id="crew", members=[Agent(id="member", model=Scripted())], model=Scripted(), db=db, user_id="ana",
        session_id="crew", system_message="You lead.", telemetry=False,
    )  # fmt: skip
    for text in CREWS:
        team.run(text)
    facts = MemoryManager(model=Scripted(), db=db)
    for user, memory in (
        ("ana", UserMemory(memory="Ana's cat is called Tom.", topics=["pets"], input="My cat Tom")),
        ("ana", UserMemory(memory='Ana says "it\'s fine".', feedback="right")),
        ("bo", UserMemory(memory="Bo likes tea.", agent_id="helper")),
        (None, UserMemory(memory="Someone runs.")),
    ):
        memory.created_at = memory.updated_at = 1_700_000_000
        facts.add_user_memory(memory, user_id=user)


if __name__ == "__main__":
    target = sys.argv[1]
    url = target if "://" in target else f"sqlite:///{Path(target).absolute()}"
    (make_first if RELEASE == 1 else make_later)(url)
