"""Operations: each is written once, as a generator that yields what it wants done.

A driver (``schemas.postgres.database`` for threads, ``schemas.postgres.async_database`` for asyncio) carries
the steps out and sends back what came of them.  The operation itself does no I/O and knows no event loop, so
the sync and the async half of the public surface are the same code.  (psycopg's own core is built so.)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from strandline.schemas.postgres.query import Query

T = TypeVar("T")
R = TypeVar("R")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Run one named statement, alone in its transaction; the answer is a list of rows (tuples).

    ``repeatable``: running it again after a lost connection does no harm (reads, and puts by id).
    """

    name: str
    params: Mapping[str, Any]
    repeatable: bool = True


@dataclass(slots=True)
class Put:
    """Accept one message, by whatever way is the shortest; the answer is the rows of the statement ``put``.

    Attributes:
        one: the parameters of ``put_one``.
        whole: makes those of ``put``, which decides where ``put_one`` does nothing.
    """

    one: Mapping[str, Any]
    whole: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """Call something that computes or blocks: inline for threads, in a thread for asyncio."""

    call: Callable[[], Any]


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


Step = Query[Any] | Fetch | Put | Run | Pause | Atomic
Operation = Generator[Step, Any, T]


def fetch(query: Query[R]) -> Operation[list[R]]:
    """Run one statement, alone in its transaction unless the operation is in one; its rows."""
    rows: list[R] = yield query
    return rows
