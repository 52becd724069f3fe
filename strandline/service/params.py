"""Parameters that several routes share: names in paths, and pages of lists with their cursors."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from json import dumps, loads
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote
from uuid import UUID

from pydantic import AfterValidator, Field

from strandline.schemas.values.identity import MAX_NAME_BYTES, check_id, check_name
from strandline.schemas.wire.base import MAX_PAGE
from strandline.service.gate.heads import user_at
from strandline.service.gate.problems import ProblemError, invalid

MAX_CURSOR_CHARACTERS = 4_096

Place = TypeVar("Place")


def _decoded(value: str) -> str:
    """A name as it was before it became a part of a path; a slash in it comes as ``%2F``."""
    return check_name("path", unquote(value, errors="strict"))


def _decoded_id(value: str) -> str:
    return check_id("path", unquote(value, errors="strict"))


decoded = AfterValidator(_decoded)


# As it is named: in the path it may have three times as many characters.
_NAME_SCHEMA = {"minLength": 1, "maxLength": MAX_NAME_BYTES}


def _name_in_path(description: str, *, examples: list[str] | None = None) -> Any:
    return Field(description=description, examples=examples, json_schema_extra=dict(_NAME_SCHEMA))


SessionId = Annotated[
    str,
    _name_in_path("The session; a slash in its id is sent as %2F.", examples=["chat-17"]),
    decoded,
]
UserId = Annotated[
    str, _name_in_path("The user.", examples=["ana"]), decoded, AfterValidator(partial(user_at, "/path/user"))
]
RunId = Annotated[str, _name_in_path("The run."), decoded]
SourceId = Annotated[str, _name_in_path("The source."), decoded]
ScopeName = Annotated[str, _name_in_path("The name of the scope."), decoded]
MessageId = Annotated[str, _name_in_path("The id of the message."), AfterValidator(_decoded_id)]
SeqPath = Annotated[int, Field(ge=1, le=2**53 - 1, description="The number of the message in its session.")]
FactId = Annotated[UUID, Field(description="The id of the fact.")]
KeyId = Annotated[str, Field(description="The id of the key.", max_length=100)]
Cursor = Annotated[
    str | None,
    Field(
        max_length=MAX_CURSOR_CHARACTERS, description="`next_cursor` of the page before; default: the first."
    ),
]
PageSize = Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many at most.")]


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
