"""The examples of TFrameX's page on memory that are about its agents and its own store, on the adapter.

A line that differs from the page's ends with ``# changed``.
What is said in it, and what stands around it, is ours.
The page is of an older form of TFrameX: 1.1 registers agents by a decorator of the app.
The stores that the page writes by hand are in ``tests/documents/test_tframex_patterns.py``;
`docs/promises.md` lists all of its examples.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("tframex", reason="needs the environment of `make test-legacy`")

from tframex import OpenAIChatLLM, TFrameXApp
from tframex.util.memory import BaseMemoryStore, Message

from strandline import ConfigurationError
from strandline.adapters.tframex import StrandlineMemoryStore
from tests.support.servers.model_server import ModelServer, RecordedRequest


@pytest.fixture
def configured(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of an application that has set its database there."""
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    return database_url


def contents(request: RecordedRequest) -> list[str]:
    return [str(message.get("content")) for message in request.body["messages"]]


def knows_the_name(request: RecordedRequest) -> str:
    """Says the name if some message of the request tells it."""
    known = any("I am called Maren" in content for content in contents(request))
    return "You are Maren." if known else "Nice to meet you."


def model(server: ModelServer, answer: Callable[[RecordedRequest], str] = knows_the_name) -> Any:
    server.behave(responder=answer)
    return OpenAIChatLLM(model_name="scripted", api_base_url=server.base_url, api_key="none")


async def _example_1() -> None:
    memory: BaseMemoryStore = StrandlineMemoryStore("session")
    await memory.add_message(Message(role="user", content="Ahoy"))
    await memory.add_message(Message(role="assistant", content="Ahoy, Maren!"))
    assert [message.content for message in await memory.get_history(limit=None, offset=1, roles=None)] == [
        "Ahoy"
    ]
    assert [message.content for message in await memory.get_history(roles=["assistant"])] == ["Ahoy, Maren!"]
    assert len(await memory.get_context_window(max_tokens=4000)) == 2
    await memory.clear()
    assert await memory.get_history() == []
    await memory.aclose()


def test_tframex_01_a_store_has_the_four_methods_of_the_interface(configured: str) -> None:
    asyncio.run(_example_1())
    window = inspect.signature(StrandlineMemoryStore.get_context_window).parameters
    assert window["max_tokens"].default == 4000
    history = inspect.signature(StrandlineMemoryStore.get_history).parameters
    assert [name for name in history if name != "self"] == ["limit", "offset", "roles"]


async def _example_2(server: ModelServer) -> None:
    memory = StrandlineMemoryStore()  # changed
    await memory.add_message(Message(role="user", content="Ahoy"))
    assert len(await memory.get_history()) == 1

    memory = StrandlineMemoryStore("assistant", max_messages=100)  # changed
    app = TFrameXApp(default_llm=model(server))  # changed: the page has no app
    app.agent(name="Assistant", memory_store=memory)(
        lambda: None
    )  # changed: LLMAgent(name=…, memory_store=…)
    async with app.run_context() as rt:
        await rt.call_agent("Assistant", "Ahoy")
    assert [message.content for message in await memory.get_history()] == ["Ahoy", "Nice to meet you."]
    await memory.aclose()


def test_tframex_02_an_agent_keeps_its_conversation_in_a_store(
    configured: str, model_server: ModelServer
) -> None:
    asyncio.run(_example_2(model_server))


async def _example_3() -> None:
    memory = StrandlineMemoryStore(  # changed
        max_messages=100,
        max_tokens=300,  # changed: so that little text is enough
        eviction_strategy="fifo",
    )
    for number in range(120):
        await memory.add_message(Message(role="user", content=f"Message {number}"))
    newest = await memory.get_history(roles=["user"])
    assert 1 < len(newest) < 100, "the tokens are the narrower bound"
    assert newest[-1].content == "Message 119"
    await memory.aclose()


def test_tframex_03_a_store_has_three_limits(configured: str) -> None:
    asyncio.run(_example_3())
    with pytest.raises(ConfigurationError, match="eviction_strategy is 'lru'; only 'fifo' is offered"):
        StrandlineMemoryStore(eviction_strategy="lru")


async def _example_6(server: ModelServer) -> None:
    app = TFrameXApp(default_llm=model(server))  # changed: the page has no app
    app.agent(  # changed: LLMAgent(…)
        name="ConversationBot",
        memory_store=StrandlineMemoryStore("conversation", max_messages=50),  # changed
        system_prompt="You help.",
    )(lambda: None)
    async with app.run_context() as rt:
        await rt.call_agent("ConversationBot", "I am called Maren")
        response2 = await rt.call_agent("ConversationBot", "How am I called?")
    assert response2.content == "You are Maren."
    assert contents(server.requests[-1])[0] == "You help."
    # Another process goes on with the same conversation.
    later = TFrameXApp(default_llm=model(server))
    later.agent(name="ConversationBot", memory_store=StrandlineMemoryStore("conversation"))(lambda: None)
    async with later.run_context() as rt:
        response3 = await rt.call_agent("ConversationBot", "And now?")
    assert response3.content == "You are Maren."


def test_tframex_06_a_name_is_remembered_in_a_conversation(
    configured: str, model_server: ModelServer
) -> None:
    asyncio.run(_example_6(model_server))


async def _example_7(server: ModelServer) -> None:
    shared_memory = StrandlineMemoryStore("shared", max_messages=200)  # changed
    app = TFrameXApp(default_llm=model(server))  # changed: the page has no app
    app.agent(name="Analyst", memory_store=shared_memory)(lambda: None)  # changed: LLMAgent(…)
    app.agent(name="Writer", memory_store=shared_memory)(lambda: None)  # changed: LLMAgent(…)
    async with app.run_context() as rt:
        await rt.call_agent("Analyst", "I am called Maren")
        response = await rt.call_agent("Writer", "How am I called?")
    assert response.content == "You are Maren."
    assert contents(server.requests[-1])[-3:] == ["I am called Maren", "You are Maren.", "How am I called?"]
    await shared_memory.aclose()


def test_tframex_07_two_agents_share_a_store(configured: str, model_server: ModelServer) -> None:
    asyncio.run(_example_7(model_server))


async def _example_17() -> None:
    memory = StrandlineMemoryStore(max_messages=5)  # changed
    for i in range(10):
        await memory.add_message(Message(role="user", content=f"Message {i}"))
    history = await memory.get_history()
    assert len(history) == 5
    assert history[-1].content == "Message 9"

    memory = StrandlineMemoryStore()  # changed: FilterableMemoryStore()
    await memory.add_message(
        Message(role="user", content="Important"),
        metadata={"priority": "high"},  # changed: a message of TFrameX has no metadata
    )
    high_priority = await memory.get_messages_by_metadata(priority="high")
    assert len(high_priority) == 1
    await memory.aclose()


def test_tframex_17_the_pages_own_tests(configured: str) -> None:
    asyncio.run(_example_17())
