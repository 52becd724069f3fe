"""Strandline under LlamaIndex: its memory interface, its agents and engines, and contexts that are kept.

The model is scripted and answers at once; the agents, workflows and engines are LlamaIndex's own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

import sqlalchemy.ext.asyncio as sqlalchemy_asyncio
from llama_index.core import MockEmbedding
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import FactExtractionMemoryBlock as TheirFacts
from llama_index.core.memory import InsertMethod as TheirInsertMethod
from llama_index.core.memory import StaticMemoryBlock as TheirStatic
from llama_index.core.memory import VectorMemoryBlock as TheirVectors
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from strandline import (
    ConfigurationError,
    FactExtractionMemoryBlock,
    StaticMemoryBlock,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from strandline.adapters.llamaindex import StrandlineMemory
from strandline.adapters.llamaindex.declarations import own_block
from strandline.schemas.settings import load_settings
from tests.conftest import Rig, rows_of, wait_until
from tests.support.agents.llamaindex_model import ScriptedModel, echo, saying, shown, user
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say


def looking_up(messages: Sequence[ChatMessage]) -> ChatMessage:
    """Calls the tool once per turn, then says what came of it."""
    if messages[-1].role == "tool":
        return ChatMessage(role="assistant", content=f"It is {messages[-1].content}.")
    number = sum(message.role == "user" for message in messages)
    call = ToolCallBlock(
        tool_call_id=f"call-{number}-{len(messages)}",
        tool_name="tide",
        tool_kwargs={"place": (messages[-1].content or "")[-12:]},
    )
    return ChatMessage(role="assistant", blocks=[call])


def tide(place: str) -> str:
    """The state of the tide at a place."""
    return f"high tide at {place}"


@pytest.fixture
def configured(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of an application that has set its database there."""
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    return database_url


async def ended(memory: StrandlineMemory) -> None:
    await memory.session_memory.aclose()


# The interface.


def test_every_method_sync(configured: str) -> None:
    memory = StrandlineMemory.from_defaults("plain")
    memory.put(user("one"))
    memory.put_messages([user("two"), ChatMessage(role="assistant", content="three")])
    memory.put_messages([])
    assert shown(memory.get()) == ["user: one", "user: two", "assistant: three"]
    assert shown(memory.get(input="two")) == shown(memory.get(input=user("two"))) == shown(memory.get_all())
    memory.set([user("anew")])
    assert shown(memory.get_all()) == ["user: anew"]
    memory.reset()
    assert memory.get() == memory.get_all() == []
    memory.session_memory.close()


async def test_every_method_async(configured: str) -> None:
    memory = StrandlineMemory.from_defaults("plain-async")
    await memory.aput(user("one"))
    await memory.aput_messages([user("two")])
    assert shown(await memory.aget("two", initial_token_count=3)) == ["user: one", "user: two"]
    assert await memory.aget(messages=[user("two")]) == await memory.aget_all()
    await memory.aset([user("anew")])
    assert await memory.aget_all() == [user("anew")]
    await memory.areset()
    assert await memory.aget_all() == []
    await ended(memory)


def test_tokens_that_are_taken_already_leave_the_newest_messages(configured: str) -> None:
    """What ``ChatMemoryBuffer`` is used for: a buffer beside the tokens of a prompt."""
    memory = StrandlineMemory.from_defaults("beside a prompt", token_limit=60)
    for number in range(8):
        memory.put_messages([user(f"Question {number}"), ChatMessage(role="assistant", content="Answer.")])
    everything = memory.get()
    beside = memory.get(initial_token_count=45)
    assert 2 <= len(beside) < len(everything) and beside == everything[-len(beside) :]
    assert beside[0].role == "user"
    assert memory.get("Question 7", initial_token_count=45) == beside
    assert asyncio.run(_beside(memory, 45)) == beside
    assert memory.get(initial_token_count=0) == everything, "it is a matter of one read"


async def _beside(memory: StrandlineMemory, taken: int) -> list[ChatMessage]:
    try:
        return await memory.aget(initial_token_count=taken)
    finally:
        await ended(memory)


