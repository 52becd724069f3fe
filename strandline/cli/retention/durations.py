"""Durations as the command line takes them, such as ``30d`` and ``12h``."""

from __future__ import annotations

import re
from typing import Any

import click

from strandline.schemas.values.acts.retention import MAX_SECONDS

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_FORM = re.compile(r"(\d{1,12})([smhdw])")
NEVER = "never"

# An act's settings, by option.
DURATIONS = {
    "ttl": ("ttl_seconds", "A session ends so long after its last put, with all that it holds."),
    "max_age": ("max_age_seconds", "A message leaves so long after its time."),
    "answers": ("answers_seconds", "Age of models' answers, once their batch has ended."),
    "calls": ("calls_seconds", "Age of the ledger of model calls."),
    "traces": ("traces_seconds", "How long what a person took away is recognised in replays."),
    "ended_facts": ("ended_facts_seconds", "Age of facts that ended because of others."),
}


class Duration(click.ParamType[int]):
    """A number with a unit (s, m, h, d, w), in seconds; ``never`` is 0."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value == NEVER:
            return 0
        parts = _FORM.fullmatch(str(value).strip())
        seconds = int(parts[1]) * _UNITS[parts[2]] if parts else 0
        if not 1 <= seconds <= MAX_SECONDS:
            self.fail(
                f"{value!r} is not a duration: give a number with s, m, h, d or w, such as 30d, or {NEVER}.",
                param,
                ctx,
            )
        return seconds


def duration_text(seconds: int) -> str:
    """Seconds as the command line takes them."""
    if not seconds:
        return NEVER
    unit, size = next(
        (unit, size) for unit, size in reversed(_UNITS.items()) if unit != "w" and seconds % size == 0
    )
    return f"{seconds // size}{unit}"
