"""``python -m tests.chaos.audit``: prints what was found as JSON; ends with 1 if anything is wrong."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from strandline.deploy.embedded.stack import start_stack
from strandline.schemas.postgres.migrate import migrate
from tests.chaos.audit.campaign import Campaign, Options


def main() -> int:
    parser = argparse.ArgumentParser(description="Seal the audit trail while sealers are killed.")
    for name, value in asdict(Options()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = Options(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as folder, start_stack(Path(folder), with_broker=False) as stack:
        migrate(stack.database_url, "strandline")
        found = Campaign(options, stack.database_url, Path(folder)).run()
    print(json.dumps(asdict(found), indent=2))
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
