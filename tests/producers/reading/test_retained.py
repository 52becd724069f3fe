"""No read shows what is past its time, also before anything has removed it: the statement's clock decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

from strandline import (
    ConfigurationError,
    InvalidMessageError,
    Memory,
    Message,
    NotFoundError,
    OwnerError,
    Retention,
    VectorMemoryBlock,
    retention,
)
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.aging import DAY, age_messages, age_session
from tests.support.servers.databases import temporary_database
from tests.support.workers.draining import drain_everything

LIMITS: dict[str, Any] = {"token_limit": 400, "token_flush_size": 60, "chat_history_token_ratio": 0.5}
MONTH = Retention(max_age_seconds=30 * DAY)
HOUR = Retention(ttl_seconds=3_600)
OLD = 20


def said(number: int) -> Message:
    important = {"important": True} if number == 4 else {}
    text = f"word{number} about boats and harbours"
    return Message(role="assistant" if number % 2 else "user", content=text, metadata=important)


@pytest.fixture(scope="module")
def filled(stack: EmbeddedStack) -> Iterator[str]:
    """The name of a database with one derived session; its first twenty messages are 40 days old."""
    with temporary_database(stack.database_url) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("STRANDLINE_EMBEDDED", "never")
        memory = Memory.from_defaults("s", user_id="ana", database_url=url, **LIMITS)
        memory.put(Message(role="system", content="Be kind."))
        for number in range(2, 62):
            memory.put(said(number))
        settings = load_settings(database_url=url)
        database = Database.connect(ConnectionOptions.from_settings(url, settings))
        drain_everything(database, url, settings)
        memory.close()
        database.close()
        assert age_messages(url, "s", 40 * DAY, OLD) == OLD
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(stack: EmbeddedStack, filled: str) -> Iterator[str]:
    with temporary_database(stack.database_url, filled) as url:
        yield url


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    return make_memory("s", user_id="ana", **LIMITS)


def seqs(messages: Any) -> list[int]:
    return [message.seq for message in messages]


KEPT = [1, 4, *range(OLD + 1, 62)]

Read = Callable[[Memory], Any]
READS: dict[str, Read] = {
    "get_all": lambda memory: memory.get_all(),
    "iterate": lambda memory: list(memory.iterate(page_size=7)),
    "history": lambda memory: memory.history(),
    "history of roles": lambda memory: memory.history(roles=["user", "assistant", "system"]),
    "history of a time": lambda memory: memory.history(since=datetime(2000, 1, 1, tzinfo=UTC)),
    "context_window": lambda memory: memory.context_window(10_000),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_past_its_age_is_in_no_history_and_what_is_important_is(memory: Memory, read: Read) -> None:
    assert seqs(read(memory)) == list(range(1, 62))
    memory.set_retention(MONTH)
    assert seqs(read(memory)) == KEPT
    memory.set_retention(Retention(max_age_seconds=60 * DAY))
    assert seqs(read(memory)) == list(range(1, 62)), "an age that nothing has reached hides nothing"


def test_filters_by_metadata_hide_it_as_well(memory: Memory) -> None:
    assert seqs(memory.history(metadata={"important": True})) == [4]
    memory.set_retention(MONTH)
    assert seqs(memory.history(metadata={"important": True})) == [4]
    assert seqs(memory.history(limit=5, offset=len(KEPT) - 3)) == [1, 4, 21]


def test_no_search_finds_it(make_memory: MakeMemory, memory: Memory) -> None:
    other = make_memory("t", user_id="ana", **LIMITS)
    asked = "word10 about boats"
    scopes: list[tuple[Memory, Literal["session", "owner"]]] = [(memory, "session"), (other, "owner")]
    for where, scope in scopes:
        assert 10 in [found.message.seq for found in where.search(asked, scope=scope)]
    memory.set_retention(MONTH)
    for where, scope in scopes:
        for _ in range(4):  # by the index in memory, too
            hits = where.search(asked, limit=60, scope=scope)
            found = {hit.message.seq for hit in hits}
            assert found.isdisjoint(set(range(2, OLD + 1)) - {4}) and found & set(KEPT)


def test_a_read_for_a_prompt_gives_none_of_it(memory: Memory) -> None:
    block = VectorMemoryBlock(name="hits", similarity_top_k=40)
    reader = Memory.from_defaults(
        "s", user_id="ana", memory_blocks=[block], token_limit=4_000, database_url=_url(memory)
    )
    assert "word10" in str([message.text for message in reader.get("word10 about boats")])
    memory.set_retention(MONTH)
    given = str([message.text for message in reader.get("word10 about boats")])
    assert "word10 " not in given and "Be kind" in given


def test_a_window_that_ages_is_shown_in_part_also_by_a_process_that_knows_it(
    memory: Memory, database_url: str
) -> None:
    window = seqs(memory.get().window)
    age_messages(database_url, "s", 40 * DAY, window[3])
    assert seqs(memory.get().window) == window, "known, and without a bound"
    memory.set_retention(MONTH)
    context = memory.get()
    assert seqs(context.window) == window[4:]
    memory.put(said(2))
    assert seqs(memory.get().window) == [*window[4:], 62]


def test_a_result_is_not_shown_without_its_call(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("calls", memory_blocks=[])
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    memory.put_messages(
        [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
            {"role": "assistant", "content": "I saw it."},
        ]
    )
    age_messages(database_url, "calls", 40 * DAY, 2)
    memory.set_retention(MONTH)
    assert [message.text for message in memory.get()] == ["I saw it."]


def test_nobody_reads_a_session_that_has_expired(memory: Memory, database_url: str) -> None:
    memory.set_retention(HOUR)
    assert len(memory.get_all()) == 61
    age_session(database_url, "s", 3_500)
    assert len(memory.get_all()) == 61, "not yet"
    age_session(database_url, "s", 200)
    important = [4]
    for read in READS.values():
        assert seqs(read(memory)) == important
    assert list(memory.get().window) == [] and list(memory.get().head) == []
    assert memory.pop() is None
    assert {hit.message.seq for hit in memory.search("word30 about boats")} <= {4}
    with pytest.raises(NotFoundError):
        memory.rewind(50)
    with pytest.raises(NotFoundError):
        memory.fork("copy")


@pytest.mark.parametrize("way", ["put", "aput", "put_messages", "import_messages"])
def test_a_put_to_an_expired_session_begins_a_new_life(rig: Rig, memory: Memory, way: str) -> None:
    bare = rig.memory("s", user_id="ana", memory_blocks=[], **LIMITS)
    memory.set_retention(HOUR)
    memory.put(Message(role="user", content="the last word", id="again"))
    age_session(rig.url, "s", 4_000)
    opening = Message(role="system", content="Be brief.", id="again")
    if way == "put":
        memory.put(opening)
    elif way == "aput":
        asyncio.run(_aput(memory, opening))
    elif way == "put_messages":
        memory.put_messages([opening])
    else:
        memory.import_messages([opening])
    assert [message.text for message in memory.get_all()] == ["word4 about boats and harbours", "Be brief."]
    assert [message.text for message in bare.get().head] == ["Be brief."], "a head of its own"
    memory.put(Message(role="user", content="hello"))
    assert [message.text for message in bare.get().window] == ["hello"]
    assert verify(rig.database).violations == ()


async def _aput(memory: Memory, message: Message) -> None:
    await memory.aput(message)
    await memory.aclose()


def test_work_of_a_life_that_expired_is_done(make_memory: MakeMemory, database: Database) -> None:
    url = _url(make_memory("late"))
    memory = make_memory("late", user_id="bo", **LIMITS)
    for number in range(40):
        memory.put({"role": "user", "content": f"My boat number {number} is called Aurora {number}."})
    memory.set_retention(HOUR)
    age_session(url, "late", 4_000)
    memory.put({"role": "user", "content": "hello"})
    drain_everything(database, url, load_settings(database_url=url))
    assert rows_of(url, "SELECT count(*) FROM strandline.receipt WHERE outcome = 'void'") == [(0,)]
    assert any("Aurora 0" in fact.text for fact in memory.facts.list(limit=100)), "facts outlive it"


def test_a_session_decides_for_itself_what_its_namespace_leaves_open(rig: Rig, memory: Memory) -> None:
    other = rig.memory("t", user_id="ana", **LIMITS)
    retention.set_retention(rig.database, Retention(max_age_seconds=30 * DAY, archive="file:///tmp/a"))
    assert seqs(memory.get_all()) == KEPT
    memory.set_retention(Retention(max_age_seconds=0, ttl_seconds=5_000), actor="ana")
    assert seqs(memory.get_all()) == list(range(1, 62))
    assert memory.get_retention() == Retention(max_age_seconds=0, ttl_seconds=5_000, archive="file:///tmp/a")
    assert other.get_retention() == Retention(max_age_seconds=30 * DAY, archive="file:///tmp/a")
    assert memory.set_retention(Retention(max_age_seconds=0, ttl_seconds=5_000)) == 1, "the same is no act"
    assert [(act.number, act.actor) for act in memory.retention_acts()] == [(1, "ana")]
    assert memory.set_retention(Retention()) == 2
    assert seqs(memory.get_all()) == KEPT, "the namespace decides again"


def test_another_namespace_is_not_concerned(memory: Memory, database: Database) -> None:
    retention.set_retention(database, MONTH, namespace="elsewhere")
    assert seqs(memory.get_all()) == list(range(1, 62))


def test_a_fact_whose_source_is_past_its_age_stays_and_does_not_quote_it(
    memory: Memory, database: Database
) -> None:
    facts = memory.facts.list(limit=50)
    memory.set_retention(MONTH)
    assert memory.facts.list(limit=50) == facts
    with pytest.raises(NotFoundError):
        explain(database, _id_of(memory, 10), session_id="s")


def _id_of(memory: Memory, seq: int) -> str:
    query = "SELECT id FROM strandline.message WHERE seq = %s"
    return str(rows_of(_url(memory), query, seq)[0][0])


def _url(memory: Memory) -> str:
    url = memory._resources.settings.database_url
    assert url is not None
    return str(url.get_secret_value())


WRONG: list[dict[str, Any]] = [
    {"ttl_seconds": -1},
    {"ttl_seconds": 1.5},
    {"max_age_seconds": True},
    {"max_messages": "5"},
    {"max_messages": 2**60},
    {"forget_facts": "yes"},
    {"archive": "ftp://x/y"},
    {"archive": "s3://key:secret@bucket/x"},
    {"archive": "file://relative"},
    {"archive": "s3://"},
    {"archive": "handler:"},
    {"archive": "file:///a?b=c"},
    {"archive": "x" * 2_000},
    {"archive": "a\x00b"},
    {"answers_seconds": 5},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_cannot_be_used_is_refused_by_name(memory: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError, match=next(iter(wrong))) as refused:
        memory.set_retention(Retention(**wrong))
    assert "secret" not in str(refused.value)
    assert memory.retention_acts() == []


def test_only_the_owner_sets_it(make_memory: MakeMemory, memory: Memory) -> None:
    with pytest.raises(OwnerError):
        make_memory("s", user_id="eve").set_retention(MONTH)
    with pytest.raises((InvalidMessageError, ConfigurationError)):
        memory.set_retention({"ttl_seconds": 5})  # type: ignore[arg-type]


def test_a_session_is_bounded_before_its_first_message(make_memory: MakeMemory, database_url: str) -> None:
    later = make_memory("later", user_id="ana", memory_blocks=[])
    later.set_retention(Retention(ttl_seconds=DAY))
    later.put({"role": "user", "content": "first"})
    rows_of(database_url, "UPDATE strandline.session SET last_put_at = now() - interval '2 days' RETURNING 1")
    assert later.get_all() == [], "its time is over"
    later.put({"role": "user", "content": "second"})
    assert [message.text for message in later.get_all()] == ["second"], "a new life began"
