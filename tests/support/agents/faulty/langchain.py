"""LangChain: a chain with a tool of its own, within ``RunnableWithMessageHistory``."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from strandline.adapters.langchain import StrandlineHistory
from strandline.adapters.langchain.messages import message_of
from tests.support.agents.faulty.driving import SESSION, Driver

CONFIG: Any = {"configurable": {"session_id": SESSION}}


class Faulty(Driver):
    """A chain whose messages of a turn are added when it has ended."""

    async def turn(self, text: str) -> None:
        async def run(messages: list[BaseMessage]) -> list[BaseMessage]:
            called = self._ask(messages, text)
            result = ToolMessage(self.note(text), tool_call_id=called.tool_calls[0]["id"])
            return [called, result, self._answer([*messages, called, result], text)]

        history: Any = self._history
        await RunnableWithMessageHistory(RunnableLambda(run), history).ainvoke([HumanMessage(text)], CONFIG)

    async def ask_approval(self, text: str) -> Any:
        called = self._ask([*await self._history().aget_messages(), HumanMessage(text)], text)
        await self._history().aadd_messages([HumanMessage(text), called])
        return called.tool_calls[0]["id"], text

    async def approve(self, waiting: Any) -> None:
        call_id, text = waiting
        await self._history().aadd_messages([ToolMessage(self.note(text), tool_call_id=call_id)])
        answer = self._answer(await self._history().aget_messages(), text)
        await self._history().aadd_messages([answer])

    def _history(self, _session_id: str = SESSION) -> StrandlineHistory:
        return StrandlineHistory(SESSION, **self.options)

    def _ask(self, messages: list[BaseMessage], text: str) -> AIMessage:
        self.sent(map(message_of, messages))
        self.fault.at("ask")
        return AIMessage("", tool_calls=[{"name": "note", "args": {"text": text}, "id": self.next_id()}])

    def _answer(self, messages: list[BaseMessage], text: str) -> AIMessage:
        self.sent(map(message_of, messages))
        self.fault.at("answer")
        return AIMessage(f"Done: {text}")
