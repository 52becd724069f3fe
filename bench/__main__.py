"""``python -m bench``: measure on an embedded Postgres of its own, print ratios, optionally write JSON."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.cases import measure_crossing, measure_get, measure_history, measure_put
from bench.figures import Result, as_json, as_table
from bench.ground import prepared_ground

REPETITIONS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    arguments = parser.parse_args()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as home:
        say("starting PostgreSQL (fsync on, settings as the embedded default has them)")
        with prepared_ground(Path(home)) as ground:
            for measure in (measure_put, measure_get, measure_history, measure_crossing):
                say(f"{measure.__name__.replace('_', ' ')}: {REPETITIONS} repetitions")
                results += measure(ground, REPETITIONS)
            machine = ground.describe()
    print(as_table(results, machine))
    if arguments.json is not None:
        arguments.json.write_text(as_json(results, machine), encoding="utf-8")
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
