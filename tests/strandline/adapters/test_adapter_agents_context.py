"""Strandline under OpenAI's Agents SDK: conversations and users from a run's context, and compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("agents", reason="needs the extra agents")

from agents import Agent, RunConfig, RunContextWrapper, Runner, Session, function_tool
from agents.memory import is_openai_responses_compaction_aware_session
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from strandline import ConfigurationError, InvalidMessageError, OwnerError, StaticMemoryBlock
from strandline.adapters.agents import StrandlineContextSession, StrandlineSession
from strandline.adapters.agents.session import without_compacted
from tests.conftest import Rig, rows_of
from tests.support.agents.thirty_turns import FIRST, TURNS, Conversations, sayings

UNTRACED = RunConfig(tracing_disabled=True)
USER: dict[str, Any] = {"role": "user", "content": "Where is my boat?"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "In Horta."}
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be short."}
COMPACTION: dict[str, Any] = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}

Use = Callable[[StrandlineContextSession], Awaitable[None]]
With = Callable[..., None]


@pytest.fixture
def with_session(database_url: str) -> With:
    """Runs a coroutine function with a session of the test's database, on one event loop, and closes it."""

    def run(use: Use, **options: Any) -> None:
        async def whole() -> None:
            options.setdefault("memory_blocks", [])
            session = StrandlineContextSession(database_url=database_url, **options)
            try:
                await use(session)
            finally:
                await session.of({"session_id": "any", "user_id": "any"}).memory.aclose()

        asyncio.run(whole())

    return run


def context(user: str, conversation: str | None = None) -> RunContextWrapper[Any]:
    return RunContextWrapper({"user_id": user, "session_id": conversation or f"{user}-talks"})


def test_the_context_of_each_call_says_whose_it_is(with_session: With) -> None:
    async def use(session: StrandlineContextSession) -> None:
        assert isinstance(session, Session)
        ana, rui = context("ana"), context("rui")
        await session.add_items([USER, ANSWER], wrapper=ana)  # type: ignore[list-item]
        assert await session.get_items(wrapper=rui) == []
        await session.add_items([SYSTEM], wrapper=rui)  # type: ignore[list-item]
        assert await session.get_items(wrapper=ana) == [USER, ANSWER]
        assert await session.get_items(limit=1, wrapper=ana) == [ANSWER]
        assert await session.pop_item(wrapper=ana) == ANSWER
        await session.clear_session(wrapper=rui)
        assert await session.get_items(wrapper=rui) == []
        assert await session.get_items(wrapper=ana) == [USER]
        assert session.of({"session_id": "ana-talks", "user_id": "ana"}).memory.user_id == "ana"

    with_session(use)


def test_a_context_is_a_mapping_an_object_or_read_by_a_function(database_url: str) -> None:
    options: Any = {"database_url": database_url, "memory_blocks": []}
    plain = StrandlineContextSession(**options)
    assert plain.of(SimpleNamespace(session_id="a", user_id="ana")).memory.session_id == "a"
    own = StrandlineContextSession(
        session_id=lambda request: request["thread"],
        user_id=lambda request: request["login"].lower(),
        **options,
    )
    memory = own.of({"thread": "t1", "login": "ANA"}).memory
    assert (memory.session_id, memory.user_id) == ("t1", "ana")
    memory.close()


@pytest.mark.parametrize(
    "given_context",
    [None, {}, {"session_id": "a"}, {"session_id": "a", "user_id": None}, {"session_id": "a", "user_id": 7}],
)
def test_a_context_without_a_user_is_refused(database_url: str, given_context: Any) -> None:
    session = StrandlineContextSession(database_url=database_url)
    with pytest.raises(ConfigurationError, match=r"The run's context gives .* as (session|user)_id"):
        session.of(given_context)
    with pytest.raises(ConfigurationError, match="called without a run"):
        asyncio.run(session.get_items())


def test_options_are_checked_when_it_is_made() -> None:
    with pytest.raises(ConfigurationError, match="token_limit"):
        StrandlineContextSession(token_limit=-1)
    with pytest.raises(InvalidMessageError, match="namespace"):
        StrandlineContextSession(namespace="")


def test_a_user_cannot_take_on_the_conversation_of_another(with_session: With) -> None:
    async def use(session: StrandlineContextSession) -> None:
        await session.add_items([USER], wrapper=context("ana", "shared"))  # type: ignore[list-item]
        for attempt in (session.get_items, session.pop_item, session.clear_session):
            with pytest.raises(OwnerError):
                await attempt(wrapper=context("rui", "shared"))
        with pytest.raises(OwnerError):
            await session.add_items([USER], wrapper=context("rui", "shared"))  # type: ignore[list-item]

    with_session(use)


def test_a_runner_passes_its_context(with_session: With) -> None:
    async def use(session: StrandlineContextSession) -> None:
        model = ScriptedModel([[assistant_message(f"Answer {number}.")] for number in range(3)])
        agent = Agent[Any](name="Sailor", model=model)
        for user in ("ana", "rui"):
            await Runner.run(
                agent,
                f"I am {user}.",
                session=session,
                context={"user_id": user, "session_id": user},
                run_config=UNTRACED,
            )
        streamed = Runner.run_streamed(
            agent,
            "Who am I?",
            session=session,
            context={"user_id": "ana", "session_id": "ana"},
            run_config=UNTRACED,
        )
        async for _event in streamed.stream_events():
            pass
        assert model.last_call is not None
        assert "rui" not in str(model.last_call.input)
        assert "I am ana." in str(model.last_call.input)

    with_session(use)


