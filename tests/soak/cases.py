"""The cases, and how a run goes through them: in order, within a time, each on a separate ground."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.soak import (
    campaigns,
    costs,
    crashes,
    crowding,
    ends,
    fairness,
    lags,
    puts,
    reads,
    retaining,
    returning,
    service,
    takeover,
)
from tests.soak.load import case as load
from tests.soak.measuring.ground import Ground, Grounds
from tests.soak.measuring.readings import Reading


@dataclass(frozen=True, slots=True)
class Case:
    """What ``--only`` names.

    Attributes:
        run: measures on its ground, and yields a reading for each bound.
        seconds: about what it takes on two processors; it is not begun where less time is left.
        short: whether it belongs to the run that continuous integration makes.
    """

    name: str
    run: Callable[[Ground], Iterable[Reading]]
    seconds: int
    short: bool = True


CASES = (
    Case("takeover", takeover.run, 40),
    Case("ends", ends.run, 60),
    Case("reads", reads.run, 15),
    Case("returning", returning.run, 20),
    Case("costs", costs.run, 60),
    Case("puts", puts.run, 120, short=False),
    Case("lags", lags.run, 120, short=False),
    Case("retention", retaining.run, 600, short=False),
    Case("corrections", campaigns.run_corrections, 240, short=False),
    Case("erasures", campaigns.run_erasures, 480, short=False),
    Case("tokens", campaigns.run_tokens, 480, short=False),
    Case("crashes", crashes.run, 900, short=False),
    Case("pooler", crashes.run_pooler, 240, short=False),
    Case("service", service.run, 420, short=False),
    Case("crowding", crowding.run, 240, short=False),
    Case("fairness", fairness.run, 420, short=False),
    Case("load", load.run, 240, short=False),
)
SHORT = (*(case for case in CASES if case.short), Case("load", load.run_short, 80))


@dataclass(slots=True)
class Run:
    """What came of a run: readings with the names of their cases, and cases that gave none and why."""

    readings: list[tuple[str, Reading]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def is_kept(self) -> bool:
        """Whether everything was measured and every bound kept."""
        return not self.failed and all(reading.verdict == "kept" for _name, reading in self.readings)


def measure(grounds: Grounds, cases: Sequence[Case], *, seconds: float) -> Run:
    """Run the cases; one that would not end within ``seconds`` is skipped, one that raises has failed."""
    run = Run()
    deadline = time.monotonic() + seconds
    for case in cases:
        left = deadline - time.monotonic()
        if left < case.seconds:
            run.skipped[case.name] = f"it takes about {case.seconds} s, and {max(0, left):.0f} s are left"
            say(f"{case.name}: skipped: {run.skipped[case.name]}")
        else:
            _measure(grounds, case, run)
    return run


def _measure(grounds: Grounds, case: Case, run: Run) -> None:
    say(f"{case.name}: {' '.join((case.run.__doc__ or '').splitlines()[:1])}")
    began = time.monotonic()
    try:
        with grounds.fresh() as ground:
            for reading in case.run(ground):
                run.readings.append((case.name, reading))
                say(f"  {'  '.join(reading.cells())}")
    except Exception as error:  # noqa: BLE001 - the outermost edge of a case: the others are still run
        run.failed[case.name] = f"{type(error).__name__}: {error}"
        say(f"  failed: {run.failed[case.name]}")
    say(f"  {time.monotonic() - began:.0f} s")


def say(line: str) -> None:
    """Progress, beside the table."""
    print(line, file=sys.stderr, flush=True)
