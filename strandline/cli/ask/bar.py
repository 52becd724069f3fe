"""A bar of what a read used its token limit for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

MAX_BAR_CELLS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar.

    Attributes:
        letter: what draws it where there are no colours.
        style: what colours it elsewhere.
        tokens: how large it is.
        note: what it consists of.
    """

    name: str
    letter: str
    style: str
    tokens: int
    note: str = ""


def divide_cells(amounts: Sequence[int], cells: int) -> list[int]:
    """The cells of a bar for each amount, ``cells`` together; none if all amounts are 0.

    Each edge between two parts is rounded by itself, so the bar is as wide whatever it shows.
    """
    total = sum(amounts)
    if not total:
        return [0] * len(amounts)
    edges = [0, *(round(cells * amount / total) for amount in accumulate(amounts))]
    return [after - before for before, after in pairwise(edges)]
