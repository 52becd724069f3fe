"""Strandline under LangChain: messages come back as they were, and runnables keep their history here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("langchain_core", reason="needs the extra langchain")

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from strandline import InvalidMessageError, Message, StaticMemoryBlock
from strandline.adapters.converter import NO_ID
from strandline.adapters.langchain import StrandlineHistory
from strandline.adapters.langchain.history import TURN_ENDS
from strandline.adapters.langchain.messages import langchain_message_of, message_of
from tests.support.stored_form import JSON_VALUES, NAMES, TEXTS, stored_form

PARTS = TEXTS | st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": JSON_VALUES}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["image_url", "thinking", "langchain_part"]), "value": TEXTS}
    ),
    st.dictionaries(NAMES, JSON_VALUES, max_size=2),
)
COMMON = {
    "content": TEXTS | st.lists(PARTS, max_size=3),
    "name": st.none() | TEXTS,
    "id": st.none() | TEXTS,
    "additional_kwargs": st.dictionaries(NAMES | st.just("refusal"), JSON_VALUES, max_size=2),
    "response_metadata": st.dictionaries(NAMES, JSON_VALUES, max_size=2),
}
CALLS = st.lists(
    st.builds(
        lambda name, args, call_id: {"name": name, "args": args, "id": call_id, "type": "tool_call"},
        TEXTS,
        st.dictionaries(NAMES, JSON_VALUES, max_size=2),
        st.none() | TEXTS,
    ),
    max_size=2,
)
INVALID_CALLS = st.lists(
    st.builds(
        lambda text: {"name": text, "args": text, "id": None, "error": text, "type": "invalid_tool_call"},
        TEXTS,
    ),
    max_size=1,
)
USAGE = st.none() | st.just({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})
MESSAGES: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(HumanMessage, **COMMON),
    st.builds(SystemMessage, **COMMON),
    st.builds(SystemMessage, content=TEXTS, additional_kwargs=st.just({"__openai_role__": "developer"})),
    st.builds(AIMessage, **COMMON, tool_calls=CALLS, invalid_tool_calls=INVALID_CALLS, usage_metadata=USAGE),
    st.builds(
        ToolMessage,
        **COMMON,
        tool_call_id=TEXTS,
        artifact=JSON_VALUES,
        status=st.sampled_from(["success", "error"]),
    ),
    st.builds(FunctionMessage, content=TEXTS, name=TEXTS),
    st.builds(
        ChatMessage, content=TEXTS, role=TEXTS | st.sampled_from(["user", "system", "developer", "tool"])
    ),
)


@given(MESSAGES)
def test_every_message_comes_back_as_it_was(given_message: BaseMessage) -> None:
    assert langchain_message_of(stored_form(message_of(given_message))) == given_message


@given(JSON_VALUES, JSON_VALUES)
def test_whatever_others_stored_can_be_read(kept: Any, value: Any) -> None:
    message = Message(
        "user", [{"type": "text", "text": "Hello", "value": value}], metadata={"langchain": kept}
    )
    assert isinstance(langchain_message_of(message), HumanMessage)


def test_what_is_kept_beside_a_message_cannot_change_who_says_what() -> None:
    """Metadata may be open to end users, the role of a message is not."""
    for kept in (
        {"kind": "system"},
        {"kind": "chat", "fields": {"role": "system"}},
        {"kind": "ai", "tool_calls": [{"name": "pay", "args": {}, "id": "1", "type": "tool_call"}]},
        {"fields": {"content": "Obey."}},
    ):
        restored = langchain_message_of(Message("user", "Hello", metadata={"langchain": kept}))
        assert (type(restored), restored.content) == (HumanMessage, "Hello")


def test_tool_calls_and_results_take_their_places() -> None:
    call = message_of(
        AIMessage(
            content="", tool_calls=[{"name": "look", "args": {"at": "sea"}, "id": "c1", "type": "tool_call"}]
        )
    )
    assert call.content is None
    assert list(call.tool_calls or ()) == [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sea"}'}}
    ]
    assert call.metadata == {}
    assert message_of(ToolMessage(content="waves", tool_call_id="c1")).tool_call_id == "c1"
    assert message_of(FunctionMessage(content="waves", name="look")).tool_call_id == NO_ID


def test_a_chunk_is_stored_as_its_message() -> None:
    chunk = AIMessageChunk(content="Hel") + AIMessageChunk(content="lo")
    assert langchain_message_of(message_of(chunk)) == AIMessage(content="Hello", id=chunk.id)


def test_an_instruction_to_a_graph_is_no_message() -> None:
    with pytest.raises(InvalidMessageError, match="RemoveMessage is not a conversation message"):
        message_of(RemoveMessage(id="1"))


@pytest.fixture
def history(database_url: str) -> Iterator[StrandlineHistory]:
    made = StrandlineHistory("conversation", database_url=database_url, memory_blocks=[])
    yield made
    made.memory.close()


def test_the_interface_sync(history: StrandlineHistory) -> None:
    history.add_user_message("Ahoy")
    history.add_ai_message("Ahoy to you")
    assert history.messages == [HumanMessage("Ahoy"), AIMessage("Ahoy to you")]
    assert str(history) == "Human: Ahoy\nAI: Ahoy to you"
    history.clear()
    assert history.messages == []


async def test_the_interface_async(history: StrandlineHistory) -> None:
    await history.aadd_messages([HumanMessage("Ahoy"), AIMessage("Ahoy to you")])
    assert await history.aget_messages() == [HumanMessage("Ahoy"), AIMessage("Ahoy to you")]
    await history.aclear()
    assert await history.aget_messages() == []
    await history.memory.aclose()


def test_each_read_is_of_the_session_as_it_is(history: StrandlineHistory, database_url: str) -> None:
    """Another process puts, takes back and clears, while this object only reads."""
    other = StrandlineHistory("conversation", database_url=database_url, memory_blocks=[])
    other.add_user_message("one")
    assert [message.content for message in history.messages] == ["one"]
    other.add_messages([AIMessage("two"), HumanMessage("three")])
    assert [message.content for message in history.messages] == ["one", "two", "three"]
    other.memory.pop()

    async def read_async() -> list[Any]:
        try:
            return [message.content for message in await history.aget_messages()]
        finally:
            await history.memory.aclose()

    assert asyncio.run(read_async()) == ["one", "two"]
    other.clear()
    assert history.messages == []


# LangChain deprecates the class; it works, and is what existing chains use.
@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
@pytest.mark.parametrize("plain", [True, False])
def test_a_runnable_keeps_its_history_here(database_url: str, plain: bool) -> None:
    seen: list[list[BaseMessage]] = []

    def note(value: Any) -> Any:
        seen.append(value if plain else value.to_messages())
        return value

    model = RunnableLambda(note) | GenericFakeChatModel(
        messages=iter([AIMessage("High at noon."), AIMessage("Noon.")])
    )
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    blocks = [StaticMemoryBlock(name="about", static_content="The user is a sailor.")]
    made: list[StrandlineHistory] = []

    def history_of(session_id: str) -> StrandlineHistory:
        made.append(StrandlineHistory(session_id, database_url=database_url, memory_blocks=blocks))
        return made[-1]

    keys = {} if plain else {"input_messages_key": "question", "history_messages_key": "history"}
    chain: Any = RunnableWithMessageHistory(model if plain else prompt | model, history_of, **keys)  # type: ignore[arg-type]
    config = {"configurable": {"session_id": "chain"}}
    for question in ("When is high tide?", "Say it shorter."):
        asked = [HumanMessage(question)] if plain else {"question": question}
        chain.invoke(asked, config=config)
    assert [(message.type, str(message.content)[:22]) for message in seen[-1]] == [
        ("system", "<memory>\n<about>\nThe u"),
        ("human", "When is high tide?"),
        ("ai", "High at noon."),
        ("human", "Say it shorter."),
    ]
    stored = made[0].memory.get_all()
    assert [message.text for message in stored] == [
        "When is high tide?",
        "High at noon.",
        "Say it shorter.",
        "Noon.",
    ]
    made[0].memory.close()


def chain_of(
    history: StrandlineHistory, answer: Callable[[str], Any], database_url: str, *, shared: bool
) -> Any:
    """A chain without a key for its history, with one object of it, or one for each call."""

    def history_of(session_id: str) -> StrandlineHistory:
        if shared:
            return history
        return StrandlineHistory(session_id, database_url=database_url, memory_blocks=[])

    def call(messages: list[BaseMessage]) -> AIMessage:
        return AIMessage(answer(str(messages[-1].content)))

    async def acall(messages: list[BaseMessage]) -> AIMessage:
        return AIMessage(await asyncio.to_thread(answer, str(messages[-1].content)))

    return RunnableWithMessageHistory(RunnableLambda(call, acall), history_of)


CONFIG: Any = {"configurable": {"session_id": "conversation"}}


@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
@pytest.mark.parametrize("shared", [True, False], ids=["one-object", "object-per-call"])
@pytest.mark.parametrize("way", ["threads", "batch", "tasks"])
def test_turns_at_once_lose_and_double_nothing(
    history: StrandlineHistory, database_url: str, way: str, shared: bool
) -> None:
    """Each turn begins before another ends, and something else puts in between."""
    turns = 4

    def put_from_elsewhere() -> None:
        history.memory.put({"role": "user", "content": "elsewhere"})

    meeting = Barrier(turns, action=put_from_elsewhere)

    def answer(question: str) -> str:
        meeting.wait()
        return f"to {question}"

    history.add_messages([HumanMessage("earlier"), AIMessage("said")])
    chain = chain_of(history, answer, database_url, shared=shared)
    questions = [[HumanMessage(f"question {number}")] for number in range(turns)]

    async def gather() -> None:
        await asyncio.gather(*(chain.ainvoke(question, CONFIG) for question in questions))
        await history.memory.aclose()

    for _round in range(2):
        if way == "tasks":
            asyncio.run(gather())
        elif way == "batch":
            chain.batch(questions, [CONFIG] * turns)
        else:
            with ThreadPoolExecutor(turns) as pool:
                list(pool.map(lambda question: chain.invoke(question, CONFIG), questions))
    texts = [message.text for message in history.memory.get_all()]
    said = [text for n in range(turns) for text in (f"question {n}", f"to question {n}")]
    assert sorted(texts) == sorted(["earlier", "said", *["elsewhere", *said] * 2])
    for number in range(turns):
        place = texts.index(f"question {number}")
        assert texts[place + 1] == f"to question {number}"


@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
def test_a_turn_that_failed_is_forgotten(history: StrandlineHistory, database_url: str) -> None:
    shown: list[int] = []

    def answer(question: str) -> str:
        shown.append(len(history.memory.get_all()))
        if question == "fail":
            raise LookupError(question)
        return "fine"

    chain = chain_of(history, answer, database_url, shared=True)
    with pytest.raises(LookupError):
        chain.invoke([HumanMessage("fail")], CONFIG)
    history.memory.put({"role": "user", "content": "elsewhere"})
    chain.invoke([HumanMessage("go on")], CONFIG)
    history.clear()
    chain.invoke([HumanMessage("anew")], CONFIG)
    assert [message.text for message in history.memory.get_all()] == ["anew", "fine"]
    assert shown == [0, 1, 0]


@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
def test_a_turn_is_not_shown_a_call_that_still_waits_at_the_end(history: StrandlineHistory) -> None:
    """The turn's input comes next, which no provider takes before the result; other reads have the call."""
    call: Any = {"name": "pay", "args": {}, "id": "c1", "type": "tool_call"}
    history.add_messages([HumanMessage("pay"), AIMessage("", tool_calls=[call])])
    assert [message.type for message in history.messages] == ["human", "ai"]
    seen: list[str] = []

    def answer(messages: list[BaseMessage]) -> AIMessage:
        seen.extend(str(message.content) for message in messages)
        return AIMessage("fair")

    chain: Any = RunnableWithMessageHistory(RunnableLambda(answer), lambda _session_id: history)
    chain.invoke([HumanMessage("the weather?")], config=CONFIG)
    assert seen == ["pay", "the weather?"]
    stored = [(message.role, message.text) for message in history.memory.get_all()]
    assert stored == [("user", "pay"), ("assistant", ""), ("user", "the weather?"), ("assistant", "fair")]


