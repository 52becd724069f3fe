"""What questions scored, averaged into tables by category, for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

ALL = "all questions"

WORDS = "words alone"
EMBEDDER = "embedder"


@dataclass(frozen=True, slots=True)
class Score:
    """One value of one question.

    Attributes:
        figure: what was measured, as ``R@10``.
        method: by what: ``WORDS``, ``EMBEDDER``, or the name of a baseline.
        value: a share from 0 to 1, except for a figure that counts.
        token_limit: of the prompt; None if the figure is of a search.
    """

    collection: str
    conversation: str
    category: str
    figure: str
    method: str
    value: float
    token_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Scores of one collection, and how they are shown.

    Attributes:
        title: the collection, and what the cells hold.
        figures: the shares of a cell, in per cent, parted by a slash.
        sums: figures that count, each with how its values are summed up: a row each, below.
    """

    title: str
    scores: Sequence[Score]
    figures: Sequence[str]
    sums: Sequence[tuple[str, str]] = ()

    def as_text(self) -> str:
        """The table for a terminal: a row per category, a column per method."""
        return "\n".join([self.title, *_aligned(list(self._rows()))])

    def _rows(self) -> Iterator[tuple[str, ...]]:
        methods = list(dict.fromkeys(one.method for one in self.scores))
        yield "", "questions", *methods
        for category in [*sorted({one.category for one in self.scores}), ALL]:
            of_it = [one for one in self.scores if category in (ALL, one.category)]
            yield category, str(_questions(of_it)), *(self._cell(of_it, method) for method in methods)
        for figure, how in self.sums:
            cells = (_sum(_values(self.scores, figure, method), how) for method in methods)
            yield f"{figure}, {how}", "", *cells

    def _cell(self, scores: Sequence[Score], method: str) -> str:
        return " / ".join(f"{per_cent(_values(scores, figure, method)):.1f}" for figure in self.figures)


def per_cent(values: Sequence[float]) -> float:
    """The mean of shares, in per cent, to the tenth."""
    return round(100 * mean(values), 1)


def as_json(scores: Sequence[Score]) -> str:
    """The means: of each category, of each collection, and of each conversation."""
    content = {
        "lines": [*_means(scores, by_category=True), *_means(scores, by_category=False)],
        "conversations": _means(scores, by_category=False, by_conversation=True),
    }
    return json.dumps(content, indent=2) + "\n"


def _means(
    scores: Sequence[Score], *, by_category: bool, by_conversation: bool = False
) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for one in scores:
        group = (
            one.collection,
            one.conversation if by_conversation else None,
            one.category if by_category else ALL,
            one.figure,
            one.token_limit,
            one.method,
        )
        groups.setdefault(group, []).append(one.value)
    names = ("collection", "conversation", "category", "figure", "token_limit", "method")
    return [
        {
            **{name: value for name, value in zip(names, group, strict=True) if value is not None},
            "questions": len(values),
            "mean": round(mean(values), 4),
        }
        for group, values in groups.items()
    ]


def _values(scores: Sequence[Score], figure: str, method: str) -> list[float]:
    return [one.value for one in scores if one.figure == figure and one.method == method]


def _questions(scores: Sequence[Score]) -> int:
    """How many questions there are: each has one value of a figure by a method."""
    first = scores[0]
    return len(_values(scores, first.figure, first.method))


def _sum(values: Sequence[float], how: str) -> str:
    return f"{sum(values) if how == 'in all' else mean(values):,.0f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
