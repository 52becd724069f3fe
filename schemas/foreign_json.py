"""JSON that others wrote, read in one way: what two readers may take for two values is refused."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


class RepeatedKeyError(ValueError):
    """An object has a key twice, of which one reader takes the first and another the last."""


def read_json(text: str | bytes) -> Any:
    """The value of JSON as RFC 8259 has it.

    Raises:
        RepeatedKeyError: an object in it has a key twice.
        ValueError: it is not JSON, or holds a number that is none, or is too large.
        RecursionError: it is nested too deep.
    """
    return json.loads(text, object_pairs_hook=unrepeated, parse_constant=refuse_constant, parse_float=_finite)


def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; raises RepeatedKeyError."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise RepeatedKeyError("an object in it has a key twice")
    return value


def refuse_constant(name: str) -> None:
    """Raise ValueError for ``NaN`` and ``Infinity``."""
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError("a number in it is too large")
    return number