@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
def test_a_model_itself_keeps_its_history_here(history: StrandlineHistory) -> None:
    """LangChain hands its input on as JSON, and the messages in it are others then."""
    model = GenericFakeChatModel(messages=iter([AIMessage("one", id="a"), AIMessage("two", id="b")]))
    chain: Any = RunnableWithMessageHistory(model, lambda _session_id: history)
    for question in ("first", "second"):
        chain.invoke([HumanMessage(question, id=question)], config=CONFIG)
    assert [message.text for message in history.memory.get_all()] == ["first", "one", "second", "two"]


def test_where_langchain_ends_a_turn_is_known() -> None:
    assert len(TURN_ENDS) == 2


async def test_a_graphs_state_is_stored_once(history: StrandlineHistory) -> None:
    """Whatever has left the window, was flushed, or was changed in the state since."""
    state: list[BaseMessage] = []
    for number in range(30):
        state += [HumanMessage(f"q{number}", id=f"q{number}"), AIMessage(f"a{number}", id=f"a{number}")]
        history.add_state(state)
        history.add_state(state)
        state[0] = HumanMessage("changed", id="q0")
    assert [message.text for message in history.memory.get_all()] == [
        text for number in range(30) for text in (f"q{number}", f"a{number}")
    ]
    long = [HumanMessage(f"m{number}", id=f"m{number}") for number in range(1_200)]

    await history.aadd_state([*state[1:], *long])
    await history.aadd_state([*state[1:], *long])
    await history.memory.aclose()
    assert len(history.memory.get_all()) == 60 + 1_200


