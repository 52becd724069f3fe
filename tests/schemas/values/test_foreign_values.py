"""Values of a caller's own classes, and numbers without bounds: stored as what they are, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from strandline import (
    ConfigurationError,
    FactExtractionMemoryBlock,
    Facts,
    InvalidMessageError,
    Memory,
    Message,
    StaticMemoryBlock,
    StrandlineError,
    VectorMemoryBlock,
)
from strandline.deploy.embedded.stack import EmbeddedStack
from tests.support.servers.databases import temporary_database

HELLO = {"role": "user", "content": "hello"}


@pytest.fixture(scope="module")
def database_url(stack: EmbeddedStack) -> Iterator[str]:
    """One for all tests: each of them has different sessions and users."""
    with temporary_database(stack.database_url) as url:
        yield url
        Memory.from_defaults("last", database_url=url).close()


def _refuse(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("not now")


class RaisingDump:
    model_dump = _refuse


class WrongDump:
    def model_dump(self, **_: object) -> object:
        return ["role"]


class RaisingAttributes:
    """As a proxy of a web framework is outside of a request."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(name)


class RaisingRepr:
    __repr__ = _refuse


class ArrayLike:
    """Compared, it gives another one, which is neither true nor false, as arrays of numbers do."""

    def __eq__(self, other: object) -> ArrayLike:  # type: ignore[override]
        return ArrayLike()

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


class RaisingText(str):
    __slots__ = ()
    __str__ = __repr__ = __len__ = __iter__ = __eq__ = __hash__ = __contains__ = _refuse
    encode = find = strip = casefold = _refuse


class RaisingInt(int):
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __repr__ = __bool__ = __index__ = _refuse
    __hash__ = int.__hash__


class RaisingFloat(float):
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __repr__ = __bool__ = __float__ = _refuse
    __hash__ = float.__hash__


class RaisingList(list[Any]):
    __len__ = __iter__ = __bool__ = __getitem__ = _refuse


class RaisingDict(dict[str, Any]):
    __len__ = __iter__ = __bool__ = __getitem__ = items = get = _refuse


VALUES: dict[str, Any] = {
    "large": 10**400,
    "larger than Python writes out": 10**5_000,
    "far below zero": -(10**5_000),
    "a list of such": [10**5_000],
    "raising model_dump": RaisingDump(),
    "wrong model_dump": WrongDump(),
    "raising attributes": RaisingAttributes(),
    "raising repr": RaisingRepr(),
    "like an array": ArrayLike(),
    "text": RaisingText("hello"),
    "int": RaisingInt(5),
    "float": RaisingFloat(0.5),
    "list": RaisingList(["facts"]),
    "dict": RaisingDict(HELLO),
    "unhashable": ["x"],
    "set": {1},
    "bytes": b"x",
    "lone surrogate": "\ud800",
    "class": dict,
    "no number": float("nan"),
}
each_value = pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))


def tried(call: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """The call's result, or None if it is refused; errors other than Strandline's are not caught."""
    with suppress(StrandlineError):
        return call(*given, **more)


MEMORY_ARGUMENTS = (
    "session_id user_id namespace token_limit chat_history_token_ratio token_flush_size max_window_messages"
    " max_window_bytes message_flush_size memory_blocks insert_method tokenizer_fn part_tokens"
    " memory_template shared_scope idle_seconds database_url pool schema broker_url consume"
).split()


@each_value
def test_a_memory_is_made_and_used_or_refused(value: Any, database_url: str) -> None:
    def use(argument: str) -> None:
        given = {"session_id": uuid4().hex, "database_url": database_url, argument: value}
        memory = Memory.from_defaults(**given)
        if argument not in ("database_url", "broker_url", "schema"):
            memory.put(HELLO)
            assert [message["content"] for message in memory.get().to_openai()] == ["hello"]

    for argument in MEMORY_ARGUMENTS:
        tried(use, argument)


FIELDS = "role content name id tool_calls tool_call_id metadata created_at extra refusal seq tokens".split()


def _messages_with(value: Any) -> Iterator[Any]:
    yield value
    for name in FIELDS:
        for inner in (value, [value], {"type": "x", "k": value}):
            yield {**HELLO, name: inner}
            if name != "refusal":
                for others in (HELLO, {"role": "assistant"}):
                    fields: dict[str, Any] = {**others, name: inner}
                    yield Message(**fields)


@each_value
def test_a_message_is_stored_or_refused_and_nothing_lost(value: Any, database_url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=database_url)
    seqs = {memory.put(HELLO), *(tried(memory.put, message) for message in _messages_with(value))} - {None}
    assert {message.seq for message in memory.get_all()} == seqs
    for given in ([value], value):
        for put in (memory.put_messages, memory.import_messages, memory.set):
            tried(put, given)
    json.dumps(memory.get().to_openai(), allow_nan=False)


READS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "get": ({}, ("input", "messages", "initial_token_count", "timeout", "connection")),
    "search": ({"query": "x"}, ("query", "limit", "scope", "kinds", "exclude_current", "include_window")),
    "iterate": ({}, ("after_seq", "page_size")),
    "history": ({}, ("limit", "offset", "roles", "metadata", "since", "until", "connection")),
    "context_window": ({}, ("max_tokens", "connection")),
    "put": ({"message": HELLO}, ("connection",)),
    "flush": ({}, ("all", "connection")),
    "set_policy": (
        {},
        (
            *("token_limit", "chat_history_token_ratio", "token_flush_size", "idle_seconds"),
            *("memory_blocks", "max_window_messages", "max_window_bytes", "message_flush_size", "actor"),
        ),
    ),
}


