"""The code of LlamaIndex's notebook about its ``Memory``, cell by cell, on the adapter.

A line that differs from the notebook's ends with ``# changed``.
What is said in it, and what stands around it, is ours.
`docs/promises.md` lists all of them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import TextBlock
from llama_index.core.llms import ChatMessage

from strandline.adapters.llamaindex import StrandlineMemory as Memory  # changed
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from tests.support.agents.llamaindex_model import ScriptedModel, long_term_blocks, saying
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything


@pytest.fixture
def configured(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Cell 2 sets the key of a model in the environment; workers read it there, and so do we."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-none")
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    return database_url


async def test_notebook_03_to_08_four_hundred_messages_leave_the_last_four(configured: str) -> None:
    """Cells 3 to 8: a short window, a hundred times four messages, all of them, none after a reset."""
    lines: list[str] = []
    memory = Memory.from_defaults(
        session_id="my_session",
        token_limit=50,
        token_flush_size=10,
        chat_history_token_ratio=0.7,
    )
    for _ in range(100):
        await memory.aput_messages(
            [
                ChatMessage(role="user", content="Ahoy, harbour!"),
                ChatMessage(role="assistant", content="Ahoy, sailor, and welcome!"),
                ChatMessage(role="user", content="Which harbour is the deepest?"),
                ChatMessage(role="assistant", content="The deepest one is Horta."),
            ]
        )
    current_chat_history = await memory.aget()
    for msg in current_chat_history:
        lines.append(str(msg))  # changed: collected, where the notebook prints
    all_messages = await memory.aget_all()
    lines.append(str(len(all_messages)))  # changed: as above
    await memory.areset()
    all_messages = await memory.aget_all()
    lines.append(str(len(all_messages)))  # changed: as above
    await memory.session_memory.aclose()
    assert lines == [
        "user: Ahoy, harbour!",
        "assistant: Ahoy, sailor, and welcome!",
        "user: Which harbour is the deepest?",
        "assistant: The deepest one is Horta.",
        "400",
        "0",
    ]


def _cells_9_and_10(llm: Any) -> Memory:
    return Memory.from_defaults(
        session_id="my_session",
        token_limit=30000,
        chat_history_token_ratio=0.02,
        token_flush_size=500,
        memory_blocks=long_term_blocks(llm),
        insert_method="user",
    )


async def test_notebook_09_to_15_an_agents_memory_is_read_in_the_latest_user_message(
    configured: str, database: Database
) -> None:
    """Cells 9 to 15: blocks, the memory, an agent's seven turns, what it then knows, and use by hand."""
    llm = ScriptedModel(saying("Small sloops are quick and easily handled. " * 30))  # changed: OpenAI's there
    settings = load_settings(database_url=configured, embedding_backend="local")
    memory = _cells_9_and_10(llm)
    consume = partial(drain_everything, database, configured, settings)
    agent = FunctionAgent(
        tools=[],
        llm=llm,
        streaming=False,  # changed: the scripted model does not stream
    )
    user_msgs = [
        "Good morning, I am Maren",
        "What do you think of small sloops?",
        "Do they leak a lot?",
        "Which boats are as small?",
        "Which one do you like best?",
        "Should I have a boat of my own?",
        "What will I need before I have one?",
    ]
    for user_msg in user_msgs:
        _ = await agent.run(user_msg=user_msg, memory=memory)
        await asyncio.to_thread(consume)  # changed: workers run by themselves; here after each turn

    chat_history = await memory.aget()
    assert len(chat_history) == 2, "as the notebook finds"
    text = "".join(f"{block.text}\n" for block in chat_history[-2].blocks if isinstance(block, TextBlock))
    section, _, question = text.partition("</memory>")
    assert section.startswith("<memory>\n<core_info>\nI am Maren, I live in Horta")
    assert "<extracted_info>\n<fact>" in section and "<fact>Good morning, I am Maren</fact>" in section
    assert "<vector_memory>\n<message role='user'>" in section
    assert question.strip() == user_msgs[-1]

    new_user_msg = ChatMessage(role="user", content="What kind of boat did I ask about?")
    await memory.aput(new_user_msg)
    new_chat_history = await memory.aget()
    resp = await llm.achat(new_chat_history)
    await memory.aput(resp.message)
    assert "think of small sloops" in (llm.requests[-1][-1].content or "")
    assert (await memory.aget_all())[-1] == resp.message
    await memory.session_memory.aclose()
    # Only the seven turns and the last call asked the agent's model.
    assert len(llm.requests) == 8
