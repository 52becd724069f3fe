"""A model server that is down: puts and reads do not notice, nothing is condemned, and all is caught up."""

from __future__ import annotations

import pytest

from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer
from tests.support.stored import dead_letters

SESSIONS = 8
PUTS = 400


def environment(server: ModelServer) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": server.base_url,
        "STRANDLINE_EMBEDDING_BACKEND": "local",
        "STRANDLINE_MODEL_TIMEOUT_SECONDS": "2",
    }


@pytest.mark.parametrize("kind", ["500", "hang"])
def test_an_outage_of_the_model_costs_nothing_but_its_time(rig: Rig, kind: str) -> None:
    """All the puts are made while no answer comes; how long they take is measured by ``make soak``."""
    rig.model.behave(hang=True) if kind == "hang" else rig.model.behave(status=500)
    rig.start_worker(**environment(rig.model))
    limits = {"token_limit": 400, "token_flush_size": 60}
    memories = [rig.memory(f"s{n}", user_id=f"u{n % 7}", **limits) for n in range(SESSIONS)]
    for number in range(PUTS):
        said = f"I saw {number} gulls at harbour number {number % 97}."
        memories[number % SESSIONS].put({"role": "user", "content": said})
    wait_until(lambda: len(rig.model.requests) >= 3, timeout=30, what="the worker to ask in vain")
    applied = "SELECT count(*) FROM strandline.receipt WHERE stage = 'extract'"
    assert rows_of(rig.url, applied) == [(0,)], "no model has answered"
    assert rows_of(rig.url, "SELECT count(*) >= %s FROM strandline.flush_event", SESSIONS) == [(True,)]
    rig.model.behave()
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="everything to be caught up")
    assert dead_letters(rig.url) == 0
    assert rows_of(rig.url, "SELECT coalesce(max(failures), 0) FROM strandline.lane") == [(0,)]


def test_reads_do_not_wait_for_an_embedder_that_is_down(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read finds out, in its time budget."""
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    config = '{"embedder": "text-embedding-3-small", "dimensions": 256}'
    rows_of(
        rig.url,
        "UPDATE strandline.generation SET config = %s WHERE pipeline = 'vectors' RETURNING 1",
        config,
    )
    memory = rig.memory("s")
    memory.put({"role": "user", "content": "Herring is what I like."})
    memory.flush(all=True)
    memory.get("What do I like?")  # opens connections, loads the client
    rig.model.behave(hang=True)
    asked = len(rig.model.requests)
    for _read in range(3):
        context = memory.get("What do I like?")
        assert "search_text_only" in [omission.kind for omission in context.omitted]
        assert context.to_openai()[-1]["content"] == "Herring is what I like."
    # It never answers, so none of the reads has waited for it; how long they took is for `make soak`.
    assert len(rig.model.requests) > asked
