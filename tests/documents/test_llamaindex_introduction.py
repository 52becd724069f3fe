"""The code of a Chinese introduction to LlamaIndex's ``Memory``, on the adapter.

A line that differs from it ends with ``# changed``.
What is said in it, and what stands around it, is ours.
`docs/promises.md` lists all of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import InsertMethod

from strandline.adapters.llamaindex import StrandlineMemory as Memory  # changed
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from tests.support.agents.llamaindex_model import ScriptedModel, long_term_blocks, saying, shown
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything


@pytest.fixture
def configured(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    return database_url


async def _example_2(blocks: list[Any]) -> tuple[list[ChatMessage], int]:
    memory = Memory.from_defaults(
        session_id="my_session",
        token_limit=500,
        memory_blocks=blocks,
        insert_method=InsertMethod.SYSTEM,
    )
    await memory.aput_messages([ChatMessage(role="system", content="你是一位经验丰富的船长")])
    for _ in range(100):
        await memory.aput_messages(
            [
                ChatMessage(role="user", content="Ahoy, harbour!"),
                ChatMessage(role="assistant", content="Ahoy, sailor, and welcome!"),
                ChatMessage(role="user", content="Which harbour is the deepest?"),
                ChatMessage(
                    role="assistant", content="It is Horta, known for its whales and its painted wall."
                ),
            ]
        )
    current_chat_history = await memory.aget()
    all_messages = await memory.aget_all()
    await memory.session_memory.aclose()
    return current_chat_history, len(all_messages)


def test_introduction_02_the_system_message_stays_and_blocks_go_into_it(
    configured: str, database: Database
) -> None:
    llm = ScriptedModel(saying("never asked"))  # changed: OpenAI's there
    history, number = asyncio.run(_example_2(long_term_blocks(llm)))
    assert number == 401
    assert [message.role.value for message in history].count("system") == 1
    head = history[0].content or ""
    assert "你是一位经验丰富的船长" in head and "<core_info>\nI am Maren" in head
    assert history[1].role == "user"
    assert shown(history)[-1] == "assistant: It is Horta, known for its whales and its painted wall."

    settings = load_settings(database_url=configured, embedding_backend="local")
    drain_everything(database, configured, settings)
    memory = Memory.from_defaults("my_session", token_limit=500, memory_blocks=long_term_blocks(llm))
    assert "<fact>Which harbour is the deepest?</fact>" in str(memory.get()[0]), "said often, a fact once"
    assert str(memory.get()[0]).count("<fact>Which harbour is the deepest?</fact>") == 1
    assert llm.requests == []
    memory.session_memory.close()
