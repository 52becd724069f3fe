"""Parameters that several routes share."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator

from strandline.schemas.values.identity import MAX_NAME_BYTES, check_name
from strandline.schemas.wire.base import MAX_PAGE
from strandline.service.gate.cursors import MAX_CURSOR_CHARACTERS
from strandline.service.gate.heads import user_at
from strandline.service.route import ServiceRoute


def make_router() -> APIRouter:
    """A router of the service."""
    return APIRouter(route_class=ServiceRoute)


def _decoded(value: str) -> str:
    """A name as it was before it became a part of a path; a slash in it comes as ``%2F``."""
    return check_name("path", unquote(value, errors="strict"))


decoded = AfterValidator(_decoded)


# As it is named; in the path it may have three times as many characters.
_NAME_SCHEMA = {"minLength": 1, "maxLength": MAX_NAME_BYTES}


def _name_in_path(description: str, *, examples: list[str] | None = None) -> Any:
    return Path(
        description=description, max_length=2_000, examples=examples, json_schema_extra=dict(_NAME_SCHEMA)
    )


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
MessageId = Annotated[str, _name_in_path("The id of the message."), decoded]
SeqPath = Annotated[int, Path(ge=1, le=2**53 - 1, description="The number of the message in its session.")]
FactId = Annotated[UUID, Path(description="The id of the fact.")]
KeyId = Annotated[str, Path(description="The id of the key.", max_length=100)]
Cursor = Annotated[
    str | None,
    Query(
        max_length=MAX_CURSOR_CHARACTERS, description="`next_cursor` of the page before; default: the first."
    ),
]
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many at most.")]