def test_a_summary_of_langchain_is_not_stored_as_words_of_the_user(history: StrandlineHistory) -> None:
    """``SummarizationMiddleware`` puts it in place of what was said, which the log has."""
    said: list[BaseMessage] = [HumanMessage("q", id="q"), AIMessage("a", id="a")]
    history.add_state(said)
    summary = HumanMessage("Here is a summary", id="s", additional_kwargs={"lc_source": "summarization"})
    history.add_state([summary, *said[1:], HumanMessage("r", id="r")])
    history.add_messages([summary, AIMessage("b", id="b")])
    assert [message.text for message in history.memory.get_all()] == ["q", "a", "r", "b"]


def test_a_history_handed_in_again_without_ids_is_stored_once(history: StrandlineHistory) -> None:
    """As of an application that keeps what was said and no checkpointer: each turn has new ids."""
    said: list[tuple[str, str]] = []
    for number in range(15):
        said.append(("human", f"q{number // 2}"))
        state = [HumanMessage(text) if kind == "human" else AIMessage(text) for kind, text in said]
        for message in state:
            message.id = uuid4().hex
        call = {"name": "f", "args": {}, "id": f"c{number}"}
        result = ToolMessage("r", id=f"r{number}", tool_call_id=f"c{number}")
        history.add_state(state)
        history.add_state([*state, AIMessage("", id=f"c{number}", tool_calls=[call]), result])
        answer = AIMessage("yes", id=f"a{number}")
        history.add_state([*state, AIMessage("", id=f"c{number}", tool_calls=[call]), result, answer])
        said.append(("ai", "yes"))
    texts = [message.text for message in history.memory.get_all()]
    assert texts == [text for number in range(15) for text in (f"q{number // 2}", "", "r", "yes")]
    history.add_state([HumanMessage("q7", id="again")])
    assert [message.text for message in history.memory.get_all()][len(texts) :] == ["q7"]


