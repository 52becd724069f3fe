"""A memory class of one's own: what it changes holds in agents and in contexts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Context

from strandline.adapters.llamaindex import StrandlineMemory
from tests.support.agents.llamaindex_model import ScriptedModel, echo, shown


class Discreet(StrandlineMemory):
    """Stores no number of more than three digits, and tells the model so."""

    placeholder: str = "[number]"

    async def aput(self, message: ChatMessage) -> None:
        words = (message.content or "").split()
        hidden = [self.placeholder if word.isdigit() and len(word) > 3 else word for word in words]
        await super().aput(ChatMessage(role=message.role, content=" ".join(hidden)))

    async def aget(self, input: str | ChatMessage | None = None, **kwargs: Any) -> list[ChatMessage]:
        rule = ChatMessage(role="system", content=f"{self.placeholder} stands for a number.")
        return [rule, *await super().aget(input, **kwargs)]


async def _an_agent_with_a_class_of_ones_own() -> None:
    model = ScriptedModel(echo)
    agent = FunctionAgent(llm=model, streaming=False)
    memory = Discreet.from_defaults("discreet", user_id="ana")
    ctx = Context(agent)
    await agent.run("My card is 47110815 please", ctx=ctx, memory=memory)
    assert shown(model.requests[-1]) == [
        "system: [number] stands for a number.",
        "user: My card is [number] please",
    ]

    kept = json.loads(json.dumps(ctx.to_dict()))
    restored_ctx = Context.from_dict(agent, kept)
    restored = await restored_ctx.store.get("memory")
    assert type(restored) is Discreet and restored == Discreet.from_dict(memory.to_dict())
    await agent.run("And 2026 too", ctx=restored_ctx)
    assert shown(model.requests[-1])[0] == "system: [number] stands for a number."
    assert shown(await memory.aget_all())[-2] == "user: And [number] too"
    assert len(await memory.aget_all()) == 4
    await memory.session_memory.aclose()
    await restored.session_memory.aclose()


def test_what_a_subclass_changes_holds_in_an_agent_and_in_a_restored_context(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    asyncio.run(_an_agent_with_a_class_of_ones_own())
