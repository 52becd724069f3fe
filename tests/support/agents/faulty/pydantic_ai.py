"""Pydantic AI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from strandline.adapters.pydantic_ai import StrandlineHistory, messages_of
from tests.support.agents.faulty.driving import Driver


class Faulty(Driver):
    """An agent with the capability."""

    async def turn(self, text: str) -> None:
        await self._agent(text).run(text)

    async def ask_approval(self, text: str) -> Any:
        agent = self._agent(text, needs_approval=True)
        return await agent.run(text), agent

    async def approve(self, waiting: Any) -> None:
        run, agent = waiting
        approvals: Any = {call.tool_call_id: True for call in run.output.approvals}
        results = DeferredToolResults(approvals=approvals)
        await agent.run(message_history=run.all_messages(), deferred_tool_results=results)

    def _agent(self, text: str, *, needs_approval: bool = False) -> Agent[Any, Any]:
        def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            self.sent(one for message in messages for one in messages_of(message))
            is_asked = messages[-1].parts[-1].part_kind == "user-prompt"
            self.fault.at("ask" if is_asked else "answer")
            if is_asked:
                return ModelResponse([ToolCallPart("note", {"text": text}, tool_call_id=self.next_id())])
            return ModelResponse([TextPart(f"Done: {text}")])

        return Agent(
            FunctionModel(answer),
            output_type=[str, DeferredToolRequests],
            capabilities=[StrandlineHistory(self.memory)],
            tools=[Tool(self.note, requires_approval=needs_approval)],
        )
