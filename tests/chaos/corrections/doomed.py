"""A producer process that is told to correct, and is killed in the middle of it.

It reads one order as JSON from its input, says so, carries it out, and says that it has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Literal

import psycopg

from strandline import Memory
from strandline.producers.writing.correcting.correct import Correction
from strandline.schemas.values.identity import identify_session
from tests.conftest import wait_until
from tests.support.processes import forking
from tests.support.workers.worker_processes import ROOT

# Where it is killed: before anything is written, between the two transactions of a correction whose session
# shares, or whenever it happens to be somewhere.
Moment = Literal["in the transaction", "before the copies go", "sometime"]

LOCKS: Mapping[Moment, str] = {
    "in the transaction": (
        "SELECT clock_timestamp() FROM strandline.session"
        " WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s FOR UPDATE"
    ),
    "before the copies go": (
        "SELECT clock_timestamp() FROM strandline.shared_session WHERE shard_key ="
        " (SELECT shared_key FROM strandline.session WHERE shard_key = %(shard_key)s"
        " AND session_key = %(session_key)s) AND session_key = %(session_key)s FOR UPDATE"
    ),
}
AWAITED = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND backend_start > %s AND wait_event_type = 'Lock'
"""


def correct(memory: Memory, order: Mapping[str, Any]) -> Correction:
    """Carry an order out: {"kind": "rewind" or "replace", "seq", "content", "key"}."""
    if order["kind"] == "rewind":
        return memory.rewind(order["seq"], idempotency_key=order["key"])
    return memory.replace(order["seq"], order["content"], idempotency_key=order["key"])


def kill_in_the_middle(url: str, order: Mapping[str, Any], moment: Moment, pause_seconds: float) -> bool:
    """Have a process carry the order out, and kill it; whether it was killed before it was done.

    Args:
        pause_seconds: how long it lives after it began, if it is killed ``sometime``.
    """
    keys = identify_session("default", order["session_id"], order["user_id"])
    with ExitStack() as ending:
        locks = _lock(ending.enter_context(psycopg.connect(url)), moment, keys.keys)
        process = forking.Popen(
            [sys.executable, "-m", "tests.chaos.corrections.doomed"],
            env={**os.environ, "STRANDLINE_DATABASE_URL": url},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        with process.stdin, process.stdout:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "begins\n"
            if locks:
                looking = ending.enter_context(psycopg.connect(url, autocommit=True))
                wait_until(
                    lambda: process.poll() is not None or looking.execute(AWAITED, locks[0]).fetchall()[0][0],
                    timeout=30,
                    what="the correction to wait",
                )
            else:
                time.sleep(pause_seconds)
            process.kill()
            process.wait(60)
            return not process.stdout.read()


def _lock(connection: psycopg.Connection[Any], moment: Moment, keys: Mapping[str, Any]) -> list[Any]:
    """Lock what the correction comes to at that moment; since when."""
    return connection.execute(LOCKS[moment].encode(), keys).fetchall() if moment in LOCKS else []


def main() -> None:
    order = json.loads(sys.stdin.readline())
    memory = Memory.from_defaults(
        order["session_id"], user_id=order["user_id"], shared_scope=order["shared_scope"]
    )
    memory.history(1)
    print("begins", flush=True)
    try:
        correct(memory, order)
    finally:
        print("ends", flush=True)
    memory.close()


if __name__ == "__main__":
    main()