async def test_the_documented_example_of_short_term_memory(configured: str) -> None:
    memory = StrandlineMemory.from_defaults(
        session_id="my_session", token_limit=50, token_flush_size=10, chat_history_token_ratio=0.7
    )
    said = [
        user("Hello, world!"),
        ChatMessage(role="assistant", content="Hello, world to you too!"),
        user("What is the capital of France?"),
        ChatMessage(role="assistant", content="The capital of France is Paris."),
    ]
    for _ in range(100):
        await memory.aput_messages(said)
    assert await memory.aget() == said
    assert len(await memory.aget_all()) == 400
    await memory.areset()
    assert await memory.aget_all() == []
    await ended(memory)


@pytest.mark.parametrize("method", ["system", TheirInsertMethod.USER])
def test_blocks_as_llamaindex_code_declares_them(configured: str, method: Any) -> None:
    model = ScriptedModel(saying("never asked"))
    memory = StrandlineMemory.from_defaults(
        "declared",
        token_limit=30_000,
        memory_blocks=[
            TheirStatic(
                name="core_info", static_content=[TextBlock(text="I live in <Saskatoon>.")], priority=0
            ),
            TheirFacts(name="extracted_info", llm=model, max_facts=7, priority=1),
        ],
        insert_method=method,
    )
    assert memory.session_memory.memory_blocks == (
        StaticMemoryBlock(name="core_info", static_content="I live in <Saskatoon>.", priority=0),
        FactExtractionMemoryBlock(name="extracted_info", max_facts=7, priority=1),
    )
    memory.put(user("What should I buy?"))
    assert rows_of(configured, "SELECT max_facts FROM strandline.session") == [(7,)], (
        "workers condense above it"
    )
    history = memory.get()
    section = "<memory>\n<core_info>\nI live in &lt;Saskatoon&gt;.\n</core_info>\n</memory>"
    if method == "system":
        assert shown(history) == [f"system: {section}", "user: What should I buy?"]
    else:
        assert history[-1].content == f"{section}\n\nWhat should I buy?"
    assert model.requests == []
    memory.session_memory.close()


def test_static_content_may_hold_images_and_tokens_are_counted_as_asked(configured: str) -> None:
    image = ImageBlock(url="https://example.org/harbour.png")
    memory = StrandlineMemory.from_defaults(
        "pictures",
        memory_blocks=[TheirStatic(name="places", static_content=[TextBlock(text="The harbour:"), image])],
        tokenizer_fn=str.split,
    )
    memory.put(user("Where is it then?"))
    first, asked = memory.get()
    assert isinstance(first.blocks[0], TextBlock)
    assert first.blocks[0].text.endswith("<places>\nThe harbour:\n</places>\n</memory>")
    assert [block for block in first.blocks if isinstance(block, ImageBlock)] == [image]
    assert asked.content == "Where is it then?"
    assert memory.session_memory.get()[-1].tokens == 4, "as many as the list has"
    memory.session_memory.close()


async def test_an_async_engine_of_ones_own(database_url: str) -> None:
    url = database_url
    engine = sqlalchemy_asyncio.create_async_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    memory = StrandlineMemory.from_defaults("engine", async_engine=engine)
    await memory.aput(user("Hello"))
    assert shown(await memory.aget()) == ["user: Hello"]
    assert memory.not_carried == ["pool"]
    await ended(memory)
    await engine.dispose()


def test_a_vector_block_keeps_its_figures_and_loses_its_store() -> None:
    theirs = TheirVectors.model_construct(
        name="vectors",
        priority=2,
        similarity_top_k=3,
        retrieval_context_window=4,
        embed_model=MockEmbedding(embed_dim=8),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.5)],
    )
    assert own_block(theirs) == VectorMemoryBlock(
        name="vectors",
        priority=2,
        similarity_top_k=3,
        retrieval_context_window=4,
        similarity_cutoff=0.5,
    )


class Foremost(BaseNodePostprocessor):
    """Puts first what holds a word, and drops the last."""

    word: str

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None and query_bundle.query_str == "the boat"
        return sorted(nodes, key=lambda node: self.word not in node.node.get_content())[:-1]


