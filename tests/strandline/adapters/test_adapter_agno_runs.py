"""Strandline under Agno 3: agents and teams keep their runs, and are shown memories that fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("agno.session.agent", reason="needs the extra agno")

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.media import Audio, File, Image
from agno.models.message import Message as AgnoMessage
from agno.models.response import ModelResponse
from agno.run.agent import RunInput, RunOutput
from agno.run.team import TeamRunOutput
from agno.session import AgentSession
from agno.team import Team
from agno.tools import Function

from strandline import Memory
from strandline.adapters import storable
from strandline.adapters.agno import StrandlineMemoryManager, StrandlineSummaryManager, messages_of, runs
from strandline.adapters.recently_used import RecentlyUsed
from strandline.cli.entry import run
from strandline.producers.execution import OperationRunner
from strandline.schemas.errors import DatabaseUnavailableError
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.agents.scripted_agno import UNSEEN, ScriptedModel, call, text, texts_of
from tests.support.agents.thirty_turns import FIRST, TURNS, Conversations, sayings
from tests.support.stored import flush_events
from tests.support.stored_form import JSON_VALUES, NAMES, TEXTS, stored_form

AnyRun = RunOutput | TeamRunOutput | None
MakeManager = Callable[..., StrandlineMemoryManager]


@pytest.fixture
def make_manager(database_url: str) -> Iterator[MakeManager]:
    made: list[StrandlineMemoryManager] = []

    def make(**options: Any) -> StrandlineMemoryManager:
        made.append(StrandlineMemoryManager(database_url=database_url, **options))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


def hooks_of(manager: StrandlineMemoryManager) -> dict[str, Any]:
    return {"pre_hooks": [manager.recall], "post_hooks": [manager.keep], "memory_manager": manager, **UNSEEN}


def async_hooks_of(manager: StrandlineMemoryManager) -> dict[str, Any]:
    return {**hooks_of(manager), "pre_hooks": [manager.arecall], "post_hooks": [manager.akeep]}


# Thirty turns.


def count_boats(pier: str) -> str:
    """Count the boats at a pier."""
    return f"three boats, {pier}"


def make_agent(manager: StrandlineMemoryManager, last_texts: dict[str, list[str]]) -> Agent:
    """An agent that counts boats in each turn, and notes what its model is asked at the turn's begin."""

    def answer(messages: Sequence[AgnoMessage], run: AnyRun) -> ModelResponse:
        if messages[-1].role != "user":
            return text(f"Done: {messages[-1].content}")
        assert run is not None and run.user_id is not None
        last_texts[run.user_id] = texts_of(messages)
        return call("count_boats", '{"pier": "all"}', uuid4().hex)

    return Agent(
        name="Sailor",
        model=ScriptedModel(answer=answer),
        db=InMemoryDb(),
        tools=[count_boats],
        add_history_to_context=True,
        num_history_runs=3,
        update_memory_on_run=True,
        **async_hooks_of(manager),
    )


def make_team(manager: StrandlineMemoryManager, last_texts: dict[str, list[str]]) -> Team:
    """A team whose leader asks that agent in each turn; the agent has the same memory and hooks."""

    def answer(messages: Sequence[AgnoMessage], run: AnyRun) -> ModelResponse:
        if messages[-1].role != "user":
            return text(f"Told: {messages[-1].content}")
        assert run is not None and run.user_id is not None
        last_texts[run.user_id] = texts_of(messages)
        task = {"member_id": "sailor", "task": "Count all boats."}
        return call("delegate_task_to_member", json.dumps(task), uuid4().hex)

    return Team(
        name="Harbour",
        members=[make_agent(manager, {})],
        model=ScriptedModel(answer=answer),
        db=InMemoryDb(),
        add_history_to_context=True,
        num_history_runs=3,
        update_memory_on_run=True,
        **async_hooks_of(manager),
    )


