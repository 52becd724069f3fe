"""Long campaigns on one seed each: 500 corrections, and 200 erasures, in the middle of everything else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.corrections.campaign import Campaign as Corrections
from tests.chaos.corrections.campaign import Options as CorrectionOptions
from tests.chaos.erasures.campaign import Campaign as Erasures
from tests.chaos.erasures.campaign import Options as ErasureOptions
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading

CORRECTIONS = 500
ERASURES = 200


def run_corrections(ground: Ground) -> Iterator[Reading]:
    """Whatever a read showed too much, or memory lacks or has doubled, after many corrections."""
    options = CorrectionOptions(corrections=CORRECTIONS)
    found = Corrections(options, ground.database_url, ground.broker_url, ground.model()).run()
    yield Reading(f"nothing is wrong after {CORRECTIONS} corrections", len(found.wrong), 0, "findings")
    kills = sum(found.worker_kills.values()) + sum(found.producer_kills.values())
    yield Reading("workers and producers were killed meanwhile", kills, 20, "kills", at_least=True)


def run_erasures(ground: Ground) -> Iterator[Reading]:
    """What is left of anybody, and what was refused or accepted wrongly, after many erasures."""
    with tempfile.TemporaryDirectory() as folder:
        found = Erasures(ErasureOptions(runs=ERASURES), ground.database_url, Path(folder)).run()
    yield Reading(f"nothing is wrong after {ERASURES} erasures", len(found.wrong), 0, "findings")
    stopped = sum(found.stops.values())
    yield Reading("workers were stopped with a batch in hand", stopped, 100, "workers", at_least=True)
    yield Reading("erasures were ended in the middle", found.interrupted, 30, "erasures", at_least=True)
