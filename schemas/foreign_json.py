"""JSON that others wrote, read in one way: what two readers may take for two values is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any


def read_json(text: str | bytes, *, parse_int: Callable[[str], Any] = int) -> Any:
    """The value of JSON as RFC 8259 has it; raises ValueError, or RecursionError, for all else."""
    return json.loads(
        text,
        object_pairs_hook=refuse_repeated,
        parse_constant=refuse_constant,
        parse_float=_finite,
        parse_int=parse_int,
    )


def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; raises ValueError for a key that is there twice: readers take either one."""
    if len(value := dict(pairs)) < len(pairs):
        raise ValueError("an object in it has a key twice")
    return value


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError("a number in it is too large")
    return number
