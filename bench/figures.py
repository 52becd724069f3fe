"""From timings to figures: per repetition a percentile and its ratio, over repetitions median and spread."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One repetition: seconds per call, of the thing measured and of what it is held against."""

    measured: Sequence[float]
    against: Sequence[float]


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table.

    Attributes:
        ratio: median over the repetitions of the percentile's ratio.
        lowest: the least ratio of a repetition.
        highest: the greatest.
        measured_ms: median over the repetitions of the percentile, in milliseconds, on this machine.
        against_ms: the same for what it is held against.
    """

    name: str
    against: str
    percentile: int
    ratio: float
    lowest: float
    highest: float
    measured_ms: float
    against_ms: float
    calls: int
    repetitions: int


def percentile(values: Sequence[float], rank: int) -> float:
    """The ``rank``-th percentile (1 to 99), by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * rank // 100)]


def result(
    name: str, against: str, pairs: Sequence[Pair], *, rank: int = 50, against_rank: int = 50
) -> Result:
    """Sum up the repetitions of one comparison."""
    measured = [percentile(pair.measured, rank) for pair in pairs]
    held_against = [percentile(pair.against, against_rank) for pair in pairs]
    ratios = [one / other for one, other in zip(measured, held_against, strict=True)]
    return Result(
        name=name,
        against=against,
        percentile=rank,
        ratio=round(statistics.median(ratios), 2),
        lowest=round(min(ratios), 2),
        highest=round(max(ratios), 2),
        measured_ms=round(statistics.median(measured) * 1000, 3),
        against_ms=round(statistics.median(held_against) * 1000, 3),
        calls=min(len(pair.measured) for pair in pairs),
        repetitions=len(pairs),
    )


def as_table(results: Sequence[Result], machine: Mapping[str, object]) -> str:
    """The results as lines for a terminal; times are of this machine, ratios are what to compare."""
    rows = [("measured", "held against", "ratio", "lowest-highest", "here, ms", "against, ms")]
    rows += [
        (
            f"{one.name}, p{one.percentile}",
            one.against,
            f"{one.ratio:.2f}",
            f"{one.lowest:.2f}-{one.highest:.2f}",
            f"{one.measured_ms:.2f}",
            f"{one.against_ms:.2f}",
        )
        for one in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    return "\n".join([*(line.rstrip() for line in lines), "", facts])


def as_json(results: Sequence[Result], machine: Mapping[str, object]) -> str:
    return json.dumps({"machine": machine, "results": [asdict(one) for one in results]}, indent=2) + "\n"
