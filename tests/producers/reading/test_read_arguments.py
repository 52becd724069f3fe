"""Arguments of a read, by the public names: a query, room for the caller's own prompt, blocks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import (
    ConfigurationError,
    FactExtractionMemoryBlock,
    InsertMethod,
    InvalidMessageError,
    Message,
    StaticMemoryBlock,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from strandline.producers.reading.narrowing import shorter_window
from strandline.producers.reading.snapshot import read_snapshot
from tests.conftest import MakeMemory, Rig, rows_of
from tests.producers.reading.test_read_operation import message_row, snapshot_rows
from tests.support.messages import user
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say


def words(text: str) -> int:
    return len(text.split())


QUESTIONS = [
    ("user", "Hello, world!"),
    ("assistant", "Hello, world to you too!"),
    ("user", "What is the capital of France?"),
    ("assistant", "The capital of France is Paris."),
]


@pytest.mark.parametrize("content", [{"a": 1}, ["x"], 5, [{"type": "text", "text": 5}], b"x"])
@pytest.mark.parametrize("argument", ["input", "messages"])
def test_content_that_a_put_would_refuse_is_refused_by_a_read(
    argument: str, content: Any, make_memory: MakeMemory
) -> None:
    memory = make_memory("s")
    message = {"role": "user", "content": content}
    with pytest.raises(InvalidMessageError, match="content"):
        memory.get(message) if argument == "input" else memory.get(messages=[message])


async def test_four_hundred_messages_leave_the_last_four_in_a_short_window(make_memory: MakeMemory) -> None:
    """The example that LlamaIndex's documents give for limit 50, ratio 0.7 and flush size 10."""
    memory = make_memory(
        "my_session", token_limit=50, token_flush_size=10, chat_history_token_ratio=0.7, memory_blocks=[]
    )

    for _ in range(100):
        await memory.aput_messages([Message(role, text) for role, text in QUESTIONS])  # type: ignore[arg-type]
    shown = [str(message) for message in await memory.aget()]
    assert shown == [f"{role}: {text}" for role, text in QUESTIONS]
    assert len(await memory.aget_all()) == 400
    await memory.areset()
    assert await memory.aget_all() == []
    await memory.aclose()


