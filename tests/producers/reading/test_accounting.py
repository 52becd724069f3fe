"""A read says what its tokens are used for, and which messages it gave only for the sake of others."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import Memory, MemoryContext, StaticMemoryBlock, VectorMemoryBlock
from strandline.producers.reading.context import GivenSection, count_sections
from strandline.producers.tokens import count_default
from tests.conftest import MakeMemory

KEY = "Where does Lars keep the key of the boathouse?"
LIMIT = 600


def told(make_memory: MakeMemory, **options: Any) -> Memory:
    """A session with a head, of which the exchange about the key has left the window."""
    memory = make_memory("s", user_id="maren", consume="background", token_limit=LIMIT, **options)
    memory.put({"role": "system", "content": "Be brief."})
    memory.put({"role": "user", "content": KEY})
    memory.put({"role": "assistant", "content": "On a nail."})
    for number in range(20):
        memory.put({"role": "user", "content": f"Note {number}: wind from the west, tide as yesterday."})
    memory.flush()
    last = memory.put({"role": "user", "content": "Good morning."})
    assert memory.get(wait_for=last, timeout=300).caught_up
    return memory


def check_sums(context: MemoryContext) -> None:
    use = context.token_use()
    assert use.total == context.tokens
    assert use.free == max(0, use.limit - context.tokens)
    stored = sum(message.tokens or 0 for message in (*context.head, *context.tail, *context.window))
    assert use.head + use.tail + use.window == stored
    assert min(use.head, use.tail, use.window, use.facts, use.summary, use.messages, use.other) >= 0


def test_the_tokens_of_a_read_are_told_apart(make_memory: MakeMemory) -> None:
    memory = told(make_memory)
    memory.facts.add("Maren collects maps of the Weser.")
    context = memory.get(KEY)
    check_sums(context)
    use = context.token_use()
    assert (use.limit, use.tail) == (LIMIT, 0)
    assert min(use.head, use.window, use.facts, use.summary, use.messages, use.other) > 0
    kinds = {section.kind: section.text for section in context.memory.sections}
    assert set(kinds) == {"facts", "summary", "messages"}
    assert all(text in context[0].text for text in kinds.values())
    assert use.facts == count_default(kinds["facts"])
    assert [message.seq for message in context.head] == [1]
    assert [message.text for message in context.window][-1] == "Good morning."
    assert not {message.seq for message in context.window} & {hit.message.seq for hit in context.hits}


def test_flushed_messages_that_wait_for_workers_are_the_tail(make_memory: MakeMemory) -> None:
    memory = make_memory("s", token_limit=LIMIT)
    memory.put({"role": "user", "content": KEY})
    memory.flush(all=True)
    memory.put({"role": "user", "content": "Good morning."})
    context = memory.get(KEY)
    check_sums(context)
    assert [message.text for message in context.tail] == [KEY]
    assert [message.text for message in context.window] == ["Good morning."]
    assert context.token_use().tail > 0 and not context.caught_up


def test_a_read_without_memory_uses_tokens_for_its_messages_alone(make_memory: MakeMemory) -> None:
    memory = make_memory("s", token_limit=LIMIT, memory_blocks=[])
    assert memory.get().token_use().free == LIMIT
    memory.put({"role": "user", "content": "Good morning."})
    context = memory.get(initial_token_count=100)
    check_sums(context)
    assert context.token_use().limit == LIMIT - 100
    assert context.token_use().window == context.tokens


def test_other_blocks_and_tags_are_told_as_such(make_memory: MakeMemory) -> None:
    static = StaticMemoryBlock(static_content="Be kind. " * 10)
    memory = make_memory("s", token_limit=LIMIT, memory_blocks=[static])
    memory.put({"role": "user", "content": "Good morning."})
    context = memory.get()
    check_sums(context)
    assert context.token_use().other > 20


def test_no_more_is_told_of_sections_than_the_memory_has() -> None:
    sections = [GivenSection("f", "facts", "a b c"), GivenSection("v", "messages", "d e f")]
    counts = count_sections(sections, 4, lambda text: len(text.split()))
    assert counts == {"facts": 3, "summary": 0, "messages": 1, "other": 0}


@pytest.mark.parametrize("top_k", [1, None])
def test_what_was_given_for_the_sake_of_another_message_says_so(
    make_memory: MakeMemory, top_k: int | None
) -> None:
    memory = told(make_memory, memory_blocks=[VectorMemoryBlock(similarity_top_k=top_k)])
    context = memory.get(f"{KEY}?")
    check_sums(context)
    given = {hit.message.seq: hit for hit in context.hits}
    assert not given[2].is_beside
    if top_k == 1:
        answer = given[3]
        assert answer.is_beside and set(given) == {2, 3}
        assert (answer.score, answer.similarity) == (given[2].score, given[2].similarity)
