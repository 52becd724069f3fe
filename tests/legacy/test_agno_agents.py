"""Agents and teams of Agno 1 with Strandline's memory: what a run sends, and thirty turns of two users."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agno.agent import Agent
from agno.memory.v2.schema import UserMemory
from agno.models.openai.like import OpenAILike
from agno.team import Team

from strandline.adapters.agno_v1 import StrandlineMemory
from tests.conftest import StartWorker, rows_of
from tests.support.agents.thirty_turns import FIRST, QUESTION, TURNS, WORDS, Conversations, sayings
from tests.support.servers.model_server import ModelServer, RecordedRequest

# Agno makes a client of OpenAI's for each call on a loop, and closes none.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

UNREPORTED: dict[str, Any] = {"telemetry": False, "monitoring": False}
Respond = Callable[[RecordedRequest], dict[str, Any]]


@pytest.fixture
def agents() -> Iterator[ModelServer]:
    """The model of the agents, apart from that of the workers."""
    with ModelServer() as server:
        yield server
    gc.collect()  # clients that nobody closed end here, where that is no error


def model(server: ModelServer, name: str) -> OpenAILike:
    return OpenAILike(id=name, api_key="none", base_url=server.base_url)


def answer(text: str | None, *calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, name, arguments in calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    fields = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    return {**fields, "choices": [choice], "usage": usage}


def texts_of(request: RecordedRequest) -> list[str]:
    return [str(message.get("content")) for message in request.body["messages"]]


def test_an_agent_has_facts_summary_and_history(database_url: str, agents: ModelServer) -> None:
    agents.behave(responder=lambda _request: answer("Noted."))

    def build() -> Agent:
        memory = StrandlineMemory("ana", database_url=database_url)
        return Agent(
            model=model(agents, "sailor"), memory=memory, enable_user_memories=True,
            enable_session_summaries=True, add_history_to_messages=True, num_history_runs=2, **UNREPORTED,
        )  # fmt: skip

    first = build()
    first.memory.add_user_memory(UserMemory("Ana is afraid of thunder."))
    first.run("My boat is called Petrel.", user_id="ana", session_id="a-1")
    # Another process, without a storage of Agno's.
    second = build()
    second.run("Where does she lie?", user_id="ana", session_id="a-1")
    sent = texts_of(agents.requests[-1])
    assert "- Ana is afraid of thunder." in sent[0]
    assert sent[1:] == ["My boat is called Petrel.", "Noted.", "Where does she lie?"]
    stored = second.memory.session_memory("a-1").get_all()
    assert [message.role for message in stored] == ["user", "assistant"] * 2
    causes = rows_of(database_url, "SELECT cause, count(*) FROM strandline.flush_event GROUP BY cause")
    assert causes == [("turn", 2)], "a fact is made once, although the agent asks for it by itself"
    second.memory.close()


def test_a_run_is_shown_the_memories_that_fit_what_is_expected(
    database_url: str, agents: ModelServer
) -> None:
    agents.behave(responder=lambda _request: answer("Noted."))
    memory = StrandlineMemory(lambda session: session, max_memories=2, database_url=database_url)
    for user in ("ana", "rui"):
        for sentence in (f"The boat of {user} is called Petrel.", "It rains.", "It snows.", "It is late."):
            memory.add_user_memory(UserMemory(sentence), user_id=user)
    agent = Agent(model=model(agents, "sailor"), memory=memory, enable_user_memories=True, **UNREPORTED)

    async def ask(user: str) -> None:
        memory.expect("What is my boat called?", user_id=user)
        await agent.deep_copy().arun("What is my boat called?", user_id=user, session_id=user)

    async def both() -> None:
        await asyncio.gather(ask("ana"), ask("rui"))

    asyncio.run(both())
    for request in agents.requests:
        shown = [line for line in texts_of(request)[0].splitlines() if line.startswith("- ")]
        assert len(shown) == 2 and "is called Petrel." in shown[0] and shown[1] == "- It is late."
    memory.close()


def test_an_agent_runs_where_a_loop_runs(database_url: str, agents: ModelServer) -> None:
    agents.behave(responder=lambda _request: answer("Noted."))
    memory = StrandlineMemory(lambda session: session.partition("-")[0], database_url=database_url)
    agent = Agent(
        model=model(agents, "sailor"), memory=memory, enable_user_memories=True, add_history_to_messages=True,
        **UNREPORTED,
    )  # fmt: skip

    async def talk() -> None:
        for user in ("ana", "rui"):
            await agent.arun(f"I am {user}.", user_id=user, session_id=f"{user}-1")
            await agent.arun("Who am I?", user_id=user, session_id=f"{user}-1")

    asyncio.run(talk())
    assert "ana" not in str(texts_of(agents.requests[-1]))
    assert texts_of(agents.requests[-1])[-3:] == ["I am rui.", "Noted.", "Who am I?"]
    owners = rows_of(database_url, "SELECT session_id, user_id FROM strandline.session_owner ORDER BY 1")
    assert owners == [("ana-1", "ana"), ("rui-1", "rui")]
    memory.close()


def test_an_agentic_agent_changes_memories_by_its_tool(database_url: str, agents: ModelServer) -> None:
    def respond(request: RecordedRequest) -> dict[str, Any]:
        latest = request.body["messages"][-1]
        if latest["role"] == "user":
            return answer(None, ("c1", "update_user_memory", {"task": "Ana sails."}))
        return answer(f"Done: {latest['content']}")

    agents.behave(responder=respond)
    memory = StrandlineMemory("ana", agentic=True, database_url=database_url)
    agent = Agent(model=model(agents, "m"), memory=memory, enable_agentic_memory=True, **UNREPORTED)
    response = agent.run("I sail.", user_id="ana", session_id="a-1")
    assert response.content == "Done: The request was accepted; memories follow from it in the background."
    stages = rows_of(
        database_url,
        "SELECT DISTINCT cause, stage FROM strandline.due JOIN strandline.flush_event USING (event_id)",
    )
    assert sorted(stages) == [("instruction", "extract"), ("turn", "summary"), ("turn", "vectors")]
    memory.close()


def test_a_team_of_two_users_knows_what_has_left_its_window(
    database_url: str,
    broker_url: str,
    start_worker: StartWorker,
    model_server: ModelServer,
    agents: ModelServer,
) -> None:
    conversations = Conversations(database_url, broker_url, start_worker, model_server)
    last_texts: dict[str, list[str]] = {}
    notes: dict[str, list[str]] = {name: [] for name in FIRST}

    def respond(request: RecordedRequest) -> dict[str, Any]:
        role, _, name = request.body["model"].partition("-")
        latest = request.body["messages"][-1]
        text = str(latest.get("content"))
        if role == "scout":
            task = text.partition("<task>")[2].partition("</task>")[0].strip() or text
            return (
                answer("Seen.") if latest["role"] == "tool" else answer(None, ("n", "note", {"text": task}))
            )
        if latest["role"] == "tool":
            return answer("Done.")
        last_texts[name] = texts_of(request)
        if len(notes[name]) % 5:
            return answer(None, ("n", "note", {"text": text}))
        task = {"member_id": "scout", "task_description": text, "expected_output": "A word."}
        return answer(None, ("t", "transfer_task_to_member", task))

    def build_team(name: str) -> Team:
        memory = StrandlineMemory(name, **conversations.options)

        def note(text: str) -> str:
            """Note a text."""
            notes[name].append(text)
            return "noted"

        scout = Agent(
            name="scout", model=model(agents, f"scout-{name}"), tools=[note], memory=memory, **UNREPORTED
        )
        return Team(
            [scout], mode="coordinate", tools=[note], model=model(agents, f"lead-{name}"), memory=memory,
            enable_user_memories=True, add_history_to_messages=True, num_history_runs=3, **UNREPORTED,
        )  # fmt: skip

    agents.behave(responder=respond)
    teams = {name: build_team(name) for name in FIRST}

    async def take(name: str, text: str) -> None:
        await asyncio.to_thread(teams[name].run, text, user_id=name, session_id=f"{name}-talks")

    asyncio.run(conversations.talk(take))
    for name, texts in last_texts.items():
        (other,) = set(FIRST) - {name}
        assert f"- {FIRST[name]}\n" in texts[0]
        assert not [text for text in texts[1:] if WORDS[name] in text], "it has left the window"
        assert not [text for text in texts if WORDS[other] in text or f"{other} counts" in text]
        assert texts[-1] == QUESTION
        assert conversations.facts_about(name) == 1, "made once"
        stored = teams[name].memory.session_memory(f"{name}-talks").get_all()
        assert [message.text for message in stored if message.role == "user"] == sayings(name)
        assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"] * TURNS
        assert len(notes[name]) == TURNS
        context = teams[name].memory.team_context[f"{name}-talks"]
        assert len(context.member_interactions) == TURNS / 5
    teams["ana"].memory.close()
