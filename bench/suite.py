"""The cases, and how a run goes through them: in order, within a time, each on a separate database."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.cases.audit import measure_audit
from bench.cases.calls import measure_calls, measure_delay
from bench.cases.consuming import measure_applications
from bench.cases.crossing import measure_crossing
from bench.cases.flat import measure_flat
from bench.cases.observed import measure_observed
from bench.cases.reads import measure_get
from bench.cases.resident import measure_memory
from bench.cases.service import measure_service
from bench.cases.writes import measure_concurrent, measure_put
from bench.defaults.case import measure_defaults
from bench.encrypted.case import measure_encryption
from bench.environment import Ground, NotMeasuredError
from bench.figures import Figure
from bench.peers.peers import measure_peers
from bench.size import Size

Measure = Callable[[Ground, Size], Iterator[Figure]]


@dataclass(frozen=True, slots=True)
class Case:
    """What ``--only`` names.

    Attributes:
        seconds: about what it takes with the usual numbers, on two processors.
        registered: whether its database begins with the standard pipelines on the local models.
    """

    name: str
    measure: Measure
    seconds: int
    registered: bool = True


CASES = (
    Case("put", measure_put, 10),
    Case("concurrent", measure_concurrent, 20),
    Case("audit", measure_audit, 40),
    Case("get", measure_get, 20),
    Case("observed", measure_observed, 20),
    Case("defaults", measure_defaults, 60),
    Case("service", measure_service, 60),
    Case("encryption", measure_encryption, 15),
    Case("peers", measure_peers, 25),
    Case("crossing", measure_crossing, 30, registered=False),
    Case("calls", measure_calls, 40),
    Case("applications", measure_applications, 150),
    Case("delay", measure_delay, 25, registered=False),
    Case("memory", measure_memory, 60),
    Case("flat", measure_flat, 120),
)


@dataclass(slots=True)
class Run:
    """What came of a run."""

    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def measure(ground: Ground, size: Size, cases: Sequence[Case], *, seconds: float) -> Run:
    """Measure the cases; one that would not end within ``seconds``, or cannot be had, is skipped."""
    run = Run()
    deadline = time.monotonic() + seconds
    for case in cases:
        left = deadline - time.monotonic()
        if left < case.seconds:
            run.skipped[case.name] = f"it takes about {case.seconds} s, and {max(0, left):.0f} s are left"
        else:
            _measure(ground, size, case, run)
        if case.name in run.skipped:
            say(f"{case.name}: skipped: {run.skipped[case.name]}")
    return run


def _measure(ground: Ground, size: Size, case: Case, run: Run) -> None:
    say(f"{case.name}: {' '.join((case.measure.__doc__ or '').splitlines()[:1])}")
    began = time.monotonic()
    try:
        with ground.fresh(registered=case.registered) as own:
            for figure in case.measure(own, size):
                run.figures.append(figure)
                say(f"  {figure.name}: {figure.ratio:g} ({figure.lowest:g}-{figure.highest:g})")
    except NotMeasuredError as error:
        run.skipped[case.name] = str(error)
    say(f"  {time.monotonic() - began:.0f} s")


def say(line: str) -> None:
    """Progress, beside the table."""
    print(line, file=sys.stderr, flush=True)
