"""A capability of Pydantic AI: each model request has the memory's context in place of older messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import AgentRunResult, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from strandline.adapters.pydantic_ai.messages import messages_of, model_messages_of
from strandline.adapters.storable import parts_of, storable
from strandline.producers.memory import SessionMemory
from strandline.schemas.values.message import Message

MemoryOf = Callable[[RunContext[Any]], SessionMemory]

# Instructions and what Pydantic AI notes for itself belong to the agent, and are new in each run.
_SPOKEN_PARTS = ("retry-feedback", "retry-prompt", "speech", "tool-return", "user-prompt")


class StrandlineHistory(AbstractCapability[Any]):
    """Gives the runs of an agent a history that is a window with long-term memory before it.

    Before a model request, messages of earlier runs are replaced by the context of a read, which is made once
    a run; ``message_history=`` is not needed.  When a run has ended, its messages are put in order and whole:
    tool calls with their results.  A run that fails leaves nothing.

    Args:
        memory: the memory of the conversation; or a function of the run's context that returns it, for an
            agent that serves several users.
    """

    def __init__(self, memory: SessionMemory | MemoryOf) -> None:
        self._memory = memory

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: it holds a memory, which a file of an agent cannot name."""
        return None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """The history of one run."""
        memory = self._memory
        return RunHistory(memory if isinstance(memory, SessionMemory) else memory(ctx))


class RunHistory(AbstractCapability[Any]):
    """The history of one run of an agent."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory
        self._recalled: list[ModelMessage] | None = None

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None, as of ``StrandlineHistory``."""
        return None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put the context of a read in the place of messages of earlier runs."""
        messages = request_context.messages
        own = [message for message in messages if message.run_id == ctx.run_id] or messages[-1:]
        if self._recalled is None:
            self._recalled = model_messages_of(await self._memory.aget(_query(own)))
        instructions = [part for message in messages for part in _parts(message, SystemPromptPart)]
        head: list[ModelMessage] = [ModelRequest(instructions)] if instructions else []
        # A new list, so that the run's own history stays as it is.
        recalled = [*self._recalled, *_late_calls(messages, self._recalled, own)]
        request_context.messages = [*head, *recalled, *map(_without_instructions, own)]
        return request_context

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Put the messages of the run; doing it again adds nothing."""
        messages = list(_number_messages(result.new_messages(), str(ctx.run_id)))
        for part in parts_of(messages):
            await self._memory.aput_messages(storable(part, self._memory.put_limits))
        return result


def _number_messages(run: Sequence[ModelMessage], run_id: str) -> Iterator[Message]:
    number = 0
    for model_message in run:
        for message in messages_of(_only_spoken(model_message)):
            yield replace(message, id=f"{run_id}.{number}")
            number += 1


def _only_spoken(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    return replace(message, parts=[part for part in message.parts if part.part_kind in _SPOKEN_PARTS])


def _without_instructions(message: ModelMessage) -> ModelMessage:
    if not _parts(message, SystemPromptPart):
        return message
    assert isinstance(message, ModelRequest)  # noqa: S101  # no response has such parts
    return replace(message, parts=[part for part in message.parts if not isinstance(part, SystemPromptPart)])


def _parts(message: ModelMessage, kind: type[Any]) -> list[ModelRequestPart]:
    if not isinstance(message, ModelRequest):
        return []
    return [part for part in message.parts if isinstance(part, kind)]


def _late_calls(
    messages: Sequence[ModelMessage], recalled: Sequence[ModelMessage], own: Sequence[ModelMessage]
) -> list[ModelMessage]:
    """The calls whose results come only now, after other turns; a read leaves such calls out."""
    waiting = _call_ids(recalled, "tool-call") - _call_ids(recalled, "tool-return")
    late = _call_ids(own, "tool-return") - _call_ids(own, "tool-call") - waiting
    responses = [message for message in messages if isinstance(message, ModelResponse)]
    calls = [[part for part in one.parts if getattr(part, "tool_call_id", "") in late] for one in responses]
    return [replace(one, parts=parts) for one, parts in zip(responses, calls, strict=True) if parts]


def _call_ids(messages: Sequence[ModelMessage], kind: str) -> set[str]:
    parts = (part for message in messages for part in message.parts if part.part_kind == kind)
    return {getattr(part, "tool_call_id", "") for part in parts}


def _query(own: Sequence[ModelMessage]) -> str | None:
    """The text of the run's prompt; None if it has none, such as after an approval."""
    prompts = [part for message in own for part in _parts(message, UserPromptPart)]
    texts = [text for prompt in prompts for text in _texts(getattr(prompt, "content", None))]
    return "\n".join(texts) or None


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [item for item in content if isinstance(item, str)] if isinstance(content, (list, tuple)) else []
