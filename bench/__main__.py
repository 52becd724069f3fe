"""``python -m bench``: measure on separate embedded servers, print ratios, optionally write JSON."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.environment import prepared_ground
from bench.figures import as_json, as_table
from bench.records import commit_here, compare, read_records, today, write_records
from bench.size import FULL, QUICK, USUAL, Size
from bench.suite import CASES, Case, measure, say

MINUTES = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    comparable = not (given.quick or given.file)
    if given.record and not comparable:
        parser.error("--record takes the sample's messages and the usual number of calls")
    # So that what runs beside is ended, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    minutes = given.minutes or (MINUTES if not (given.full or given.quick or given.only) else math.inf)
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as home:
        say("starting PostgreSQL (fsync on, settings as the embedded default has them) and the broker")
        with prepared_ground(Path(home), given.file) as ground:
            machine = ground.describe()
            run = measure(ground, _size(given), _cases(given.only), seconds=60 * minutes)
    print(as_table(run.figures, machine))
    for name, reason in run.skipped.items():
        print(f"not measured: {name}: {reason}")
    if given.json is not None:
        given.json.write_text(as_json(run.figures, machine, run.skipped), encoding="utf-8")
    if comparable:
        for line in compare(run.figures, read_records()):
            print(line)
    if given.record:
        write_records(run.figures, today(), commit_here())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help=", ".join(names))
    parser.add_argument("--file", type=Path, metavar="CHAT.jsonl", help="messages; default: the sample")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--record", action="store_true", help="compare later runs with these figures")
    parser.add_argument("--minutes", type=float, help="begin nothing that would not end within so many")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="a few calls of each, to see that it works")
    sizes.add_argument("--full", action="store_true", help="the far ends as well, without bound in time")
    return parser


def _size(given: argparse.Namespace) -> Size:
    if given.quick:
        return QUICK
    return FULL if given.full else USUAL


def _cases(only: Sequence[str] | None) -> list[Case]:
    return [case for case in CASES if only is None or case.name in only]


if __name__ == "__main__":
    sys.exit(main())
