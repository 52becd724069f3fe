"""Who acts, and from where: a context variable that travels with every call.

``acting`` sets it for a block, as an HTTP service does for a request.  As with every context variable, a task
and ``asyncio.to_thread`` begin with a copy of their creator's, and a bare thread begins without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from strandline.schemas.values.identity import check_name

WORKER = "worker"
"""The actor of what workers do by themselves."""


@dataclass(frozen=True, slots=True)
class Acting:
    """Who acts, and from where, as the audit trail records it.

    Attributes:
        actor: the person, the service or the key; None if unnamed.
        origin: such as the client's address; None if unnamed.
        is_proven: the actor has proved its identity, as a key of the service does; an actor that a call names
            is then recorded as the party it acts for.
        is_user: the actor is the user whose memory it is, with a key of their own that operates nothing: no
            message that it puts is kept for being important.
    """

    actor: str | None = None
    origin: str | None = None
    is_proven: bool = False
    is_user: bool = False

    def record_of(self, actor: str | None) -> tuple[str | None, str | None]:
        """The actor and the party it acts for, as the trail records them; raises InvalidMessageError."""
        if actor is None:
            return self.actor, None
        named = check_name("actor", actor)
        return (self.actor, named) if self.is_proven else (named, None)


_NOBODY = Acting()
_acting: ContextVar[Acting] = ContextVar("strandline_acting", default=_NOBODY)


@contextmanager
def acting(
    *, actor: str | None = None, origin: str | None = None, is_proven: bool = False, is_user: bool = False
) -> Iterator[Acting]:
    """Name the actor and the origin of the block's acts; in a nested block, missing ones are inherited.

    The audit trail records both with each act.  Methods with an argument ``actor`` take it as the default.
    An actor that is the id of the very user whose memory is concerned is recorded as that user's pseudonym.

    Args:
        actor: the person, the service or the key, up to 512 bytes.
        origin: where the act comes from, such as the client's address, up to 512 bytes.
        is_proven: the actor has proved its identity: an argument ``actor`` of a method is then recorded as
            ``on_behalf_of``.
        is_user: the actor is the user whose memory it is: metadata ``important`` of its puts keeps no message
            longer than retention says.

    Raises:
        InvalidMessageError: one of them is empty, too long, or holds NUL or a lone surrogate.
    """
    outer = _acting.get()
    inner = Acting(
        outer.actor if actor is None else check_name("actor", actor),
        outer.origin if origin is None else check_name("origin", origin),
        outer.is_proven if actor is None else is_proven,
        outer.is_user or is_user,
    )
    token = _acting.set(inner)
    try:
        yield inner
    finally:
        _acting.reset(token)


def current_acting() -> Acting:
    """Who acts here, and from where."""
    return _acting.get()


def actor_or_current(actor: str | None) -> str | None:
    """The given actor, or the one of the block around; raises InvalidMessageError if it is not a name."""
    return _acting.get().actor if actor is None else check_name("actor", actor)