def test_defaults_are_those_of_the_documents(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s")
    memory.put(user("Hello"))
    policy = "token_limit, flush_at_tokens, token_flush_size, max_facts, tokenizer"
    assert rows_of(database_url, f"SELECT {policy} FROM strandline.session") == [
        (30_000, 21_000, 3_000, None, "o200k_base")
    ]
    facts, summary, vectors = memory.memory_blocks
    assert isinstance(facts, FactExtractionMemoryBlock) and facts.max_facts is None
    assert isinstance(summary, SummaryMemoryBlock)
    assert isinstance(vectors, VectorMemoryBlock)
    assert (vectors.similarity_top_k, vectors.retrieval_context_window) == (None, 5)
    assert all(block.is_filler for block in memory.memory_blocks), "as much as there is room for"
    assert [block.priority for block in memory.memory_blocks] == [1, 2, 3]
    ranked = (FactExtractionMemoryBlock(priority=1), VectorMemoryBlock(priority=3))
    assert (ranked[0].max_facts, ranked[1].similarity_top_k) == (50, 2)
    assert not any(block.is_filler for block in (*ranked, SummaryMemoryBlock(priority=2)))
    static = StaticMemoryBlock(static_content="Be brief.")
    assert static.priority == 0
    context = make_memory("t", memory_blocks=[static]).get()
    assert str(context[0]) == "system: <memory>\n<static_memory>\nBe brief.\n</static_memory>\n</memory>"


def test_chinese_is_kept_found_and_shown(rig: Rig) -> None:
    memory = rig.memory(
        "会话", user_id="用户", memory_blocks=["vectors"], insert_method=InsertMethod.USER, token_limit=500
    )
    memory.put({"role": "system", "content": "你是一位技术专家"})
    say(memory, "我的猫叫咪咪,住在里斯本", "今天刮西风")
    drain_everything(rig.database, rig.url, rig.settings)
    memory.put(user("我的猫叫什么?"))
    context = memory.get()
    assert str(context[0]) == "system: 你是一位技术专家"
    assert "咪咪" in context[-1].text and context[-1].text.endswith("我的猫叫什么?")


def test_a_query_is_text_a_message_or_a_dict_and_so_are_messages(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["vectors"])
    say(memory, "The cat is called Kiki", "The boat has three sails")
    drain_everything(rig.database, rig.url, rig.settings)
    asked = "What is the cat called?"
    queries: list[dict[str, Any]] = [
        {"input": asked},
        {"input": Message("user", asked)},
        {"input": user(asked)},
        {"messages": [Message("user", asked)]},
        {"messages": [user("Tell me."), user(asked)]},
    ]
    for query in queries:
        assert memory.get(**query)[0].text.index("Kiki") > 0, query
    with pytest.raises(InvalidMessageError, match=r"^messages\[1\]"):
        memory.get(messages=[user(asked), "text"])
    with pytest.raises(InvalidMessageError, match=r"^input"):
        memory.get(3)


def test_the_callers_own_tokens_are_kept_free(make_memory: MakeMemory) -> None:
    memory = make_memory("s", token_limit=80, memory_blocks=[], tokenizer_fn=words)
    memory.put({"role": "system", "content": "be brief now please"})
    for number in range(5):
        memory.put_messages(
            [user(f"question {number}"), {"role": "assistant", "content": f"answer {number}"}]
        )
    assert len(memory.get(initial_token_count=36)) == 11
    context = memory.get(initial_token_count=52)
    assert [message.seq for message in context] == [1, 6, 7, 8, 9, 10, 11]
    assert (context.tokens, context.over_budget) == (28, False)
    (omitted,) = context.omitted
    assert (omitted.kind, omitted.from_seq, omitted.through_seq) == ("window", 2, 5)
    tight = memory.get(initial_token_count=79)
    assert [message.seq for message in tight] == [1, 10, 11], "the last turn stays"
    assert tight.over_budget
    assert len(memory.get()) == 11, "it is a matter of one read"


def test_hidden_parts_of_the_window_can_be_found_again(rig: Rig) -> None:
    memory = rig.memory("s", token_limit=200, memory_blocks=["vectors"], tokenizer_fn=words, idle_seconds=1)
    say(memory, "The cat is called Kiki")
    drain_everything(rig.database, rig.url, rig.settings)
    memory.put(user("What is the cat called?"))
    assert "Kiki" in memory.get(initial_token_count=150)[0].text


@pytest.mark.parametrize("count", [-1, 1.5, True, "3", None])
def test_what_is_no_number_of_tokens_is_refused(make_memory: MakeMemory, count: Any) -> None:
    with pytest.raises(ConfigurationError, match="initial_token_count"):
        make_memory("s", memory_blocks=[]).get(initial_token_count=count)


@pytest.mark.parametrize("result", [None, 1.5, True, -1, "text", {"input_ids": [1, 2]}])
def test_a_tokenizer_that_returns_neither_list_nor_number_is_named(
    make_memory: MakeMemory, result: Any
) -> None:
    memory = make_memory("s", memory_blocks=[], tokenizer_fn=lambda _text: result)
    with pytest.raises(ConfigurationError, match="tokenizer_fn returned"):
        memory.put(user("Hello"))
    assert memory.get_all() == []


def test_standard_blocks_can_be_named(rig: Rig) -> None:
    memory = rig.memory("s", user_id="maren", memory_blocks=["summary", "vectors"])
    say(memory, "The boat is blue", "The wind is up")
    drain_everything(rig.database, rig.url, rig.settings)
    shown = memory.get("Which colour has the boat?")[0].text
    assert "<vectors>\n<conversation date=" in shown and "user: The boat is blue" in shown
    assert "The boat is blue" not in shown.partition("<vectors>")[0], "nothing is said twice"


TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.integers(1, 9)), max_size=12)


@given(turns=TURNS, limit=st.integers(0, 60))
def test_a_shorter_window_is_its_end_from_a_turn_on(turns: list[tuple[str, int]], limit: int) -> None:
    rows = [message_row(seq, role, tokens=tokens) for seq, (role, tokens) in enumerate(turns, 1)]
    snapshot = read_snapshot(snapshot_rows(messages=rows))
    shorter, omitted = shorter_window(snapshot, limit)
    cut = len(turns) - len(shorter.window)
    assert list(shorter.window) == list(snapshot.window)[cut:]
    assert shorter.fixed_tokens == sum(tokens for _role, tokens in turns[cut:])
    assert [(gone.from_seq, gone.through_seq) for gone in omitted] == ([(1, cut)] if cut else [])
    if cut:
        assert shorter.window[0].role == "user"
        assert shorter.window_from == cut + 1
        starts = [at for at, (role, _tokens) in enumerate(turns) if role == "user"]
        longer = next((at for at in reversed(starts) if at < cut), 0)
        assert sum(tokens for _role, tokens in itertools.islice(turns, longer, None)) > limit