# Compaction.


def test_a_compaction_item_stands_for_what_is_before_it() -> None:
    later = {**USER, "content": "And my dog?"}
    assert without_compacted([SYSTEM, USER, ANSWER, COMPACTION, later]) == [SYSTEM, COMPACTION, later]
    assert without_compacted([USER, COMPACTION, ANSWER, COMPACTION]) == [COMPACTION]
    assert without_compacted([USER, ANSWER]) == [USER, ANSWER]
    assert without_compacted([]) == []


def test_a_window_that_was_compacted_as_a_whole_is_sent_as_it_is() -> None:
    window = [SYSTEM, USER, USER, COMPACTION, ANSWER]
    assert without_compacted(window) == window


@given(st.lists(st.sampled_from([SYSTEM, USER, ANSWER, COMPACTION]), max_size=8))
def test_nothing_after_the_newest_compaction_is_left_out(items: list[dict[str, Any]]) -> None:
    shown = without_compacted(items)
    newest = max((place for place, item in enumerate(items) if item is COMPACTION), default=0)
    assert shown[len(shown) - len(items) + newest :] == items[newest:]
    assert without_compacted(shown) == shown


@pytest.mark.parametrize("limit", [None, 9])
async def test_the_model_gets_what_came_since_and_the_log_keeps_all(
    database_url: str, limit: int | None
) -> None:
    session = StrandlineSession(
        "compacted",
        database_url=database_url,
        memory_blocks=[StaticMemoryBlock(name="about", static_content="The user is a sailor.")],
    )
    items: Any = [USER, ANSWER, COMPACTION, {**USER, "content": "And now?"}]
    await session.add_items(items)
    shown = await session.get_items(limit)
    assert shown[-2:] == items[-2:]
    assert len(shown) == (2 if limit else 3)
    assert len(await session.memory.aget_all()) == 4
    await session.memory.aclose()


async def test_to_compact_is_to_deliver_all_but_the_last_turn(database_url: str) -> None:
    session = StrandlineSession("flushed", database_url=database_url, memory_blocks=[])
    assert is_openai_responses_compaction_aware_session(session)
    await session.add_items([USER, ANSWER, USER, ANSWER])  # type: ignore[list-item]
    await session.run_compaction()
    await session.run_compaction({"response_id": "resp_1", "store": True, "force": False})
    assert len(await session.get_items()) == 4
    await session.run_compaction({"force": True})
    assert await session.get_items() == [USER, ANSWER]
    assert len(await session.memory.aget_all()) == 4
    await session.memory.aclose()
    assert rows_of(database_url, "SELECT cause, from_seq, through_seq FROM strandline.flush_event") == [
        ("manual", 1, 2)
    ]


def test_a_runner_compacts_after_each_turn(with_session: With, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(session: StrandlineContextSession) -> None:
        asked: list[tuple[Any, Any]] = []
        compact = session.run_compaction

        async def note(args: Any = None, *, wrapper: Any = None) -> None:
            asked.append((dict(args)["response_id"], wrapper.context["user_id"]))
            await compact(args, wrapper=wrapper)

        monkeypatch.setattr(session, "run_compaction", note)
        model = ScriptedModel([ModelStep.respond(lambda _call: [assistant_message("Done.")])])
        await Runner.run(
            Agent[Any](name="Sailor", model=model),
            "Hello.",
            session=session,
            context={"user_id": "ana", "session_id": "ana"},
            run_config=UNTRACED,
        )
        assert [user for _response, user in asked] == ["ana"]

    with_session(use)


# Thirty turns.


def texts_of(items: Sequence[Any]) -> list[str]:
    return [str(item.get("content", item.get("output", ""))) for item in items]


@function_tool
def count_boats(wrapper: RunContextWrapper[Any], pier: str) -> str:
    """Count the boats at a pier."""
    return f"{wrapper.context['user_id']} sees three boats at {pier[:10]}"


async def test_two_users_know_what_has_left_their_windows(rig: Rig) -> None:
    conversations = Conversations(rig.url, rig.broker_url, rig.start_worker, rig.model)

    def answer(call: Any) -> Any:
        latest = call.input[-1]
        if latest.get("role") == "user":
            text = str(latest["content"])
            return [function_call("count_boats", {"pier": text}, call_id=f"call {text}")]
        return [assistant_message(f"Done: {latest['output']}")]

    options: Any = conversations.options
    session = StrandlineContextSession(**options)
    models = {user: ScriptedModel([ModelStep.respond(answer)] * (2 * TURNS)) for user in FIRST}
    last_texts: dict[str, list[str]] = {}

    async def take(user: str, text: str) -> None:
        agent = Agent[Any](name="Sailor", model=models[user], tools=[count_boats])
        await Runner.run(
            agent,
            text,
            session=session,
            context={"user_id": user, "session_id": f"{user}-talks"},
            run_config=UNTRACED,
        )
        last_texts[user] = texts_of(models[user].calls[-2].input)

    await conversations.talk(take)
    conversations.check(last_texts)
    for user in FIRST:
        stored = await session.of({"user_id": user, "session_id": f"{user}-talks"}).memory.aget_all()
        assert [message.text for message in stored if message.role == "user"] == sayings(user)
        assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"] * TURNS
    await session.of({"user_id": "ana", "session_id": "ana-talks"}).memory.aclose()
