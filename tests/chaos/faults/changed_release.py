"""An upgrade as a fault: the next release replaces all processes, and later the old one does again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.children import ROOT, Child, StoppedTooLateError
from tests.chaos.faults.faults import CONSUMING, PROVIDER_DOWN, WORKERS, Harm
from tests.upgrade.next_release import make_next_release

MIGRATE_SECONDS = 60.0
# Within these a campaign's Postgres is there for long enough.
MIGRATED_WITHIN_SECONDS = 300.0


def release_changed(harm: Harm) -> Iterator[None]:
    """Upgrade to the next release; if the stack runs it, go back to the old release and forward again.

    Old workers leave newer events, which counts as a time without workers.
    """
    stack = harm.stack
    following = stack.directory / "next release"
    upgraded: list[float] = []
    harm.recovery(done=lambda _connection: bool(upgraded), needs=(*CONSUMING, *PROVIDER_DOWN))
    if stack.release == ROOT:
        make_next_release(following)
        stack.release = following
        _migrate(harm)
    else:
        with stack.timeline.away(WORKERS):
            try:
                stack.release = ROOT
                _replace(harm, [*stack.producers, *stack.workers], ROOT)
                yield
            finally:
                # Whatever failed on the way back: no replay of newer events ends without the next release.
                stack.release = following
                if not stack.ending.is_set():
                    _replace(harm, stack.workers, following)
    _replace(harm, [*stack.workers, *stack.producers], following)
    upgraded.append(time.monotonic())
    yield


def _migrate(harm: Harm) -> None:
    """Migrate by the next release, again where Postgres ends it."""
    deadline, said = time.monotonic() + MIGRATED_WITHIN_SECONDS, ""
    while time.monotonic() < deadline:
        try:
            done = harm.stack.run("migrate", seconds=MIGRATE_SECONDS)
        except subprocess.TimeoutExpired as error:
            said = str(error)
            continue
        if done.returncode == 0:
            return
        said = done.stderr
        harm.stack.ending.wait(1.0)
    raise AssertionError(f"it did not migrate: {said}")


def _replace(harm: Harm, children: Sequence[Child], release: Path) -> None:
    """End each and start it of this release, one after the other; who is away starts so by itself.

    Raises:
        StoppedTooLateError: of the first that had to be killed, when all are replaced.
    """
    late: list[StoppedTooLateError] = []
    for child in children:
        if child.release == release:
            continue
        child.release = release
        if child.away:
            continue
        pid = child.ask_to_end()
        if pid is not None and child in harm.stack.workers:
            harm.lanes_taken_up(pid)
        try:
            child.wait_for_end(60.0)
        except StoppedTooLateError as error:
            late.append(error)
        child.start()
    if late:
        raise late[0]
