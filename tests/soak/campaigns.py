"""Long campaigns on one seed each: 500 corrections, 200 erasures, and five minutes of everything at once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.corrections.campaign import Campaign as Corrections
from tests.chaos.corrections.campaign import Options as CorrectionOptions
from tests.chaos.erasures.campaign import Campaign as Erasures
from tests.chaos.erasures.campaign import Options as ErasureOptions
from tests.chaos.tokens.campaign import Campaign as Tokens
from tests.chaos.tokens.campaign import Options as TokenOptions
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading

CORRECTIONS = 500
ERASURES = 200
TOKEN_MINUTES = 5.0


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


def run_tokens(ground: Ground) -> Iterator[Reading]:
    """What any read showed that was gone or another user's, or lacked, beside everything at once."""
    with tempfile.TemporaryDirectory() as folder:
        options = TokenOptions(minutes=TOKEN_MINUTES)
        model_url = ground.model().base_url
        one = Tokens(options, ground.database_url, ground.broker_url, model_url, Path(folder))
        with ground.environment(**one.environment):
            book = one.run()
    yield Reading(f"nothing is wrong after {TOKEN_MINUTES:.0f} minutes", len(book.wrong), 0, "findings")
    yield Reading("reads were judged", book.counts["read of memory"], 500, "reads", at_least=True)
