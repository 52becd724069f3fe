"""Rewind, replace, fork and delete on the command line, and what other commands say of them."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from strandline import Memory
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.schemas.wire.explanations import MessageExplanation
from tests.conftest import MakeMemory
from tests.strandline.cli.test_sessions_facts_search_get import Command, command
from tests.support.workers.draining import drain_everything

__all__ = ["command"]


@pytest.fixture
def memory(make_memory: MakeMemory, database: Database, database_url: str) -> Memory:
    made = make_memory("chat-1", user_id="ana")
    made.put_messages(
        [{"role": "user", "content": f"I have {number} boats", "id": f"m{number}"} for number in range(1, 5)]
    )
    made.flush(all=True)
    local = load_settings(database_url=database_url, text_backend="local", embedding_backend="local")
    drain_everything(database, database_url, local)
    return made


def test_a_session_is_rewound_once_with_a_key(memory: Memory, command: Command) -> None:
    arguments = ("sessions", "rewind", "chat-1", "3", "--actor", "ops", "--key", "k", "--json")
    first = command(*arguments).json
    assert (first["number"], first["seqs"]) == (1, [3, 4])
    memory.put({"role": "user", "content": "More"})
    assert command(*arguments).json == first
    assert [message.seq for message in memory.get_all()] == [1, 2, 5]
    dry = command("sessions", "rewind", "chat-1", "5", "--dry-run")
    assert dry.out == "would take back 1 message; nothing was changed\n"
    counted = command("sessions", "rewind", "chat-1", "2", "--dry-run", "--json").json
    assert (counted["number"], counted["from_seq"], counted["through_seq"], counted["messages"]) == (
        None,
        2,
        5,
        2,
    )
    assert command("sessions", "rewind", "chat-1", "5").out == "took back 1 message (correction 2)\n"
    shown = command("sessions", "show", "chat-1").out
    assert "by ops: took back 2 messages from 3 on" in shown
    assert f"by cli:{getpass.getuser()}: took back 1 message from 5 on" in shown


def test_a_message_is_replaced_by_the_text_of_a_file(
    memory: Memory, command: Command, tmp_path: Path, database: Database
) -> None:
    text = tmp_path / "text"
    text.write_text("I have no boat\n")
    refused = command("sessions", "replace", "chat-1", "2", "/dev/null")
    assert refused.code == 2 and "CONTENT is empty" in refused.err
    done = command("sessions", "replace", "chat-1", "2", str(text), "--actor", "ops")
    assert done.out == "gave message 2 other content (correction 1)\n"
    assert memory.get_all()[1].text == "I have no boat"
    told = command("explain", "m2").out
    assert "Correction 1 gave it this content" in told
    assert "by ops: gave message 2 other content" in told
    beside = explain(database, "m1")
    assert isinstance(beside, MessageExplanation)
    assert [one.number for one in beside.corrections] == [1]
    assert any("Other messages of its flush" in sentence for sentence in beside.why)
    assert verify(database).violations == ()


def test_a_message_that_was_taken_back_is_not_explained(memory: Memory, command: Command) -> None:
    memory.rewind(4)
    told = command("explain", "m4")
    assert told.code != 0
    assert "sessions show" in told.err


def test_a_session_is_deleted_when_told(memory: Memory, command: Command, database: Database) -> None:
    assert "would delete 4 messages" in command("sessions", "delete", "chat-1").out
    assert len(memory.get_all()) == 4
    assert command("sessions", "delete", "chat-1", "--yes").out == "deleted 4 messages\n"
    assert memory.get_all() == [] == memory.facts.list()
    assert verify(database).violations == ()


def test_a_session_is_forked(memory: Memory, command: Command, make_memory: MakeMemory) -> None:
    told = command("sessions", "fork", "chat-1", "chat-2", "--through", "2")
    assert told.out == "session chat-2 begins with 2 messages\n"
    branch = make_memory("chat-2", user_id="ana")
    assert [message.id for message in branch.get_all()] == ["m1", "m2"]
    assert command("sessions", "fork", "chat-1", "chat-2").code != 0


def test_what_is_not_there_is_named(memory: Memory, command: Command) -> None:
    assert "no message 9" in command("sessions", "rewind", "chat-1", "9").err
    assert command("sessions", "rewind", "nowhere", "1").code != 0
