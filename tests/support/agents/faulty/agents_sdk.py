"""OpenAI's Agents SDK."""

from __future__ import annotations

from typing import Any

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from strandline.adapters.agents import StrandlineSession
from strandline.adapters.agents.items import message_of
from tests.support.agents.faulty.driving import SESSION, Driver

UNTRACED = RunConfig(tracing_disabled=True)


class Faulty(Driver):
    """A runner with a session."""

    async def turn(self, text: str) -> None:
        await Runner.run(self._agent(text), text, session=self._session(), run_config=UNTRACED)

    async def ask_approval(self, text: str) -> Any:
        agent = self._agent(text, needs_approval=True)
        return await Runner.run(agent, text, session=self._session(), run_config=UNTRACED), agent

    async def approve(self, waiting: Any) -> None:
        run, agent = waiting
        state = run.to_state()
        state.approve(run.interruptions[0])
        await Runner.run(agent, state, session=self._session(), run_config=UNTRACED)

    def _session(self) -> StrandlineSession:
        return StrandlineSession(SESSION, **self.options)

    def _agent(self, text: str, *, needs_approval: bool = False) -> Agent[Any]:
        def ask(call: Any) -> Any:
            self.sent(map(message_of, call.input))
            self.fault.at("ask")
            return [function_call("note", {"text": text}, call_id=self.next_id())]

        def answer(call: Any) -> Any:
            self.sent(map(message_of, call.input))
            self.fault.at("answer")
            return [assistant_message(f"Done: {text}")]

        tool: Any = function_tool(self.note, needs_approval=needs_approval)
        model = ScriptedModel([ModelStep.respond(ask), ModelStep.respond(answer)])
        return Agent(name="Clerk", model=model, tools=[tool])
