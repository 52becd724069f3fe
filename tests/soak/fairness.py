"""How long one tenant's single session waits behind another tenant's backlog."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from strandline.schemas.values.identity import identify_session
from tests.conftest import wait_until
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading

BACKLOG = 1_500
MOST_TIMES_ALONE = 3.0
MODEL_SECONDS = 0.25
ALONE_TIMES = 5
PATIENCE_SECONDS = 300.0
# Sessions of the backlog that each worker has extracted before the other tenant comes.
AT_WORK = 16

# A merge's receipt is written in the transaction that makes the facts readable.
MERGED = "SELECT FROM strandline.receipt WHERE shard_key = %s AND stage = 'merge'"


def run(ground: Ground) -> Iterator[Reading]:
    """The facts of a tenant with one session, beside 1,500 sessions of another, with 1 worker and with 3."""
    model = ground.model()
    model.behave(latency=MODEL_SECONDS)
    environment = {
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "key",
        "STRANDLINE_EMBEDDING_BACKEND": "local",
    }
    for number in (1, 3):
        yield from _beside_a_backlog(ground, number, environment)


def _beside_a_backlog(ground: Ground, number: int, environment: dict[str, str]) -> Iterator[Reading]:
    """The backlog is put while no worker runs, so that it is due however fast they are."""
    running = [ground.worker(**environment) for _ in range(number)]
    alone = statistics.median(
        _seconds_until_readable(ground, f"alone {number} {time_}") for time_ in range(ALONE_TIMES)
    )
    for worker in running:
        worker.end()
    for session in range(BACKLOG):
        _flush(ground, "bulk", f"{number} {session}")
    before = _applied(ground)
    running = [ground.worker(**environment) for _ in range(number)]
    wait_until(
        lambda: _applied(ground) >= before + AT_WORK * number,
        timeout=PATIENCE_SECONDS,
        what="the workers to be at the backlog",
    )
    behind = _seconds_until_readable(ground, f"behind {number}")
    left = len(ground.rows("SELECT DISTINCT session_key FROM strandline.due WHERE namespace = 'bulk'"))
    workers = "1 worker" if number == 1 else f"{number} workers"
    yield Reading(
        f"sessions of another tenant are still due when the single one's facts are readable, {workers}",
        left,
        BACKLOG / 2,
        "sessions",
        at_least=True,
    )
    yield Reading(
        f"facts are readable behind them, against what they take alone ({alone:.2f} s), {workers}",
        behind / alone,
        MOST_TIMES_ALONE,
        "x",
    )
    wait_until(ground.nothing_due, timeout=PATIENCE_SECONDS, what="the end of the backlog")
    for worker in running:
        worker.end()


def _applied(ground: Ground) -> int:
    return int(ground.rows("SELECT count(*) FROM strandline.receipt WHERE stage = 'extract'")[0][0])


def _seconds_until_readable(ground: Ground, name: str) -> float:
    _flush(ground, "single", name)
    owner = identify_session("single", name, None).shard_key
    began = time.monotonic()
    wait_until(
        lambda: bool(ground.rows(MERGED, owner)), timeout=PATIENCE_SECONDS, what=f"the facts of {name!r}"
    )
    return time.monotonic() - began


def _flush(ground: Ground, namespace: str, session_id: str) -> None:
    memory = ground.memory(session_id, namespace=namespace, broker_url=ground.broker_url)
    memory.put({"role": "user", "content": f"My name is Ines and I live at harbour {session_id}."})
    memory.flush(all=True)
