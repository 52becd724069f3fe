"""A sealer in its own process: ``python -m tests.chaos.audit.sealer URL ANCHORS SEED``.

It ends with SIGKILL before one of the statements of a pass, or before its commit; by chance.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from strandline.pipelines.audit.keys import one_key
from strandline.pipelines.audit.sealing import seal_once
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import Atomic, Operation
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.workers.upkeep.sealing import append_to

T = TypeVar("T")

KEYS = one_key("a secret of this campaign")
# So few that a pass leaves entries for the next one, and there are many seals to be killed in.
ENTRIES_PER_PASS = 20
# Of a statement in the transaction of a pass, which has about eight.
END_SHARE = 0.05


def doomed(operation: Operation[T], end: Callable[[], None], *, is_inside: bool = False) -> Operation[T]:
    """The operation, with ``end`` called before each statement of its transactions, and their commits."""
    result: Any = None
    try:
        step = next(operation)
        while True:
            if is_inside:
                end()
            if isinstance(step, Atomic):
                step = Atomic(lambda make=step.make: doomed(make(), end, is_inside=True))  # type: ignore[misc]
            result = yield step
            step = operation.send(result)
    except StopIteration as done:
        if is_inside:
            end()
        value: T = done.value
        return value


def main(url: str, anchors: Path, seed: str) -> None:
    """Seal without a pause until the process is killed; hand over each anchor at once."""
    chance = random.Random(seed)  # noqa: S311

    def end() -> None:
        if chance.random() < END_SHARE:
            os.kill(os.getpid(), signal.SIGKILL)

    options = ConnectionOptions.from_settings(url, load_settings(), pool_size=1, durable=False)
    database, export = Database.connect(options), append_to(anchors)
    while True:
        done = database.run(doomed(seal_once(KEYS, limit=ENTRIES_PER_PASS), end))
        if done.anchors:
            export(done.anchors)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