@pytest.mark.parametrize("make", [make_agent, make_team])
async def test_two_users_know_what_has_left_their_windows(
    rig: Rig, make: Callable[..., Agent | Team]
) -> None:
    conversations = Conversations(rig.url, rig.broker_url, rig.start_worker, rig.model)
    options: Any = conversations.options
    manager = StrandlineMemoryManager(**options)
    last_texts: dict[str, list[str]] = {}
    runner = make(manager, last_texts)

    async def take(user: str, said: str) -> None:
        run = await runner.arun(said, user_id=user, session_id=f"{user}-talks")
        assert "three boats" in str(run.content)

    await conversations.talk(take)
    conversations.check(last_texts, form="\n- {}")
    for user in FIRST:
        assert len([one for one in last_texts[user] if "counts pier" in one and "\n- " not in one]) == 3
        memory = Memory.from_defaults(f"{user}-talks", user_id=user, **options)
        stored = await memory.aget_all()
        assert [message.text for message in stored if message.role == "user"] == sayings(user)
        assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"] * TURNS
    await manager.aclose()
    doubled = "SELECT text FROM strandline.fact_candidate GROUP BY shard_key, text HAVING count(*) > 1"
    assert rows_of(rig.url, doubled) == [], "each fact is found once"
    kinds = "SELECT DISTINCT kind FROM strandline.session_owner"
    assert rows_of(rig.url, kinds) == [("chat",)], "Agno's own calls make no facts beside the runs"


# One run.


def say(manager: StrandlineMemoryManager, user: str, *sentences: str) -> None:
    for sentence in sentences:
        manager.facts(user).add(sentence)


def requests_to(answer: Callable[[int], ModelResponse]) -> tuple[ScriptedModel, list[list[str]]]:
    """A model that answers by the number of the request, and the texts of the requests so far."""
    seen: list[list[str]] = []

    def respond(messages: Sequence[AgnoMessage], _run: AnyRun) -> ModelResponse:
        seen.append(texts_of(messages))
        return answer(len(seen))

    return ScriptedModel(answer=respond), seen


def stored(make_memory: MakeMemory, session: str, user: str) -> list[str]:
    return [str(message) for message in make_memory(session, user_id=user).get_all()]


def test_a_run_is_shown_the_memories_that_fit_it_and_the_newest(make_manager: MakeManager) -> None:
    manager = make_manager(max_memories=5)
    say(manager, "ana", "Ana's boat is the Petrel.", *(f"Ana knows knot {n:02d}." for n in range(40)))
    model, seen = requests_to(lambda _number: text("She does."))
    agent = Agent(model=model, **hooks_of(manager))
    agent.run("What does the boat Petrel need?", user_id="ana", session_id="s")
    shown = [line for line in seen[0][0].splitlines() if line.startswith("- ")]
    assert (
        len(shown) == 5 and shown[0] == "- Ana's boat is the Petrel." and shown[-1] == "- Ana knows knot 39."
    )
    assert len(manager.get_user_memories("ana")) == 41, "outside of a run all of them"
    agent.run("And who am I?", user_id="rui", session_id="t")
    assert not [line for line in seen[1][0].splitlines() if line.startswith("- ")]


