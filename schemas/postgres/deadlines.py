"""A client-side deadline for every statement on one of our connections.

Postgres ends a statement that takes too long, but cannot tell a client that it no longer reaches: behind a
firewall or proxy that drops packets without a word, the client would wait for an answer until TCP gives up,
which is never if a proxy acknowledges data that it then loses.  So a connection waits a little longer than
Postgres works on a statement, and then closes itself: a later answer could belong to any statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

from strandline.schemas.postgres.own_connection import AsyncOwnConnection, OwnConnection

RV = TypeVar("RV")

# Beyond ``statement_timeout``: what Postgres's own error may take to arrive.
GRACE_SECONDS = 2.0

# Without a limit on the server: one statement of verify, or of a migration.
MAINTENANCE_SECONDS = 2 * 3600.0

# With less time left than this a statement is not sent again: its answer could not be waited for.
MIN_SECONDS_LEFT = 0.25


class DeadlineExceeded(psycopg.OperationalError):
    """Postgres did not answer in time; the connection is closed."""


class BoundedConnection(OwnConnection):
    """A connection that waits for ``statement_seconds`` at most for the answer to one statement."""

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """As psycopg's, and within the deadline.

        Raises:
            DeadlineExceeded: no answer came; the connection is closed.
        """
        try:
            return super().wait(_within(self.statement_seconds, gen), *arguments, **options)
        except DeadlineExceeded:
            self.close()
            raise


class AsyncBoundedConnection(AsyncOwnConnection):
    """The same for an event loop."""

    async def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Async twin of ``BoundedConnection.wait``."""
        try:
            return await super().wait(_within(self.statement_seconds, gen), *arguments, **options)
        except DeadlineExceeded:
            await self.close()
            raise


class Attempts:
    """From now on, so many seconds for each attempt at a statement, and twice that for all of them."""

    __slots__ = ("_attempt_ends_at", "_ends_at", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends_at = monotonic() + 2 * seconds
        self.begin()

    def begin(self) -> None:
        """Begin another attempt."""
        self._attempt_ends_at = min(monotonic() + self._seconds, self._ends_at)

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._attempt_ends_at - monotonic())

    @property
    def is_too_late(self) -> bool:
        """Whether too little is left of this attempt to send the statement."""
        return self.seconds_left < min(MIN_SECONDS_LEFT, self._seconds / 2)


@contextmanager
def within(
    seconds: float, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
) -> Iterator[None]:
    """Have statements of a block answered within ``seconds``; has no effect on others' connections."""
    if not isinstance(connection, (OwnConnection, AsyncOwnConnection)):
        yield
        return
    before = connection.statement_seconds
    connection.statement_seconds = seconds
    try:
        yield
    finally:
        connection.statement_seconds = before


def _within(seconds: float, generator: PQGen[RV]) -> PQGen[RV]:
    deadline = monotonic() + seconds
    try:
        request = next(generator)
        while True:
            ready = yield request
            # Before the clock is checked: data that arrived in time counts, however late it is taken.
            request = generator.send(ready)
            if monotonic() >= deadline:
                raise DeadlineExceeded(f"no answer within {seconds:.3g} s")
    except StopIteration as done:
        result: RV = done.value
        return result
