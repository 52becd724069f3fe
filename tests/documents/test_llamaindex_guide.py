"""The code examples of LlamaIndex's guide to its ``Memory``, in their order, on the adapter.

A line that differs from the guide's ends with ``# changed``.
What is said in it, and what stands around it, is ours.
`docs/promises.md` lists all of them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import StaticMemoryBlock
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from sqlalchemy.ext.asyncio import create_async_engine

from strandline import ConfigurationError
from strandline.adapters.llamaindex import StrandlineMemory as Memory  # changed
from strandline.schemas.settings import load_settings
from tests.conftest import Rig, rows_of
from tests.support.agents.llamaindex_model import ScriptedModel, echo, long_term_blocks, saying, shown, user
from tests.support.workers.draining import drain_everything


@pytest.fixture
def configured(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of an application that has set its database there."""
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    return database_url


def depth(harbour: str) -> str:
    """The depth of a harbour."""
    return f"{harbour}: 4 m"


def asking_for_the_depth(messages: Any) -> ChatMessage:
    """Calls the tool, then says what it found."""
    if messages[-1].role == "tool":
        return ChatMessage(role="assistant", content=f"It is {messages[-1].content}.")
    call = ToolCallBlock(tool_call_id=f"c{len(messages)}", tool_name="depth", tool_kwargs={"harbour": "Faro"})
    return ChatMessage(role="assistant", blocks=[call])


async def test_guide_01_an_agent_is_given_a_memory(configured: str) -> None:
    llm = ScriptedModel(asking_for_the_depth)
    tools: list[Any] = [depth]
    memory = Memory.from_defaults(session_id="my_session", token_limit=40000)
    agent = FunctionAgent(llm=llm, tools=tools, streaming=False)  # changed: it does not stream
    response = await agent.run("How deep is Faro?", memory=memory)
    assert str(response) == "It is Faro: 4 m."
    await agent.run("And now?", memory=memory)
    assert shown(llm.requests[2])[0] == "user: How deep is Faro?", "the agent reads what it has put"
    assert [message.role.value for message in await memory.aget_all()] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant"),
    ]
    await memory.session_memory.aclose()


async def test_guide_02_messages_are_put_by_hand_and_a_history_overrides_memory(configured: str) -> None:
    llm = ScriptedModel(asking_for_the_depth)
    memory = Memory.from_defaults(session_id="my_session", token_limit=40000)
    memory.put_messages(
        [
            ChatMessage(role="user", content="Ahoy, harbour!"),
            ChatMessage(role="assistant", content="Ahoy, sailor, and welcome!"),
        ]
    )
    chat_history = memory.get()
    agent = FunctionAgent(llm=llm, tools=[depth], streaming=False)  # changed: as above
    response = await agent.run("How deep is Faro?", chat_history=chat_history)
    assert str(response) == "It is Faro: 4 m."
    assert shown(llm.requests[0]) == [
        *("user: Ahoy, harbour!", "assistant: Ahoy, sailor, and welcome!", "user: How deep is Faro?"),
    ]
    assert len(await memory.aget_all()) == 2, "the agent had a memory of its own in this run"
    await agent.run("And Porto?", chat_history=chat_history, memory=memory)
    assert shown(llm.requests[2])[:3] == [*shown(chat_history), "user: And Porto?"]
    await memory.session_memory.aclose()


async def test_guide_03_a_context_gives_the_latest_memory(configured: str) -> None:
    agent = FunctionAgent(llm=ScriptedModel(echo), streaming=False)
    ctx = Context(agent)
    response = await agent.run(  # changed: a context has no run
        "Ahoy",
        ctx=ctx,
        memory=Memory.from_defaults(session_id="my_session"),  # changed: else a buffer
    )
    assert str(response) == "You said: Ahoy"

    memory = await ctx.store.get("memory")
    chat_history = memory.get()
    assert shown(chat_history) == ["user: Ahoy", "assistant: You said: Ahoy"]
    await memory.session_memory.aclose()


def test_guide_04_the_short_term_memory_has_three_limits(configured: str) -> None:
    memory = Memory.from_defaults(
        session_id="my_session",
        token_limit=40000,
        chat_history_token_ratio=0.7,
        token_flush_size=3000,
    )
    memory.put(user("Ahoy"))
    limits = "SELECT flush_at_tokens, token_flush_size FROM strandline.session"
    assert rows_of(configured, limits) == [(28_000, 3_000)]
    memory.session_memory.close()
    by_default = Memory.from_defaults("another")
    assert by_default.token_limit == 30_000
    assert by_default.chat_history_token_ratio == 0.7
    assert by_default.token_flush_size == 3_000


