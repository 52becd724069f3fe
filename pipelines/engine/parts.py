"""Parts of a model call: further calls about some of its lines, or of its candidates, by their names.

A part's name ends with the numbers of its items, as in "extract/3-3.5-9"; a plus sign tells that an answer
left them open.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

# Behind the name of a call: before the numbers of its part, and of a part that an answer left open.
_PART, FURTHER = "/", "+"


class Numbered(Protocol):
    """An item of a call, with its number from 1."""

    @property
    def number(self) -> int: ...


N = TypeVar("N", bound=Numbered)


def in_parts(step: str, items: Sequence[N], most: int, deeper: str = "") -> list[tuple[str, tuple[N, ...]]]:
    """Parts of a step, by their names, with at most so many items each.

    ``deeper``: ``FURTHER`` if its answer left them open.
    """
    whole, mark, _ = split_name(step)
    begin = whole + (mark.strip(_PART) + deeper or _PART)
    groups = (tuple(items[at : at + most]) for at in range(0, len(items), most))
    return [(begin + _runs(group), group) for group in groups]


def halves(step: str, items: Sequence[N]) -> list[tuple[str, tuple[N, ...]]]:
    """Two parts with half of the items each; none of a single one."""
    return in_parts(step, items, -(-len(items) // 2)) if len(items) > 1 else []


def split_name(step: str) -> tuple[str, str, str]:
    """The name of the whole call, the mark behind it and the numbers; empty without."""
    whole, mark, numbers = [*re.split(r"([/+]+)", step, maxsplit=1), "", ""][:3]
    return whole, mark, numbers


def items_of(numbers: str, items: Sequence[N]) -> tuple[N, ...]:
    """The items of a call with the numbers in a part's name."""
    runs = [map(int, run.split("-")) for run in numbers.split(".")]
    return tuple(item for first, last in runs for item in items[first - 1 : last])


def steps_in_order(steps: Iterable[str], shown: Callable[[str], Sequence[Numbered]]) -> list[str]:
    """Steps with items, in their order; a step within another one of its depth is left out."""
    chosen: list[str] = []
    through: Counter[int] = Counter()
    items = {step: about for step in steps if (about := shown(step))}
    for step in sorted(items, key=lambda one: (items[one][0].number, -len(items[one]))):
        depth = step.count(FURTHER)
        if items[step][0].number > through[depth]:
            chosen.append(step)
            through[depth] = items[step][-1].number
    return chosen


def _runs(items: Sequence[Numbered]) -> str:
    """Numbers, as in "3-3.5-9"."""
    runs: list[list[int]] = []
    for item in items:
        if not runs or item.number != runs[-1][-1] + 1:
            runs.append([])
        runs[-1].append(item.number)
    return ".".join(f"{run[0]}-{run[-1]}" for run in runs)
