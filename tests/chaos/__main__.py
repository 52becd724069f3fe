"""``python -m tests.chaos``: run a campaign, print its table; exit with 1 if anything was violated."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.chaos.campaign import Campaign
from tests.chaos.faults.brokers import BROKERS
from tests.chaos.judging.report import as_json, as_text
from tests.chaos.plan import DoesNotFitError, Shape, make_plan, most_at_once
from tests.chaos.servers import BrokerMissingError

MOST_MINUTES = 40.0
CALM_SECONDS = 12.0
# Start, settling and judging, which are not part of the plan.
AROUND_SECONDS = 60.0


def main() -> int:
    # A shell starts background jobs with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = _parse()
    span = 60 * options.minutes - 3 * CALM_SECONDS - AROUND_SECONDS
    shape = Shape(options.faults, CALM_SECONDS, span)
    try:
        plan = make_plan(options.seed, shape)
    except DoesNotFitError as error:
        print(error, file=sys.stderr)
        return 2
    if options.plan:
        print("\n".join(map(str, plan)))
        print(f"at most {most_at_once(plan)} at once")
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        report = Campaign(
            options.seed, shape, options.rate, options.broker, say=_say, keep=options.keep
        ).run()
    except BrokerMissingError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; every process that was started is gone", file=sys.stderr)
        return 130
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(as_text(report))
    if options.json is not None:
        options.json.write_text(as_json(report), encoding="utf-8")
    return 1 if report.violations or report.late else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same plan")
    parser.add_argument("--faults", type=int, default=100, metavar="N")
    parser.add_argument("--minutes", type=float, default=9.0, metavar="M", help="at most 40; about so long")
    parser.add_argument("--rate", type=float, default=40.0, help="puts per second of all producers together")
    parser.add_argument("--broker", choices=sorted(BROKERS), default="redis")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE as well")
    parser.add_argument("--keep", action="store_true", help="keep logs, journals and data in any case")
    parser.add_argument("--plan", action="store_true", help="print the plan of the seed, and do nothing")
    options = parser.parse_args()
    if not 0 < options.minutes <= MOST_MINUTES:
        parser.error("--minutes must be above 0, and at most 40")
    return options


def _say(line: str) -> None:
    """A line of progress: on a terminal over the last one, otherwise below it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
