"""Erasures in the middle of everything: 200, on one seed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.erasures.campaign import Campaign, Options
from tests.soak.ground import Ground
from tests.soak.readings import Reading

RUNS = 200


def run(ground: Ground) -> Iterator[Reading]:
    """What is left of anybody, and what was refused or accepted wrongly, after many erasures."""
    with tempfile.TemporaryDirectory() as folder:
        found = Campaign(Options(runs=RUNS), ground.database_url, Path(folder)).run()
    yield Reading(f"nothing is wrong after {RUNS} erasures", len(found.wrong), 0, "findings")
    stopped = sum(found.stops.values())
    yield Reading("workers were stopped with a batch in hand", stopped, 100, "workers", at_least=True)
    yield Reading("erasures were ended in the middle", found.interrupted, 30, "erasures", at_least=True)
