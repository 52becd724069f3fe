"""A summary of the last messages or runs, on call: bounded, by instructions of one's own, kept nowhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from strandline import Capture, ConfigurationError, InvalidMessageError, Memory, OwnerError
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.producers.runs import latest_summary
from strandline.schemas.errors import ModelError
from strandline.schemas.values.message import read_rows
from tests.conftest import rows_of
from tests.support.servers.databases import temporary_database
from tests.support.servers.model_server import ModelServer


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def url(stack: EmbeddedStack, server: ModelServer) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, temporary_database(stack.database_url) as url:
        patch.setenv("OPENAI_BASE_URL", server.base_url)
        # Its resources keep the settings of the moment at which they are made.
        Memory.from_defaults(database_url=url, memory_blocks=[]).history(0)
        yield url


@pytest.fixture
def memory(url: str, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    server.behave()
    namespace = uuid4().hex
    memory = Memory.from_defaults("s", database_url=url, memory_blocks=[], user_id="ana", namespace=namespace)
    memory.put({"role": "system", "content": "Be brief."})
    yield memory
    memory.close()


def say(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]


def prompt(server: ModelServer) -> str:
    return json.dumps(server.requests[-1].body["messages"])


def test_the_last_messages_are_summarized_with_topics_and_nothing_is_kept(
    memory: Memory, url: str, server: ModelServer
) -> None:
    memory.put_messages([*say("Ana has a boat."), *say("Ana moved to Graz.")])
    summary = memory.summarize_last(2)
    assert summary is not None
    assert (summary.text, summary.topics) == ("Ana moved to Graz. Noted.", ("talk",))
    assert (summary.from_seq, summary.through_seq, summary.messages) == (4, 5, 2)
    assert summary.model == "gpt-4.1-mini" and summary.input_tokens > 0 and summary.prompt_hash
    assert asyncio.run(memory.asummarize_last(4)).text.startswith("Ana has a boat.")  # type: ignore[union-attr]
    everything = memory.summarize_last(1_000)
    assert everything is not None and everything.messages == 4, "without the system message"
    assert "Be brief." not in prompt(server)
    for table in ("flush_event", "block_state", "answer"):
        assert rows_of(url, f"SELECT count(*) FROM strandline.{table}") == [(0,)]


def test_the_model_is_told_the_days_of_the_speaker(memory: Memory, server: ModelServer) -> None:
    at = "2026-03-10T22:30:00+00:00"
    memory.put({"role": "user", "content": "In UTC.", "created_at": at})
    memory.put({"role": "user", "content": "Abroad.", "created_at": "2026-03-10T14:30:00-08:00"})
    memory.set_policy(time_zone="Asia/Tokyo")
    memory.summarize_last(2)
    assert "2026-03-11" in prompt(server) and "2026-03-10" in prompt(server)


def test_runs_can_be_counted_instead_and_both_bounds_hold(memory: Memory) -> None:
    for number in range(3):
        memory.add_run(f"r{number}", say(f"Thing {number}."))
    memory.add_run("r3", say("Not done."), status="paused")
    memory.put_messages(say("In no run."))
    summary = memory.summarize_last(runs=2)
    assert summary is not None and summary.text == "Thing 1. Noted. Thing 2. Noted."
    shorter = memory.summarize_last(3, runs=2)
    assert shorter is not None and shorter.text == "Noted. Thing 2. Noted."


def test_nothing_said_asks_no_model(memory: Memory, server: ModelServer) -> None:
    before = server.received
    assert memory.summarize_last(10) is memory.summarize_last(runs=5) is None
    memory.put_messages(say("Something."))
    assert (
        memory.summarize_last(0) is memory.summarize_last(runs=0) is memory.summarize_last(0, runs=3) is None
    )
    assert server.received == before


def test_instructions_are_the_callers_or_the_users_or_the_prompts(
    memory: Memory, server: ModelServer
) -> None:
    memory.put_messages(say("Ana moved to Graz."))
    memory.facts.set_capture(Capture(summary_instructions="In three words."))
    memory.summarize_last(5)
    assert "In three words." in prompt(server)
    memory.summarize_last(5, instructions="As a telegram.")
    assert "As a telegram." in prompt(server) and "In three words." not in prompt(server)
    memory.summarize_last(5, model="gpt-4.1")
    assert server.requests[-1].body["model"] == "gpt-4.1"


def test_of_a_long_text_the_newest_is_summarized(
    memory: Memory, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_summary, "MAX_SUMMARIZED_CHARACTERS", 30)
    memory.put_messages([*say("An old story."), *say("A new one. It is of thirty-one characters.")])
    summary = memory.summarize_last(10)
    assert summary is not None and (summary.text, summary.messages) == ("Noted.", 1)
    memory.put({"role": "user", "content": "Longer than all that is shown to a model."})
    summary = memory.summarize_last(10)
    assert summary is not None and summary.messages == 1 and summary.through_seq == 6


def test_a_model_that_fails_and_wrong_arguments_are_told(
    memory: Memory, url: str, server: ModelServer
) -> None:
    memory.put_messages(say("Ana moved to Graz."))
    server.behave(wrong_schema=True)
    with pytest.raises(ModelError):
        memory.summarize_last(5)
    with pytest.raises(ConfigurationError, match="messages= or runs="):
        memory.summarize_last()
    with pytest.raises(ConfigurationError, match="messages is 1,001"):
        memory.summarize_last(1_001)
    with pytest.raises(ConfigurationError, match="runs is -1"):
        memory.summarize_last(runs=-1)
    with pytest.raises(InvalidMessageError, match="summary_instructions"):
        memory.summarize_last(5, instructions=" ")
    stranger = Memory.from_defaults(
        "s", database_url=url, memory_blocks=[], user_id="ben", namespace=memory.namespace
    )
    with pytest.raises(OwnerError):
        stranger.summarize_last(5)
    with pytest.raises(OwnerError):
        stranger.summarize_last(runs=5)
    stranger.close()


def test_only_as_much_is_read_as_is_shown(
    memory: Memory, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest first, and a page at a time where there is little to read in what is large."""
    pages: list[int] = []

    def count_rows(rows: Any) -> Any:
        pages.append(len(rows))
        return read_rows(rows)

    monkeypatch.setattr(latest_summary, "read_rows", count_rows)
    monkeypatch.setattr(latest_summary, "PAGE_BYTES", 5_000)
    monkeypatch.setattr(latest_summary, "MAX_READ_BYTES", 20_000)
    photo = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 4_000}"}}
    memory.add_run("old", [{"role": "user", "content": f"Old {n}. {'x' * 3_000}"} for n in range(50)])
    memory.add_run("new", [{"role": "user", "content": [photo]} for _ in range(3)] + say("Ana has a boat."))
    for asked in ({"messages": 100}, {"runs": 2}):
        pages.clear()
        summary = memory.summarize_last(**asked)  # type: ignore[arg-type]
        assert summary is not None and summary.through_seq == 56
        assert summary.text.endswith("Ana has a boat. Noted.")
        assert sum(pages) <= 11 and len(pages) > 2, pages
    monkeypatch.setattr(latest_summary, "MAX_SUMMARIZED_CHARACTERS", 30)
    pages.clear()
    assert memory.summarize_last(100) is not None
    assert len(pages) == 1
