"""The demands of each route, and its disclosures: scope, key, permits, content, repetition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeVar, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel

from strandline.schemas.wire.base import Idempotent
from strandline.schemas.wire.keys import Scope as KeyScope
from strandline.service.gate.authentication import Holder
from strandline.service.service import Queue

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ACCESS = "__strandline_access__"

Content = Literal["messages", "facts", "summaries", "items", "names", "operators"]
"""What an answer can tell: people's words by where they are, names (ids of users and sessions, as typed), and
operators' words (labels, actors, reasons, instructions)."""
CONTENTS: tuple[Content, ...] = get_args(Content)
WORDS = frozenset(CONTENTS[:4])


@dataclass(frozen=True, slots=True)
class Access:
    """A route's demands and disclosures, declared above its endpoint; a route without it is open.

    Attributes:
        scope: of the key; None: any key will do.
        queue: its source of permits.
        tells: the content that its answer can hold, apart from the request's own.
        takes_user: whether the header ``Strandline-User`` names the session's user.
        idempotent: the effect of a repeated request.
        matches: whether it takes If-Match.
        is_direct: whether its endpoint is called without the framework's steps.
        holder: whose key it takes.
        any_user: whether it tells of any user's session to a request without a user.
        own_turns: of a read: it takes its turns among the reads itself, since it waits between them.

    Raises:
        ValueError: the key of the installation has the scope, and would be told people's words.
    """

    scope: KeyScope | None
    queue: Queue
    tells: tuple[Content, ...]
    _: KW_ONLY
    takes_user: bool = False
    idempotent: Idempotent = "reads"
    matches: bool = False
    is_direct: bool = False
    holder: Holder = "any"
    any_user: bool = False
    own_turns: bool = False

    def __post_init__(self) -> None:
        if self.scope in (None, "operate") and not WORDS.isdisjoint(self.tells):
            raise ValueError(f"The scope {self.scope} is told no words of people; ask for another one.")

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        """Mark an endpoint."""
        setattr(endpoint, _ACCESS, self)
        return endpoint

    @property
    def is_kept(self) -> bool:
        """Whether a response is kept for a repeated Idempotency-Key."""
        return self.idempotent == "kept"

    @property
    def is_known_by_key(self) -> bool:
        """Whether an Idempotency-Key means something to it."""
        return self.idempotent in ("kept", "own", "once")


def access_of(route: APIRoute) -> Access | None:
    """A route's demands; None for an open route."""
    access_rule: Access | None = getattr(route.endpoint, _ACCESS, None)
    return access_rule


def body_of(route: APIRoute) -> type[BaseModel] | None:
    """The model of a route's body; None: it has none."""
    annotation = None if route.body_field is None else route.body_field.field_info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def needs_user(route: APIRoute) -> bool:
    """Whether a request must say whose session it is about, unless its key does."""
    access_rule = access_of(route)
    if access_rule is None or not access_rule.takes_user or access_rule.any_user:
        return False
    return "{session_id}" in route.path_format
