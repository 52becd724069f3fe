"""Strandline as the memory store of TFrameX's agents: alone, shared, in scopes, and in a flow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tframex import (
    BaseMemoryStore,
    Flow,
    FunctionCall,
    LLMAgent,
    Message,
    OpenAIChatLLM,
    ParallelPattern,
    TFrameXApp,
    ToolCall,
)

from strandline import ConfigurationError, StaticMemoryBlock, summary_window
from strandline import Message as StoredMessage
from strandline.adapters.legacy.tframex.store import frame_message_of, message_of
from strandline.adapters.tframex import StrandlineMemoryStore
from tests.conftest import StartWorker
from tests.support.agents.thirty_turns import FIRST, TURNS, WORDS, Conversations, sayings
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.stored_form import TEXTS, stored_form

Use = Callable[[StrandlineMemoryStore], Awaitable[None]]
With = Callable[..., None]


@pytest.fixture
def with_store(database_url: str) -> With:
    """Runs a coroutine function with a store of the test's database, on one event loop, and closes it."""

    def run(use: Use, **options: Any) -> None:
        async def whole() -> None:
            options.setdefault("memory_blocks", [])
            store = StrandlineMemoryStore("s", database_url=database_url, **options)
            try:
                await use(store)
            finally:
                await store.aclose()

        asyncio.run(whole())

    return run


def user(text: str) -> Message:
    return Message(role="user", content=text)


def call(number: int) -> Message:
    function = FunctionCall(name="look", arguments='{"where": "pier"}')
    return Message(role="assistant", tool_calls=[ToolCall(id=f"c{number}", function=function)])


def result(number: int) -> Message:
    return Message(role="tool", content=f"result {number}", tool_call_id=f"c{number}", name="look")


def contents(messages: list[Message]) -> list[str | None]:
    return [message.content for message in messages]


async def fill(store: StrandlineMemoryStore, count: int) -> None:
    for number in range(count):
        await store.add_message(user(f"Message {number}"))


# Messages.

CALLS = st.lists(
    st.builds(
        lambda i, name, arguments: {"id": i, "function": {"name": name, "arguments": arguments}},
        TEXTS,
        TEXTS,
        TEXTS,
    ),
    max_size=2,
)
MESSAGES = st.builds(
    lambda role, content, calls, call_id, name: Message.model_validate(
        {"role": role, "content": content, "tool_calls": calls, "tool_call_id": call_id, "name": name}
    ),
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.none() | TEXTS,
    st.none() | CALLS,
    st.none() | TEXTS,
    st.none() | TEXTS,
)


@given(MESSAGES)
def test_every_message_comes_back_as_it_was(original: Message) -> None:
    expected = original.model_copy(update={"tool_calls": original.tool_calls or None})
    assert frame_message_of(stored_form(message_of(original))) == expected


def test_messages_of_another_origin_are_understood() -> None:
    assert frame_message_of(StoredMessage("developer", "Be short.")) == Message(
        role="system", content="Be short."
    )
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert frame_message_of(StoredMessage("user", parts)).content == "one\ntwo"
    forged = StoredMessage("user", "Hello", metadata={"tframex": {"content": "Goodbye"}})
    assert frame_message_of(forged).content == "Hello"


# The store.


