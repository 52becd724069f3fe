"""TFrameX; its agents wait for no approval, so a caller's own loop does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tframex import BaseLLMWrapper, FunctionCall, LLMAgent, Message, TFrameXApp, ToolCall

from strandline.adapters.legacy.tframex.store import message_of
from strandline.adapters.tframex import StrandlineMemoryStore
from tests.support.agents.faulty.driving import SESSION, Driver


class Model(BaseLLMWrapper):
    """A model that a function answers."""

    def __init__(self, answer: Callable[[Sequence[Message]], Message]) -> None:
        super().__init__("scripted")
        self._answer = answer

    async def chat_completion(self, messages: Any, stream: bool = False, **_options: Any) -> Any:
        return self._answer(messages)


class Faulty(Driver):
    """An agent with a memory store, which has each message at once."""

    async def turn(self, text: str) -> None:
        def answer(messages: Sequence[Message]) -> Message:
            self.sent(map(message_of, messages))
            if messages[-1].role == "user":
                self.fault.at("ask")
                return self._call(text)
            self.fault.at("answer")
            return Message(role="assistant", content=f"Done: {text}")

        app = TFrameXApp(default_llm=Model(answer), mcp_config_file=None)
        app.tool(name="note", description="Note a text.")(self.note)
        app.agent(name="clerk", memory_store=self._store(), tools=["note"])(LLMAgent)
        async with app.run_context() as context:
            await context.call_agent("clerk", text)

    async def ask_approval(self, text: str) -> Any:
        called = self._call(text)
        await self._put(Message(role="user", content=text), called)
        return called, text

    async def approve(self, waiting: Any) -> None:
        called, text = waiting
        result = Message(role="tool", content=self.note(text), tool_call_id=called.tool_calls[0].id)
        await self._put(result, Message(role="assistant", content=f"Done: {text}"))

    async def _put(self, *messages: Message) -> None:
        store = self._store()
        for message in messages:
            await store.add_message(message)

    def _store(self) -> StrandlineMemoryStore:
        return StrandlineMemoryStore(SESSION, **self.options)

    def _call(self, text: str) -> Message:
        function = FunctionCall(name="note", arguments=f'{{"text": "{text}"}}')
        return Message(role="assistant", tool_calls=[ToolCall(id=self.next_id(), function=function)])
