"""A case's measurement beside its bound; and all of them as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["kept", "MISSED"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value and what it may be at most.

    Attributes:
        what: what was measured, as a sentence of the specification.
        measured: in ``unit``.
        bound: in ``unit``.
        unit: ``s`` for seconds, ``ms``, ``x`` for a ratio, or what was counted.
        at_least: the bound is one from below.
    """

    what: str
    measured: float
    bound: float
    unit: str = "s"
    at_least: bool = False

    @property
    def verdict(self) -> Verdict:
        kept = self.measured >= self.bound if self.at_least else self.measured <= self.bound
        return "kept" if kept else "MISSED"

    def cells(self) -> tuple[str, ...]:
        sign = ">=" if self.at_least else "<="
        return (self.verdict, f"{self.measured:.3g}", f"{sign} {self.bound:.3g}", self.unit, self.what)


def print_readings(readings: Sequence[tuple[str, Reading]], *, as_json: bool) -> int:
    """Print a drill's readings, as JSON or as a table; returns the exit code: 1 if a bound is missed."""
    if as_json:
        named = [{"case": name, "verdict": one.verdict, **asdict(one)} for name, one in readings]
        print(json.dumps(named, indent=2))
    else:
        print(as_table(readings))
    return int(any(reading.verdict != "kept" for _name, reading in readings))


def as_table(readings: Sequence[tuple[str, Reading]]) -> str:
    """One line for each reading, with the name of its case."""
    rows: list[tuple[str, ...]] = [("case", "verdict", "measured", "bound", "", "what")]
    rows += [(name, *reading.cells()) for name, reading in readings]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
