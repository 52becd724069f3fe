"""The demands of each route, and its disclosures: scope, key, permits, content, repetition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeVar, get_args

from strandline.schemas.wire.base import Idempotent
from strandline.schemas.wire.keys import Scope as KeyScope
from strandline.service.gate.authentication import Holder

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ACCESS = "__strandline_access__"

Queue = Literal["reads", "writes", "others", "keys", "streams"]
Content = Literal["messages", "facts", "summaries", "items", "names", "operators"]
"""Content of an answer: people's words by where they are, names (ids of users and sessions, as typed), and
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
        waits, goes_on, meets: as ``WireAct`` has them.
        matches: whether it takes If-Match.
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
    waits: bool = False
    goes_on: bool = False
    meets: tuple[str, ...] = ()
    matches: bool = False
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


def access_of(endpoint: Callable[..., Any]) -> Access | None:
    """An endpoint's demands; None for an open one."""
    rule: Access | None = getattr(endpoint, _ACCESS, None)
    return rule
