"""Events of a newer release: an older worker leaves them, says so once, and a newer one applies them."""

from __future__ import annotations

import logging

import psycopg
import pytest

from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import STAGES
from strandline.wiring.assembly import prepare_stages
from strandline.workers.worker import Worker
from tests.conftest import MakeMemory, rows_of
from tests.support.workers.draining import drain_everything, due_lanes

ATTEMPTS = 10


def test_a_newer_event_is_no_failure_of_the_lane_and_is_applied_by_who_reads_it(
    database: Database, database_url: str, make_memory: MakeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """However often older workers meet it: otherwise it was a dead letter as soon as a newer worker came."""
    memory = make_memory("s", database_url=database_url)
    memory.put({"role": "user", "content": "My dog Bolt is afraid of thunder."})
    memory.flush(all=True)
    settings = load_settings(database_url=database_url, text_backend="local", embedding_backend="local")
    assert settings.max_failures < ATTEMPTS
    _set_version(database_url, 2)
    with caplog.at_level(logging.WARNING, "strandline.engine"):
        worker = Worker(
            database,
            prepare_stages(database, settings, STAGES),
            settings,
            ring=lambda _lanes: None,
            with_sweep=False,
        )
        worker.start()
        for _attempt in range(ATTEMPTS):
            _end_waits(database_url)
            assert {worker.drain(lane) for lane in due_lanes(database_url)} == {"postponed"}
        worker.stop()
    said = [record for record in caplog.records if getattr(record, "action", "") == "newer_event"]
    assert len(said) == len({lane.stage for lane in due_lanes(database_url)})
    assert not [record for record in caplog.records if getattr(record, "action", "") == "stage_failed"]
    counted = "SELECT DISTINCT failures, postponements, crashes FROM strandline.lane"
    assert rows_of(database_url, counted) == [(0, 0, 0)]
    _set_version(database_url, 1)
    _end_waits(database_url)
    drain_everything(database, database_url, settings)
    outcomes = rows_of(
        database_url, "SELECT outcome, count(DISTINCT stage) FROM strandline.receipt GROUP BY 1"
    )
    assert outcomes == [("applied", len(STAGES))]
    assert verify(database, deep=True).violations == ()


def _end_waits(url: str) -> None:
    rows_of(url, "UPDATE strandline.lane SET next_attempt_at = now() RETURNING stage")


def _set_version(url: str, version: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"UPDATE strandline.flush_event SET version = %s", (version,))