def test_five_of_ten_messages_are_shown_and_the_log_keeps_all(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        assert isinstance(store, BaseMemoryStore)
        await fill(store, 10)
        assert contents(await store.get_history()) == [f"Message {number}" for number in range(5, 10)]
        assert len(await store.memory.aget_all()) == 10
        assert contents(await store.get_history(limit=2, offset=1)) == ["Message 7", "Message 8"]
        assert contents(await store.get_history(offset=4)) == ["Message 5"]
        assert await store.get_history(offset=5) == []
        assert await store.get_history(limit=0) == []
        await store.clear()
        assert await store.get_history() == []

    with_store(use, max_messages=5)


@given(st.data())
def test_a_history_is_what_a_bounded_list_gives(data: st.DataObject) -> None:
    stored = [
        StoredMessage(data.draw(st.sampled_from(["user", "assistant", "tool"])), str(n), tokens=n % 4)
        for n in range(data.draw(st.integers(0, 8)))
    ]

    class Log:
        async def ahistory(self, limit: int | None = None) -> list[StoredMessage]:
            return stored if limit is None else stored[len(stored) - min(limit, len(stored)) :]

    bound = data.draw(st.integers(1, 9))
    limit, offset = data.draw(st.none() | st.integers(0, 9)), data.draw(st.integers(0, 9))
    roles = data.draw(st.none() | st.lists(st.sampled_from(["user", "assistant"]), min_size=1))
    store = StrandlineMemoryStore.__new__(StrandlineMemoryStore)
    store.memory, store._bounds = Log(), type(store_bounds(5))(messages=bound)
    kept = [one for one in stored[-bound:] if roles is None or one.role in roles]
    kept = kept[: max(0, len(kept) - offset)]
    expected = kept if limit is None else kept[max(0, len(kept) - limit) :]
    assert asyncio.run(store._messages(limit, offset, roles)) == expected


def store_bounds(messages: int) -> Any:
    return StrandlineMemoryStore(max_messages=messages, memory_blocks=[])._bounds


def test_an_empty_store_is_not_taken_for_none(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        assert store
        assert not hasattr(store, "__len__")
        agent = LLMAgent(
            agent_id="a", llm=OpenAIChatLLM("m", "http://127.0.0.1:1"), engine=object(), memory=store
        )
        assert agent.memory is store

    with_store(use)


def test_roles_are_chosen_first_and_alone(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        for number in range(3):
            await store.add_message(user(f"question {number}"))
            await store.add_message(Message(role="assistant", content=f"answer {number}"))
        shown = await store.get_history(limit=2, roles=["user"])
        assert contents(shown) == ["question 1", "question 2"]
        whole = await store.get_history(limit=2)
        assert [message.role for message in whole] == ["system", "user", "assistant"]
        assert "sailor" in (whole[0].content or "")
        assert len(await store.memory.aget_all()) == 6, "memory is not stored back"

    with_store(use, memory_blocks=[StaticMemoryBlock(name="about", static_content="The user is a sailor.")])


def test_memory_stands_alone_where_a_head_is_pinned(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        await store.add_message(Message(role="system", content="Be short."))
        await store.add_message(user("Hello"))
        memory, head, question = await store.get_history()
        assert "sailor" in (memory.content or "") and "Be short." not in (memory.content or "")
        assert (head.content, question.content) == ("Be short.", "Hello")

    with_store(use, memory_blocks=[StaticMemoryBlock(name="about", static_content="The user is a sailor.")])


def test_calls_keep_their_results(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        for message in (user("Look."), call(1), result(1), call(2), result(2)):
            await store.add_message(message)
        assert contents(await store.get_history(limit=3)) == [None, "result 2"]
        window = await store.get_context_window(max_tokens=40)
        assert [message.role for message in window][-2:] == ["assistant", "tool"]
        assert window[0].role != "tool"

    with_store(use)


def test_a_bound_in_tokens_leaves_one_message_at_least(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        await fill(store, 5)
        await store.add_message(user("word " * 100))
        assert len(await store.get_history()) == 1
        await store.add_message(user("short"))
        assert contents(await store.get_history()) == ["short"]

    with_store(use, max_tokens=30)


def test_only_the_oldest_leave_first() -> None:
    with pytest.raises(ConfigurationError, match="only 'fifo' is offered"):
        StrandlineMemoryStore(eviction_strategy="lru")
    for name in ("max_messages", "max_tokens", "history_limit"):
        with pytest.raises(ConfigurationError, match=f"{name} is 0"):
            StrandlineMemoryStore(**{name: 0})
    StrandlineMemoryStore(max_messages=100, max_tokens=8_000, eviction_strategy="fifo")


def test_messages_are_found_by_metadata_by_date_and_by_words(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        before = datetime.now(UTC) - timedelta(minutes=1)
        await store.add_message(user("The Petrel lies in Horta."), metadata={"priority": "high"})
        await store.add_message(user("It rains."), metadata={"priority": "low"})
        assert contents(await store.get_messages_by_metadata(priority="high")) == [
            "The Petrel lies in Horta."
        ]
        assert len(await store.get_messages_by_date_range(before, datetime.now(UTC))) == 2
        assert await store.get_messages_by_date_range(before, before) == []
        assert contents(await store.search("Where is the Petrel?", top_k=1)) == ["The Petrel lies in Horta."]

    with_store(use)


def test_scopes_are_disjoint(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        await store.add_message(user("for one"), scope="user_123")
        await store.add_message(Message(role="system", content="for all"), scope="system")
        assert await store.get_history() == []
        assert contents(await store.get_scope("user_123").get_history()) == ["for one"]
        assert store.get_scope("default") is store
        owners = {store.get_scope(name).memory.facts.user_id for name in ("user_123", "system")}
        assert owners == {None}, "each scope has facts of its own"
        await store.get_scope("user_123").clear()
        assert await store.get_scope("user_123").get_history() == []
        assert contents(await store.get_scope("system").get_history()) == ["for all"]

    with_store(use)


def test_scopes_of_a_user_share_facts(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        await store.memory.facts.aadd("Ana sails.")
        scope = store.get_scope("drafts")
        assert [fact.text for fact in await scope.memory.facts.alist()] == ["Ana sails."]
        await scope.add_message(user("for one"))
        await scope.clear()
        assert len(await store.memory.facts.alist()) == 1

    with_store(use, user_id="ana")


def test_agents_that_share_a_memory_are_told_apart(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        analyst, writer = store.for_agent("Analyst"), store.for_agent("Writer")
        question = user("What is new?")
        await analyst.add_message(question)
        await writer.add_message(question)
        found = Message(role="assistant", content="Three boats.")
        await analyst.add_message(found)
        await writer.add_message(found)
        await writer.add_message(Message(role="assistant", content="There are three boats."))
        await writer.add_message(question)
        shown = await store.get_history()
        assert [(one.role, one.name, one.content) for one in shown] == [
            ("user", None, "What is new?"),
            ("assistant", "Analyst", "Three boats."),
            ("assistant", "Writer", "There are three boats."),
            ("user", None, "What is new?"),
        ]
        ping = user("again")
        for _time in range(2):
            await analyst.add_message(ping)
        assert contents(await store.get_history(limit=2)) == ["again", "again"], "said twice by one agent"

    with_store(use)


def test_fifty_at_once_are_all_kept(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        await asyncio.gather(*(store.add_message(user(f"{number}")) for number in range(50)))
        kept = contents(await store.get_history())
        assert sorted(map(int, filter(None, kept))) == list(range(50))

    with_store(use)


def test_a_summary_window_is_delivered_all_but_its_last(with_store: With) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        await fill(store, 49)
        assert len((await store.memory.aget()).window) == 49
        await fill(store, 1)
        assert len((await store.memory.aget()).window) == 10

    with_store(use, deliver="window", **summary_window(50, keep_last=10))


# Agents.


def answer(text: str | None, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    return {"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message}]}


def test_an_agent_remembers_a_name(with_store: With, model_server: ModelServer) -> None:
    def respond(request: RecordedRequest) -> dict[str, Any]:
        said = [str(message["content"]) for message in request.body["messages"]]
        return answer("You are Alice." if any("Alice" in text for text in said[:-1]) else "Hello.")

    async def use(store: StrandlineMemoryStore) -> None:
        model_server.behave(responder=respond)
        llm = OpenAIChatLLM("bot", model_server.base_url, "none")
        app = TFrameXApp(default_llm=llm, mcp_config_file=None)
        app.agent(name="Bot", memory_store=store)(LLMAgent)
        async with app.run_context() as context:
            await context.call_agent("Bot", "My name is Alice")
            reply = await context.call_agent("Bot", "What's my name?")
        assert reply.content == "You are Alice."
        assert [message.role for message in await store.memory.aget_all()] == ["user", "assistant"] * 2

    with_store(use)


def test_agents_beside_each_other_store_a_question_once(with_store: With, model_server: ModelServer) -> None:
    async def use(store: StrandlineMemoryStore) -> None:
        model_server.behave(responder=lambda request: answer(f"Said {request.body['model']}."))
        app = TFrameXApp(mcp_config_file=None)
        llms = [OpenAIChatLLM(name, model_server.base_url, "none") for name in ("Red", "Blue")]
        for llm in llms:
            name = llm.model_id
            app.agent(name=name, llm=llm, memory_store=store.for_agent(name))(LLMAgent)
        flow = Flow("both").add_step(ParallelPattern("p", ["Red", "Blue"]))
        async with app.run_context() as context:
            await context.run_flow(flow, user("Which colour?"))
        for llm in llms:
            await llm.close()
        stored = await store.memory.aget_all()
        assert sorted((message.role, message.name or "") for message in stored) == [
            ("assistant", "Blue"),
            ("assistant", "Red"),
            ("user", ""),
        ]

    with_store(use)


def note_call(text: str) -> list[dict[str, Any]]:
    function = {"name": "note", "arguments": json.dumps({"text": text})}
    return [{"id": f"call {text}", "type": "function", "function": function}]


def test_a_flow_of_two_users_knows_what_has_left_its_window(
    database_url: str, broker_url: str, start_worker: StartWorker, model_server: ModelServer
) -> None:
    conversations = Conversations(database_url, broker_url, start_worker, model_server)
    last_texts: dict[str, list[str]] = {}
    notes: dict[str, list[str]] = {name: [] for name in FIRST}
    llms: list[OpenAIChatLLM] = []

    def respond(request: RecordedRequest) -> dict[str, Any]:
        role, _, name = request.body["model"].partition("-")
        messages = request.body["messages"]
        latest = messages[-1]
        if role == "scout" and latest["role"] == "user":
            last_texts[name] = [str(message.get("content")) for message in messages]
            return answer(None, note_call(latest["content"]))
        return answer(f"{role} is done.")

    def build_app(name: str, store: StrandlineMemoryStore, agents: ModelServer) -> TFrameXApp:
        app = TFrameXApp(mcp_config_file=None)

        @app.tool(description="Note a text.")
        def note(text: str) -> str:
            notes[name].append(text)
            return "noted"

        for role in ("scout", "clerk"):
            llms.append(OpenAIChatLLM(f"{role}-{name}", agents.base_url, "none"))
            app.agent(
                name=role,
                llm=llms[-1],
                memory_store=store.for_agent(role),
                tools=["note"] if role == "scout" else [],
            )(LLMAgent)
        return app

    async def whole(agents: ModelServer) -> None:
        stores = {
            name: StrandlineMemoryStore(
                f"{name}-talks", user_id=name, history_limit=10, **conversations.options
            )
            for name in FIRST
        }
        contexts = {name: build_app(name, store, agents).run_context() for name, store in stores.items()}

        async def take(name: str, text: str) -> None:
            flow = Flow("work").add_step("scout").add_step("clerk")
            await contexts[name].run_flow(flow, user(text))

        await conversations.talk(take)
        conversations.check(last_texts)
        for name, store in stores.items():
            stored = await store.memory.aget_all()
            said = [message.text for message in stored if message.role == "user"]
            assert said == sayings(name) == notes[name]
            turn = ["user", "assistant", "tool", "assistant", "assistant"]
            assert [message.role for message in stored] == turn * TURNS
            assert conversations.facts_about(name) == 1
            assert WORDS[name] not in str(last_texts[name][2:])
        for llm in llms:
            await llm.close()
        for store in stores.values():
            await store.aclose()

    with ModelServer() as agents:
        agents.behave(responder=respond)
        asyncio.run(whole(agents))
