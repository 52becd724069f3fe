"""Paths of items: labels, each with a full stop after it, so that what is below a path begins with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.stored_text import check_text

# A path and a key are entries of one index, whose entries Postgres limits to 2,700 bytes.
MAX_PATH_BYTES = 1_024
MAX_KEY_BYTES = 1_024

# No path has more labels, since each takes two bytes at least.
MAX_LABELS = MAX_PATH_BYTES // 2

WILDCARD = "*"
STOP = "."

# Sorts after every path, by bytes.
_AFTER_ALL = "\U0010ffff" * MAX_PATH_BYTES
# The character after the full stop: what begins with a path sorts before this in the stop's place.
_AFTER_STOP = "/"

_SPECIAL = re.compile(r"[\\.\[\]{}()*+?^$|]")


@dataclass(frozen=True, slots=True)
class PathRange:
    """The stored paths from ``start`` on and before ``end``, by bytes."""

    start: str
    end: str


def path_of(labels: Sequence[str]) -> str:
    """The stored form of a path.

    Raises:
        ConfigurationError: it is too long.
        InvalidMessageError: a label holds NUL or a lone surrogate.
    """
    path = "".join(f"{label}{STOP}" for label in labels)
    check_text("namespace", path)
    if len(path.encode()) > MAX_PATH_BYTES:
        raise ConfigurationError(
            f"A namespace has more than {MAX_PATH_BYTES:,} bytes with its separators; use shorter labels."
        )
    return path


def labels_of(path: str) -> tuple[str, ...]:
    """The labels of a stored path."""
    return tuple(path.split(STOP)[:-1])


def range_below(labels: Sequence[str]) -> PathRange:
    """The path itself and all below it; without labels, every path."""
    path = path_of(labels)
    return PathRange(path, path[:-1] + _AFTER_STOP) if path else PathRange("", _AFTER_ALL)


def range_of_prefixes(prefixes: Sequence[Sequence[str]]) -> PathRange:
    """The smallest range with every path that begins with all of ``prefixes``, up to their first wildcard."""
    ranges = [range_below(_before_wildcard(prefix)) for prefix in prefixes]
    starts = [one.start for one in ranges] or [""]
    return PathRange(max(starts), min([one.end for one in ranges] or [_AFTER_ALL]))


def prefix_pattern(labels: Sequence[str]) -> str:
    """A pattern of Postgres for paths that begin with ``labels``; ``*`` stands for any one label."""
    return "^" + _pattern(labels)


def suffix_pattern(labels: Sequence[str]) -> str:
    """A pattern of Postgres for paths that end with ``labels``; ``*`` stands for any one label."""
    return r"(^|\.)" + _pattern(labels) + "$"


def _pattern(labels: Sequence[str]) -> str:
    return "".join(
        r"[^.]+\." if label == WILDCARD else _SPECIAL.sub(r"\\\g<0>", label) + r"\." for label in labels
    )


def _before_wildcard(labels: Sequence[str]) -> Sequence[str]:
    listed = list(labels)
    return listed[: listed.index(WILDCARD)] if WILDCARD in listed else listed
