"""What the campaigns' commands share: servers of their own, options, and what was found as JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from strandline.deploy.embedded.stack import start_stack
from tests.support.servers.databases import forgo_durability, make_tables


@contextlib.contextmanager
def servers(*, with_broker: bool = False) -> Iterator[tuple[str, str, Path]]:
    """The URLs of a database with tables and of a broker ("" without one), and a folder; gone in the end."""
    with (
        tempfile.TemporaryDirectory(prefix="campaign-") as name,
        start_stack(Path(name), with_broker=with_broker) as stack,
    ):
        # Nothing crashes here, so no commit has to wait for the disk.
        forgo_durability(stack.database_url)
        make_tables(stack.database_url)
        yield stack.database_url, stack.broker_url or "", Path(name)


def run(defaults: Any, campaign: Callable[[Any], Any], description: str | None) -> int:
    """Run a campaign with the options of the command line; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=description)
    for name, value in asdict(defaults).items():
        if not isinstance(value, bool):
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    began = time.monotonic()
    found = asdict(campaign(type(defaults)(**vars(parser.parse_args()))))
    print(json.dumps(found | {"seconds": round(time.monotonic() - began)}, indent=2))
    wrong = [
        *found["wrong"],
        *found.get("violations", ()),
        *filter(None, found.get("differing", {}).values()),
    ]
    return int(bool(wrong))
