"""A graph of LangGraph with Strandline's store and history: tools, thirty turns, two users at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph", reason="needs the extra langgraph")

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode, tools_condition
from langgraph.store.base import BaseStore
from pydantic import Field

from strandline.adapters.langchain import StrandlineHistory
from strandline.adapters.langgraph import StrandlineStore
from tests.conftest import Rig
from tests.support.agents.thirty_turns import FIRST, TURNS, Conversations, sayings


class ScriptedChat(BaseChatModel):
    """Notes what a user says by a tool, and then answers; keeps the texts of each user's last call."""

    last_texts: dict[str, list[str]] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        latest = messages[-1]
        if isinstance(latest, HumanMessage):
            self.last_texts[kwargs["user"]] = [str(message.content) for message in messages]
            call = {"name": "note", "args": {"text": latest.content}, "id": f"call-{latest.id}"}
            return _generation(AIMessage("", tool_calls=[call]))
        return _generation(AIMessage(f"Done: {latest.content}"))


def _generation(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


@tool
async def note(text: str, config: RunnableConfig, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Note a text for the user."""
    notes = ("notes", config["configurable"]["user"])
    await store.aput(notes, f"note-{len(await store.asearch(notes, limit=100)):02d}", {"text": text})
    return f"noted {text}"


class Turn(MessagesState):
    """A turn: the messages that are new, after those of the history."""

    recalled: Sequence[AnyMessage]


def build_graph(model: ScriptedChat, histories: dict[str, StrandlineHistory], store: BaseStore) -> Any:
    """recall → model ⇄ tools → record."""

    async def recall(state: Turn, config: RunnableConfig) -> Any:
        return {"recalled": await histories[config["configurable"]["user"]].aget_messages()}

    async def answer(state: Turn, config: RunnableConfig) -> Any:
        messages = [*state["recalled"], *state["messages"]]
        return {"messages": await model.ainvoke(messages, user=config["configurable"]["user"])}

    async def record(state: Turn, config: RunnableConfig) -> None:
        await histories[config["configurable"]["user"]].aadd_messages(state["messages"])

    graph = StateGraph(Turn)
    graph.add_node(recall)
    graph.add_node(answer)
    graph.add_node("tools", ToolNode([note]))
    graph.add_node(record)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "answer")
    graph.add_conditional_edges("answer", tools_condition, {"tools": "tools", END: "record"})
    graph.add_edge("tools", "answer")
    return graph.compile(store=store)


async def test_a_graph_of_two_users_knows_what_has_left_its_window(rig: Rig) -> None:
    conversations = Conversations(rig.url, rig.broker_url, rig.start_worker, rig.model)

    store = StrandlineStore(database_url=rig.url)
    histories = {
        user: StrandlineHistory(f"{user}-talks", user_id=user, **conversations.options) for user in FIRST
    }
    model = ScriptedChat()
    graph = build_graph(model, histories, store)

    async def take(user: str, text: str) -> None:
        await graph.ainvoke({"messages": [HumanMessage(text)]}, {"configurable": {"user": user}})

    await conversations.talk(take)
    conversations.check(model.last_texts)
    for user, history in histories.items():
        stored = await history.memory.aget_all()
        assert [message.text for message in stored if message.role == "user"] == sayings(user)
        assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"] * TURNS
        notes = await store.asearch(("notes", user), limit=100)
        assert [item.value["text"] for item in reversed(notes)] == sayings(user)
    for history in histories.values():
        await history.memory.aclose()
    await store.aclose()
