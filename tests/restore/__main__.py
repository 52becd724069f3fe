"""``make restore-drill``: restore each documented backup elsewhere, and print what was measured."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.restore.drill import Drill
from tests.soak.__main__ import forget_environment
from tests.soak.cases import say
from tests.soak.measuring.readings import print_readings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.restore", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=2_000, help="that are derived before the backups (2,000)"
    )
    parser.add_argument("--json", action="store_true", help="print the readings as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-restore-") as home:
        forget_environment(Path(home))
        return print_readings(list(Drill(Path(home), say, given.messages).run()), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
