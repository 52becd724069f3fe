"""Nesting: how deep the JSON of a message may go.

Each reader of JSON gives up at a different depth (Python's recursion limit, pydantic's, an SDK's), and all of
them must be able to read an accepted message later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from strandline.schemas.display.field_paths import below, rename
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import InvalidMessageError

# Far more than content parts, metadata or a tool's arguments need, and a fourth of what pydantic reads.
MAX_NESTING_LEVELS = 64

# So much of a path is named in a sentence; a field of a hundred levels is found by its first few.
_MAX_NAMED_LEVELS = 4

_LEAVES = frozenset({str, int, float, bool, type(None)})


def check_nesting(path: str, value: object) -> None:
    """Raise InvalidMessageError, naming the field under ``path``, if ``value`` is nested too deep.

    A value that contains itself is nested without end, and is refused as well.
    """
    if _is_too_deep(value):
        raise InvalidMessageError(
            _too_deep_path(path, value),
            f"is nested more than {MAX_NESTING_LEVELS} levels deep; store it flatter, or as text",
        )


def _is_too_deep(value: object) -> bool:
    """Check without paths: a put may hold a quarter of a million values."""
    stack = [(value, 1)] if _holds_more(value) else []
    while stack:
        outer, level = stack.pop()
        for inner in outer.values() if isinstance(outer, Mapping) else cast("Sequence[object]", outer):
            if type(inner) not in _LEAVES and _holds_more(inner):
                if level == MAX_NESTING_LEVELS:
                    return True
                stack.append((inner, level + 1))
    return False


def _too_deep_path(path: str, value: object) -> str:
    stack = [(path, value, 1)]
    while stack:
        where, outer, level = stack.pop()
        for step, inner in _inside(outer):
            if not _holds_more(inner):
                continue
            if level == MAX_NESTING_LEVELS:
                return where
            inside = below(where, step)
            path_of_inner = inside if level <= _MAX_NAMED_LEVELS else rename(inside, where)
            stack.append((path_of_inner, inner, level + 1))
    return path


def _inside(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        yield from ((key if type(key) is str else quote(key), inner) for key, inner in value.items())
    elif _holds_more(value):
        yield from enumerate(cast("Sequence[object]", value))


def _holds_more(value: object) -> bool:
    if type(value) in (dict, list):  # nearly all are, and the abstract classes below take long to ask
        return True
    if isinstance(value, (str, int, float, bytes, bytearray)):
        return False
    return isinstance(value, (Mapping, Sequence))
