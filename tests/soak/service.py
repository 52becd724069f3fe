"""The HTTP service under ten thousand requests that its description allows, or forbids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from strandline.cli.terminal.streams import log_to_stderr
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.support.servers.schema_fuzzing import (
    DESTROYING,
    NEVER,
    USER,
    Fuzzing,
    fuzz,
    make_fuzzing_key,
    make_known,
)
from tests.support.servers.service_server import RunningService

EXAMPLES = 40
CASES = 10_000
PHASES = "examples,coverage,fuzzing,stateful"

# These need generations, replays or dead letters, which a description does not make; the tests of operators'
# routes show what they do.
NEVER_DONE = frozenset(
    {
        "diff_generation", "promote_generation", "prune_generation", "roll_pipeline_back",
        "post_replay", "get_operation", "stop_operation", "retry_letter", "drop_letter", "settle_fact",
    }
)  # fmt: skip


def run(ground: Ground) -> Iterator[Reading]:
    """schemathesis over the whole description, with fixed seeds: no defect, and no status without a name."""
    log_to_stderr("ERROR", "text")
    with RunningService(ground.database_url) as running, TemporaryDirectory() as folder:
        tenant, operator = make_fuzzing_key(running), running.make_key(None, scopes=["operate"])
        known = make_known(running, tenant, sessions=6)
        spare = known | {"key_id": [running.make_key(USER).key_id for _ in range(4)]}
        folders = Path(folder)
        runs = [
            # What destroys comes last: the tool learns names from answers, also those that are to stay.
            fuzz(
                running,
                tenant,
                known,
                folders / "tenant",
                examples=EXAMPLES,
                seed=1,
                phases=PHASES,
                without=(*NEVER, *DESTROYING),
            ),
            fuzz(
                running,
                tenant,
                known,
                folders / "destroying",
                examples=EXAMPLES,
                seed=4,
                phases="examples,coverage,fuzzing",
                within=DESTROYING,
            ),
            fuzz(running, operator, known, folders / "all", examples=EXAMPLES, seed=2, phases=PHASES),
            # Of keys that the run does not use itself: their ids are never drawn at random.
            fuzz(
                running,
                operator,
                spare,
                folders / "keys",
                examples=EXAMPLES,
                seed=3,
                phases="coverage,fuzzing",
                only="^/v1/admin/keys/",
                without=NEVER[:2],
                probability=1.0,
            ),
        ]
    for one in runs:
        if one.failures:
            print(one.output)
    refused = set.intersection(*(set(one.only_refused) | _missing(one, runs) for one in runs)) - NEVER_DONE
    if refused:
        print("only refused:", ", ".join(sorted(refused)))
    cases = sum(one.cases for one in runs)
    failures = sum(one.failures for one in runs)
    yield Reading("requests that the description allows, or forbids", cases, CASES, "cases", at_least=True)
    yield Reading("of them answered by a defect, or as the description does not say", failures, 0, "cases")
    yield Reading("operations that never did what they are for", len(refused), 0, "operations")


def _missing(one: Fuzzing, runs: list[Fuzzing]) -> set[str]:
    """The operations that a run has not asked, and another has."""
    return {name for other in runs for name in other.answers} - one.answers.keys()
