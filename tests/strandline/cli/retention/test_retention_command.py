"""``strandline retention``: what it prints and does, on a session whose first messages are old."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strandline import Memory, Message
from strandline.cli.retention import (
    ArchivedReport,
    PlanReport,
    RestoredReport,
    RetentionShownReport,
    RunReport,
    StatusReport,
    duration_text,
)
from tests.conftest import MakeMemory, rows_of
from tests.support.aging import DAY, age_messages
from tests.support.processes.commands import Ended, run_here

Command = Callable[..., Ended]


@pytest.fixture
def command(database_url: str) -> Command:
    return partial(run_here, "retention", on=database_url)


@pytest.fixture
def memory(make_memory: MakeMemory, database_url: str) -> Memory:
    memory = make_memory("s", user_id="ana", memory_blocks=[])
    for number in range(1, 7):
        memory.put(Message(role="user", content=f"word {number}", id=f"m{number}"))
    memory.flush(all=True)
    for number in range(7, 9):
        memory.put(Message(role="user", content=f"word {number}", id=f"m{number}"))
    age_messages(database_url, "s", 40 * DAY, 6)
    return memory


def test_a_namespace_keeps_everything_until_an_act_says_otherwise(command: Command, memory: Memory) -> None:
    assert command("show").out == "namespace 'default' keeps everything\n"
    said = command("set", "--max-age", "30d", "--ttl", "12h", "--max-messages", "500", "--answers", "1w")
    assert said.code == 0, said.err
    assert [line.split(":")[0].strip() for line in said.out.splitlines()[1:5]] == [
        "ttl", "max age", "max messages", "answers",
    ]  # fmt: skip
    assert "ttl: 12h" in said.out and "act 1" in said.out
    shown = RetentionShownReport.model_validate(command("show", "--session", "s", "--json").json)
    assert (shown.ttl_seconds, shown.max_age_seconds, shown.acts) == (12 * 3_600, 30 * DAY, [])
    own = command("set", "--session", "s", "--max-age", "never", "--actor", "ana", "--json")
    report = RetentionShownReport.model_validate(own.json)
    assert (report.max_age_seconds, report.ttl_seconds, report.acts[0].actor) == (0, 12 * 3_600, "ana")
    assert memory.get_retention().max_age_seconds == 0


def test_it_is_planned_run_listed_read_and_brought_back(
    command: Command, memory: Memory, make_memory: MakeMemory, tmp_path: Path
) -> None:
    assert command("plan").out == "nothing is past its time\n"
    command("set", "--max-age", "30d", "--archive", f"file://{tmp_path}/archive")
    assert command("plan").out.splitlines() == [
        "default/s: 6 past their age",
        "6 messages of 1 session would leave",
    ]
    assert PlanReport.model_validate(command("plan", "--json").json).sessions[0].aged == 6
    done = RunReport.model_validate(command("run", "--at-once", "--json").json)
    assert (done.removed, done.archived, done.failed) == (6, 6, 0)
    assert command("run").out == "0 messages removed in 0 steps, 0 archived, 0 important kept\n"
    status = StatusReport.model_validate(command("status", "--json").json)
    assert (status.removed, status.open_steps, status.failing_steps) == (6, 0, 0)
    assert "6 messages removed, 6 archived" in command("status").out
    ranges = ArchivedReport.model_validate(command("archived", "s", "--json").json).ranges
    assert [(one.from_seq, one.through_seq, one.state) for one in ranges] == [(1, 6, "removed")]
    lines = [json.loads(line) for line in command("archived", "s", "--messages").out.splitlines()]
    assert [line["content"] for line in lines] == [f"word {number}" for number in range(1, 7)]
    back = RestoredReport.model_validate(command("restore", "s", "t", "--ttl", "2d", "--json").json)
    assert (back.messages, back.ttl_seconds) == (6, 2 * DAY)
    there = make_memory("t", user_id="ana")
    assert [message.id for message in there.get_all()] == [f"m{number}" for number in range(1, 7)]
    assert list(there.get()) == [], "they count as flushed: a context begins behind them"
    assert "the context that `get` returns begins behind them" in command("restore", "s", "t").out
    assert [message.text for message in memory.get_all()] == ["word 7", "word 8"]


@pytest.mark.parametrize("head", [False, True])
def test_a_session_that_is_in_use_takes_no_archived_messages_and_keeps_its_retention(
    command: Command, make_memory: MakeMemory, database_url: str, tmp_path: Path, head: bool
) -> None:
    """With a head, the archive begins at message 2, where the log of the other session ends."""
    live = make_memory("live", user_id="ana", memory_blocks=[])
    live.put(Message(role="user", content="in use"))
    live.flush(all=True)
    old = make_memory("old", user_id="ana", memory_blocks=[])
    first = Message(role="system" if head else "user", content="the first")
    old.put_messages([first, *(Message(role="user", content=f"number {number}") for number in range(5))])
    old.flush(all=True)
    age_messages(database_url, "old", 40 * DAY, 6)
    command("set", "--session", "old", "--max-age", "30d", "--archive", f"file://{tmp_path}/archive")
    command("run", "--at-once")
    acts = "SELECT count(*) FROM strandline.audit_entry WHERE act IN ('retention', 'restore')"
    before = live.get_retention(), live.get_all(), rows_of(database_url, acts)
    refused = command("restore", "old", "live")
    assert refused.code == 1 and "is in use" in " ".join(refused.err.split())
    assert (live.get_retention(), live.get_all(), rows_of(database_url, acts)) == before
    assert live.retention_acts() == []
    assert command("restore", "old", "fresh").code == 0


def test_an_archive_that_fails_is_said_and_ends_with_1(command: Command, memory: Memory) -> None:
    refused = command("set", "--max-age", "30d", "--archive", "handler:none")
    assert refused.code == 1 and "No installed package has an archive handler 'none'" in refused.err
    assert command("show").out == "namespace 'default' keeps everything\n"
    command("set", "--max-age", "30d", "--archive", "handler:none", "--even-if-unknown")
    ended = command("run")
    assert ended.code == 1 and "1 step failed" in ended.out
    assert "No installed package has an archive handler 'none'" in command("status").out
    assert len(memory.get_all()) == 2, "no read shows them all the same"


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("set", "--ttl", "5"), "is not a duration"),
    (("set", "--ttl", "0d"), "is not a duration"),
    (("set", "--archive", "s3://key:secret@bucket"), "no credentials"),
    (("set", "--session", "s", "--answers", "5d"), "whole namespace"),
    (("show", "--session", "nobody"), "nothing has been put to it yet"),
    (("archived", "nobody"), "nothing has been put to it yet"),
    (("restore", "s", "t"), "Nothing of session 's' is in an archive"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG, ids=str)
def test_what_cannot_be_done_is_said_in_a_sentence(
    command: Command, memory: Memory, arguments: tuple[str, ...], sentence: str
) -> None:
    ended: Any = command(*arguments)
    assert ended.code != 0 and sentence in " ".join(ended.err.split()) and memory.retention_acts() == []
    assert "secret" not in ended.err


def test_durations_are_printed_as_they_are_taken() -> None:
    assert [duration_text(seconds) for seconds in (0, 59, 120, 3_600, 36 * 3_600, 14 * DAY)] == [
        "never", "59s", "2m", "1h", "36h", "14d",
    ]  # fmt: skip
