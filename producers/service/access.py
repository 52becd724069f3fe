"""What each route asks of a request: scope, whose key, permits, and what repeating does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from pydantic import BaseModel

from strandline.producers.service.gate.authentication import Holder
from strandline.producers.service.service import Queue
from strandline.schemas.wire.base import Idempotent
from strandline.schemas.wire.keys import Scope as KeyScope

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ACCESS = "__strandline_access__"


@dataclass(frozen=True, slots=True)
class Access:
    """What a route asks of a request.

    Attributes:
        scope: of the key; None: any key will do.
        queue: whose permits it takes.
        takes_user: whether the header ``Strandline-User`` says whose session it is.
        idempotent: what a request does that comes again.
        matches: whether it takes If-Match.
        is_direct: whether its endpoint is called without the framework's steps.
        holder: whose key it takes.
        any_user: whether it tells of a session whoever's it is, to a request that names no user.
        own_turns: of a read: it takes its turns among the reads itself, as one does that waits between them.
    """

    scope: KeyScope | None
    queue: Queue
    takes_user: bool = False
    idempotent: Idempotent = "reads"
    matches: bool = False
    is_direct: bool = False
    holder: Holder = "any"
    any_user: bool = False
    own_turns: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether a response is kept for a repeated Idempotency-Key."""
        return self.idempotent == "kept"

    @property
    def is_known_by_key(self) -> bool:
        """Whether an Idempotency-Key means something to it."""
        return self.idempotent in ("kept", "own", "once")


def access(
    scope: KeyScope | None,
    queue: Queue,
    *,
    user: bool = False,
    idempotent: Idempotent = "reads",
    matches: bool = False,
    direct: bool = False,
    holder: Holder = "any",
    any_user: bool = False,
    own_turns: bool = False,
) -> Callable[[Endpoint], Endpoint]:
    """Say what an endpoint asks of a request; without this it is open to all."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(
            endpoint,
            _ACCESS,
            Access(
                scope=scope,
                queue=queue,
                takes_user=user,
                idempotent=idempotent,
                matches=matches,
                is_direct=direct,
                holder=holder,
                any_user=any_user,
                own_turns=own_turns,
            ),
        )
        return endpoint

    return mark


def access_of(route: APIRoute) -> Access | None:
    """What a route asks of a request; None: nothing, it is open to all."""
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
