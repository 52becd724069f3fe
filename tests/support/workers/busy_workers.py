"""Real workers with the stand-in as their model: how they are started, given work, and held to it."""

from __future__ import annotations

from typing import Any

from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.lanes import STAGES
from tests.conftest import MakeMemory, rows_of
from tests.support.servers.model_server import ModelServer
from tests.support.stored import live_facts, stored_chunks

QUICK_TAKE_OVER = {"STRANDLINE_WORKER_DEAD_AFTER_SECONDS": "1.5"}


def environment(server: ModelServer, key: str = "unused", **settings: str) -> dict[str, str]:
    """The stand-in as text model, under a key that tells workers apart, and quick reactions.

    Only tests in which a worker dies add ``QUICK_TAKE_OVER``: a machine that stands still for a moment makes
    a living one look dead.
    """
    return {
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": key,
        "STRANDLINE_EMBEDDING_BACKEND": "local",
        "STRANDLINE_HEARTBEAT_INTERVAL_SECONDS": "0.3",
        "STRANDLINE_WORKER_DEAD_AFTER_SECONDS": "600",
        "STRANDLINE_SWEEP_INTERVAL_SECONDS": "0.3",
        "STRANDLINE_RETRY_BASE_SECONDS": "0.2",
        "STRANDLINE_RETRY_MAX_SECONDS": "1",
    } | settings


def converse(
    make_memory: MakeMemory, sessions: int, events: int, *, about: str = "harbour", **options: Any
) -> None:
    for number in range(sessions):
        memory = make_memory(f"s{number}", user_id=f"u{number}", **options)
        for event in range(events):
            memory.put({"role": "user", "content": f"{about} {event} of {number} was fine"})
            memory.flush(all=True)


def check_done_once(database: Database, url: str, events: int) -> None:
    receipts = "SELECT stage, count(*) FROM strandline.receipt WHERE outcome = 'applied' GROUP BY 1"
    assert dict(rows_of(url, receipts)) == dict.fromkeys(STAGES, events)
    assert live_facts(url) == events
    assert stored_chunks(url) == events
    assert verify(database, deep=True).violations == ()