async def test_an_async_run_never_waits_for_a_read_on_its_loop(
    make_manager: MakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agno's ``arun`` calls the sync method of the manager if the agent's database is sync."""
    manager = make_manager()
    say(manager, "ana", "Ana keeps bees.")
    model, seen = requests_to(lambda _number: text("She does."))

    def run(*_: object) -> None:
        raise AssertionError("the loop would wait")

    agent = Agent(model=model, db=InMemoryDb(), **async_hooks_of(manager))
    monkeypatch.setattr(OperationRunner, "run", run)
    await asyncio.gather(*(agent.arun("Who?", user_id=user, session_id=user) for user in ("ana", "rui")))
    await manager.aclose()
    assert sorted("- Ana keeps bees." in request[0] for request in seen) == [False, True]


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_is_kept_whole_and_once(
    make_manager: MakeManager, make_memory: MakeMemory, stream: bool
) -> None:
    manager = make_manager()
    answers = {1: call("count_boats", '{"pier": "3"}', "c1"), 2: text("Three."), 3: text("Still three.")}
    model, _seen = requests_to(lambda number: answers[number])
    agent = Agent(
        model=model,
        db=InMemoryDb(),
        instructions="Be short.",
        tools=[count_boats],
        add_history_to_context=True,
        additional_input=[
            AgnoMessage(role="user", content="An example."),
            AgnoMessage(role="assistant", content="Ok."),
        ],
        **hooks_of(manager),
    )
    for said in ("How many?", "And now?"):
        if stream:
            list(agent.run(said, user_id="ana", session_id="s", stream=True, stream_events=True))
        else:
            kept = agent.run(said, user_id="ana", session_id="s")
            manager.keep(kept, agent.get_session("s"), user_id="ana", agent=agent)  # type: ignore[arg-type]
    assert stored(make_memory, "s", "ana") == [
        "user: How many?",
        "assistant: ",
        "tool: three boats, 3",
        "assistant: Three.",
        "user: And now?",
        "assistant: Still three.",
    ]


# A run that comes again.


def counting_agent(manager: StrandlineMemoryManager, **options: Any) -> Any:
    """An agent whose answers are numbered; Agno declares fewer arguments of its methods than they take."""
    model, _seen = requests_to(lambda number: text(f"Answer {number}."))
    return Agent(model=model, db=InMemoryDb(), **{**hooks_of(manager), **options})


def test_a_run_that_is_retried_takes_the_place_of_what_it_was(rig: Rig, make_manager: MakeManager) -> None:
    agent = counting_agent(make_manager())
    for said, run_id in (("One?", "r1"), ("Two?", "r2"), ("Two?", "r2")):
        agent.run(said, run_id=run_id, user_id="ana", session_id="s")
    lines = ["user: One?", "assistant: Answer 1.", "user: Two?", "assistant: Answer 3."]
    assert stored(rig.memory, "s", "ana") == lines
    agent.run("One, again?", run_id="r1", user_id="ana", session_id="s")
    lines[:2] = ["user: One, again?", "assistant: Answer 4."]
    assert stored(rig.memory, "s", "ana") == lines, "one that others are behind as well"
    runs = rows_of(rig.url, "SELECT run_id, status, agent_id FROM strandline.session_run ORDER BY 1")
    assert runs == [("r1", "completed", agent.id), ("r2", "completed", agent.id)]
    assert rig.memory("s", user_id="ana").run_history(1)[-1].text == "Answer 3."


def test_a_regenerated_answer_takes_the_place_of_the_first(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    """Agno gives what it regenerates an id of its own."""
    agent = counting_agent(make_manager())
    run = agent.run("One?", user_id="ana", session_id="s")
    for number in (2, 3):
        run = agent.continue_run(run_id=run.run_id, regenerate=True, user_id="ana", session_id="s")
        assert stored(make_memory, "s", "ana") == ["user: One?", f"assistant: Answer {number}."]
    agent.continue_run(
        run_id=run.run_id, regenerate=True, replace_original=False, user_id="ana", session_id="s"
    )
    both = ["user: One?", "assistant: Answer 3.", "assistant: Answer 4."]
    assert stored(make_memory, "s", "ana") == both, "unless both are to stay"


def test_a_run_that_is_continued_has_what_it_said_before_once(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    def pay(amount: str) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    manager = make_manager()
    answers = {1: call("pay", '{"amount": "3"}', "c1"), 2: text("Done."), 3: text("Twice?")}
    model, _seen = requests_to(lambda number: answers[number])
    tool = Function.from_callable(pay)
    tool.requires_confirmation = True
    agent: Any = Agent(model=model, db=InMemoryDb(), tools=[tool], **hooks_of(manager))
    run = agent.run("Pay.", user_id="ana", session_id="s")
    assert run.is_paused and stored(make_memory, "s", "ana") == []
    for requirement in run.requirements or ():
        requirement.confirm()
    run = agent.continue_run(run_id=run.run_id, requirements=run.requirements, user_id="ana", session_id="s")
    lines = ["user: Pay.", "assistant: ", "tool: paid 3", "assistant: Done."]
    assert stored(make_memory, "s", "ana") == lines
    agent.continue_run(run_id=run.run_id, input="And again.", user_id="ana", session_id="s")
    assert stored(make_memory, "s", "ana") == [*lines, "user: And again.", "assistant: Twice?"]


async def test_a_run_that_comes_again_async_and_streamed_is_replaced_as_well(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    manager = make_manager()

    agent = counting_agent(manager, **async_hooks_of(manager))
    for _again in range(2):
        async for _event in agent.arun("One?", run_id="r", user_id="ana", session_id="s", stream=True):
            pass
    await manager.aclose()
    assert stored(make_memory, "s", "ana") == ["user: One?", "assistant: Answer 2."]


def test_a_run_longer_than_a_put_is_kept_in_parts(
    make_manager: MakeManager, make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_RUN_MESSAGES", 3)
    monkeypatch.setattr(storable, "MESSAGES_PER_PUT", 3)
    answers = {1: call("count_boats", '{"pier": "3"}', "c1"), 2: text("Three.")}
    model, _seen = requests_to(lambda number: answers[number])
    agent = Agent(model=model, tools=[count_boats], **hooks_of(make_manager()))
    agent.run("How many?", user_id="ana", session_id="s")
    assert len(stored(make_memory, "s", "ana")) == 4


def test_a_run_that_fails_leaves_nothing_and_its_memories_reach_no_other(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    manager = make_manager()
    say(manager, "ana", "Ana keeps bees.", "Ana sails.")

    def fail(_messages: Sequence[AgnoMessage], _run: AnyRun) -> ModelResponse:
        raise RuntimeError("the model is away")

    agent = Agent(model=ScriptedModel(answer=fail), add_memories_to_context=False, **hooks_of(manager))
    agent.run("Hello?", user_id="ana", session_id="s")
    assert stored(make_memory, "s", "ana") == []
    assert manager.get_user_memories("rui") == []


def test_a_run_whose_put_failed_is_put_with_the_next(
    rig: Rig, make_manager: MakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_STATEMENT_TIMEOUT_SECONDS", "2")
    model, _seen = requests_to(lambda number: text(f"Answer {number}."))
    agent = Agent(model=model, **hooks_of(make_manager()))
    agent.run("One?", user_id="ana", session_id="s")
    with psycopg.connect(rig.url) as other:
        other.execute("LOCK TABLE strandline.fact, strandline.session")  # neither read nor written
        answered = agent.run("Two?", user_id="ana", session_id="s")
    assert answered.content == "Answer 2.", "a run does not fail for its memory"
    agent.run("Three?", user_id="ana", session_id="s")
    assert stored(rig.memory, "s", "ana")[::2] == ["user: One?", "user: Two?", "user: Three?"]


def test_runs_of_one_conversation_whose_puts_failed_at_once_are_all_put_with_the_next(
    rig: Rig, make_manager: MakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_STATEMENT_TIMEOUT_SECONDS", "2")
    manager = make_manager()

    def ask(question: str) -> None:
        model = ScriptedModel(answer=lambda *_: text("Yes."))
        Agent(model=model, **hooks_of(manager)).run(question, user_id="ana", session_id="s")

    ask("One?")
    with psycopg.connect(rig.url) as other, ThreadPoolExecutor(3) as threads:
        other.execute("LOCK TABLE strandline.fact, strandline.session")
        list(threads.map(ask, ["Two?", "Three?", "Four?"]))
    ask("Five?")
    questions = stored(rig.memory, "s", "ana")[::2]
    assert questions[0] == "user: One?" and questions[-1] == "user: Five?"
    assert sorted(questions[1:-1]) == ["user: Four?", "user: Three?", "user: Two?"]


def test_runs_that_cannot_be_held_are_named_in_the_log(
    make_memory: MakeMemory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each conversation the oldest are held."""
    monkeypatch.setattr(runs, "MAX_HELD_MESSAGES", 5)
    away = Memory.from_defaults("s", user_id="ana", database_url="postgresql://x@127.0.0.1:1/x")
    memories = [away]
    keeper = runs.RunKeeper(lambda *_: memories[-1], lambda _hook: True)

    def keep(run_id: str, *texts: str) -> None:
        messages = [AgnoMessage(role="user", content=text) for text in texts]
        output = RunOutput(run_id=run_id, messages=messages)
        keeper.keep(output, AgentSession(session_id="s"), "ana", Agent(model=ScriptedModel(), id="helper"))

    for number in range(3):
        with pytest.raises(DatabaseUnavailableError):
            keep(f"r{number}", f"{number} one", f"{number} two")
    (dropped,) = [record for record in caplog.records if record.name == "strandline.adapters"]
    fields = [dropped.__dict__[name] for name in ("action", "runs", "messages")]
    assert fields == ["runs_dropped", 1, 2]
    memories.append(make_memory("s", user_id="ana", memory_blocks=[]))
    keep("last", "last")
    texts = [message.text for message in memories[-1].get_all()]
    assert texts == ["0 one", "0 two", "1 one", "1 two", "last"]
    away.close()


def test_agents_without_a_name_fill_no_memory(
    monkeypatch: pytest.MonkeyPatch, make_memory: MakeMemory
) -> None:
    monkeypatch.setattr(runs, "MAX_KNOWN_RUNNERS", 3)
    keeper = runs.RunKeeper(lambda *_: make_memory("s"), lambda _hook: True)
    for number in range(5):
        keeper.begin("r", Agent(id=f"a{number}", post_hooks=[print]))
    assert [keeper.keeps_runs_of(f"a{number}") for number in range(5)] == [False, False, True, True, True]


def test_a_run_that_is_kept_again_does_not_bring_back_what_a_person_corrected(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    """As when the answer to a put was lost, and the run is put once more with the next."""
    manager = make_manager()
    agent = Agent(model=ScriptedModel(answer=lambda *_: text("Noted.")), **hooks_of(manager))
    run = agent.run("My card is 4111.", user_id="ana", session_id="s")
    make_memory("s", user_id="ana", memory_blocks=[]).replace(1, "[redacted]")
    manager.keep(run, AgentSession(session_id="s"), "ana", agent=agent)
    assert stored(make_memory, "s", "ana") == ["user: [redacted]", "assistant: Noted."]


def test_each_turn_is_delivered_at_its_end_and_stays_in_the_window(
    rig: Rig, make_manager: MakeManager
) -> None:
    agent = Agent(model=ScriptedModel(), **hooks_of(make_manager()))
    agent.run("I keep bees.", user_id="ana", session_id="s")
    assert rows_of(rig.url, "SELECT cause, message_count FROM strandline.flush_event") == [("turn", 2)]
    assert len(rig.memory("s", user_id="ana").get().window) == 2


def test_what_one_session_hears_the_next_is_shown(make_manager: MakeManager, database_url: str) -> None:
    manager = make_manager(consume="background")
    model, seen = requests_to(lambda _number: text("I see."))
    agent = Agent(model=model, db=InMemoryDb(), **hooks_of(manager))
    agent.run("My boat is called Petrel.", user_id="ana", session_id="monday")
    wait_until(lambda: nothing_due(database_url), timeout=30, what="the facts of a turn")
    agent.run("What is my boat called?", user_id="ana", session_id="tuesday")
    assert "My boat is called Petrel." in seen[1][0]


def test_an_agent_that_edits_memories_itself_has_none_extracted(
    make_manager: MakeManager, database_url: str
) -> None:
    manager = make_manager(wait=None)
    answers = {1: call("update_user_memory", '{"task": "I keep bees."}', "c1"), 2: text("Noted.")}
    model, seen = requests_to(lambda number: answers[number])
    agent = Agent(model=model, enable_agentic_memory=True, **hooks_of(manager))
    agent.run("Remember that I keep bees.", user_id="ana", session_id="s")
    assert "was accepted" in seen[1][-1]
    causes = "SELECT cause FROM strandline.flush_event ORDER BY cause"
    assert rows_of(database_url, causes) == [("instruction",), ("turn",)]
    fed = "SELECT DISTINCT d.stage FROM strandline.due d JOIN strandline.flush_event e USING (event_id)"
    fed += " WHERE e.cause = 'turn' ORDER BY 1"
    assert rows_of(database_url, fed) == [("summary",), ("vectors",)]


def test_a_namespace_that_forbids_agents_to_write_holds_for_agentic_memory(
    make_manager: MakeManager, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make_manager(wait=None)
    say(manager, "ana", "Ana keeps bees.")
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    assert run(["limits", "set", "default", "--agents-read-only"]) == 0
    assert "may not change" in manager.update_memory_task("Forget the bees.", user_id="ana")
    assert "may not change" in asyncio.run(_closing(manager, manager.aupdate_memory_task("Forget.", "ana")))
    assert flush_events(database_url) == 0


async def _closing(manager: StrandlineMemoryManager, call: Any) -> Any:
    try:
        return await call
    finally:
        await manager.aclose()


def test_a_member_keeps_nothing_within_its_team_and_its_own_runs_alone(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    manager = make_manager()
    model, _seen = requests_to(lambda _number: text("Three boats."))
    member = Agent(name="Sailor", model=model, **hooks_of(manager))
    task = json.dumps({"member_id": "sailor", "task": "Count all boats."})
    leader, _asked = requests_to(
        lambda number: call("delegate_task_to_member", task, "c1") if number == 1 else text("Three.")
    )
    team = Team(name="Harbour", members=[member], model=leader, db=InMemoryDb(), **hooks_of(manager))
    team.run("How many?", user_id="ana", session_id="s")
    assert stored(make_memory, "s", "ana") == [
        "user: How many?",
        "assistant: ",
        "tool: Three boats.",
        "assistant: Three.",
    ]
    member.run("And you?", user_id="ana", session_id="t")
    assert stored(make_memory, "t", "ana") == ["user: And you?", "assistant: Three boats."]


def test_a_member_of_a_team_that_failed_keeps_its_next_run(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    manager = make_manager()

    def fail(_messages: Sequence[AgnoMessage], _run: AnyRun) -> ModelResponse:
        raise RuntimeError("the model is away")

    member = Agent(name="Sailor", model=ScriptedModel(), **hooks_of(manager))
    team = Team(name="Harbour", members=[member], model=ScriptedModel(answer=fail), **hooks_of(manager))
    team.run("How many?", user_id="ana", session_id="s")
    member.run("And you?", user_id="ana", session_id="s")
    assert stored(make_memory, "s", "ana") == ["user: And you?", "assistant: Noted."]


def test_what_members_of_a_team_within_a_team_say_is_kept_by_the_outer_one(
    make_manager: MakeManager, make_memory: MakeMemory
) -> None:
    manager = make_manager()
    hooks = hooks_of(manager)

    def leader(member: str) -> ScriptedModel:
        task = json.dumps({"member_id": member, "task": "Count all boats."})
        answers = {1: call("delegate_task_to_member", task, uuid4().hex), 2: text(f"Asked {member}.")}
        return requests_to(lambda number: answers[number])[0]

    sailor = Agent(name="Sailor", model=ScriptedModel(), **hooks)
    crew = Team(name="Crew", members=[sailor], model=leader("sailor"), **hooks)
    harbour = Team(name="Harbour", members=[crew], model=leader("crew"), **hooks)
    harbour.run("How many?", user_id="ana", session_id="s")
    assert stored(make_memory, "s", "ana") == [
        "user: How many?",
        "assistant: ",
        "tool: Asked sailor.",
        "assistant: Asked crew.",
    ]


def test_copies_of_an_agent_share_its_manager(make_manager: MakeManager) -> None:
    manager = make_manager()
    summaries = StrandlineSummaryManager(namespace="n")
    agent = Agent(model=ScriptedModel(), session_summary_manager=summaries, **hooks_of(manager))
    copied = agent.deep_copy()
    assert copied.memory_manager is manager and copied.session_summary_manager is summaries
    assert copied.post_hooks is not None and copied.post_hooks[0].__self__ is manager  # type: ignore[union-attr]
    assert deepcopy(summaries) is summaries


# Summaries.


async def test_a_session_has_the_summary_that_workers_made(
    make_manager: MakeManager, database_url: str
) -> None:
    """After a run it is as it is just then; on call it can be waited for."""
    options: Any = {"database_url": database_url, "consume": "background"}
    manager = make_manager(consume="background")
    model, seen = requests_to(lambda _number: text("I see."))
    agent = Agent(
        model=model,
        db=InMemoryDb(),
        session_summary_manager=StrandlineSummaryManager(**options),
        enable_session_summaries=True,
        **hooks_of(manager),
    )
    summaries = StrandlineSummaryManager(wait=60, **options)
    assert summaries.create_session_summary(AgentSession("never", user_id="ana")) is None
    agent.run("My boat is called Petrel.", user_id="ana", session_id="s")
    session = agent.get_session("s")
    assert isinstance(session, AgentSession)
    summary = summaries.create_session_summary(session)
    assert summary is not None and "Petrel" in summary.summary and session.summary is summary
    agent.run("And now?", user_id="ana", session_id="s")
    kept = agent.get_session_summary("s")
    assert kept is not None and "Petrel" in kept.summary
    agent.run("Who am I?", user_id="ana", session_id="s")
    assert "<summary_of_previous_interactions>" in seen[2][0] and "Petrel" in seen[2][0]

    again = AgentSession("s", user_id="ana")
    assert await summaries.acreate_session_summary(again) is not None
    assert again.summary is not None and "Petrel" in again.summary.summary
    await manager.aclose()


# Messages.


def run_of(*messages: AgnoMessage, said: Any = None) -> RunOutput:
    return RunOutput(messages=list(messages), input=None if said is None else RunInput(said))


def test_only_what_was_said_in_the_run_is_kept() -> None:
    said = [
        AgnoMessage(role="system", content="Be short."),
        AgnoMessage(role="user", content="Earlier.", from_history=True),
        AgnoMessage(role="user", content="Where?\n\n<references>A page: remember that …</references>"),
        AgnoMessage(role="assistant", content="Hm.", temporary=True),
        AgnoMessage(role="assistant", content="In Horta.", reasoning_content="The log says so."),
    ]
    question, answer = messages_of(run_of(*said, said="Where?"))
    assert (question.content, question.id) == ("Where?", said[2].id)
    assert (answer.content, answer.extra) == ("In Horta.", {"reasoning_content": "The log says so."})


def test_media_are_kept_by_name_and_without_their_bytes() -> None:
    (message,) = messages_of(
        run_of(
            AgnoMessage(
                role="user",
                content="See:",
                images=[Image(url="http://a/b.png"), Image(content=b"bytes", id="i1")],
                audio=[Audio(filepath="note.wav"), Audio(content=b"bytes", id="a1", transcript="Horta.")],
                files=[File(content=b"bytes", id="f1", name="charter.pdf")],
            )
        )
    )
    assert message.content == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "http://a/b.png"}},
        {"type": "image", "source": "i1"},
        {"type": "audio", "source": "note.wav"},
        {"type": "audio", "source": "a1", "transcript": "Horta."},
        {"type": "document", "source": "f1", "name": "charter.pdf"},
    ]
    assert message.shown_text.splitlines()[-3:] == ["[sound]", "Horta.", "[document] charter.pdf"]


def test_what_a_model_made_is_kept_by_name_and_its_words_are_said_once() -> None:
    made = AgnoMessage(
        role="assistant",
        content="Here.",
        image_output=Image(content=b"bytes", id="i1", revised_prompt="a boat at dawn"),
        audio_output=Audio(content=b"bytes", id="a1", transcript="Here."),
    )
    spoken = AgnoMessage(role="assistant", audio_output=Audio(content=b"bytes", transcript="Horta."))
    first, second = messages_of(run_of(made, spoken))
    assert first.shown_text == "Here.\n[picture]\na boat at dawn\n[sound]"
    assert second.shown_text == "[sound]\nHorta."


def test_calls_without_ids_and_results_in_one_message_find_each_other() -> None:
    function = {"name": "look", "arguments": {"at": "sea"}}
    asked = AgnoMessage(role="model", tool_calls=[{"function": function}])
    told = AgnoMessage(role="function", content="waves")
    both = AgnoMessage(role="assistant", tool_calls=[{"id": "a"}, {"id": "b"}])
    results = [{"tool_call_id": "a", "content": "1"}, {"tool_call_id": "b", "content": "2"}]
    combined = AgnoMessage(role="tool", content=["1", "2"], tool_calls=results)
    lost = AgnoMessage(role="tool", content="3", tool_call_id="never asked")
    messages = messages_of(run_of(asked, told, both, combined, lost))
    assert [message.role for message in messages] == ["assistant", "tool", "assistant", "tool", "tool"]
    (made,) = messages[0].tool_calls or ()
    assert messages[1].tool_call_id == made["id"] and made["function"]["arguments"] == '{"at": "sea"}'
    assert [(one.tool_call_id, one.content) for one in messages[3:]] == [("a", "1"), ("b", "2")]
    assert len({message.id for message in messages}) == 5


CONTENTS = st.none() | TEXTS | st.lists(JSON_VALUES, max_size=3)
CALLS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"id": st.none() | NAMES, "function": st.none() | st.dictionaries(NAMES, JSON_VALUES)}
    ),
    max_size=2,
)
AGNO_MESSAGES = st.builds(
    AgnoMessage,
    role=st.sampled_from(["system", "user", "assistant", "model", "tool", "function", "odd"]),
    content=CONTENTS,
    tool_calls=st.none() | CALLS,
    tool_call_id=st.none() | NAMES,
    from_history=st.booleans(),
)


