"""Operations: each is written once, as a generator that yields the steps to carry out.

A driver (``schemas.postgres.database`` for threads, ``schemas.postgres.async_database`` for asyncio) carries
out the steps and sends back their results.  The operation itself does no I/O and knows no event loop, so the
sync and the async half of the public surface are the same code.  (psycopg's own core is built in this way.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from strandline.schemas.postgres.query import Query

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Run:
    """Call something that computes or blocks: inline for threads, in a thread for asyncio."""

    call: Callable[[], Any]


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


Step = Query[Any] | Await | Run | Pause | Atomic
Operation = Generator[Step, Any, T]


def fetch(query: Query[R]) -> Operation[list[R]]:
    """Run one statement, alone in its transaction unless the operation is in one; returns its rows."""
    rows: list[R] = yield query
    return rows