@each_value
def test_a_method_works_or_says_why_not(value: Any, database_url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=database_url)
    memory.put(HELLO)
    for name, (needed, arguments) in READS.items():
        for argument in arguments:
            tried(_used, getattr(memory, name), **{**needed, argument: value})
            assert memory.get()[0].text == "hello"
    tried(memory.get, wait_for=value, timeout=0)
    tried(memory.get_scope, value)


def _used(call: Callable[..., Any], **given: Any) -> None:
    result = call(**given)
    if isinstance(result, Iterator):
        list(result)


@each_value
def test_a_block_is_made_and_shown_or_refused(value: Any, database_url: str) -> None:
    def show(kind: Callable[..., Any], argument: str) -> None:
        given = {"static_content": "A boat."} if kind is StaticMemoryBlock else {}
        block = kind(**{**given, argument: value})
        memory = Memory.from_defaults(uuid4().hex, database_url=database_url, memory_blocks=[block])
        memory.put(HELLO)
        assert memory.get("Which boat?").to_openai()

    for kind, arguments in (
        (StaticMemoryBlock, "name priority static_content"),
        (FactExtractionMemoryBlock, "name priority max_facts"),
        (
            VectorMemoryBlock,
            "similarity_top_k retrieval_context_window similarity_cutoff scope kinds exclude_current"
            " postprocessors rerank",
        ),
    ):
        for argument in arguments.split():
            tried(show, kind, argument)


NEEDED: dict[str, dict[str, Any]] = {
    "add": {"text": "a word"},
    "search": {"query": "boat"},
    "choose": {"question": "boat"},
    "list": {},
    "topics": {},
}
FACTS: dict[str, tuple[str, ...]] = {
    "add": ("text", "topics", "about_date", "input", "agent_id", "team_id", "actor"),
    "get": ("fact_id",),
    "list": (
        *("limit", "offset", "sort", "contains", "topics", "agent_id", "team_id", "with_invalidated"),
        *("first_n", "last_n"),
    ),
    "choose": ("question", "limit", "among", "topics", "model"),
    "topics": ("limit",),
    "search": ("query", "limit", "topics"),
    "replace": ("fact_id", "text", "topics", "actor"),
    "delete": ("fact_id", "actor"),
}


@each_value
def test_facts_are_edited_and_listed_or_it_is_said_why_not(value: Any, database_url: str) -> None:
    for argument in ("user_id", "namespace", "database_url", "schema", "pool"):
        tried(Facts.for_owner, **{"user_id": "u", "database_url": database_url, argument: value})
    facts = Facts.for_owner(user_id=uuid4().hex, database_url=database_url)
    for name, arguments in FACTS.items():
        for argument in arguments:
            known = facts.add("I have a boat.")
            needed = NEEDED.get(name, {"fact_id": known.fact_id})
            given = {**needed, **({"text": "A sail."} if name == "replace" else {}), argument: value}
            tried(getattr(facts, name), **given)
    assert facts.list().total


def test_an_offset_beyond_every_fact_gives_an_empty_page(database_url: str) -> None:
    facts = Facts.for_owner(user_id=uuid4().hex, database_url=database_url)
    facts.add("I have a boat.")
    for offset in (2**31, 2**63, 10**400, 10**5_000):
        page = facts.list(offset=offset)
        assert (page, page.total) == ([], 1)


@pytest.mark.parametrize("wrong", [None, 7, "text", [1], [None]])
def test_facts_to_be_imported_are_a_list_of_them(database_url: str, wrong: object) -> None:
    facts = Facts.for_owner(user_id=uuid4().hex, database_url=database_url)
    with pytest.raises(InvalidMessageError, match="must be a list of ImportedFact"):
        facts.import_facts(wrong)  # type: ignore[arg-type]


def test_the_error_names_what_cannot_be_read(database_url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=database_url)
    with pytest.raises(InvalidMessageError, match=r"^message: cannot be read: .* raised RuntimeError"):
        memory.put(RaisingDump())
    with pytest.raises(InvalidMessageError, match=r"^messages\[1\]: gave list as its model_dump"):
        memory.put_messages([HELLO, WrongDump()])
    assert memory.get_all() == []
    with pytest.raises(ConfigurationError, match="database_url must be a string, not list"):
        Memory.from_defaults("s", database_url=["postgresql://u:secret@h/d"])  # type: ignore[arg-type]
    counting = Memory.from_defaults(uuid4().hex, database_url=database_url, tokenizer_fn=_refuse)
    with pytest.raises(ConfigurationError, match="tokenizer_fn raised RuntimeError"):
        counting.put(HELLO)
    with pytest.raises(ConfigurationError, match="memory_template"):
        Memory.from_defaults("s", database_url=database_url, memory_template="{{" + "(" * 9_000)