def test_their_postprocessors_choose_among_the_hits(rig: Rig, configured: str) -> None:
    theirs = TheirVectors.model_construct(
        name="vectors",
        priority=2,
        similarity_top_k=2,
        retrieval_context_window=5,
        embed_model=MockEmbedding(embed_dim=8),
        node_postprocessors=[Foremost(word="green")],
    )
    memory = StrandlineMemory.from_defaults("chosen", memory_blocks=[theirs])
    for colour in ("red", "green", "blue"):
        say(memory.session_memory, f"The boat of the neighbour is {colour}.")
    drain_everything(rig.database, configured, rig.settings)
    memory.put(user("Well?"))
    section = memory.get("the boat")[0].content or ""
    assert section.count("The boat") == 2
    assert section.index("green") == min(
        section.find(one) for one in ("green", "red", "blue") if one in section
    )
    assert memory.not_carried == ["memory_blocks"], "a context carries no code"
    memory.session_memory.close()


@pytest.mark.parametrize("method", ["system", "user"])
async def test_what_was_read_can_be_set_again_without_its_memory(configured: str, method: str) -> None:
    """``chat_history=memory.get()`` is what LlamaIndex's own example does."""
    blocks = [StaticMemoryBlock(name="about", static_content="The user is a sailor.")]
    memory = StrandlineMemory.from_defaults("again", memory_blocks=blocks, insert_method=method)
    for said in ([user("one")], [ChatMessage(role="system", content="Be short."), user("one"), user("two")]):
        memory.set(said)
        read = memory.get()
        assert "sailor" in str(read)
        memory.set(read)
        assert memory.get_all() == said
    before = await memory.aget_all()
    await memory.aset(await memory.aget())
    assert await memory.aget_all() == before
    await ended(memory)


# Agents, workflows and engines.


async def test_a_function_agent_keeps_calls_with_results(configured: str) -> None:
    memory = StrandlineMemory.from_defaults("tools")
    model = ScriptedModel(looking_up)
    agent = FunctionAgent(llm=model, tools=[tide], streaming=False)
    assert str(await agent.run("How is it in Porto?", memory=memory)) == "It is high tide at it in Porto?."
    roles = [message.role.value for message in await memory.aget_all()]
    assert roles == ["user", "assistant", "tool", "assistant"]
    await agent.run("And in Faro?", memory=memory)
    assert shown(model.requests[2])[0] == "user: How is it in Porto?"
    stored = await memory.session_memory.aget_all()
    assert [call["id"] for call in stored[1].tool_calls or ()] == [stored[2].tool_call_id]
    await ended(memory)


async def test_a_react_agent_remembers_its_reasoning(configured: str) -> None:
    memory = StrandlineMemory.from_defaults("react")
    answers = iter(
        [
            'Thought: I need the tide.\nAction: tide\nAction Input: {"place": "Faro"}',
            "Thought: I can answer without using any more tools.\nAnswer: High.",
            "Thought: I can answer without using any more tools.\nAnswer: As I said.",
        ]
    )
    model = ScriptedModel(lambda _messages: ChatMessage(role="assistant", content=next(answers)))
    agent = ReActAgent(llm=model, tools=[tide], streaming=False)
    assert str(await agent.run("How is the tide in Faro?", memory=memory)) == "High."
    assert str(await agent.run("And now?", memory=memory)) == "As I said."
    assert "user: How is the tide in Faro?" in shown(model.requests[-1])
    assert any("Observation: high tide at Faro" in line for line in shown(model.requests[-1]))
    await ended(memory)


