"""LlamaIndex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage

from strandline.adapters.llamaindex import StrandlineMemory
from strandline.adapters.llamaindex.messages import message_of
from tests.support.agents.faulty.driving import SESSION, Driver
from tests.support.agents.llamaindex_model import ScriptedModel


class Faulty(Driver):
    """A function agent with a memory."""

    async def turn(self, text: str) -> None:
        def answer(messages: Sequence[ChatMessage]) -> ChatMessage:
            self.sent(map(message_of, messages))
            if messages[-1].role == "user":
                self.fault.at("ask")
                return self._call(text)
            self.fault.at("answer")
            return ChatMessage(role="assistant", content=f"Done: {text}")

        agent = FunctionAgent(llm=ScriptedModel(answer), tools=[self.note], streaming=False)
        await agent.run(text, memory=self._memory())

    async def ask_approval(self, text: str) -> Any:
        called = self._call(text)
        await self._memory().aput_messages([ChatMessage(role="user", content=text), called])
        return called.blocks[0], text

    async def approve(self, waiting: Any) -> None:
        call, text = waiting
        result = ChatMessage(
            role="tool", content=self.note(text), additional_kwargs={"tool_call_id": call.tool_call_id}
        )
        answer = ChatMessage(role="assistant", content=f"Done: {text}")
        await self._memory().aput_messages([result, answer])

    def _memory(self) -> StrandlineMemory:
        return StrandlineMemory.from_defaults(SESSION, **self.options)

    def _call(self, text: str) -> ChatMessage:
        block = ToolCallBlock(tool_call_id=self.next_id(), tool_name="note", tool_kwargs={"text": text})
        return ChatMessage(role="assistant", blocks=[block])
