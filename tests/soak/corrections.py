"""Corrections of every kind under load, while workers and producers are killed: 500, on one seed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.corrections.campaign import Campaign, Options
from tests.soak.ground import Ground
from tests.soak.readings import Reading

CORRECTIONS = 500


def run(ground: Ground) -> Iterator[Reading]:
    """Whatever a read showed too much, or memory lacks or has doubled, after many corrections."""
    options = Options(corrections=CORRECTIONS)
    found = Campaign(options, ground.database_url, ground.broker_url, ground.model()).run()
    yield Reading(f"nothing is wrong after {CORRECTIONS} corrections", len(found.wrong), 0, "findings")
    kills = sum(found.worker_kills.values()) + sum(found.producer_kills.values())
    yield Reading("workers and producers were killed meanwhile", kills, 20, "kills", at_least=True)
