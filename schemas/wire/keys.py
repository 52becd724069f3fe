"""Keys of the service: their scopes, making and display."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import Field

from strandline.schemas.wire.base import Answer, Name, Request, UserName, example, one_of

Scope = Literal["read", "write", "facts", "erase", "operate"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

# A day.
DEFAULT_OVERLAP_SECONDS = 86_400.0
MAX_KEY_SECONDS = 10 * 366 * 86_400.0

Seconds = Annotated[float, Field(gt=0, le=MAX_KEY_SECONDS)]


class KeyRequest(
    Request, json_schema_extra=example(scopes=["read", "write"], user_id="ana", label="web chat")
):
    """A key to make: for one user or for all of the namespace, with scopes, perhaps with an end.

    ``shared_scopes``: the scopes in which a key of one user may begin sessions; none, unless they are named.
    ``namespace`` may be given by the key of an operator of the whole installation only.
    It ends with the key that makes it, or before.
    """

    scopes: Annotated[list[Scope], Field(min_length=1, max_length=5)]
    user_id: UserName | None = None
    shared_scopes: Annotated[list[Name], Field(max_length=100)] = Field(default_factory=list)
    label: Annotated[str, Field(max_length=200)] = ""
    expires_in_seconds: Seconds | None = None
    namespace: Name | None = None


class KeyRotation(Request, json_schema_extra=example(overlap_seconds=3600)):
    """How long the old key stays valid next to the new one, and when the new one ends.

    Without ``expires_in_seconds`` the new key lives as long as the old one was to when it was made.
    """

    overlap_seconds: Annotated[float, Field(ge=0, le=MAX_KEY_SECONDS)] = DEFAULT_OVERLAP_SECONDS
    expires_in_seconds: Seconds | None = None


class KeyInfo(Answer):
    """A key without its secret, which is not stored; ``namespace`` null: an operator of the installation.

    ``made_by``: the key whose request made it; null: it was made without the service, as by a command.
    """

    key_id: str
    namespace: str | None
    user_id: str | None
    scopes: list[Annotated[str, one_of(*SCOPES)]]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    made_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_over: bool


class NewKey(KeyInfo):
    """A key that was made; ``key`` is shown this once."""

    key: str


class RevokedKey(KeyInfo):
    """A key that was ended; ``with_made``: the keys that were ended with it."""

    with_made: list[str]


class Identity(Answer):
    """The identity of a request, by its key."""

    key_id: str
    namespace: str | None
    user_id: str | None
    scopes: list[Annotated[str, one_of(*SCOPES)]]
    shared_scopes: list[str]
    label: str
    expires_at: datetime | None
