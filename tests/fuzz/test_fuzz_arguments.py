"""Arguments of the public functions: names, ids, limits, blocks, queries, facts."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    Facts,
    Memory,
    Message,
    StaticMemoryBlock,
    StrandlineError,
    SummaryMemoryBlock,
    VectorMemoryBlock,
)
from strandline.cli.entry import COMMANDS, cli, run
from strandline.schemas.settings import Settings, load_settings
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


# Settings from any environment: read and used, or refused with a sentence that names the variable.
VARIABLES = [
    *(f"STRANDLINE_{name.upper()}" for name in Settings.model_fields if not name.startswith("openai")),
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "STRANDLINE_ZYZZYVA",
]
_urls = st.builds(
    "{}://{}{}".format,
    st.sampled_from(["postgresql", "postgresql+asyncpg", "postgres", "redis", "amqp", "http", "foo", ""]),
    st.sampled_from(["u:p@", "u:p@ss/w#rd@", "@", "", "u:%zz@"]),
    st.sampled_from(["127.0.0.1:1/x", "localhost", "[::1", "h:notaport/x", "", "h?api-key=s", "h/%00"]),
)
_words = st.sampled_from(
    ["true", "{}", "[]", '{"m": [1, 2]}', '{"m": NaN}', "~/x", "/dev/null/x", "auto", "a.b:C", "1e999", "٣"]
)
_values = st.one_of(texts, _urls, _words, st.integers().map(str), st.floats().map(str))


def held(value: str) -> str:
    """The value as an environment can hold it; bytes that are not UTF-8 come back as lone surrogates."""
    return os.fsdecode(value.replace("\x00", "").encode("utf-8", "replace").replace(b"?", b"\xff"))


def sentence_of(call: Callable[[], object]) -> str | None:
    """The sentence with which a call refuses its settings; None if it accepts them."""
    try:
        call()
    except StrandlineError as error:
        return str(error)
    return None


@given(environment=st.dictionaries(st.sampled_from(VARIABLES), _values, min_size=1, max_size=4))
@fuzzed()
def test_any_environment_is_read_or_refused_by_name(environment: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, held(value))
        refused = sentence_of(load_settings)
        if refused is not None:
            assert any(name in refused for name in environment), refused
        else:
            assert sentence_of(lambda: Memory.from_defaults("s")) != ""


# Messages of any form: stored whole and given back, or refused with nothing stored.
LIMITS: dict[str, Any] = {"token_limit": 2_000, "token_flush_size": 200}


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    yield database_url
    Memory.from_defaults("last", database_url=database_url).close()


def comparable(message: Message) -> dict[str, Any]:
    """The message as its caller gave it, without the library's additions, after a round trip through JSON."""
    fields = ("role", "content", "name", "tool_call_id")
    said = {name: getattr(message, name) for name in fields}
    said |= {"tool_calls": message.tool_calls or None, "metadata": dict(message.metadata)}
    said["extra"] = dict(message.extra)
    loaded: dict[str, Any] = json.loads(json.dumps(said, default=dict))
    return loaded


@given(given=st.lists(messages, min_size=1, max_size=3))
@fuzzed()
def test_a_put_stores_all_of_it_or_nothing(given: list[Any], url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=url, memory_blocks=[], **LIMITS)
    try:
        seqs = memory.put_messages(given)
    except StrandlineError:
        assert memory.get_all() == []
        return
    history = memory.get_all()
    assert [message.seq for message in history] == sorted(set(seqs))
    if len(set(seqs)) == len(given):
        asked = [comparable(Message.from_openai(message)) for message in given]
        assert [comparable(message) for message in history] == asked


@given(given=st.lists(messages, min_size=1, max_size=3))
@fuzzed()
def test_what_was_stored_can_be_read_and_sent_to_a_model(given: list[Any], url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=url, **LIMITS)
    memory.put({"role": "user", "content": "The lighthouse is red."})
    with suppress(StrandlineError):
        memory.put_messages(given)
    context = memory.get()
    json.dumps(context.to_openai(), ensure_ascii=False, allow_nan=False).encode()
    memory.flush(all=True)
    delivered = memory.get()
    assert delivered.to_openai() or delivered.omitted
    assert memory.search("lighthouse")


