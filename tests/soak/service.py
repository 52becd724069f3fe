"""The HTTP service under ten thousand requests that its description allows, or forbids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from strandline.cli.terminal.logs import log_to_stderr
from strandline.schemas.wire.keys import SCOPES
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.support.servers.schema_fuzzing import fuzz
from tests.support.servers.service_server import RunningService

SEEDS = (1, 2)
EXAMPLES = 40
CASES = 10_000


def run(ground: Ground) -> Iterator[Reading]:
    """schemathesis over the whole description, with fixed seeds: no defect, and no status without a name."""
    log_to_stderr("ERROR")
    cases = failures = 0
    with RunningService(ground.database_url) as running, TemporaryDirectory() as folder:
        keys = [running.make_key("fuzzed", scopes=SCOPES), running.make_key(None, scopes=["operate"])]
        for seed, key in zip(SEEDS, keys, strict=True):
            fuzzing = fuzz(
                running,
                key.key,
                Path(folder),
                examples=EXAMPLES,
                seed=seed,
                phases="examples,coverage,fuzzing,stateful",
            )
            cases, failures = cases + fuzzing.cases, failures + fuzzing.failures
            if fuzzing.failures:
                print(fuzzing.output)
    yield Reading("requests that the description allows, or forbids", cases, CASES, "cases", at_least=True)
    yield Reading("of them answered by a defect, or as the description does not say", failures, 0, "cases")
