"""Agno 1, whose memory gives the history of its runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.tools import Function

from strandline.adapters.agno_v1 import StrandlineMemory
from strandline.adapters.legacy.agno_v1.messages import message_of
from strandline.schemas.values.message import HEAD_ROLES
from tests.support.agents.faulty.driving import SESSION, USER, Driver

IDS: dict[str, Any] = {"user_id": USER, "session_id": SESSION}


@dataclass
class ScriptedModel(Model):
    """A model that a function answers."""

    id: str = "scripted"
    answer: Callable[[Sequence[Message]], ModelResponse] = lambda _messages: ModelResponse(content="")

    def invoke(self, messages: list[Message], *_: Any, **_more: Any) -> ModelResponse:
        return self.answer(messages)

    async def ainvoke(self, messages: list[Message], *_: Any, **_more: Any) -> ModelResponse:
        return self.answer(messages)

    def invoke_stream(self, messages: list[Message], *_: Any, **_more: Any) -> Iterator[ModelResponse]:
        yield self.answer(messages)

    async def ainvoke_stream(self, messages: Any, *_: Any, **_more: Any) -> AsyncIterator[ModelResponse]:
        yield self.answer(messages)

    def parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response  # type: ignore[no-any-return]

    parse_provider_response_delta = parse_provider_response


class Faulty(Driver):
    """An agent with a memory."""

    async def turn(self, text: str) -> None:
        await self._agent(text).arun(text, **IDS)

    async def ask_approval(self, text: str) -> Any:
        agent = self._agent(text, needs_approval=True)
        return await agent.arun(text, **IDS), agent

    async def approve(self, waiting: Any) -> None:
        run, agent = waiting
        for tool in run.tools:
            tool.confirmed = True
        await agent.acontinue_run(run_response=run, **IDS)

    def _agent(self, text: str, *, needs_approval: bool = False) -> Agent:
        def answer(messages: Sequence[Message]) -> ModelResponse:
            self.sent(message_of(one) for one in messages if one.role not in HEAD_ROLES)
            if messages[-1].role == "user":
                self.fault.at("ask")
                function = {"name": "note", "arguments": f'{{"text": "{text}"}}'}
                calls = [{"id": self.next_id(), "type": "function", "function": function}]
                return ModelResponse(role="assistant", tool_calls=calls)
            self.fault.at("answer")
            return ModelResponse(role="assistant", content=f"Done: {text}")

        options = {name: value for name, value in self.options.items() if name != "user_id"}
        tool = Function.from_callable(self.note)
        tool.requires_confirmation = needs_approval
        return Agent(
            model=ScriptedModel(answer=answer),
            tools=[tool],
            memory=StrandlineMemory(USER, **options),
            add_history_to_messages=True,
            telemetry=False,
            monitoring=False,
        )
