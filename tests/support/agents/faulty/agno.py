"""Agno 3, which shows its models its own history; what is looked at is the memory of the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.base import RunStatus
from agno.tools import Function

from strandline.adapters.agno import StrandlineMemoryManager
from tests.support.agents.faulty.driving import SESSION, USER, Driver
from tests.support.agents.scripted_agno import UNSEEN, ScriptedModel, call
from tests.support.agents.scripted_agno import text as answer_of

IDS: dict[str, Any] = {"user_id": USER, "session_id": SESSION}


class Faulty(Driver):
    """An agent whose hooks keep its runs."""

    async def turn(self, text: str) -> None:
        run = await self._agent(text).arun(text, **IDS)
        if run.status != RunStatus.completed:
            raise RuntimeError(f"the run is {run.status}: {run.content}")

    async def ask_approval(self, text: str) -> Any:
        agent = self._agent(text, needs_approval=True)
        return await agent.arun(text, **IDS), agent

    async def approve(self, waiting: Any) -> None:
        run, agent = waiting
        for requirement in run.requirements:
            requirement.confirm()
        await agent.acontinue_run(run_id=run.run_id, requirements=run.requirements, **IDS)

    def _agent(self, text: str, *, needs_approval: bool = False) -> Any:
        def answer(messages: Sequence[Message], _run: object) -> ModelResponse:
            if messages[-1].role == "user":
                self.fault.at("ask")
                return call("note", f'{{"text": "{text}"}}', self.next_id())
            self.fault.at("answer")
            return answer_of(f"Done: {text}")

        options = {name: value for name, value in self.options.items() if name != "user_id"}
        manager = StrandlineMemoryManager(**options)
        tool = Function.from_callable(self.note)
        tool.requires_confirmation = needs_approval
        return Agent(
            model=ScriptedModel(answer=answer),
            db=InMemoryDb(),
            tools=[tool],
            memory_manager=manager,
            pre_hooks=[manager.arecall],
            post_hooks=[manager.akeep],
            **UNSEEN,
        )
