"""From what was measured to figures: per repetition a ratio, over repetitions the median and the spread."""

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
class Goal:
    """The bound that a ratio must stay below, or reach."""

    bound: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.at_least else ratio <= self.bound


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        case: the name that ``--only`` takes.
        name: what was measured.
        against: what it is held against.
        ratio: median over the repetitions of the one divided by the other.
        lowest: the least ratio of a repetition.
        highest: the greatest.
        here: the median of what was measured, on this machine, in ``unit``.
        against_here: the same of what it is held against.
        unit: of both.
        repetitions: how many ratios there are.
        goal: what the ratio is to be, where that is fixed.
        more_is_better: whether a greater ratio is the better one; where there is a goal, as this says.
        axis: of a figure that belongs to a line of a chart, the line's name; else empty.
        place: where on that line.
    """

    case: str
    name: str
    against: str
    ratio: float
    lowest: float
    highest: float
    here: float
    against_here: float
    unit: str
    repetitions: int
    goal: Goal | None = None
    more_is_better: bool = False
    axis: str = ""
    place: int = 0


def percentile(values: Sequence[float], rank: int) -> float:
    """The ``rank``-th percentile (1 to 99), by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * rank // 100)]


def of_values(
    case: str,
    name: str,
    against: str,
    unit: str,
    repetitions: Sequence[tuple[float, float]],
    *,
    goal: Goal | None = None,
    more_is_better: bool = False,
    axis: str = "",
    place: int = 0,
) -> Figure:
    """Sum up repetitions that each gave one value, and one of what it is held against."""
    ratios = [one / other for one, other in repetitions]
    return Figure(
        case=case,
        name=name,
        against=against,
        ratio=_rounded(statistics.median(ratios)),
        lowest=_rounded(min(ratios)),
        highest=_rounded(max(ratios)),
        here=_rounded(statistics.median(one for one, _ in repetitions)),
        against_here=_rounded(statistics.median(other for _, other in repetitions)),
        unit=unit,
        repetitions=len(repetitions),
        goal=goal,
        more_is_better=goal.at_least if goal else more_is_better,
        axis=axis,
        place=place,
    )


def of_times(
    case: str,
    name: str,
    against: str,
    pairs: Sequence[Pair],
    *,
    rank: int = 50,
    against_rank: int = 50,
    goal: Goal | None = None,
    more_is_better: bool = False,
    axis: str = "",
    place: int = 0,
) -> Figure:
    """Sum up repetitions of timed calls by a percentile of each; it becomes part of both names."""
    return of_values(
        case,
        f"{name}, p{rank}",
        f"{against}, p{against_rank}",
        "ms",
        [
            (1000 * percentile(pair.measured, rank), 1000 * percentile(pair.against, against_rank))
            for pair in pairs
        ],
        goal=goal,
        more_is_better=more_is_better,
        axis=axis,
        place=place,
    )


def as_table(figures: Sequence[Figure], machine: Mapping[str, object]) -> str:
    """The figures as lines for a terminal; values are of this machine, ratios are what to compare."""
    rows: list[tuple[str, ...]] = [
        ("case", "measured", "held against", "ratio", "lowest-highest", "goal", "here", "against", "")
    ]
    rows += [_row(one) for one in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    return "\n".join([*(line.rstrip() for line in lines), "", facts])


def as_json(
    figures: Sequence[Figure], machine: Mapping[str, object], skipped: Mapping[str, str] | None = None
) -> str:
    """The same for programs; ``skipped`` says which cases were not measured, and why."""
    return (
        json.dumps(
            {
                "machine": machine,
                "figures": [_plain(one) for one in figures],
                "skipped": dict(skipped or {}),
            },
            indent=2,
        )
        + "\n"
    )


def _row(one: Figure) -> tuple[str, ...]:
    goal = "" if one.goal is None else f"{one.goal} {'met' if one.goal.is_met(one.ratio) else 'NOT met'}"
    spread = f"{one.lowest:g}-{one.highest:g}"
    values = (f"{one.here:g}", f"{one.against_here:g}", one.unit)
    return (one.case, one.name, one.against, f"{one.ratio:g}", spread, goal, *values)


def _plain(one: Figure) -> dict[str, object]:
    goal = None if one.goal is None else {"is": str(one.goal), "met": one.goal.is_met(one.ratio)}
    return asdict(one) | {"goal": goal}


def _rounded(value: float) -> float:
    """To three digits, or to the point where the number is larger."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.3g}")
