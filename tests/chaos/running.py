"""The servers and the stack, up while a block runs, and gone with all their files afterwards."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.faults.brokers import BROKERS
from tests.chaos.faults.line import PostgresLine
from tests.chaos.plan import Shape
from tests.chaos.servers import BrokerMissingError, PostgresServer
from tests.chaos.stack import Stack, build


@contextlib.contextmanager
def running_stack(seed: int, shape: Shape, rate: float, broker: str) -> Iterator[Stack]:
    """Servers, tables and the description of all processes; everything is ended afterwards.

    The directory with the logs goes as well, unless something raised or ``stack.keep`` says otherwise.
    """
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    with contextlib.ExitStack() as ending:
        kept = ending.enter_context(_unless_kept(directory))
        broker_server = BROKERS[broker](directory)
        postgres = PostgresServer(directory)
        for server in (postgres, broker_server):
            ending.callback(server.stop)
            server.start()
        line = PostgresLine(postgres.url)
        ending.callback(line.stop)
        stack = build(directory, postgres, line, broker_server, shape, seed=seed, rate=rate)
        ending.callback(stack.end_children)
        yield stack
        kept.keep = stack.keep


@dataclass
class _Kept:
    """Whether a directory stays."""

    keep: bool = True


@contextlib.contextmanager
def _unless_kept(directory: Path) -> Iterator[_Kept]:
    """Remove the directory after an interrupt, and after a block that ends without wanting to keep it."""
    kept = _Kept()
    try:
        yield kept
    except (KeyboardInterrupt, BrokerMissingError):
        kept.keep = False
        raise
    finally:
        if not kept.keep:
            shutil.rmtree(directory)
