"""Two installations that share a broker by mistake: each does its work in time, and is told."""

from __future__ import annotations

import signal
from uuid import uuid4

import pytest

from strandline.cli import entry
from strandline.schemas.values.lanes import Lane
from strandline.workers.shared_broker import IN_VAIN_SECONDS, LostRings
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.servers.databases import temporary_database
from tests.support.workers.worker_processes import launch_worker

DROPPED = "SELECT coalesce(sum((condition ->> 'dropped_hints')::int), 0) FROM strandline.worker"


def test_work_whose_hints_another_installation_takes_is_done_and_told(
    rig: Rig, capfd: pytest.CaptureFixture[str]
) -> None:
    """The thief has no work of its own, and takes every hint that it can; our worker sweeps."""
    own = rig.start_worker()
    with temporary_database(rig.url) as other_url:
        thief = launch_worker(other_url, rig.broker_url, "--concurrency=1", "--no-sweep")
        try:
            wait_until(lambda: "is ready" in "".join(thief.output), timeout=60, what="the other worker")
            own.process.send_signal(signal.SIGSTOP)  # the thief has all hints
            memory = rig.memory("s", broker_url=rig.broker_url)
            memory.put({"role": "user", "content": "I live in Bern."})
            memory.flush(all=True)
            wait_until(lambda: rows_of(other_url, DROPPED)[0][0] > 0, timeout=20, what="the count")
            own.process.send_signal(signal.SIGCONT)
            wait_until(lambda: nothing_due(rig.url), timeout=12, what="the work")
            said = ("doctor", "--no-model-call", "--database-url", other_url, "--broker-url", rig.broker_url)
            entry.run(list(said))
            assert "its own Redis database or RabbitMQ virtual host" in capfd.readouterr().out
            lines = [line for line in thief.output if "hint_dropped" in line]
            assert len(lines) == 1
            assert "another installation may use this broker" in lines[0]
        finally:
            thief.end()
    assert rows_of(rig.url, DROPPED) == [(0,)]


def test_a_lane_that_was_rung_for_in_vain_is_drained_here() -> None:
    now = 0.0
    rings = LostRings(lambda: now)
    lanes = [Lane(uuid4(), uuid4(), 1, "summary") for _ in range(3)]
    assert rings.split(lanes[:2]) == (lanes[:2], [])
    now = 4.0
    assert rings.split(lanes) == (lanes[2:], lanes[:2])
    # Once drained here it begins anew; so does one that was rung for long ago.
    assert rings.split(lanes[:1]) == (lanes[:1], [])
    now += IN_VAIN_SECONDS + 1
    assert rings.split(lanes) == (lanes, [])
