"""The stores that TFrameX's page on memory writes by hand, each as an option or a call of a memory.

The page's code is a class each time; what is left of it is run here, and a line that differs from the page's
ends with ``# changed``.  What is said in it, and what stands around it, is ours.  Its agents run in
``tests/legacy``.  `docs/promises.md` lists all of its examples.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from strandline import (
    AttemptedAct,
    Audit,
    Memory,
    Message,
    Retention,
    SummaryMemoryBlock,
    acting,
    overflow_window,
    retention,
    sliding_window,
    summary_window,
)
from strandline.pipelines.sealing.enabling import enable
from strandline.schemas.errors import KeyUnavailableError, SealedContentError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.aging import DAY, age_messages, age_session
from tests.support.sample_hooks import Handler
from tests.support.servers.object_server import ObjectServer
from tests.support.workers.draining import drain_everything


def said(number: int) -> Message:
    return Message(role="user", content=f"Message {number}")


def texts(messages: object) -> list[str]:
    assert isinstance(messages, list)
    return [message.text for message in messages]


async def test_tframex_04_a_store_in_postgres(database_url: str) -> None:
    memory = Memory.from_defaults("session", database_url=database_url, memory_blocks=[])  # changed: no class
    for number in range(4):
        await memory.aput(  # changed: add_message
            Message(
                role="user" if number % 2 == 0 else "assistant", content=f"{number}", metadata={"n": number}
            )
        )
    assert texts(await memory.ahistory(limit=2)) == ["2", "3"]  # changed: get_history
    assert texts(await memory.ahistory(limit=1, offset=1, roles=["user"])) == ["0"]  # changed: get_history
    assert [dict(message.metadata) for message in await memory.ahistory(limit=1)] == [{"n": 3}]  # changed
    await memory.aclose()


def test_tframex_05_a_store_with_a_bound_in_place_of_redis(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[], max_window_messages=10)  # changed: where the page has max_messages
    memory.put_messages([said(number) for number in range(30)])  # changed: lpush and ltrim
    assert len(memory.get()) <= 10
    assert texts(memory.history(limit=3, offset=1)) == ["Message 26", "Message 27", "Message 28"]  # changed
    assert len(memory.get_all()) == 30, "the list in Redis forgets what it trims"


def test_tframex_05_a_store_with_a_time_to_live(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("session", memory_blocks=[])
    ttl = timedelta(hours=24)
    memory.set_retention(Retention(ttl_seconds=int(ttl.total_seconds())))  # changed: client.expire(key, ttl)
    memory.put(said(1))
    age_session(database_url, "session", 23 * 3_600)
    memory.put(said(2))
    age_session(database_url, "session", 23 * 3_600)
    assert texts(memory.history()) == ["Message 1", "Message 2"], "each put begins the time anew"
    age_session(database_url, "session", 2 * 3_600)
    assert texts(memory.history()) == [] and list(memory.get()) == []
    memory.put(said(3))
    assert texts(memory.history()) == ["Message 3"]


def _old_and_new(memory: Memory) -> None:
    now = datetime.now(UTC)
    for age, important in ((60, False), (50, True), (40, False), (1, False)):
        memory.put(
            Message(
                role="user",
                content=f"{age} days ago",
                metadata={"important": important},
                created_at=now - timedelta(days=age),
            )
        )


def test_tframex_15_old_messages_are_removed_and_important_ones_kept(rig: Rig, tmp_path: Path) -> None:
    memory = rig.memory("session", memory_blocks=[])
    _old_and_new(memory)
    memory.flush(all=True)
    thirty_days = int(timedelta(days=30).total_seconds())  # changed: a cut-off date, at each clean-up
    memory.set_retention(  # changed: in place of a class with a method cleanup()
        Retention(max_age_seconds=thirty_days, archive=f"file://{tmp_path}/archive")
    )
    assert texts(memory.history()) == ["50 days ago", "1 days ago"], "before anything was removed"
    memory.put(said(1))
    make_event_of_its_own(memory, rig.database)
    assert texts(memory.history()) == ["50 days ago", "1 days ago", "Message 1"]


def make_event_of_its_own(memory: Memory, database: Database) -> None:
    """Workers remove by themselves; here it is done now."""
    memory.flush(all=True)
    retention.run(database, at_once=True)  # changed: await memory.cleanup()


def test_tframex_14_an_archive_in_s3(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket_name = "bucket"
    memory = rig.memory("session", memory_blocks=[])
    with ObjectServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        memory.put_messages([said(number) for number in range(5)])
        memory.flush(all=True)
        age_messages(rig.url, "session", 40 * DAY)
        archive = f"s3://{bucket_name}/memories"  # changed: S3MemoryStore(bucket_name)
        memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=archive))
        assert retention.run(rig.database, at_once=True).archived == 5
        assert memory.get_all() == [] and len(server.objects) == 2
        kept = list(retention.read_archived(rig.database, "session"))
        assert texts(kept) == [f"Message {number}" for number in range(5)]


async def test_tframex_08_scopes_are_apart(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])
    await memory.get_scope("user_123").aput(said(1))  # changed: add_message(user_message, scope="user_123")
    await memory.get_scope("system").aput(Message(role="system", content="Be kind."))  # changed: as above
    assert texts(await memory.get_scope("user_123").aget_all()) == ["Message 1"]
    assert texts(await memory.get_scope("system").aget_all()) == ["Be kind."]
    assert await memory.aget_all() == []
    await memory.aclose()


def test_tframex_09_a_limit_by_tokens(make_memory: MakeMemory) -> None:
    memory = make_memory(  # changed: in place of TokenLimitedMemoryStore(max_tokens=…)
        memory_blocks=[], token_limit=200, chat_history_token_ratio=1.0, token_flush_size=1
    )
    for number in range(60):
        memory.put(said(number))
        assert memory.get().tokens <= 200, "after each message"
    assert texts(list(memory.get()))[-1] == "Message 59" and len(memory.get()) > 1


def test_tframex_10_a_sliding_window(make_memory: MakeMemory) -> None:
    memory = make_memory(
        memory_blocks=[], **sliding_window(10)
    )  # changed: SlidingWindowMemory(window_size=10)
    for number in range(25):
        memory.put(said(number))
    assert texts(list(memory.get())) == [f"Message {number}" for number in range(15, 25)]
    # The page's get_history gives the oldest of its window.
    assert texts(memory.history(limit=2)) == ["Message 23", "Message 24"]


def test_tframex_11_a_summary_at_a_threshold(rig: Rig) -> None:
    memory = rig.memory(  # changed: SummaryMemory(summarizer_agent=…, threshold=50)
        memory_blocks=[SummaryMemoryBlock()], **summary_window(threshold_messages=50, keep_last=10)
    )
    for number in range(49):
        memory.put(said(number))
    assert len(memory.get()) == 49, "nothing is summarised below the threshold"
    memory.put(said(49))
    drain_everything(rig.database, rig.url, rig.settings)  # changed: workers call the summariser
    summary, *recent = memory.get()
    assert summary.role == "system" and "<summary>" in summary.text
    assert texts(recent) == [f"Message {number}" for number in range(40, 50)]


def test_tframex_12_a_search_by_meaning(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=["vectors"])  # changed: SemanticMemoryStore(embedding_model)
    memory.put(said(0))
    memory.put(Message(role="user", content="The spare anchor lies under the port berth."))
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings)
    hits = memory.search("Where is the anchor?", limit=5)  # changed: search(query, top_k=5)
    assert hits[0].text == "The spare anchor lies under the port berth." and len(hits) <= 5
    assert hits[0].similarity is not None


def test_tframex_13_messages_by_metadata_and_by_date(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])
    start_date = datetime(2026, 3, 1, tzinfo=UTC)
    for day in range(4):
        memory.put(
            Message(
                role="user",
                content=f"Day {day}",
                metadata={"priority": "high" if day % 2 else "low", "watch": "port"},
                created_at=start_date + timedelta(days=day),
            )
        )
    filters = {"priority": "high", "watch": "port"}
    assert texts(memory.history(metadata=filters)) == ["Day 1", "Day 3"]  # changed: get_messages_by_metadata
    end_date = start_date + timedelta(days=2)
    between = memory.history(since=start_date, until=end_date)  # changed: get_messages_by_date_range
    assert texts(between) == ["Day 0", "Day 1", "Day 2"]


def test_tframex_16_a_handler_of_what_overflows(rig: Rig) -> None:
    Handler.seen.clear()
    settings = load_settings(
        database_url=rig.url,
        on_overflow="tests.support.sample_hooks:async_handler",  # changed: overflow_handler=
    )
    prepare_stages(rig.database, settings, ["overflow"])  # changed: workers call the handler
    memory = rig.memory(  # changed: SafeMemoryStore(max_size=10, overflow_handler=…)
        memory_blocks=[], on_overflow=True, **overflow_window(max_size=10, keep=0.8)
    )
    for number in range(11):
        memory.put(said(number))  # changed: add_message, which waits for no handler
    drain_everything(rig.database, rig.url, settings, ["overflow"])  # changed: as above
    # The page's handler is given all messages, and the oldest fifth of them is then gone.
    assert [texts(list(event.messages)) for event in Handler.seen] == [["Message 0", "Message 1"]]
    assert texts(list(memory.get())) == [f"Message {number}" for number in range(2, 11)]
    assert len(memory.get_all()) == 11, "the page's store forgets what overflows"


def test_tframex_17_only_the_last_five_are_kept(make_memory: MakeMemory) -> None:
    memory = make_memory(
        memory_blocks=[], **sliding_window(5)
    )  # changed: InMemoryMemoryStore(max_messages=5)
    for i in range(10):
        memory.put(Message(role="user", content=f"Message {i}"))  # changed: await memory.add_message
    history = memory.get()  # changed: await memory.get_history()
    assert len(history) == 5
    assert history[-1].content == "Message 9"


def test_tframex_17_messages_are_filtered(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])  # changed: FilterableMemoryStore()
    memory.put(  # changed: await memory.add_message
        Message(role="user", content="Important", metadata={"priority": "high"})
    )
    high_priority = memory.history(metadata={"priority": "high"})  # changed: get_messages_by_metadata
    assert len(high_priority) == 1


def check_compliance(act: AttemptedAct) -> list[str]:  # changed: it is given the act, with all its messages
    return ["health"] if any("pills" in message.text for message in act.messages) else []


async def test_tframex_18_every_write_is_audited(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_COMPLIANCE", f"{__name__}:check_compliance")
    Audit.of_namespace(database_url=database_url).set_level("all")  # changed: no second store
    memory = Memory.from_defaults("chat", user_id="ann", database_url=database_url, memory_blocks=[])
    # changed: in place of self.current_user_id, self.request_ip and audit metadata
    with acting(actor="support:ben", origin="192.0.2.7"):
        await memory.aput(Message(role="user", content="I take two pills a day."))  # changed: add_message
        await memory.aput(Message(role="assistant", content="Noted."))
    await memory.aclose()
    second, first = Audit.of_namespace(database_url=database_url).acts(kind="put").acts
    assert (first.kind, first.actor, first.origin, first.user_id) == (
        "put",
        "support:ben",
        "192.0.2.7",
        "ann",
    )
    assert (first.flags, second.flags) == (("health",), ())
    assert first.at < second.at and first.session == second.session
    memory.close()


def _keys(fill: bytes) -> str:
    return f"first {b64encode(fill * 32).decode()}"


async def test_tframex_19_content_is_encrypted(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", _keys(b"1"))  # changed: encryption_key
    content = sealed_content(load_settings())
    options = ConnectionOptions.from_settings(database_url, load_settings())
    with closing(Database.connect(options, content)) as database:
        assert enable(database, content, "default", "first", "clear")  # changed: for a namespace, not a store
    memory = Memory.from_defaults("safe", user_id="ann", database_url=database_url, memory_blocks=[])
    await memory.aput(  # changed: add_message; nothing is encrypted by hand
        Message(role="user", content="The safe opens with xylophone", metadata={"n": 1})
    )
    history = await memory.ahistory()  # changed: get_history; nothing is decrypted by hand
    await memory.aclose()
    (message,) = history
    assert (message.text, dict(message.metadata)) == ("The safe opens with xylophone", {"n": 1})
    memory.close()
    ((stored,),) = rows_of(database_url, "SELECT m::text FROM strandline.message m")
    assert "xylophone" not in stored
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", _keys(b"2"))
    other = Memory.from_defaults("safe", user_id="ann", database_url=database_url, memory_blocks=[])
    with pytest.raises((KeyUnavailableError, SealedContentError)):
        other.history()
    other.close()