def test_guide_05_to_08_what_left_the_window_is_known_by_three_blocks(
    rig: Rig, configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples 5 to 8: blocks, the memory of them, a read with messages, and what it prints."""
    llm = ScriptedModel(saying("never asked"))
    blocks = long_term_blocks(llm)
    memory = Memory.from_defaults(
        session_id="my_session",
        token_limit=1200,  # changed: so that little text is enough
        chat_history_token_ratio=0.2,  # changed: as above
        memory_blocks=blocks,
        insert_method="system",
    )
    for number in range(20):
        memory.put_messages([user(f"Pier {number} is {number} metres long."), user("Noted?")])
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    drain_everything(
        rig.database, configured, load_settings(database_url=configured, embedding_backend="local")
    )

    chat_history = memory.get(messages=[user("How long is pier 3?")])
    printed = chat_history[0].content or ""
    assert chat_history[0].role == "system"
    static, facts, vectors = (
        printed.split(f"<{name}>\n")[1].split(f"\n</{name}>")[0]  # changed: by the blocks' own names
        for name in ("core_info", "extracted_info", "vector_memory")
    )
    assert printed.startswith("<memory>\n<core_info>") and printed.endswith("</memory>")
    assert static == "I am Maren, I live in Horta, and I mend boats."
    lines = facts.splitlines()
    assert lines and all(line.startswith("<fact>") and line.endswith("</fact>") for line in lines)
    assert "<message role='user'>Pier 3 is 3 metres long.</message>" in vectors
    assert memory.session_memory.get().tokens <= 1200
    assert llm.requests == [], "workers asked their own model"
    memory.session_memory.close()


def test_guide_05_static_content_may_be_blocks(configured: str) -> None:
    content: list[Any] = [TextBlock(text="The harbour:"), ImageBlock(url="https://example.org/harbour.png")]
    memory = Memory.from_defaults(
        "pictures", memory_blocks=[StaticMemoryBlock(name="core_info", static_content=content, priority=0)]
    )
    memory.put(user("Where is it?"))
    first = memory.get()[0]
    assert [block for block in first.blocks if isinstance(block, ImageBlock)] == content[1:]
    memory.session_memory.close()


async def test_guide_10_the_memory_is_in_a_remote_database(database_url: str) -> None:
    url = database_url.replace("postgresql://", "postgresql+asyncpg://")
    memory = Memory.from_defaults(
        session_id="my_session",
        token_limit=40000,
        async_database_uri=url,
        schema="strandline",  # changed: where the guide has table_name
    )
    await memory.aput(user("Ahoy"))
    assert shown(await memory.aget()) == ["user: Ahoy"]
    await memory.session_memory.aclose()

    engine = create_async_engine(url.replace("asyncpg", "psycopg"))  # changed: an engine is on psycopg
    memory = Memory.from_defaults(session_id="my_session", token_limit=40000, async_engine=engine)
    assert shown(await memory.aget()) == ["user: Ahoy"]
    await memory.session_memory.aclose()
    await engine.dispose()


def test_guide_10_what_does_not_apply_is_refused_with_what_does(database_url: str) -> None:
    with pytest.raises(ConfigurationError, match="'table_name': pass schema="):
        Memory.from_defaults("x", async_database_uri=database_url, table_name="memory_table")
    with pytest.raises(ConfigurationError, match="'image_token_size_estimate': pass part_tokens="):
        Memory.from_defaults("x", image_token_size_estimate=300)
    with pytest.raises(ConfigurationError, match="Postgres"):
        Memory.from_defaults("x", async_database_uri="sqlite+aiosqlite:///memory.db")


async def test_guide_11_and_12_a_context_is_kept_and_a_memory_is_given_to_a_run(configured: str) -> None:
    workflow = agent = FunctionAgent(llm=ScriptedModel(echo), streaming=False)
    ctx = Context(workflow)
    memory = Memory.from_defaults(session_id="my_session")
    await agent.run("Ahoy", ctx=ctx, memory=memory)

    ctx_dict = ctx.to_dict()
    ctx_dict = json.loads(json.dumps(ctx_dict))  # kept elsewhere meanwhile
    ctx = Context.from_dict(workflow, ctx_dict)
    await agent.run("Still there?", ctx=ctx)
    assert len(await memory.aget_all()) == 4, "a context carries a reference, and the log goes on"

    response = await agent.run("Well?", memory=memory)
    assert str(response) == "You said: Well?"
    assert len(await memory.aget_all()) == 6
    await memory.session_memory.aclose()


async def test_guide_13_a_run_that_waited_for_a_person_has_context_and_memory(configured: str) -> None:
    async def approve(ctx: Context, amount: int) -> str:
        """Ask a person."""
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent.model_validate({"prefix": f"{amount}?"})
        )
        return str(answer.response)

    approve.__annotations__["ctx"] = Context  # LlamaIndex looks for the class, and finds its name

    def approving(messages: Any) -> ChatMessage:
        if messages[-1].role == "tool":
            return ChatMessage(role="assistant", content=f"A person said {messages[-1].content}.")
        call = ToolCallBlock(tool_call_id="c1", tool_name="approve", tool_kwargs={"amount": 7})
        return ChatMessage(role="assistant", blocks=[call])

    agent = FunctionAgent(llm=ScriptedModel(approving), tools=[approve], streaming=False)
    memory = Memory.from_defaults(session_id="my_session")
    handler = agent.run("Well?", ctx=Context(agent), memory=memory)
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            ctx_dict = json.loads(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
            break

    ctx = Context.from_dict(agent, ctx_dict)
    handler = agent.run(ctx=ctx, memory=memory)  # changed: the question is in memory already
    handler.ctx.send_event(HumanResponseEvent.model_validate({"response": "yes"}))
    assert str(await handler) == "A person said yes."
    assert shown(await memory.aget_all())[0] == "user: Well?"
    assert len(await memory.aget_all()) == 4
    await memory.session_memory.aclose()
