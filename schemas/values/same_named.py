"""Objects made of the values that others have under the names of their fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import get_annotations
from typing import Any, TypeVar

T = TypeVar("T")

_MISSING = object()


def make_from(kind: Callable[..., T], /, *sources: object, **others: Any) -> T:
    """An object of ``kind``, a dataclass, a model or a query, with ``others`` as its other fields.

    A field that several sources have is the last one's; a field that none has takes its default.
    """
    for source in reversed(sources):
        for name in _names(kind):
            if name not in others and (value := getattr(source, name, _MISSING)) is not _MISSING:
                others[name] = value
    return kind(**others)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(one.name for one in fields(kind))
    return tuple(getattr(kind, "model_fields", None) or get_annotations(kind))
