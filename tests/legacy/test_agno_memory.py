"""What Agno 1's own unit tests name: each behaviour of its memory here, or what stands in its place."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from agno.agent import Agent
from agno.media import ImageArtifact
from agno.memory.v2.memory import Memory, TeamContext
from agno.memory.v2.schema import SessionSummary, UserMemory
from agno.models.message import Message
from agno.models.openai import OpenAIChat
from agno.run.base import RunStatus
from agno.run.response import RunResponse
from agno.run.team import TeamRunResponse

from strandline import Capture, ConfigurationError, InvalidMessageError, OwnerError
from strandline.adapters import storable
from strandline.adapters.agno_v1 import StrandlineMemory, StrandlineMemoryDb
from strandline.adapters.legacy.agno_v1 import runs
from tests.conftest import rows_of
from tests.support.processes import forking
from tests.support.servers.model_server import ModelServer

Make = Callable[..., StrandlineMemory]
NAME = UserMemory(memory="The user's name is John Doe.", topics=["name", "user"])
SESSION = "test_session"


@pytest.fixture
def make(database_url: str) -> Iterator[Make]:
    """Makes memories on the test's database; nothing consumes, unless ``consume`` says so."""
    memories: list[StrandlineMemory] = []

    def make_one(user_id: Any = "test_user", **options: Any) -> StrandlineMemory:
        options.setdefault("database_url", database_url)
        memories.append(StrandlineMemory(user_id, **options))
        return memories[-1]

    yield make_one
    for memory in memories:
        memory.close()


@pytest.fixture
def memory(make: Make) -> StrandlineMemory:
    return make()


