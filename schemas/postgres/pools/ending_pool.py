"""A pool for one piece of work that another thread may end, together with its running statement.

A thread cannot be cancelled: when its caller stops waiting, its work would continue and hold a connection.
So the caller has Postgres cancel the work's statements, and the pool lends no more connections.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from strandline.schemas.errors import DatabaseTimeoutError
from strandline.schemas.postgres.pools.engine_pool import LentPool, SyncPool

# A request to cancel needs another connection.
CANCEL_SECONDS = 5.0


class EndingPool(LentPool):
    """The connections that one piece of work borrows of a pool; ``end`` may be called by any thread."""

    closed = False

    def __init__(self, pool: SyncPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._in_hand: set[psycopg.Connection[Any]] = set()
        self._has_ended = False

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection[Any]]:
        """One connection of the pool.

        Raises:
            DatabaseTimeoutError: the work was ended.
        """
        self._check()
        with self._pool.connection(timeout) as connection:
            self._check()
            with self._lock:
                self._in_hand.add(connection)
            try:
                yield connection
            finally:
                with self._lock:
                    self._in_hand.discard(connection)
                    was_cancelled = self._has_ended
                if was_cancelled:
                    connection.close()  # so no cancellation that comes late meets another's statement

    def end(self) -> None:
        """Lend no more, and have Postgres cancel what runs now; it takes as long as reaching Postgres does.

        Between two statements of a transaction there is nothing to cancel: call it again until the work has
        ended.
        """
        with self._lock:  # so a connection that was given back is not cancelled for another
            self._has_ended = True
            for connection in self._in_hand:
                try:
                    connection.cancel_safe(timeout=CANCEL_SECONDS)
                except psycopg.Error:
                    continue  # it is gone, or Postgres is: either ends the statement

    def renew(self, lost: psycopg.Connection[Any]) -> None:
        """As the pool does."""
        self._pool.renew(lost)

    def _check(self) -> None:
        if self._has_ended:
            raise DatabaseTimeoutError("The work was ended, since its time was over.")