@given(st.lists(AGNO_MESSAGES, max_size=5))
@example([AgnoMessage(role="user", content="a\0b\ud800"), AgnoMessage(role="assistant", content=["\0"])])
@example([AgnoMessage(role="assistant", content=[{"type": "text", "text": "\0 \\u0000"}])])
def test_whatever_a_run_holds_can_be_put(messages: list[AgnoMessage]) -> None:
    """The same messages each time, each of which could be stored; results only of calls that were made."""
    made = messages_of(run_of(*messages))
    assert made == messages_of(run_of(*messages))
    assert [stored_form(message).role for message in made] == [message.role for message in made]
    calls = [call["id"] for message in made for call in message.tool_calls or ()]
    assert {message.tool_call_id for message in made if message.role == "tool"} <= set(calls)


STEPS = st.lists(st.tuples(st.sampled_from(["put", "get", "remove"]), st.integers(0, 5)), max_size=40)


@given(steps=STEPS, size=st.integers(1, 4))
def test_what_was_used_longest_ago_leaves_first(steps: list[tuple[str, int]], size: int) -> None:
    mapping: RecentlyUsed[int, int] = RecentlyUsed(size)
    model: dict[int, int] = {}
    for number, (step, key) in enumerate(steps):
        if step == "put":
            model.pop(key, None)
            model[key] = number
            mapping.put(key, number)
            if len(model) > size:
                del model[next(iter(model))]
        elif step == "get":
            assert mapping.get(key) == model.get(key)
            if key in model:
                model[key] = model.pop(key)
        else:
            model.pop(key, None)
            mapping.remove(key)
        assert mapping.items() == list(model.items())
    mapping.clear()
    assert mapping.items() == []