@pytest.fixture
def deriving(make: Make, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> StrandlineMemory:
    """A memory whose process also consumes, by the stand-in of a model."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return make(consume="background", wait_seconds=100)


def run_of(question: str, answer: str = "Hi there!", run_id: str | None = None, **fields: Any) -> RunResponse:
    messages = [Message(role="user", content=question), Message(role="assistant", content=answer)]
    return RunResponse(content=answer, messages=messages, run_id=run_id, **fields)


def said(messages: list[Message]) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in messages]


# How it is made.


def test_a_new_memory_is_empty(memory: StrandlineMemory) -> None:
    assert isinstance(memory, Memory)
    assert memory.memories == {}
    assert memory.summaries == {}
    assert memory.runs == {}
    assert memory.model is None
    assert memory.get_user_memories() == []
    assert memory.get_session_summary(SESSION) is None


@pytest.mark.parametrize("name", ["model", "memory_manager", "summarizer"])
def test_models_run_in_the_workers(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no argument '{name}'"):
        StrandlineMemory("ana", **{name: OpenAIChat()})


def test_the_model_of_an_agent_is_not_asked(memory: StrandlineMemory) -> None:
    model = OpenAIChat(id="stand-in", api_key="none")
    Agent(model=model, memory=memory, telemetry=False, monitoring=False).initialize_agent()
    assert memory.model is model
    assert memory.memory_manager is None
    assert memory.summary_manager is None


def test_what_is_kept_is_said_for_a_user(memory: StrandlineMemory) -> None:
    facts = memory.user_memories.facts_of("test_user")
    facts.set_capture(Capture(instructions="Keep preferences alone."))
    assert facts.get_capture().instructions == "Keep preferences alone."


# Whose it is.


def test_a_session_needs_a_user(make: Make) -> None:
    memory = make(None)
    with pytest.raises(ConfigurationError, match="was not said"):
        memory.add_run(SESSION, run_of("Hello"))
    memory.initialize(user_id="ana")
    memory.add_run(SESSION, run_of("Hello"))
    assert memory.session_memory(SESSION).user_id == "ana"
    memory.initialize(user_id="rui")
    assert memory.session_memory(SESSION).user_id == "ana", "a memory serves the user whom it was given first"


def test_a_memory_of_a_user_serves_no_other(memory: StrandlineMemory) -> None:
    for call in (memory.get_user_memories, memory.get_session_summaries):
        with pytest.raises(ConfigurationError, match="serves user 'test_user'"):
            call(user_id="rui")
    with pytest.raises(ConfigurationError, match="is of user 'test_user'"):
        memory.get_session_summary(SESSION, user_id="rui")
    assert memory.get_user_memories(user_id="default") == [], "so Agno calls the user of a run without one"


def test_one_memory_serves_many_users_whose_sessions_are_told_apart(make: Make) -> None:
    memory = make(lambda session: session.partition("-")[0])
    memory.add_run("ana-1", run_of("I am Ana."))
    memory.add_run("rui-1", run_of("I am Rui."))
    memory.add_user_memory(UserMemory("Ana sails."), user_id="ana")
    assert memory.session_memory("rui-1").user_id == "rui"
    assert [one.memory for one in memory.get_user_memories("ana")] == ["Ana sails."]
    assert memory.get_user_memories("rui") == []
    assert said(memory.get_messages_for_session("rui-1"))[0] == ("user", "I am Rui.")


# Memories of users.


def test_a_memory_is_added(memory: StrandlineMemory) -> None:
    memory_id = memory.add_user_memory(deepcopy(NAME), user_id="test_user")
    stored = memory.get_user_memory(memory_id, user_id="test_user")
    assert stored is not None
    assert (stored.memory, stored.topics, stored.memory_id) == (NAME.memory, NAME.topics, memory_id)
    assert stored.last_updated is not None
    assert memory.memories["test_user"][memory_id] == stored


def test_without_a_user_it_is_the_default_one(make: Make) -> None:
    memory = make(None)
    memory_id = memory.add_user_memory(deepcopy(NAME))
    assert list(memory.memories["default"]) == [memory_id]
    assert memory.get_user_memory(memory_id, user_id="default") == memory.memories["default"][memory_id]


def test_a_memory_keeps_the_id_that_it_is_given(memory: StrandlineMemory) -> None:
    for memory_id in ("my id", "0f3c9a52-6a55-4f39-8b7a-0d6ff2c7b7d1"):
        mine = UserMemory(f"It is called {memory_id}.", memory_id=memory_id, input="I say so.")
        assert memory.add_user_memory(mine) == memory_id
        stored = memory.get_user_memory(memory_id)
        assert stored is not None
        assert (stored.memory, stored.memory_id, stored.input) == (mine.memory, memory_id, "I say so.")
    assert {one.memory_id for one in memory.get_user_memories()} == {
        "my id",
        "0f3c9a52-6a55-4f39-8b7a-0d6ff2c7b7d1",
    }


def test_a_memory_is_replaced(memory: StrandlineMemory) -> None:
    memory_id = memory.add_user_memory(deepcopy(NAME))
    changed = UserMemory("The user's name is Jane Doe.", topics=["name"])
    assert memory.replace_user_memory(memory_id, changed) == memory_id
    stored = memory.get_user_memory(memory_id)
    assert stored is not None
    assert (stored.memory, stored.topics) == (changed.memory, ["name"])
    assert len(memory.get_user_memories()) == 1
    assert memory.replace_user_memory("no such id", changed) is None


def test_a_memory_is_deleted(memory: StrandlineMemory) -> None:
    for memory_id in (None, "my id"):
        stored_id = memory.add_user_memory(UserMemory("It rains.", memory_id=memory_id))
        memory.delete_user_memory(user_id="test_user", memory_id=stored_id)
        assert stored_id not in memory.memories["test_user"]
        assert memory.get_user_memory(stored_id) is None
    memory.delete_user_memory("no such id")


def test_all_memories_of_a_user_are_given_up_to_a_bound(make: Make) -> None:
    memory = make(max_memories=3)
    for number in range(5):
        memory.add_user_memory(UserMemory(f"Fact {number}.", topics=["food"]))
    assert [one.memory for one in memory.get_user_memories("test_user")] == ["Fact 2.", "Fact 3.", "Fact 4."]
    assert len(memory.memories["test_user"]) == 5


def test_of_many_memories_a_prompt_has_those_that_fit_and_some_of_the_newest(make: Make) -> None:
    memory = make(lambda session: session.partition("-")[0], max_memories=5)
    for sentence in ("Ana sails the Petrel.", "Ana is afraid of thunder.", *(f"Knot {n}." for n in range(9))):
        memory.add_user_memory(UserMemory(sentence), user_id="ana")

    def shown() -> list[str]:
        return [one.memory for one in memory.get_user_memories("ana")]

    newest = [f"Knot {n}." for n in range(4, 9)]
    assert shown() == newest
    memory.add_run("ana-1", run_of("What should I do in thunder?"))
    memory.add_run("rui-1", run_of("Where is the Petrel?"))
    assert shown() == ["Ana is afraid of thunder.", *newest[1:]], "what she said last"
    memory.expect("Where is the Petrel?", user_id="rui")
    assert "Ana sails the Petrel." not in shown()
    memory.expect("Where is the Petrel?", user_id="ana")
    assert shown() == ["Ana sails the Petrel.", *newest[1:]]
    assert "Ana sails the Petrel." not in shown(), "a question is for one run"


def test_users_do_not_reach_each_other(make: Make) -> None:
    memory = make(lambda session: session)
    ana_id = memory.add_user_memory(UserMemory("Ana sails.", memory_id="one"), user_id="ana")
    derived_id = memory.add_user_memory(UserMemory("Ana bakes."), user_id="ana")
    for memory_id in (ana_id, derived_id):
        assert memory.get_user_memory(memory_id, user_id="rui") is None
        assert memory.replace_user_memory(memory_id, UserMemory("Rui was here."), user_id="rui") is None
        memory.delete_user_memory(memory_id, user_id="rui")
        with pytest.raises(OwnerError, match="belongs to another user"):
            memory.add_user_memory(UserMemory("Rui was here.", memory_id=memory_id), user_id="rui")
    assert sorted(one.memory for one in memory.get_user_memories("ana")) == ["Ana bakes.", "Ana sails."]
    assert memory.get_user_memories("rui") == []


# Summaries.


def test_a_summary_is_made_of_the_runs(deriving: StrandlineMemory) -> None:
    assert deriving.create_session_summary("nothing said") is None
    deriving.add_run(SESSION, run_of("I sail the Petrel."))
    summary = deriving.create_session_summary(SESSION, "test_user")
    assert isinstance(summary, SessionSummary)
    assert "Petrel" in summary.summary
    assert summary.topics == ["talk"]
    assert deriving.summaries["test_user"][SESSION] == summary
    assert deriving.summaries.get("default", {}).get(SESSION) == summary
    assert deriving.get_session_summary(user_id="test_user", session_id=SESSION) == summary
    assert deriving.get_session_summaries("test_user") == [summary]
    assert asyncio.run(deriving.acreate_session_summary(SESSION)) == summary

    deriving.delete_session_summary("test_user", SESSION)
    assert SESSION not in deriving.summaries["test_user"]
    deriving.add_run(SESSION, run_of("And I bake."))
    assert "bake" in deriving.create_session_summary(SESSION).summary  # type: ignore[union-attr]


def test_without_a_summary_block_there_is_none(make: Make) -> None:
    memory = make(memory_blocks=[])
    memory.add_run(SESSION, run_of("Hello"))
    assert memory.create_session_summary(SESSION) is None
    assert memory.summaries["test_user"].get(SESSION) is None


# Searches.


def add_three(memory: StrandlineMemory) -> None:
    for text in ("Ana sails the Petrel.", "Ana bakes with butter.", "Ana fears thunder."):
        memory.add_user_memory(UserMemory(text))


@pytest.mark.parametrize(
    ("method", "limit", "expected"),
    [
        ("last_n", 2, ["Ana bakes with butter.", "Ana fears thunder."]),
        (None, 1, ["Ana fears thunder."]),
        ("first_n", 2, ["Ana sails the Petrel.", "Ana bakes with butter."]),
        ("last_n", 0, []),
        ("first_n", 0, []),
        ("semantic", 1, ["Ana bakes with butter."]),
    ],
)
def test_memories_are_searched(
    memory: StrandlineMemory, method: str | None, limit: int, expected: list[str]
) -> None:
    add_three(memory)
    found = memory.search_user_memories("Who bakes?", limit=limit, retrieval_method=method)
    assert [one.memory for one in found] == expected


def test_a_model_chooses_and_what_it_invents_is_left_out(deriving: StrandlineMemory) -> None:
    add_three(deriving)
    found = deriving.search_user_memories("thunder", retrieval_method="agentic", user_id="test_user")
    assert [one.memory for one in found] == ["Ana fears thunder."]
    with pytest.raises(ConfigurationError, match="needs a query"):
        deriving.search_user_memories(retrieval_method="agentic")
    with pytest.raises(ConfigurationError, match="it must be 'last_n'"):
        deriving.search_user_memories(retrieval_method="by hand")


# Runs.


def test_a_run_is_added(memory: StrandlineMemory) -> None:
    run = run_of("Hello")
    memory.add_run(SESSION, run)
    assert memory.runs == {SESSION: [run]}
    assert memory.get_runs(SESSION) == [run]
    assert [one.role for one in memory.session_memory(SESSION).get_all()] == ["user", "assistant"]


def test_the_messages_of_a_session_are_questions_and_answers(memory: StrandlineMemory) -> None:
    memory.add_run(SESSION, run_of("Hello, how are you?", "Well, thank you."))
    memory.add_run(SESSION, run_of("And the weather?", "It rains."))
    assert said(memory.get_messages_for_session(SESSION)) == [
        ("user", "Hello, how are you?"),
        ("assistant", "Well, thank you."),
        ("user", "And the weather?"),
        ("assistant", "It rains."),
    ]


def test_messages_from_history_are_not_stored_again(memory: StrandlineMemory) -> None:
    memory.add_run(SESSION, run_of("Hello"))
    second = run_of("What's new?", "Not much.")
    for message in memory.get_messages_from_last_n_runs(SESSION):
        second.messages.insert(0, message.model_copy(update={"from_history": True}))
    memory.add_run(SESSION, second)
    whole = [
        ("user", "Hello"),
        ("assistant", "Hi there!"),
        ("user", "What's new?"),
        ("assistant", "Not much."),
    ]
    assert said(memory.get_messages_for_session(SESSION, skip_history_messages=False)) == whole
    assert said(memory.get_messages_from_last_n_runs(SESSION)) == whole


def test_the_last_runs_are_given(memory: StrandlineMemory) -> None:
    for number in range(7):
        memory.add_run(SESSION, run_of(f"Question {number}", f"Answer {number}"))
    last = said(memory.get_messages_from_last_n_runs(SESSION, last_n=1))
    assert last == [("user", "Question 6"), ("assistant", "Answer 6")]
    assert len(memory.get_messages_from_last_n_runs(SESSION)) == 10, "five runs, as documented"
    assert len(memory.get_messages_from_last_n_runs(SESSION, last_n=None)) == 14
    assert memory.get_messages_from_last_n_runs(SESSION, last_n=0) == []
    assert memory.get_messages_from_last_n_runs("another session") == []


def test_runs_that_do_not_fit_the_token_limit_are_left_out(make: Make) -> None:
    memory = make(token_limit=400)
    for number in range(5):
        memory.add_run(SESSION, run_of(f"Question {number}", "word " * 150))
    assert [text for _role, text in said(memory.get_messages_from_last_n_runs(SESSION))][::2] == [
        "Question 3",
        "Question 4",
    ]


def test_roles_and_statuses_are_left_out(memory: StrandlineMemory) -> None:
    memory.add_run(SESSION, run_of("one", run_id="1"))
    memory.add_run(SESSION, run_of("two", run_id="2", status=RunStatus.error))
    memory.add_run(SESSION, run_of("three", run_id="3", agent_id="sailor"))
    users = memory.get_messages_from_last_n_runs(SESSION, skip_role="assistant")
    assert said(users) == [("user", "one"), ("user", "three")]
    assert len(memory.get_messages_from_last_n_runs(SESSION, skip_status=[])) == 6
    assert len(memory.get_messages_from_last_n_runs(SESSION, agent_id="sailor")) == 2


LEARN = """
import sys
from strandline import Facts
facts = Facts.for_owner(user_id="ana", database_url=sys.argv[1])
facts.add("Ana sails.")
facts.close()
"""


def test_what_another_process_learned_is_there_without_loading(make: Make, database_url: str) -> None:
    memory = make(None)
    memory.initialize("ana")
    assert memory.get_user_memories("ana") == []
    forking.run([sys.executable, "-c", LEARN, database_url], check=True)
    assert [one.memory for one in memory.get_user_memories("ana")] == ["Ana sails."]


def test_a_run_outlives_its_process(make: Make) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "pier"}'}}
    messages = [
        Message(role="system", content="You know that Ana sails."),
        Message(role="user", content="What do you see?"),
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", content="Three boats.", tool_call_id="c1", tool_name="look"),
        Message(role="assistant", content="Three boats."),
    ]
    make().add_run(SESSION, RunResponse(messages=messages, run_id="r1"))
    after = make()
    shown = after.get_messages_from_last_n_runs(SESSION)
    assert [message.role for message in shown] == ["user", "assistant", "tool", "assistant"]
    assert (shown[1].tool_calls, shown[2].tool_name) == ([call], "look")
    assert after.get_tool_calls(SESSION) == [call]
    (run,) = after.get_runs(SESSION)
    assert (run.run_id, run.content) == ("r1", "Three boats.")


def test_a_run_that_comes_again_is_replaced(make: Make, database_url: str) -> None:
    memory, elsewhere = make(), make()
    memory.add_run(SESSION, run_of("one", run_id="1"))
    memory.add_run(SESSION, run_of("two", "a first answer", run_id="2"))
    memory.add_run(SESSION, run_of("two", "a first answer", run_id="2"))
    assert len(memory.runs[SESSION]) == 2
    longer = run_of("two", "a better answer", run_id="2")
    longer.messages.append(Message(role="assistant", content="and more"))
    elsewhere.add_run(SESSION, longer)
    texts = [text for _role, text in said(memory.get_messages_from_last_n_runs(SESSION))]
    assert texts == ["one", "Hi there!", "two", "a better answer", "and more"]
    memory.add_run(SESSION, run_of("two", "a better answer", run_id="2"))
    assert len(memory.get_messages_from_last_n_runs(SESSION)) == 4, (
        "a shorter one is not longer by what it had"
    )
    memory.add_run(SESSION, run_of("one, in other words", "Hi there!", run_id="1"))
    texts = [text for _role, text in said(memory.get_messages_from_last_n_runs(SESSION))]
    assert texts == ["one, in other words", "Hi there!", "two", "a better answer"]
    elsewhere.add_run(SESSION, RunResponse(messages=[Message(role="user", content="Only I.")], run_id="1"))
    texts = [text for _role, text in said(memory.get_messages_from_last_n_runs(SESSION))]
    assert texts == ["Only I.", "two", "a better answer"], "what stood behind it stands behind it again"
    runs = rows_of(database_url, "SELECT run_id, status FROM strandline.session_run ORDER BY 1")
    assert runs == [("1", "completed"), ("2", "completed")]


def test_a_run_is_delivered_at_its_end_with_an_answer_or_without(
    memory: StrandlineMemory, database_url: str
) -> None:
    delivered = "SELECT from_seq, through_seq FROM strandline.flush_event ORDER BY 1"
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    question, asking = Message(role="user", content="I sail."), Message(role="assistant", tool_calls=[call])
    memory.add_run(SESSION, RunResponse(messages=[question], run_id="1", status=RunStatus.error))
    assert rows_of(database_url, delivered) == [(1, 1)], "what the user said is known, whatever became of it"
    memory.add_run(SESSION, RunResponse(messages=[Message(role="user", content="Pay."), asking], run_id="2"))
    assert rows_of(database_url, delivered) == [(1, 1)], "it waits for a result"
    result = Message(role="tool", content="paid", tool_call_id="c1")
    again = [Message(role="user", content="Pay."), asking, result]
    memory.add_run(SESSION, RunResponse(messages=again, run_id="2"))
    assert rows_of(database_url, delivered) == [(1, 1), (2, 4)]
    memory.add_run(SESSION, run_of("I row.", run_id="m", agent_id="a", team_session_id=SESSION))
    assert len(rows_of(database_url, delivered)) == 3, "of a member, too, which feeds nothing"


def test_a_run_longer_than_a_put_is_kept_in_parts(
    memory: StrandlineMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_RUN_MESSAGES", 1)
    monkeypatch.setattr(storable, "MESSAGES_PER_PUT", 1)
    for _again in range(2):
        memory.add_run(SESSION, run_of("one", run_id="1"))
    assert said(memory.get_messages_from_last_n_runs(SESSION)) == [
        ("user", "one"),
        ("assistant", "Hi there!"),
    ]


def test_a_run_that_waits_is_not_shown_until_it_goes_on(memory: StrandlineMemory) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    run = RunResponse(
        messages=[Message(role="user", content="Pay."), Message(role="assistant", tool_calls=[call])],
        run_id="r1",
    )
    memory.add_run(SESSION, run)
    assert memory.get_messages_from_last_n_runs(SESSION) == []
    run.status = RunStatus.paused
    run.messages += [
        Message(role="tool", content="paid", tool_call_id="c1"),
        Message(role="assistant", content="Done."),
    ]
    run.status = RunStatus.running
    memory.add_run(SESSION, run)
    roles = [message.role for message in memory.get_messages_from_last_n_runs(SESSION)]
    assert roles == ["user", "assistant", "tool", "assistant"]


# Teams.


def finding(text: str, **fields: Any) -> RunResponse:
    return RunResponse(content=text, messages=[Message(role="assistant", content=text)], **fields)


def test_interactions_of_members_outlive_the_process(make: Make) -> None:
    memory = make()
    picture = ImageArtifact(id="i1", url="http://127.0.0.1/a.png")
    run = finding("Models have improved.", agent_id="researcher", images=[picture])
    memory.add_interaction_to_team_context(SESSION, "Researcher", "Find what is new", run)
    nested = TeamRunResponse(content="Focus.", team_id="analysts")
    memory.add_interaction_to_team_context(SESSION, "Analyst", "Analyse it", nested)
    for one in (memory, make()):
        context = one.team_context[SESSION]
        assert isinstance(context, TeamContext)
        first, second = context.member_interactions
        assert (first.member_name, first.task) == ("Researcher", "Find what is new")
        assert first.response.content == "Models have improved."
        assert isinstance(second.response, TeamRunResponse)
        text = one.get_team_member_interactions_str(SESSION)
        assert text.startswith("<member interactions>")
        assert text.rstrip().endswith("</member interactions>")
        for part in ("Researcher", "Find what is new", "Analyst", "Analyse it", "Focus."):
            assert part in text
        assert [image.url for image in one.get_team_context_images(SESSION)] == [picture.url]
        assert one.get_team_context_videos(SESSION) == one.get_team_context_audio(SESSION) == []
        assert one.get_team_member_interactions_str("another session") == ""


def test_the_text_of_a_team_outlives_the_process(make: Make) -> None:
    memory = make()
    assert memory.get_team_context_str(SESSION) == ""
    memory.set_team_context_text(SESSION, "We work on boats.")
    assert SESSION in memory.team_context
    assert make().team_context[SESSION].text == "We work on boats."
    shown = make().get_team_context_str(SESSION)
    assert shown == "<team context>\nWe work on boats.\n</team context>\n"
    memory.set_team_context_text(SESSION, {"boats": 1, "piers": 2})
    make().set_team_context_text(SESSION, {"boats": 3})
    assert json.loads(memory.team_context[SESSION].text or "") == {"boats": 3, "piers": 2}
    with pytest.raises(InvalidMessageError, match="must be text or a dict"):
        memory.set_team_context_text(SESSION, 7)  # type: ignore[arg-type]


def test_a_member_has_runs_of_its_own_and_feeds_no_facts(memory: StrandlineMemory, database_url: str) -> None:
    memory.add_run(SESSION, run_of("Ask them.", run_id="team-1"))
    copied = deepcopy(memory)
    assert copied.db is memory.db
    copied.add_run(SESSION, run_of("Do it.", "Done.", "m-1", agent_id="sailor", team_session_id=SESSION))
    assert said(copied.get_messages_from_last_n_runs(SESSION, agent_id="sailor")) == [
        ("user", "Do it."),
        ("assistant", "Done."),
    ]
    assert len(memory.runs[SESSION]) == 1
    assert len(memory.get_messages_from_last_n_runs(SESSION)) == 2
    due = rows_of(database_url, "SELECT count(DISTINCT event_id) FROM strandline.due")
    assert due == [(1,)], "the team's turn alone"


# Facts on call.


def test_memories_are_created_from_messages(deriving: StrandlineMemory) -> None:
    answer = deriving.create_user_memories(
        messages=[Message(role="user", content="I bake with butter.")], user_id="test_user"
    )
    assert answer == "Added: I bake with butter."
    assert asyncio.run(deriving.acreate_user_memories(message="I sail.")) == "Added: I sail."
    assert {one.memory for one in deriving.get_user_memories()} == {"I bake with butter.", "I sail."}
    assert deriving.update_memory_task("forget butter") == "Deleted: 1 memory."
    assert asyncio.run(deriving.aupdate_memory_task("I row.")) == "Added: I row."
    assert {one.memory for one in deriving.get_user_memories()} == {"I sail.", "I row."}
    with pytest.raises(InvalidMessageError, match="give a message"):
        deriving.create_user_memories()


def test_what_a_run_says_is_not_extracted_again(memory: StrandlineMemory, database_url: str) -> None:
    memory.add_run(SESSION, run_of("I sail."))
    assert memory.create_user_memories(message="I sail.") == "Memories are made from the run itself."
    assert rows_of(database_url, "SELECT cause FROM strandline.flush_event") == [("turn",)]
    assert memory.create_user_memories(message="I sail.").startswith("The request was accepted")
    assert len(rows_of(database_url, "SELECT cause FROM strandline.flush_event")) == 2


def test_an_agentic_memory_extracts_nothing_by_itself(make: Make, database_url: str) -> None:
    memory = make(agentic=True)
    memory.add_run(SESSION, run_of("I sail."))
    stages = "SELECT DISTINCT stage FROM strandline.due ORDER BY stage"
    assert rows_of(database_url, stages) == [("summary",), ("vectors",)]
    memory.update_memory_task("I row.")
    assert ("extract",) in rows_of(database_url, stages)


# Copies and clearing.


def test_what_agents_store_elsewhere_holds_no_facts(memory: StrandlineMemory) -> None:
    memory_id = memory.add_user_memory(deepcopy(NAME))
    memory.add_run(SESSION, run_of("Hello", run_id="r1"))
    stored = memory.to_dict()
    assert [run["run_id"] for run in stored["runs"][SESSION]] == ["r1"]
    assert NAME.memory not in json.dumps(stored)
    memory.memories, memory.summaries, memory.team_context = {}, {"test_user": {}}, {}
    assert list(memory.memories["test_user"]) == [memory_id], "what an agent loads changes nothing"


def test_clearing_ends_with_the_user(make: Make) -> None:
    memory, other, tenant = make(), make("rui"), make(namespace="other")
    for one in (memory, other, tenant):
        one.add_user_memory(UserMemory("It rains."))
        one.add_run(f"{one.session_memory(SESSION).user_id}-session", run_of("Hello"))
    memory.set_team_context_text("test_user-session", "We sail.")
    memory.clear()
    assert memory.memories == {}
    assert memory.summaries == {}
    assert memory.runs == {}
    assert memory.get_messages_for_session("test_user-session") == []
    assert memory.get_team_context_str("test_user-session") == ""
    for one in (other, tenant):
        assert len(one.get_user_memories()) == 1
    assert len(other.get_messages_for_session("rui-session")) == 2


def test_where_memories_are_is_said_once(database_url: str) -> None:
    db = StrandlineMemoryDb(database_url=database_url)
    with pytest.raises(ConfigurationError, match="is said twice"):
        StrandlineMemory("ana", db=db, namespace="other")
    with pytest.raises(ConfigurationError, match="give a StrandlineMemoryDb"):
        StrandlineMemory("ana", db="sqlite://")  # type: ignore[arg-type]
    db.close()