@given(given=st.lists(messages, min_size=1, max_size=3))
@fuzzed(0.3)
def test_an_import_stores_all_of_it_or_nothing(given: list[Any], url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=url, memory_blocks=[], **LIMITS)
    try:
        imported = memory.import_messages(given)
    except StrandlineError:
        assert memory.get_all() == []
        return
    assert len(memory.get_all()) == imported.added


# The command line with any arguments: it does its work, or says in a sentence what is wrong.
# They run until they are told to stop; their options are read all the same.
LONG_RUNNING = {"up", "demo", "worker", "mcp", "serve"}
# Which hosts are tried, and how often something is shown again, is not for fuzzing.
LEFT_OUT = {"--database-url", "--broker-url", "--watch", "--interval", "--wait"}
UNEXPECTED = "Unexpected error"


def commands() -> dict[tuple[str, ...], click.Command]:
    """Every command by the words that call it."""
    found: dict[tuple[str, ...], click.Command] = {}

    def collect(words: tuple[str, ...], command: click.Command) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                if (inner := command.get_command(context, name)) is not None:
                    collect((*words, name), inner)
        else:
            found[words] = command

    context = click.Context(cli)
    for name in COMMANDS:
        if (command := cli.get_command(context, name)) is not None:
            collect((name,), command)
    return found


FOUND = commands()
_command_words = st.one_of(
    texts.filter(lambda text: text not in LEFT_OUT),
    st.sampled_from(["s", "fuzz", "default", "1", "-1", "0", "facts", "summary", "--", "-", "--zyzzyva"]),
    st.integers().map(str),
    st.uuids().map(str),
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with some of its options and arguments, each with any value."""
    words, command = draw(st.sampled_from(sorted(FOUND.items(), key=lambda item: item[0])))
    line = list(words)
    parameters = [one for one in command.params if not set(one.opts) & LEFT_OUT]
    for parameter in draw(st.lists(st.sampled_from(parameters), max_size=3, unique=True)):
        if isinstance(parameter, click.Option):
            line.append(parameter.opts[0])
        if isinstance(parameter, click.Argument) or not getattr(parameter, "is_flag", False):
            line.append(draw(_values_of(parameter)))
    if words[0] == "replay":
        line.append("--dry-run")  # else it waits for workers
    if words[0] in LONG_RUNNING:
        line.append(draw(st.sampled_from(["--help", "--zyzzyva", "one too many"])))
    return line


def _values_of(parameter: click.Parameter) -> st.SearchStrategy[str]:
    choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
    return st.sampled_from([str(one) for one in choices]) | _command_words if choices else _command_words


@pytest.fixture
def stored(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A database with a session in it, which commands find by the environment."""
    memory = Memory.from_defaults("s", user_id="fuzz", database_url=database_url)
    memory.put({"role": "user", "content": "I have a boat."})
    memory.flush(all=True)
    memory.close()
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    monkeypatch.setenv("STRANDLINE_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.chdir(tmp_path)


def outcome(line: list[str]) -> tuple[int, str]:
    """The exit code and all that was printed, through streams that encode as a terminal's do."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patched:
        for name, stream in zip(("stdout", "stderr"), streams, strict=True):
            patched.setattr(sys, name, stream)
        patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8"))
        code = run([word.replace("\x00", "") for word in line])
    printed: list[Any] = [stream.buffer.getvalue() for stream in streams]
    return code, b"".join(printed).decode()


@pytest.mark.usefixtures("stored")
@given(line=lines())
@fuzzed()
def test_any_line_does_its_work_or_says_what_is_wrong(line: list[str]) -> None:
    code, said = outcome(line)
    assert code in (0, 1, 2), said
    assert UNEXPECTED not in said and "Traceback" not in said
    assert code == 0 or said.strip(), "it failed without a word"
