"""schemathesis against the service: all that its description allows, and what it does not allow."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers.service_server import RunningService

# What it would have to know of stored sessions and facts is shown by the tests that know it.
LEFT_OUT = "negative_data_rejection,positive_data_acceptance"


@dataclass(frozen=True)
class Fuzzing:
    """How many cases were tried, and what was reported."""

    cases: int
    failures: int
    output: str


def fuzz(
    running: RunningService,
    key: str,
    folder: Path,
    *,
    examples: int,
    seed: int,
    phases: str,
    only: str = ".",
) -> Fuzzing:
    """Try the service's description; streams, which do not end, are left out."""
    command = [
        str(Path(sys.executable).parent / "st"),
        "run",
        f"{running.url}/openapi.json",
        f"--header=Authorization: Bearer {key}",
        "--header=Strandline-User: fuzzed",
        f"--seed={seed}",
        f"--max-examples={examples}",
        f"--phases={phases}",
        "--checks=all",
        f"--exclude-checks={LEFT_OUT}",
        "--exclude-path-regex=/events$",
        "--exclude-operation-id-regex=(delete_key|post_rotation)",  # they would end the run's own key
        f"--include-path-regex={only}",
        "--continue-on-failure",
        "--suppress-health-check=all",
        "--no-color",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600, check=False)
    output = done.stdout + done.stderr
    generated = re.search(r"([\d,]+) generated(?:, ([\d,]+) found)?", output)
    if generated is None:
        raise AssertionError(output[-4_000:])
    return Fuzzing(int(generated[1].replace(",", "")), int((generated[2] or "0").replace(",", "")), output)
