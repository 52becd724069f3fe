"""Arguments of the public functions: names, ids, limits, blocks, queries, facts."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from strandline import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    Facts,
    Memory,
    StaticMemoryBlock,
    StrandlineError,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from tests.fuzz.running import fuzzed
from tests.fuzz.values import anything, messages, numbers, parts, scalars, texts

HELLO = {"role": "user", "content": "hello"}
BLOCKS: tuple[type[BaseMemoryBlock], ...] = (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    StaticMemoryBlock,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)

_block_arguments = st.fixed_dictionaries(
    {},
    optional={
        "name": texts | scalars,
        "priority": scalars,
        "pipeline": scalars,
        "static_content": st.one_of(texts, st.lists(parts, max_size=2), anything),
        "max_facts": scalars,
        "similarity_top_k": scalars,
        "retrieval_context_window": scalars,
        "similarity_cutoff": scalars,
        "scope": scalars,
        "kinds": anything,
        "exclude_current": scalars,
        "postprocessors": anything,
        "rerank": anything,
        "zyzzyva": anything,
    },
)
_block_names = st.sampled_from(["facts", "summary", "vectors", "zyzzyva"])
_memory_arguments: dict[str, st.SearchStrategy[Any]] = {
    "user_id": texts | scalars,
    "namespace": texts | scalars,
    "token_limit": numbers | anything,
    "chat_history_token_ratio": numbers | anything,
    "token_flush_size": numbers | anything,
    "idle_seconds": numbers | anything,
    "insert_method": st.sampled_from(["system", "user"]) | anything,
    "memory_blocks": st.lists(_block_names, max_size=3) | anything,
    "part_tokens": st.dictionaries(st.sampled_from(["image", "audio", "x"]), scalars, max_size=2) | anything,
    "memory_template": texts | anything,
    "shared_scope": texts | scalars,
    "tokenizer_fn": st.sampled_from([len, str.split, list, "cl100k", 7]) | anything,
    "schema": texts | scalars,
    "consume": texts | scalars,
    "zyzzyva": anything,
}


@given(session=texts | scalars, data=st.data())
@fuzzed()
def test_a_memory_of_any_arguments_works_or_says_why_not(
    session: Any, data: st.DataObject, database_url: str
) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(_memory_arguments)), max_size=2, unique=True))
    # Threads that consume are started by what may be asked for in earnest.
    arguments = {
        name: value
        for name in names
        if (value := data.draw(_memory_arguments[name], label=name)) != "background"
    }
    with suppress(StrandlineError):
        memory = Memory.from_defaults(session, database_url=database_url, **arguments)
        assert session is None or memory.session_id == session
        memory.put(HELLO)
        assert [message.text for message in memory.get_all()] == ["hello"] * len(memory.get_all())
        assert memory.get_all()
        json.dumps(memory.get().to_openai(), ensure_ascii=False, allow_nan=False).encode()


@given(kind=st.sampled_from(BLOCKS), arguments=_block_arguments)
@fuzzed()
def test_a_block_of_any_arguments_shows_something_or_says_why_not(
    kind: type[BaseMemoryBlock], arguments: dict[str, Any], database_url: str
) -> None:
    if kind is BaseMemoryBlock:
        arguments.setdefault("name", "zyzzyva")
    if kind is StaticMemoryBlock:
        arguments.setdefault("static_content", "A boat.")
    with suppress(StrandlineError):
        block = kind(**arguments)
        memory = Memory.from_defaults(uuid4().hex, database_url=database_url, memory_blocks=[block])
        memory.put(HELLO)
        context = memory.get("Which boat?")
        json.dumps(context.to_openai(), ensure_ascii=False, allow_nan=False).encode()
        assert context[-1].text == "hello" or kind is StaticMemoryBlock


# The awaited message never comes, so waiting is bounded here.
_waits = st.sampled_from([0, 0.01, -1, float("nan"), float("-inf"), "1", True])
_strings = texts | anything
_calls: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "get": {
        "input": texts | messages | anything,
        "messages": st.none() | st.lists(messages, max_size=2) | anything,
        "initial_token_count": numbers | scalars,
    },
    "get waiting": {"wait_for": numbers | scalars, "timeout": _waits},
    "search": {
        "query": _strings,
        "limit": st.just(3) | scalars,
        "scope": st.sampled_from(["session", "owner", "shared"]) | scalars,
        "kinds": st.just(["message", "fact"]) | anything,
        "exclude_current": scalars,
        "include_window": scalars,
    },
    "iterate": {"after_seq": numbers | scalars, "page_size": numbers | scalars},
    "flush": {"all": scalars},
    "set": {"messages": st.lists(messages, max_size=2) | anything},
    "put_messages": {"messages": anything},
    "import_messages": {"messages": anything},
    "reset": {"derived": scalars},
}
_fact_calls: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "add": {
        "text": _strings,
        "topics": st.lists(texts, max_size=2) | anything,
        "about_date": st.dates() | anything,
        "input": _strings,
        "agent_id": scalars,
        "actor": scalars,
    },
    "get": {"fact_id": _strings},
    "list": {
        "limit": numbers | scalars,
        "offset": numbers | scalars,
        "sort": st.sampled_from(["newest", "oldest"]) | scalars,
        "contains": scalars,
        "topics": anything,
        "team_id": scalars,
        "with_invalidated": scalars,
    },
    "search": {"query": _strings, "limit": numbers | scalars, "topics": anything},
    "replace": {"fact_id": _strings, "text": _strings, "topics": anything, "actor": scalars},
    "delete": {"fact_id": _strings},
}


def drawn(data: st.DataObject, strategies: dict[str, st.SearchStrategy[Any]], needed: int) -> dict[str, Any]:
    """Values for the first ``needed`` arguments and for some of the others."""
    names = list(strategies)
    more = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    return {name: data.draw(strategies[name], label=name) for name in names if name in more + names[:needed]}


@given(name=st.sampled_from(sorted(_calls)), data=st.data())
@fuzzed()
def test_methods_take_any_arguments_or_say_why_not(name: str, data: st.DataObject, database_url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=database_url)
    memory.put(HELLO)
    needed = 2 if name == "get waiting" else 0 if name in ("get", "flush", "reset", "iterate") else 1
    arguments = drawn(data, _calls[name], needed)
    with suppress(StrandlineError):
        result = getattr(memory, name.partition(" ")[0])(**arguments)
        if name == "iterate":
            list(result)
    assert name in ("set", "reset") or memory.get_all()[0].text == "hello"


@given(name=st.sampled_from(sorted(_fact_calls)), data=st.data())
@fuzzed()
def test_facts_take_any_arguments_or_say_why_not(name: str, data: st.DataObject, database_url: str) -> None:
    facts = Facts.for_owner(user_id=uuid4().hex, database_url=database_url)
    known = facts.add("I have a boat.")
    arguments = drawn(data, _fact_calls[name], {"list": 0, "replace": 2}.get(name, 1))
    if "fact_id" in arguments and data.draw(st.booleans()):
        arguments["fact_id"] = known.fact_id
    with suppress(StrandlineError):
        result = getattr(facts, name)(**arguments)
        if name == "add":
            stored = facts.get(result.fact_id)
            assert stored is not None
            assert stored.text == result.text
    assert isinstance(list(facts.list()), list)
