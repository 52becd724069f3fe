"""``python -m tests.chaos.tokens``: prints violations as they come, and counts; ends with 1 if any came."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import asdict

from tests.chaos.tokens.campaign import Options, campaign


def main() -> int:
    # A shell starts background jobs with it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    parser = argparse.ArgumentParser(description="Everything at once, each message with a token of its own.")
    for name, value in asdict(Options()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    book = campaign(Options(**vars(parser.parse_args())))
    print(json.dumps(dict(sorted(book.counts.items())), indent=2))
    print(f"{len(book.tokens)} tokens, {len(book.wrong)} violations")
    for sentence in book.wrong:
        print(sentence[:400])
    return int(bool(book.wrong))


if __name__ == "__main__":
    sys.exit(main())
