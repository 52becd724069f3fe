"""Cursors of pages: text without a meaning for clients, which is checked when it comes back."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from json import dumps, loads
from typing import TypeVar

from strandline.service.gate.problems import ProblemError, invalid

MAX_CURSOR_CHARACTERS = 4_096

Place = TypeVar("Place")


def cursor_of(list_name: str, place: int | str) -> str:
    """The cursor for the page of a list that begins behind ``place``."""
    return urlsafe_b64encode(dumps([list_name, place]).encode()).decode().rstrip("=")


def read_text_cursor(list_name: str, cursor: str | None) -> str:
    """The place of a cursor of this list, empty without one; raises a problem if it is not one."""
    place = _read(list_name, cursor, "")
    if not isinstance(place, str) or "\0" in place:
        raise unknown_cursor()
    return place


def read_place_cursor(list_name: str, cursor: str | None, read: Callable[[str], Place]) -> Place | None:
    """The place of a cursor of this list, of whose text ``read`` makes it, None without one."""
    text = read_text_cursor(list_name, cursor)
    try:
        return read(text) if text else None
    except (ValueError, OverflowError):
        raise unknown_cursor() from None


def read_number_cursor(list_name: str, cursor: str | None) -> int:
    """The place of a cursor of this list, 0 without one; raises a problem if it is not one."""
    place = _read(list_name, cursor, 0)
    if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < 2**63:
        raise unknown_cursor()
    return place


def _read(list_name: str, cursor: str | None, start: int | str) -> object:
    if cursor is None:
        return start
    try:
        _name, place = loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if cursor_of(list_name, place) != cursor:  # of another list, or in another spelling
            raise unknown_cursor()
        str(place).encode()
    except (ValueError, TypeError, RecursionError):
        raise unknown_cursor() from None
    return place


def unknown_cursor() -> ProblemError:
    """The problem of a cursor that no page of its list gave."""
    return invalid("/query/cursor", "It is not a cursor that a page of this list gave; leave it out.")
