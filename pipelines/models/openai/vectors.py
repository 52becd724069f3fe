"""Reads vectors as servers write them: lists of numbers, base64 of float32, or a list in a list."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence


def read_vector(value: object) -> object:
    """The numbers of an embedding; a value of another form as it is, for its reader to refuse."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, str):
        return value
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    return list(struct.unpack(f"<{len(raw) // 4}f", raw)) if raw and len(raw) % 4 == 0 else value


def in_order(indexes: Sequence[int | None], expected: int) -> list[int] | None:
    """For each text the place of its vector; None if that cannot be told.

    A number that is left out is 0, as some encoders leave out zeros, and the first may be 1; where all
    are the same, or none is there, the order counts.
    """
    if len(indexes) != expected:
        return None
    if len(set(indexes)) <= 1:
        return list(range(expected))
    known = [index or 0 for index in indexes]
    first = min(known)
    if first not in (0, 1) or sorted(known) != list(range(first, first + expected)):
        return None
    places = [0] * expected
    for place, index in enumerate(known):
        places[index - first] = place
    return places
