"""``python -m tests.chaos.erasures``: prints what was found as JSON; ends with 1 if anything is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from tests.chaos.erasures.campaign import Options, campaign


def main() -> int:
    parser = argparse.ArgumentParser(description="Erase users and sessions while everything else goes on.")
    for name, value in asdict(Options()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    found, seconds = campaign(Options(**vars(parser.parse_args())))
    print(json.dumps(asdict(found) | {"seconds": round(seconds)}, indent=2))
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
