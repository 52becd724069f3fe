"""``python -m tests.soak``: measure the bounds that need a clock, and print them with what was measured."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.soak.cases import CASES, SHORT, Case, measure, say
from tests.soak.measuring.ground import running_grounds
from tests.soak.measuring.readings import as_table

MINUTES = 20.0
SHORT_MINUTES = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    # So that what runs beside is ended, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    minutes = given.minutes or (SHORT_MINUTES if given.short else MINUTES)
    with tempfile.TemporaryDirectory(prefix="strandline-soak-") as home:
        forget_environment(Path(home))
        say("starting PostgreSQL and the broker")
        with running_grounds(Path(home) / "stack") as grounds:
            run = measure(grounds, _chosen(given), seconds=60 * minutes)
    print(as_table(run.readings))
    for name, reason in (run.failed | run.skipped).items():
        print(f"not measured: {name}: {reason}")
    return 1 if given.strict and not run.is_kept else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help=", ".join(names))
    parser.add_argument("--short", action="store_true", help="only what takes a minute or less")
    parser.add_argument("--strict", action="store_true", help="end with 1 if a bound is missed")
    parser.add_argument("--minutes", type=float, help="begin no case that would not end within so many")
    return parser


def _chosen(given: argparse.Namespace) -> list[Case]:
    usual = SHORT if given.short else CASES
    cases = {case.name: case for case in (*CASES, *usual)}
    return [cases[name] for name in given.only or [case.name for case in usual]]


def forget_environment(home: Path) -> None:
    """No case depends on, or touches, what the machine's user has configured."""
    for name in list(os.environ):
        if name.startswith(("STRANDLINE_", "OPENAI_")):
            del os.environ[name]
    os.environ |= {"STRANDLINE_HOME": str(home / "home"), "STRANDLINE_EMBEDDED": "never"}


if __name__ == "__main__":
    sys.exit(main())
