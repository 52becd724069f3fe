"""``strandline explain`` ends with the commands to go on with, as a shell takes them."""

from __future__ import annotations

import re
import shlex

import pytest

from strandline.cli.entry import run
from tests.conftest import Rig, rows_of
from tests.support.workers.draining import drain_everything

Capture = pytest.CaptureFixture[str]


def next_commands(database_url: str, capfd: Capture, *arguments: str) -> list[list[str]]:
    """The commands that ``explain`` names, each as a shell takes it apart."""
    capfd.readouterr()
    assert run(["explain", "--database-url", database_url, *arguments]) == 0
    named = re.findall(r"^next: `(.+)` \w", capfd.readouterr().out, re.MULTILINE)
    return [shlex.split(line) for line in named]


def test_each_state_of_a_message_names_its_next_command_and_each_command_works(
    rig: Rig, capfd: Capture
) -> None:
    name = "-s; $(id) 'x'"
    memory = rig.memory(name, user_id="u v", namespace="n n", memory_blocks=["facts"])
    memory.put({"role": "user", "content": "My dog is called Bolt.", "id": "m1"})
    of_message = ("m1", "--namespace", "n n", "--user", "u v")

    (flush,) = next_commands(rig.url, capfd, *of_message)
    assert flush == ["strandline", "flush", "--all", "--namespace", "n n", "--", name]
    assert run([*flush[1:2], "--database-url", rig.url, *flush[2:]]) == 0

    (status,) = next_commands(rig.url, capfd, *of_message)
    assert status == ["strandline", "status"]

    drain_everything(rig.database, rig.url, rig.settings, ["extract", "merge"])
    (fact,) = next_commands(rig.url, capfd, *of_message)
    assert fact[:6] == ["strandline", "explain", "--namespace", "n n", "--user", "u v"]

    (back,) = next_commands(rig.url, capfd, *fact[2:])
    assert back == ["strandline", "explain", "--session", name, "--namespace", "n n", "m1"]
    assert next_commands(rig.url, capfd, *back[2:]) == [fact]


def test_a_dead_letter_names_the_command_that_tries_it_again(rig: Rig, capfd: Capture) -> None:
    memory = rig.memory("s", memory_blocks=["summary"])
    memory.put({"role": "user", "content": "hello", "id": "m1"})
    (event,) = memory.flush(all=True)
    rows_of(
        rig.url,
        "WITH gone AS (DELETE FROM strandline.due RETURNING *), receipt AS ("
        " INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)"
        " SELECT shard_key, event_id, generation_id, stage, 'dead' FROM gone)"
        " INSERT INTO strandline.dead_letter (shard_key, session_key, generation_id, stage, from_seq,"
        " through_seq, scope_key, event_id, incarnation, batch_id, reason)"
        " SELECT shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key,"
        " event_id, incarnation, gen_random_uuid(), 'refused' FROM gone RETURNING stage",
    )
    (retry,) = next_commands(rig.url, capfd, "m1")
    assert retry == ["strandline", "dead-letters", "retry", f"{event}/summary"]
    assert run([*retry[1:], "--database-url", rig.url]) == 0
