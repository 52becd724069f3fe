"""A short campaign of corrections; ``python -m tests.chaos.corrections`` runs a long one."""

from __future__ import annotations

import pytest

from tests.chaos.corrections.actor import CORRECTIONS
from tests.chaos.corrections.campaign import Campaign, Options
from tests.conftest import Rig


@pytest.mark.timeout(1_800)
def test_corrections_beside_workers_and_producers_that_are_killed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No read shows what a correction took away, and memory is that of the messages as they stand."""
    for setting in ("STATEMENT_TIMEOUT", "POOL_TIMEOUT", "CONNECT_TIMEOUT"):
        monkeypatch.setenv(f"STRANDLINE_{setting}_SECONDS", "600")
    options = Options(
        seed=4,
        corrections=30,
        users=2,
        actors=3,
        readers=1,
        corrections_per_kill=10,
        kill_percent=30,  # of corrections, drawn: that none of thirty is chosen has to be out of the question
        replays=1,
        looks=1,
    )
    found = Campaign(options, rig.url, rig.broker_url, rig.model).run()
    assert found.wrong == []
    assert sum(found.corrections.values()) >= options.corrections
    assert len(found.corrections) >= len(CORRECTIONS) - 3
    assert found.worker_kills and found.producer_kills and found.replays
