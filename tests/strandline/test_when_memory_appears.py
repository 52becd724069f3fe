"""What waits in windows is said wherever somebody looks for memory that is not there yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from strandline import Memory
from strandline.administration.status import read_status
from strandline.cli.entry import run
from strandline.schemas.values.undelivered import Undelivered
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.servers.service_server import RunningService

SAID = [{"role": ("user", "assistant")[n % 2], "content": f"I sailed to harbour {n}."} for n in range(40)]


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    memory = make_memory("s", user_id="u", token_limit=2_000)
    memory.put_messages(SAID)
    return memory


def test_a_read_and_an_empty_list_of_facts_tell_what_waits(memory: Memory, rig: Rig) -> None:
    waiting = memory.get().waiting
    assert waiting is not None
    assert (waiting.messages, waiting.sessions, waiting.flush_at_tokens) == (40, 1, 1_400)
    assert waiting.tokens == memory.get().tokens
    assert memory.facts.list().waiting == waiting == memory.facts.list(limit=0).waiting
    assert read_status(rig.database, rig.settings).waiting is not None


def test_the_idle_delivery_is_told_by_the_last_put(memory: Memory, database_url: str) -> None:
    ((last_put, idle),) = rows_of(database_url, "SELECT last_put_at, idle_seconds FROM strandline.session")
    waiting = memory.get().waiting
    assert waiting is not None and waiting.deliver_at == last_put + timedelta(seconds=idle)


@pytest.mark.parametrize("way", ["flush", "deliver", "turn", "no pipeline", "facts", "another's"])
def test_nothing_waits(make_memory: MakeMemory, way: str) -> None:
    options: dict[str, Any] = {"memory_blocks": []} if way == "no pipeline" else {}
    memory = make_memory("s", user_id="u", deliver="turn" if way == "turn" else "window", **options)
    memory.put_messages(SAID)
    if way in ("flush", "deliver"):
        memory.flush(all=True) if way == "flush" else memory.deliver()
    if way == "facts":
        memory.facts.add("Sails.")
        assert memory.facts.list().waiting is None and memory.get().waiting is not None
    elif way == "another's":
        assert make_memory("t", user_id="v").facts.list().waiting is None
    else:
        assert memory.get().waiting is None and memory.facts.list().waiting is None


def test_several_sessions_are_told_together(memory: Memory, make_memory: MakeMemory) -> None:
    make_memory("t", user_id="u").put_messages(SAID[:2])
    waiting = memory.facts.list().waiting
    assert waiting is not None
    assert (waiting.messages, waiting.sessions, waiting.tokens, waiting.flush_at_tokens) == (
        42,
        2,
        None,
        None,
    )


def test_the_command_line_tells_it(
    memory: Memory, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = memory.facts.list().waiting
    for command in (["facts", "list", "--user", "u"], ["ask", "s", "Where?"], ["get", "s"], ["status"]):
        assert run([*command, "--database-url", database_url]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "40 messages wait in 1 window" in shown, command
        assert "above 1,400 tokens (now" in shown
    assert str(waiting).startswith("40 messages wait in 1 window; next delivery above 1,400 tokens")


def test_a_sentence_names_only_the_ways_there_are() -> None:
    assert str(Undelivered(1)) == "1 message waits in 1 window; next delivery by `strandline flush`"


def test_the_service_tells_it(memory: Memory, database_url: str) -> None:
    waiting = memory.get().waiting
    assert waiting is not None
    with RunningService(database_url) as service, service.client(service.make_key(), user="u") as client:
        read = client.get("/v1/sessions/s/context").json()
        listed = client.get("/v1/users/u/facts").json()
        assert read["waiting"] == listed["waiting"]
        assert (read["waiting"]["messages"], read["waiting"]["flush_at_tokens"]) == (40, 1_400)
        client.post("/v1/sessions/s/flush", json={"all": True})
        assert client.get("/v1/sessions/s/context").json()["waiting"] is None
