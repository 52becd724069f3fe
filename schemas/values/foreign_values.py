"""Values of a caller's own classes, whose methods may raise while the values are read.

A subclass of a built-in type may do anything when it is compared, counted or written out.  An error that it
raises is reported as a value that cannot be read.
"""

from __future__ import annotations

from typing import Any

from strandline.schemas.display.shown_text import shown
from strandline.schemas.errors import InvalidMessageError

_MAX_NAMED_CHARACTERS = 80
_SIZED: tuple[type[Any], ...] = (list, dict, tuple, str)


def plain_text(value: str) -> str:
    """The same text as a plain ``str``, whatever its subclass may do."""
    return value if type(value) is str else str.__str__(value)


def plain_int(value: int) -> int:
    """The same number as a plain ``int``."""
    return value if type(value) is int else int.__index__(value)


def plain_number(value: float) -> float:
    """The same number as a plain ``int`` or ``float``."""
    return plain_int(value) if isinstance(value, int) else float.__float__(value)


def plain_scalar(value: object) -> Any:
    """A text or number as its plain built-in type; other values as they are."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return plain_number(value)
    return value


def plain_list(value: list[Any] | tuple[Any, ...]) -> list[Any]:
    """The same items in a plain ``list``."""
    return list(list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value))


def is_empty(value: object) -> bool:
    """Whether it is None or an empty list, dict, tuple or text; the length of others is not computed."""
    kind = next((kind for kind in _SIZED if isinstance(value, kind)), None)
    return value is None if kind is None else kind.__len__(value) == 0


def unreadable(field: str, error: Exception) -> InvalidMessageError:
    """The error for a value under ``field`` whose methods raised ``error``."""
    kind = shown(type(error).__name__, most=_MAX_NAMED_CHARACTERS)
    return InvalidMessageError(field, f"cannot be read: a method of the given object raised {kind}")
