"""Values of a caller's own classes: what their methods raise while they are looked at.

A subclass of a built-in type may do anything where it is compared, counted or written out.  What it raises is
told as what it is: a value that cannot be read.
"""

from __future__ import annotations

from typing import Any

from strandline.schemas.display.shown_text import shown
from strandline.schemas.errors import InvalidMessageError

_MAX_NAMED_CHARACTERS = 80
_SIZED: tuple[type[Any], ...] = (list, dict, tuple, str)


def plain_text(value: str) -> str:
    """The same text as a ``str`` and nothing more, whatever a subclass of it may do."""
    return value if type(value) is str else str.__str__(value)


def plain_int(value: int) -> int:
    """The same number as an ``int`` and nothing more."""
    return value if type(value) is int else int.__index__(value)


def plain_number(value: float) -> float:
    """The same number as an ``int`` or a ``float`` and nothing more."""
    return plain_int(value) if isinstance(value, int) else float.__float__(value)


def plain_scalar(value: object) -> Any:
    """A text or number as its built-in type and nothing more; what is neither, as it is."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return plain_number(value)
    return value


def plain_list(value: list[Any] | tuple[Any, ...]) -> list[Any]:
    """The same items in a ``list`` and nothing more."""
    return list(list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value))


def is_empty(value: object) -> bool:
    """Whether it is None or an empty list, dict or text; the length of other values is not computed."""
    kind = next((kind for kind in _SIZED if isinstance(value, kind)), None)
    return value is None if kind is None else kind.__len__(value) == 0


def unreadable(field: str, error: Exception) -> InvalidMessageError:
    """The error for a value under ``field`` whose own methods raised ``error``."""
    kind = shown(type(error).__name__, most=_MAX_NAMED_CHARACTERS)
    return InvalidMessageError(field, f"cannot be read: a method of the given object raised {kind}")
