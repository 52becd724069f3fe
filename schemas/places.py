"""Places in lists, as text: a client sends one for the page behind it, and may have written it itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def place_text(*parts: Any) -> str:
    """The parts of a place with slashes between, of which only the last may hold one; times are in UTC."""
    return "/".join(
        part.astimezone(UTC).isoformat() if isinstance(part, datetime) else str(part) for part in parts
    )


def read_place(text: str, *kinds: type) -> tuple[Any, ...]:
    """The parts of a place, by their kinds, as ``place_text`` wrote them; raises ValueError otherwise."""
    pieces = zip(kinds, text.split("/", len(kinds) - 1), strict=True)
    try:
        parts = tuple(datetime.fromisoformat(one) if kind is datetime else kind(one) for kind, one in pieces)
        is_own = place_text(*parts) == text
    except OverflowError:
        is_own = False
    if not is_own or not all(0 <= part < 2**63 for part in parts if isinstance(part, int)):
        raise ValueError("not a place")
    return parts
