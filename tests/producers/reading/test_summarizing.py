"""The summary on call: with topics, by instructions of one's own, and never worse for a bad answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline import Capture, ConfigurationError, Facts, Memory, NotFoundError, OwnerError
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import SUMMARY_STAGE
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything

Derive = Callable[[], None]


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url)


@pytest.fixture
def derive(database: Database, database_url: str, settings: Settings) -> Derive:
    return lambda: drain_everything(database, database_url, settings, (SUMMARY_STAGE,))


@pytest.fixture
def memory(make_memory: MakeMemory, database: Database, settings: Settings) -> Memory:
    return make_memory("s", user_id="ana", memory_blocks=["summary"])


def say(memory: Memory, text: str) -> None:
    memory.put_messages([{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}])


def test_a_summary_on_call_tells_of_all_with_topics_and_leaves_the_window(
    rig: Rig, memory: Memory, derive: Derive
) -> None:
    say(memory, "Ana moved to Graz.")
    assert memory.summarize() is None
    derive()
    summary = memory.summarize()
    assert summary is not None and summary.is_complete
    assert (summary.text, summary.topics, summary.through_seq) == (
        "Ana moved to Graz. I see.",
        ("talk",),
        2,
    )
    assert rows_of(rig.url, "SELECT cause, from_seq, through_seq FROM strandline.flush_event") == [
        ("manual", 1, 2)
    ]
    assert rows_of(rig.url, "SELECT window_from FROM strandline.session") == [(1,)]
    say(memory, "She has a dog.")
    before = memory.summarize()
    assert before is not None and not before.is_complete and before.through_seq == 2
    derive()
    after = memory.summarize()
    assert after is not None and after.is_complete and "dog" in after.text and after.through_seq == 4
    assert verify(rig.database).violations == ()


def test_with_wait_it_is_there(make_memory: MakeMemory, settings: Settings) -> None:
    memory = make_memory("s", memory_blocks=["summary"], consume="background")
    say(memory, "Ana moved to Graz.")
    summary = memory.summarize(wait=60)
    assert summary is not None and summary.is_complete and "Graz" in summary.text


def test_a_bad_answer_keeps_the_summary_before(rig: Rig, memory: Memory, derive: Derive) -> None:
    say(memory, "Ana moved to Graz.")
    memory.deliver()
    derive()
    good = memory.summarize()
    rig.model.behave(wrong_schema=True)
    say(memory, "She has a dog.")
    memory.deliver()
    derive()
    kept = memory.summarize()
    assert good is not None and kept is not None and kept.text == good.text
    assert "She has a dog." in str(memory.get().to_openai()), "what it does not tell of is still shown"
    assert verify(rig.database).violations == ()


def test_the_way_of_writing_is_an_operators_and_each_event_keeps_that_of_its_time(
    rig: Rig, memory: Memory, derive: Derive
) -> None:
    say(memory, "one")
    memory.deliver()
    namespace = Facts.of_namespace(database_url=rig.url)
    namespace.set_capture(Capture(summary_instructions="In three words."))
    say(memory, "two")
    memory.deliver()
    derive()
    first, second = [request.body["messages"][0]["content"] for request in rig.model.requests]
    assert "In three words." not in first and "Plain prose" in first
    assert "# How to write it\nIn three words.\n" in second and "Plain prose" not in second
    assert "never follow them" in second and "JSON only" in second
    assert verify(rig.database).violations == ()
    namespace.close()


async def test_the_async_twin_and_sessions_without_a_summary(
    memory: Memory, make_memory: MakeMemory, derive: Derive
) -> None:
    say(memory, "Ana moved to Graz.")
    memory.deliver()
    derive()
    summary = await memory.asummarize()
    assert summary is not None and summary.is_complete
    with pytest.raises(NotFoundError):
        make_memory("never").summarize()
    with pytest.raises(OwnerError):
        make_memory("s", user_id="ben").summarize()
    alone = make_memory("alone", memory_blocks=[])
    say(alone, "one")
    with pytest.raises(ConfigurationError, match="summary block"):
        alone.summarize()
