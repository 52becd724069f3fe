"""Strandline's tools in an agent of Pydantic AI: five tools, and no user but the memory's own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra pydantic-ai")

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from strandline.adapters.pydantic_ai import StrandlineHistory, StrandlineToolset
from tests.conftest import MakeMemory

READING = {"get_context", "search_memories"}
ALL = READING | {"add_memory", "delete_memory", "update_memory"}


@dataclass
class Caller:
    """The dependencies of a run."""

    user_id: str


def scripted(*calls: tuple[str, Any]) -> FunctionModel:
    """A model that makes these calls, one after the other, and then answers with what the last one gave."""

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if len(results) < len(calls):
            name, arguments = calls[len(results)]
            return ModelResponse([ToolCallPart(name, arguments)])
        return ModelResponse([TextPart(json.dumps(results[-1].content))])

    return FunctionModel(answer)


def run_scripted(toolset: StrandlineToolset, *calls: tuple[str, Any], user: str = "ana") -> dict[str, Any]:
    agent = Agent(scripted(*calls), deps_type=Caller, toolsets=[toolset])
    result: dict[str, Any] = json.loads(asyncio.run(agent.run("Go.", deps=Caller(user))).output)
    return result


def test_an_agent_is_offered_the_tools_of_the_memory(make_memory: MakeMemory) -> None:
    memory: Any = make_memory("talk", user_id="ana")
    for read_only, names in ((False, ALL), (True, READING)):
        model = TestModel(call_tools=[])
        agent = Agent(model, toolsets=[StrandlineToolset(memory, read_only=read_only)])
        asyncio.run(agent.run("Hello."))
        assert model.last_model_request_parameters is not None
        offered = {tool.name: tool for tool in model.last_model_request_parameters.function_tools}
        assert set(offered) == names
        described = {tool["function"]["name"]: tool["function"] for tool in memory.tools(read_only=read_only)}
        for name, tool in offered.items():
            assert tool.description == described[name]["description"]
            assert tool.parameters_json_schema == described[name]["parameters"]
            assert "user" not in json.dumps(tool.parameters_json_schema["properties"])


def test_a_model_adds_finds_corrects_and_deletes(make_memory: MakeMemory) -> None:
    memory: Any = make_memory("talk", user_id="ana")
    toolset = StrandlineToolset(memory)
    added = run_scripted(toolset, ("add_memory", {"text": "Ana's boat is the Petrel."}))
    assert "error" not in added
    (fact,) = memory.facts.list()
    assert fact.text == "Ana's boat is the Petrel."
    found = run_scripted(toolset, ("search_memories", json.dumps({"query": "boat"})))
    assert str(fact.fact_id) in json.dumps(found)
    run_scripted(toolset, ("update_memory", {"id": str(fact.fact_id), "text": "Ana's boat is the Tern."}))
    assert [one.text for one in memory.facts.list()] == ["Ana's boat is the Tern."]
    run_scripted(toolset, ("delete_memory", {"id": str(memory.facts.list()[0].fact_id)}))
    assert memory.facts.list() == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add_memory", {}),
        ("add_memory", "{broken"),
        ("add_memory", '["text"]'),
        ("delete_memory", {"id": "00000000-0000-0000-0000-000000000000"}),
        ("search_memories", {"query": "boat", "user_id": "rui"}),
    ],
)
def test_a_wrong_call_does_not_end_the_run(make_memory: MakeMemory, name: str, arguments: Any) -> None:
    memory: Any = make_memory("talk", user_id="ana")
    toolset = StrandlineToolset(memory)
    agent = Agent(scripted((name, arguments), ("get_context", {"question": "boat"})), toolsets=[toolset])
    assert "error" not in json.loads(asyncio.run(agent.run("Go.")).output)


def test_a_toolset_that_only_reads_changes_nothing(make_memory: MakeMemory) -> None:
    memory: Any = make_memory("talk", user_id="ana")

    async def call() -> Any:
        toolset = StrandlineToolset(memory, read_only=True)
        return await toolset.call_tool("add_memory", {"text": "Ana likes knots."}, None, None)  # type: ignore[arg-type]

    assert asyncio.run(call())["error"] == "read_only"
    assert memory.facts.list() == []


def test_users_of_one_agent_do_not_reach_each_other(make_memory: MakeMemory) -> None:
    memories: dict[str, Any] = {user: make_memory(f"{user}-talk", user_id=user) for user in ("ana", "rui")}
    memories["ana"].facts.add("Ana's boat is the Petrel.")
    (fact,) = memories["ana"].facts.list()

    def memory_of(ctx: RunContext[Caller]) -> Any:
        return memories[ctx.deps.user_id]

    toolset = StrandlineToolset(memory_of)
    assert "Petrel" in json.dumps(run_scripted(toolset, ("search_memories", {"query": "boat"})))
    assert "Petrel" not in json.dumps(
        run_scripted(toolset, ("search_memories", {"query": "boat"}), user="rui")
    )
    refused = run_scripted(toolset, ("delete_memory", {"id": str(fact.fact_id)}), user="rui")
    assert len(memories["ana"].facts.list()) == 1, refused


async def test_tools_and_history_go_together(make_memory: MakeMemory) -> None:
    memory: Any = make_memory("talk", user_id="ana", memory_blocks=[])
    agent = Agent(
        scripted(("add_memory", {"text": "Ana's boat is the Petrel."})),
        toolsets=[StrandlineToolset(memory)],
        capabilities=[StrandlineHistory(memory)],
    )
    await agent.run("Remember my boat, the Petrel.")
    assert [message.role for message in memory.get_all()] == ["user", "assistant", "tool", "assistant"]
