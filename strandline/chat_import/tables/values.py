"""The values of other libraries' columns, read as text: JSON, Python's ``str(dict)``, moments."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime
from typing import Any

from strandline.schemas.foreign_json import refuse_repeated

# ``str(dict)`` is read by Python's parser, which takes a hundred times the text in memory.
MAX_LITERAL_CHARACTERS = 1_000_000

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
# Above these, a number is nanoseconds, microseconds or milliseconds instead of seconds.
_UNITS = ((10**17, 10**9), (10**14, 10**6), (10**11, 10**3))


def read_json(text: str | None) -> Any:
    """The value of a JSON column; None for NULL. JSON that was encoded twice is decoded twice.

    Raises:
        ValueError: it is not JSON; the text says why, worded to follow the column's name.
    """
    if text is None:
        return None
    try:
        value = json.loads(text, object_pairs_hook=refuse_repeated)
        if isinstance(value, str) and value[:1] in ("{", "["):
            value = json.loads(value, object_pairs_hook=refuse_repeated)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None
    return value


def read_mapping(text: str | None) -> dict[str, Any]:
    """The object in a column that holds JSON, or what Python's ``str`` makes of a dict.

    Raises:
        ValueError: it holds neither; the text says so, worded to follow the column's name.
    """
    try:
        value = read_json(text)
    except ValueError:
        value = _read_literal(text or "")
    if not isinstance(value, dict):
        raise ValueError("is neither a JSON object nor a Python dict")
    return value


def read_moment(value: object) -> datetime | None:
    """A moment as text or number: ISO 8601 (without a zone: UTC), or seconds since 1970, or parts of them.

    None if it is none, or lies outside the years 1970 to 9999.
    """
    number = _number(value)
    try:
        if number is not None:
            divisor = next((unit for limit, unit in _UNITS if abs(number) >= limit), 1)
            moment = datetime.fromtimestamp(number / divisor, UTC)
        elif isinstance(value, str):
            moment = datetime.fromisoformat(value)
        else:
            return None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return moment if _EARLIEST <= moment <= _LATEST else None
    except (ValueError, OverflowError, OSError):
        return None


def _number(value: object) -> float | int | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _read_literal(text: str) -> object:
    if len(text) > MAX_LITERAL_CHARACTERS:
        raise ValueError(f"is a Python dict of more than {MAX_LITERAL_CHARACTERS:,} characters")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("is neither a JSON object nor a Python dict") from None