async def test_a_workflow_of_agents_shares_one_memory(configured: str) -> None:
    def first_answer(messages: Sequence[ChatMessage]) -> ChatMessage:
        call = ToolCallBlock(
            tool_call_id="h1", tool_name="handoff", tool_kwargs={"to_agent": "sailor", "reason": "tides"}
        )
        return ChatMessage(role="assistant", blocks=[call])

    memory = StrandlineMemory.from_defaults("handoff")
    sailor = ScriptedModel(saying("High at noon."))
    workflow = AgentWorkflow(
        agents=[
            FunctionAgent(
                name="desk",
                description="Answers.",
                llm=ScriptedModel(first_answer),
                can_handoff_to=["sailor"],
                streaming=False,
            ),
            FunctionAgent(name="sailor", description="Knows tides.", llm=sailor, streaming=False),
        ],
        root_agent="desk",
    )
    assert str(await workflow.run(user_msg="When is high tide?", memory=memory)) == "High at noon."
    assert shown(await memory.aget_all())[0] == "user: When is high tide?"
    assert shown(await memory.aget_all())[-1] == "assistant: High at noon."
    assert "user: When is high tide?" in shown(sailor.requests[-1])
    await ended(memory)


async def test_chat_history_overrides_memory(configured: str) -> None:
    memory = StrandlineMemory.from_defaults("overridden")
    await memory.aput(user("This will be replaced."))
    model = ScriptedModel(echo)
    agent = FunctionAgent(llm=model, streaming=False)
    history = [user("Earlier"), ChatMessage(role="assistant", content="Yes.")]
    await agent.run("Now", chat_history=history, memory=memory)
    assert shown(model.requests[-1]) == ["user: Earlier", "assistant: Yes.", "user: Now"]
    assert len(await memory.aget_all()) == 4
    await ended(memory)


async def test_a_context_holds_the_memory_of_its_runs(configured: str) -> None:
    memory = StrandlineMemory.from_defaults("with-context", user_id="ana")
    agent = FunctionAgent(llm=ScriptedModel(echo), streaming=False)
    ctx = Context(agent)
    await agent.run("Hello", ctx=ctx, memory=memory)
    held = await ctx.store.get("memory")
    assert held is memory
    # As the documents do, without await: a sync method, called on the loop.
    assert shown(held.get()) == ["user: Hello", "assistant: You said: Hello"]
    await agent.run("Again", ctx=ctx)
    assert len(await memory.aget_all()) == 4
    await ended(memory)


BLOCKS = [FactExtractionMemoryBlock(max_facts=9), SummaryMemoryBlock(), VectorMemoryBlock(scope="owner")]


async def test_a_context_is_kept_as_a_reference_and_goes_on(configured: str) -> None:
    memory = StrandlineMemory.from_defaults(
        "kept",
        user_id="ana",
        namespace="shop",
        token_limit=900,
        token_flush_size=80,
        memory_blocks=BLOCKS,
        shared_scope="crew",
    )
    agent = FunctionAgent(llm=ScriptedModel(echo), streaming=False)
    ctx = Context(agent)
    await agent.run("My boat is called Petrel.", ctx=ctx, memory=memory)
    kept = json.loads(json.dumps(ctx.to_dict()))
    assert "Petrel" not in json.dumps(kept["state"]["state_data"]["_data"]["memory"])

    restored_ctx = Context.from_dict(agent, kept)
    restored = await restored_ctx.store.get("memory")
    assert isinstance(restored, StrandlineMemory)
    assert restored is not memory
    assert restored == StrandlineMemory.from_dict(memory.to_dict())
    assert restored.session_memory.memory_blocks == memory.session_memory.memory_blocks
    assert restored.shared_scope == "crew"
    assert await restored.session_memory.asearch("Petrel", scope="shared") == [], "nothing was flushed to it"
    await agent.run("What is its name?", ctx=restored_ctx)
    assert shown(await memory.aget_all())[0] == "user: My boat is called Petrel."
    assert len(await memory.aget_all()) == 4
    await ended(memory)


def test_a_reference_holds_names_and_limits_only() -> None:
    memory = StrandlineMemory.from_defaults(
        "private",
        memory_blocks=[StaticMemoryBlock(name="about", static_content="The user is ill.")],
        database_url="postgresql://ana:hunter2@localhost/chats",
        tokenizer_fn=len,
    )
    reference = memory.to_json()
    assert "hunter2" not in reference
    assert "postgresql" not in reference
    assert "ill" not in reference
    restored = StrandlineMemory.from_json(reference)
    with pytest.raises(
        ConfigurationError, match="database_url, tokenizer_fn, memory_blocks, which a context does not carry"
    ):
        restored.get()


