"""LangGraph: an agent of ``create_agent`` under a checkpointer, with the middleware of the adapter's page."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config

from strandline.adapters.langchain import StrandlineHistory
from strandline.adapters.langchain.messages import message_of
from tests.support.agents.faulty.driving import SESSION, Driver, Fault

CONFIG: Any = {"configurable": {"thread_id": SESSION}}


class Model(BaseChatModel):
    """Calls the tool for what a user says, and then answers."""

    driver: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_options: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_options: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.driver.answer(messages))])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_options: Any
    ) -> ChatResult:
        return self._generate(messages)


class Faulty(Driver):
    """A graph whose state has all messages of the thread."""

    def __init__(self, fault: Fault, **options: Any) -> None:
        super().__init__(fault, **options)
        history_of = self.history_of

        class Remembered(AgentMiddleware[Any, Any]):
            async def awrap_model_call(self, request: Any, handler: Any) -> Any:
                history = history_of(get_config())
                await history.aadd_state(request.messages)
                return await handler(request.override(messages=await history.aget_messages()))

            async def aafter_agent(self, state: Any, runtime: Any) -> None:
                await history_of(get_config()).aadd_state(state["messages"])

        @tool("note", description="Note a text.")
        async def note(text: str) -> str:
            return self.note(text)

        self.graph: Any = create_agent(
            Model(driver=self), tools=[note], middleware=[Remembered()], checkpointer=InMemorySaver()
        )

    async def turn(self, text: str) -> None:
        await self.graph.ainvoke({"messages": [HumanMessage(text)]}, CONFIG)

    async def ask_approval(self, text: str) -> Any:
        call_id = self.next_id()
        called = AIMessage("", tool_calls=[{"name": "note", "args": {"text": text}, "id": call_id}])
        # As an interrupt before the tool leaves the thread.
        await self.graph.aupdate_state(CONFIG, {"messages": [HumanMessage(text), called]}, as_node="model")
        return call_id, text

    async def approve(self, waiting: Any) -> None:
        call_id, text = waiting
        late = [ToolMessage(self.note(text), tool_call_id=call_id), AIMessage(f"Done: {text}")]
        await self.graph.aupdate_state(CONFIG, {"messages": late}, as_node="model")

    def history_of(self, config: Any) -> StrandlineHistory:
        return StrandlineHistory(config["configurable"]["thread_id"], **self.options)

    def answer(self, messages: list[BaseMessage]) -> AIMessage:
        self.sent(map(message_of, messages))
        text = next(str(one.content) for one in reversed(messages) if isinstance(one, HumanMessage))
        if isinstance(messages[-1], HumanMessage):
            self.fault.at("ask")
            return AIMessage("", tool_calls=[{"name": "note", "args": {"text": text}, "id": self.next_id()}])
        self.fault.at("answer")
        return AIMessage(f"Done: {text}")
