"""Requests about items, checked and in the form that is sent to Postgres."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strandline.producers.items.filters import ItemFilter
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, InvalidMessageError, StrandlineError
from strandline.schemas.values.foreign_values import plain_text, unreadable
from strandline.schemas.values.message import plain
from strandline.schemas.values.nesting import check_nesting
from strandline.schemas.values.stored_text import check_text, check_texts_within

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


Distance = Literal["cosine", "inner_product", "l2"]

# A hundred years.
MAX_TTL_MINUTES = 100 * 366 * 24 * 60.0

# The range of half-precision numbers.
MAX_COMPONENT = 65_504.0
MAX_DIMENSIONS = 16_000


@dataclass(frozen=True, slots=True)
class ItemGet:
    """Read one item; ``refreshes`` lets it live on for its whole time."""

    path: str
    key: str
    refreshes: bool


@dataclass(frozen=True, slots=True)
class ItemSearch:
    """Search for items in a range of paths; without a vector, for the items written last."""

    paths: PathRange
    filter: ItemFilter
    limit: int
    offset: int
    refreshes: bool
    vector: str | None = None
    distance: Distance = "cosine"


@dataclass(frozen=True, slots=True)
class PathList:
    """List the different paths in a range, cut off at ``max_depth`` labels."""

    paths: PathRange
    patterns: tuple[str, ...]
    max_depth: int
    limit: int
    offset: int


@dataclass(frozen=True, slots=True)
class ItemPut:
    """Store an item with vectors, to live so long after its last use; without a value, delete it."""

    path: str
    key: str
    value: str | None
    vectors: tuple[str, ...] = ()
    ttl_minutes: float | None = None


def check_key(key: object) -> str:
    """Check an item's key; raises ConfigurationError or InvalidMessageError."""
    check_text("key", key)
    text = plain_text(str(key))
    if len(text.encode()) > MAX_KEY_BYTES:
        raise ConfigurationError(f"An item's key has more than {MAX_KEY_BYTES:,} bytes; use a shorter one.")
    return text


def value_json(value: object, max_bytes: int) -> str:
    """An item's value as JSON text.

    Raises:
        InvalidMessageError: it is not an object that JSON can express, too deep, or over ``max_bytes``.
    """
    if not isinstance(value, Mapping):
        raise InvalidMessageError("value", f"must be a dict, not {type(value).__name__}")
    try:
        return _value_json(value, max_bytes)
    except (StrandlineError, MemoryError):
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(
            "value", f"cannot be written as JSON: {error}", for_clients=InvalidMessageError.UNTOLD
        ) from None
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("value", error) from error


def _value_json(value: Mapping[str, Any], max_bytes: int) -> str:
    check_nesting("value", value)
    stored = plain(value)
    check_texts_within("value", stored)
    text = json.dumps(stored, ensure_ascii=False, allow_nan=False)
    if (size := len(text.encode())) > max_bytes:
        raise InvalidMessageError(
            "value",
            f"is {size:,} bytes as JSON, over the limit of {max_bytes:,};"
            " shorten it or raise STRANDLINE_MAX_CONTENT_BYTES",
        )
    return text


def check_ttl(minutes: object) -> float | None:
    """Check how long an item lives; raises ConfigurationError if it is not a number of minutes."""
    if minutes is None:
        return None
    is_number = isinstance(minutes, (int, float)) and not isinstance(minutes, bool)
    if not is_number or not 0 < minutes <= MAX_TTL_MINUTES:  # type: ignore[operator]
        raise ConfigurationError(
            f"ttl is {quote(minutes)}; it must be a number of minutes, above 0 and up to"
            f" {MAX_TTL_MINUTES:,.0f}."
        )
    return float(minutes)  # type: ignore[arg-type]


def vector_text(vector: Sequence[float], dimensions: int | None) -> str:
    """A vector as pgvector's text.

    Raises:
        ConfigurationError: it has other ``dimensions``, or a number that half precision cannot hold.
    """
    numbers = [float(number) for number in vector]
    if dimensions is not None and len(numbers) != dimensions:
        raise ConfigurationError(
            f"The embedder returned a vector of {len(numbers)} dimensions, and index['dims'] is {dimensions};"
            " give the embedder's own."
        )
    if not 1 <= len(numbers) <= MAX_DIMENSIONS:
        raise ConfigurationError(
            f"The embedder returned a vector of {len(numbers)} dimensions; 1 to {MAX_DIMENSIONS:,} can be"
            " stored."
        )
    if not all(math.isfinite(number) and abs(number) <= MAX_COMPONENT for number in numbers):
        raise ConfigurationError(
            f"The embedder returned a vector with {MAX_COMPONENT:,.0f} or more in it, or without a number;"
            " normalise its vectors."
        )
    return f"[{','.join(map(repr, numbers))}]"
