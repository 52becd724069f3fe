"""Operations: each is written once, as a generator that yields the steps to carry out.

A driver (``schemas.postgres.database`` for threads, ``schemas.postgres.async_database`` for asyncio) carries
out the steps and sends back their results.  The operation itself does no I/O and knows no event loop, so the
sync and the async half of the public surface are the same code.  (psycopg's own core is built in this way.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.codec import ContentCodec
from strandline.schemas.sealing.owner_keys import OwnerKeys

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Run:
    """Call something that computes or blocks: inline for threads, in a thread for asyncio."""

    call: Callable[[], Any]


class Compute(Run):
    """The same for long computations: a service runs these one at a time, off the event loop."""


class StepsAside(Protocol):
    """Takes steps of operations off the event loop: for large requests of a service."""

    def takes(self, result: object) -> bool:
        """Whether to take the step that gets this result."""
        ...

    async def run(self, work: Callable[[], Any]) -> Any: ...

    async def compute(self, work: Callable[[], Any]) -> Any:
        """The result of long work, whether the request is large or not."""
        ...


ASIDE: ContextVar[StepsAside | None] = ContextVar("aside", default=None)


def is_aside() -> bool:
    """Whether this request's steps are taken off the event loop: then make computations steps."""
    aside = ASIDE.get()
    return aside is not None and aside.takes(None)


@dataclass(slots=True)
class Await:
    """Await an object of the event loop; for operations that only an asyncio driver carries out."""

    make: Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Atomic:
    """Run another operation in one transaction:

    the caller's, if there is one. ``make`` makes the operation, once for each attempt: if Postgres rolls it
    back because of a conflict, it is tried again, unless the transaction is the caller's.
    """

    make: Callable[[], Generator[Any, Any, Any]]


class Content:
    """The driver's codec, which seals and opens content and has the owners' keys; takes no time."""


OtherStep = Await | Run | Pause | Atomic | Content
Step = Query[Any] | OtherStep
Operation = Generator[Step, Any, T]


def fetch(query: Query[R]) -> Operation[list[R]]:
    """Run one statement, alone in its transaction unless the operation is in one; returns its rows."""
    rows: list[R] = yield query
    return rows


def atomic(operation: Callable[P, Operation[T]]) -> Callable[P, Operation[T]]:
    """The same operation in one transaction, as ``Atomic`` runs it: each attempt begins it again."""

    @wraps(operation)
    def run(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        result: T = yield Atomic(partial(operation, *args, **kwargs))
        return result

    return run


_CONTENT = Content()


def content_codec() -> Operation[ContentCodec]:
    """The codec of the operation's driver, for the keys of owners."""
    codec: ContentCodec = yield _CONTENT
    return codec


def find_owner_keys(shard_key: UUID) -> Operation[OwnerKeys | None]:
    """The keys of an owner; None if its content is not sealed.  Raises KeyUnavailableError."""
    codec = yield from content_codec()
    return (yield from codec.find_keys(shard_key))


def claim_owner_keys(
    namespace: str, shard_key: UUID, *, anew: bool = False, first_number: int | None = None
) -> Operation[OwnerKeys | None]:
    """As ``ContentCodec.claim_keys``."""
    codec = yield from content_codec()
    return (yield from codec.claim_keys(namespace, shard_key, anew=anew, first_number=first_number))
