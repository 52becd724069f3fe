"""One line of chat JSONL, as an object."""

from __future__ import annotations

import json
from typing import Any


def object_in(line: str | bytes) -> dict[str, Any]:
    """The JSON object that a line holds.

    Raises:
        ValueError: the line does not hold an object; the text says why, worded to follow the line's name.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError('must be a JSON object with "role" and "content"')
    return value