async def test_a_run_that_waits_for_a_person_is_kept_and_resumed(configured: str) -> None:
    async def pay(ctx: Context, amount: int) -> str:
        """Pay an amount."""
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent.model_validate({"prefix": f"Pay {amount}?"})
        )
        return f"human said {answer.response}"

    pay.__annotations__["ctx"] = Context  # LlamaIndex looks for the class, and finds its name

    def paying(messages: Sequence[ChatMessage]) -> ChatMessage:
        if messages[-1].role == "tool":
            return ChatMessage(role="assistant", content=f"Done: {messages[-1].content}")
        call = ToolCallBlock(tool_call_id="p1", tool_name="pay", tool_kwargs={"amount": 7})
        return ChatMessage(role="assistant", blocks=[call])

    memory = StrandlineMemory.from_defaults("paying")
    agent = FunctionAgent(llm=ScriptedModel(paying), tools=[pay], streaming=False)
    handler = agent.run("Pay the harbour.", ctx=Context(agent), memory=memory)
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            kept = json.loads(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
            break

    resumed = Context.from_dict(agent, kept)
    handler = agent.run(ctx=resumed, memory=memory)
    handler.ctx.send_event(HumanResponseEvent.model_validate({"response": "yes"}))
    assert str(await handler) == "Done: human said yes"
    said = shown(await memory.aget_all())
    assert (said[0], said[-1]) == ("user: Pay the harbour.", "assistant: Done: human said yes")
    assert len(said) == 4
    await ended(memory)


def test_a_chat_engine_chats_on_it(configured: str) -> None:
    model = ScriptedModel(echo)
    engine = SimpleChatEngine.from_defaults(
        memory=StrandlineMemory.from_defaults("engine"), llm=model, system_prompt="Be kind."
    )
    assert str(engine.chat("Ahoy")) == "You said: Ahoy"
    assert shown(engine.chat_history) == ["user: Ahoy", "assistant: You said: Ahoy"]
    assert str(asyncio.run(engine.achat("Again"))) == "You said: Again"
    engine.reset()
    assert engine.chat_history == []


def test_a_chat_engine_makes_one_of_its_own(configured: str) -> None:
    engine = SimpleChatEngine.from_defaults(
        memory_cls=StrandlineMemory, llm=ScriptedModel(echo), chat_history=[user("Earlier")]
    )
    engine.chat("Now")
    assert shown(engine.chat_history) == ["user: Earlier", "user: Now", "assistant: You said: Now"]


async def test_the_documented_example_of_long_term_memory(
    rig: Rig, configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    settings = load_settings(database_url=configured, embedding_backend="local")
    memory = StrandlineMemory.from_defaults(
        session_id="my_session",
        token_limit=30_000,
        chat_history_token_ratio=0.02,
        token_flush_size=500,
        memory_blocks=[
            TheirStatic(
                name="core_info",
                static_content="My name is Logan, and I live in Saskatoon.",  # type: ignore[arg-type]  # as there
                priority=0,
            ),
            TheirFacts(name="extracted_info", llm=ScriptedModel(echo), max_facts=50, priority=1),
            TheirVectors.model_construct(
                name="vector_memory",
                priority=2,
                similarity_top_k=2,
                retrieval_context_window=5,
                embed_model=MockEmbedding(embed_dim=8),
                node_postprocessors=[],
            ),
        ],
        insert_method="user",
    )
    model = ScriptedModel(saying("Miniature Schnauzers are wonderful dogs. " * 30))
    agent = FunctionAgent(tools=[], llm=model, streaming=False)
    for asked in (
        "Hi! My name is Logan",
        "What is your opinion on miniature schnauzers?",
        "Do they shed a lot?",
        "What breeds are comparable in size?",
        "What is your favorite breed?",
        "Would you recommend owning a dog?",
        "What should I buy to prepare for owning a dog?",
    ):
        await agent.run(user_msg=asked, memory=memory)
        await asyncio.to_thread(drain_everything, rig.database, configured, settings)
    history = await memory.aget()
    assert len(history) == 2, "a ratio of 0.02 leaves the last turn"
    text = "\n".join(block.text for block in history[-2].blocks if isinstance(block, TextBlock))
    section, _, question = text.partition("</memory>")
    assert section.startswith("<memory>\n<core_info>\nMy name is Logan, and I live in Saskatoon.")
    assert question.strip() == "What should I buy to prepare for owning a dog?"
    assert "<extracted_info>\n<fact>" in section and "<fact>Hi! My name is Logan</fact>" in section
    assert "<vector_memory>\n<message role='user'>" in section
    await memory.aput(user("What kind of dog was I asking about?"))
    answer = await model.achat(await memory.aget())
    await memory.aput(answer.message)
    assert "opinion on miniature schnauzers" in (model.requests[-1][-1].content or "")
    assert len(await memory.aget_all()) == 7 * 2 + 2
    await ended(memory)


def test_the_documented_example_in_chinese(configured: str) -> None:
    memory = StrandlineMemory.from_defaults(
        session_id="my_session",
        token_limit=500,
        memory_blocks=BLOCKS[:1],
        insert_method=TheirInsertMethod.SYSTEM,
    )
    memory.put_messages([ChatMessage(role="system", content="你是一位技术专家")])
    for _ in range(100):
        memory.put_messages(
            [
                user("Hello, world!"),
                ChatMessage(role="assistant", content="Hello, world to you too!"),
                user("What is the capital of France?"),
                ChatMessage(role="assistant", content="It is Paris, known for its art, fashion and culture."),
            ]
        )
    history = memory.get()
    assert (history[0].content or "").startswith("你是一位技术专家")
    assert history[-1].content == "It is Paris, known for its art, fashion and culture."
    assert len(memory.get_all()) == 401
    memory.session_memory.close()


# The whole of it, with a worker.


def _assert_calls_meet_results(requests: Sequence[Sequence[ChatMessage]]) -> None:
    """No request to the model held a result without its call: providers refuse such requests."""
    for request in requests:
        open_calls: set[str | None] = set()
        for message in request:
            open_calls |= {one.tool_call_id for one in message.blocks if isinstance(one, ToolCallBlock)}
            if message.role == "tool":
                assert message.additional_kwargs["tool_call_id"] in open_calls


async def test_an_agent_of_fifty_turns_knows_what_has_left_its_window(rig: Rig, configured: str) -> None:
    rig.start_worker(OPENAI_BASE_URL=rig.model.base_url, OPENAI_API_KEY="none")
    memory = StrandlineMemory.from_defaults(
        "fifty",
        user_id="ana",
        token_limit=3_000,
        chat_history_token_ratio=0.2,
        token_flush_size=150,
        memory_blocks=[FactExtractionMemoryBlock(max_facts=200)],
        broker_url=rig.broker_url,
    )
    database_url = configured
    model = ScriptedModel(looking_up)
    agent = FunctionAgent(llm=model, tools=[tide], streaming=False)
    await agent.run("My boat is the Petrel and she lies in Horta.", memory=memory)
    for turn in range(2, 50):
        await agent.run(f"How is the tide at pier {turn:02d}?", memory=memory)
    await asyncio.to_thread(
        wait_until,
        lambda: (
            rows_of(
                database_url, "SELECT count(*) FROM strandline.fact WHERE live AND text LIKE '%%Petrel%%'"
            )
            == [(1,)]
        ),
        timeout=60,
        what="the fact about the boat",
    )
    await agent.run("Where does my boat lie?", memory=memory)
    everything = await memory.aget_all()
    assert len(everything) == 50 * 4
    _assert_calls_meet_results(model.requests)
    await ended(memory)
    sent = shown(model.requests[-2])
    flushes = rows_of(configured, "SELECT count(*), min(from_seq) FROM strandline.flush_event")
    assert flushes[0][0] >= 5
    first, *conversation = sent
    assert first.startswith("system: <memory>")
    assert "<fact>My boat is the Petrel and she lies in Horta.</fact>" in first
    assert not any("Petrel" in line for line in conversation)
    assert conversation[-1] == "user: Where does my boat lie?"
