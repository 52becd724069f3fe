"""Numbers and times as the command line takes and shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within bounds; unlike Click's own, it refuses ``nan`` and ``inf``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class UtcTime(click.DateTime):
    """A time, which is given in UTC."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        moment: datetime = super().convert(value, param, ctx)
        return moment.replace(tzinfo=UTC)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of all do not exceed; 0 for none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
