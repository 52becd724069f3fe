"""Values that two classes have under the same names, taken over without naming each."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any


def same_named(kind: type, source: object) -> dict[str, Any]:
    """The values that ``source`` has under the names of a dataclass's fields."""
    return {name: getattr(source, name) for name in _names(kind) if hasattr(source, name)}


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))