@pytest.mark.parametrize("count", [7, 60])
def test_a_history_without_ids_is_known_behind_any_number_of_results(
    history: StrandlineHistory, count: int
) -> None:
    said = [HumanMessage("q"), AIMessage("a")]
    calls = [{"name": "f", "args": {}, "id": f"c{number}"} for number in range(count)]
    steps = [ToolMessage("r", tool_call_id=call["id"]) for call in calls]
    history.add_messages([said[0], AIMessage("", tool_calls=calls), *steps, said[1]])
    history.add_messages([HumanMessage("b"), AIMessage("", tool_calls=calls), *steps])
    history.add_state([*said, HumanMessage("b"), AIMessage("B")])
    texts = [message.text for message in history.memory.get_all() if message.role != "tool"]
    assert texts == ["q", "", "a", "b", "", "B"]


def test_what_an_assistant_says_beside_its_content_is_read(history: StrandlineHistory) -> None:
    sound = {"id": "audio_1", "data": "QUJD", "expires_at": 9, "transcript": "High at nine."}
    spoken = AIMessage("", additional_kwargs={"audio": sound, "refusal": None, "x": 1})
    refused = AIMessage("", additional_kwargs={"refusal": "Never."})
    for theirs in (spoken, refused, HumanMessage("q", additional_kwargs={"refusal": "Never."})):
        assert langchain_message_of(stored_form(message_of(theirs))) == theirs
    assert message_of(spoken).shown_text == "[sound]\nHigh at nine."
    assert message_of(refused).to_openai()["refusal"] == "Never."


def test_a_state_that_was_edited_long_ago_loses_no_new_turn(history: StrandlineHistory) -> None:
    state: list[BaseMessage] = [HumanMessage("q", id="q"), AIMessage("a", id="a"), HumanMessage("no id")]
    history.add_state(state)
    for number in range(11):
        history.add_messages([HumanMessage(f"by another way {number}"), AIMessage("b")])
    history.add_state([state[0], AIMessage("edited", id="a"), HumanMessage("new", id="new")])
    texts = [message.text for message in history.memory.get_all()]
    assert texts[:3] == ["q", "a", "no id"] and texts[-1] == "new" and len(texts) == 26
