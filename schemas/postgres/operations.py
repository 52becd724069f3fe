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


@dataclass(frozen=True, slots=True)
class WithContent:
    """Run the operation that ``make`` makes of the driver's codec, such as finding an owner's keys."""

    make: Callable[[ContentCodec], Generator[Any, Any, Any]]


@dataclass(slots=True)
class KnownKeys:
    """The keys of an owner, if the process has them; takes no time.  (Not frozen: each put makes one.)

    The result is ``Unknown.UNKNOWN`` if it has to ask whether there are any.
    """

    namespace: str
    shard_key: UUID


OtherStep = Await | Run | Pause | Atomic | KnownKeys | WithContent
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


def find_owner_keys(shard_key: UUID) -> Operation[OwnerKeys | None]:
    """The keys of an owner; None if its content is not sealed.

    Raises:
        KeyUnavailableError: they cannot be unwrapped.
    """
    keys: OwnerKeys | None = yield WithContent(partial(_find, shard_key))
    return keys


def note_unsealed() -> Operation[None]:
    """Nothing is sealed in the whole database, as a statement has just said."""
    yield WithContent(_note_unsealed)


def look_up_owner_keys(namespace: str, shard_key: UUID) -> Operation[tuple[bool, OwnerKeys | None]]:
    """Whether a namespace is sealed, and the keys of an owner if it has any already.

    Raises:
        KeyUnavailableError: they cannot be unwrapped.
    """
    answer: tuple[bool, OwnerKeys | None] = yield WithContent(partial(_look_up, namespace, shard_key))
    return answer


def claim_owner_keys(
    namespace: str, shard_key: UUID, *, anew: bool = False, first_number: int | None = None
) -> Operation[OwnerKeys | None]:
    """Get an owner's keys before its first content is stored; made if its namespace is sealed.

    Args:
        anew: from the database, past the process's cache.
        first_number: of the first data key of the owner's present life, if the caller knows it; looked for if
            this process has cached keys, which may predate an erasure.
    """
    keys: OwnerKeys | None = yield WithContent(partial(_claim, namespace, shard_key, anew, first_number))
    return keys


def check_owner_keys(shard_key: UUID, first_number: int) -> Operation[None]:
    """Fetch an owner's keys again if this process cached some below ``first_number``, from before an erasure.

    Raises:
        KeyUnavailableError: they cannot be unwrapped.
    """
    yield WithContent(partial(_check, shard_key, first_number))


def _find(shard_key: UUID, codec: ContentCodec) -> Operation[OwnerKeys | None]:
    return codec.find_keys(shard_key)


def _note_unsealed(codec: ContentCodec) -> Operation[None]:
    codec.note_unused()
    return
    yield


def _look_up(
    namespace: str, shard_key: UUID, codec: ContentCodec
) -> Operation[tuple[bool, OwnerKeys | None]]:
    return codec.look_up_keys(namespace, shard_key)


def _claim(
    namespace: str, shard_key: UUID, anew: bool, first_number: int | None, codec: ContentCodec
) -> Operation[OwnerKeys | None]:
    return codec.claim_keys(namespace, shard_key, anew=anew, first_number=first_number)


def _check(shard_key: UUID, first_number: int, codec: ContentCodec) -> Operation[None]:
    return codec.check_keys(shard_key, first_number)
