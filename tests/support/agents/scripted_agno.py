"""A model of Agno that a function answers, and agents that never leave the machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.agent import RunOutput
from agno.run.team import TeamRunOutput

# Of the messages of a request and of whose run it is, the answer: text, or calls of tools.
Answer = Callable[[Sequence[Message], RunOutput | TeamRunOutput | None], ModelResponse]

# No run of a test tells anyone.
UNSEEN: dict[str, Any] = {"telemetry": False}


@dataclass
class ScriptedModel(Model):
    """A model whose answers a function gives; it streams each in one piece."""

    id: str = "scripted"
    answer: Answer = lambda _messages, _run: text("Noted.")

    def invoke(self, messages: list[Message], *_: Any, **more: Any) -> ModelResponse:
        return self.answer(messages, more.get("run_response"))

    async def ainvoke(self, messages: list[Message], *_: Any, **more: Any) -> ModelResponse:
        return self.answer(messages, more.get("run_response"))

    def invoke_stream(self, messages: list[Message], *_: Any, **more: Any) -> Iterator[ModelResponse]:
        yield self.answer(messages, more.get("run_response"))

    async def ainvoke_stream(
        self, messages: list[Message], *_: Any, **more: Any
    ) -> AsyncIterator[ModelResponse]:
        yield self.answer(messages, more.get("run_response"))

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return ModelResponse(content=str(response))

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return ModelResponse(content=str(response))


def text(said: str) -> ModelResponse:
    """An answer in words."""
    return ModelResponse(role="assistant", content=said)


def call(name: str, arguments: str, call_id: str) -> ModelResponse:
    """An answer that calls a tool; ``arguments`` is JSON."""
    function = {"name": name, "arguments": arguments}
    return ModelResponse(
        role="assistant", tool_calls=[{"id": call_id, "type": "function", "function": function}]
    )


def texts_of(messages: Sequence[Message]) -> list[str]:
    return [message.get_content_string() for message in messages]
