"""Rows as a database leaves them whose clock has stepped back by an hour: their times lie ahead."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from tests.chaos.judging.recoveries import Connection

TRIED_FOR_SECONDS = 60.0

STEPS = (
    "UPDATE strandline.worker SET heartbeat_at = heartbeat_at + interval '1 hour' WHERE pid = %(pid)s",
    "UPDATE strandline.lane SET leased_at = leased_at + interval '1 hour', deadline_at = deadline_at"
    " + interval '1 hour', next_attempt_at = next_attempt_at + interval '1 hour', postponed_at = postponed_at"
    " + interval '1 hour' WHERE holder IS NOT NULL OR next_attempt_at > clock_timestamp()",
    "UPDATE strandline.due SET ring_at = ring_at + interval '1 hour' WHERE ring_at < 'infinity'",
)


def step_back(connection: Connection, pid: int) -> None:
    """Let heartbeat and leases of the worker, waits and rings lie an hour ahead."""
    for step in STEPS:
        connection.execute(step.encode(), {"pid": pid})


def repeated_on(url: str, act: Callable[[Connection], None]) -> None:
    """Do it on a connection, again while Postgres is away."""
    deadline = time.monotonic() + TRIED_FOR_SECONDS
    while True:
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
                act(connection)
                return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
