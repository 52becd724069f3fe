"""Retention by real workers that are killed exactly at a step: nothing is lost, nothing is doubled."""

from __future__ import annotations

import json
from pathlib import Path

from strandline import Message, Retention, retention
from strandline.pipelines.inspect.verify import verify
from tests.conftest import Rig, rows_of, wait_until
from tests.support.aging import DAY, age_messages

QUICK = {"STRANDLINE_RETENTION_INTERVAL_SECONDS": "0.2", "STRANDLINE_RETENTION_PASS_SECONDS": "0.1"}


def test_workers_killed_at_steps_of_retention_cost_nothing(rig: Rig, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        memory = rig.memory(name, memory_blocks=[])
        memory.put_messages([Message(role="user", content=f"{name} {n}") for n in range(40)])
        memory.flush(all=True)
        age_messages(rig.url, name, 40 * DAY)
    stored = rows_of(rig.url, "SELECT session_key, seq, envelope::text FROM strandline.message ORDER BY 1, 2")
    retention.set_retention(
        rig.database, Retention(max_age_seconds=30 * DAY, archive=f"file://{tmp_path}/archive")
    )
    for point in ("removal_stored", "removal_read_back"):
        doomed = rig.start_worker(**QUICK, STRANDLINE_STOP_AT=f"{point}:SIGKILL")
        wait_until(lambda: doomed.process.poll() is not None, timeout=20, what=f"the kill at {point}")  # noqa: B023
        # Whoever is alive leaves it to the dead one for a minute.
        rows_of(rig.url, "UPDATE strandline.retention_step SET attempted_at = NULL RETURNING 1")
    rig.start_worker(**QUICK)
    left = "SELECT count(*) FROM strandline.message"
    wait_until(lambda: rows_of(rig.url, left) == [(0,)], timeout=20, what="the last worker to remove all")
    archived = []
    for path in tmp_path.rglob("*.jsonl"):
        header, *rows = map(json.loads, path.read_text().removesuffix("\n").split("\n"))
        archived += [(header["session_key"], row["seq"], row["envelope"]) for row in rows]
    assert sorted(archived) == [(str(key), seq, envelope) for key, seq, envelope in stored]
    assert verify(rig.database).violations == ()
