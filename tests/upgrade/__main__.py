"""``make upgrade-drill``: upgrade under load, back and forward again, and print what was measured."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.__main__ import forget_environment
from tests.soak.cases import say
from tests.soak.measuring.ground import running_grounds
from tests.soak.measuring.readings import print_readings
from tests.upgrade.drill import Drill


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="messages a second (50)")
    parser.add_argument("--messages", type=int, default=750, help="at least, in each of six phases (750)")
    parser.add_argument("--json", action="store_true", help="print the readings as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-upgrade-") as home:
        forget_environment(Path(home))
        say("starting PostgreSQL and the broker")
        with running_grounds(Path(home) / "stack") as grounds, grounds.fresh() as ground:
            drill = Drill(ground, Path(home), say, given.rate, given.messages)
            readings = [("upgrade", reading) for reading in drill.run()]
            return print_readings(readings, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
