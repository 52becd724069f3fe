"""Whether Postgres can be reached, as the connections of one pool find it; changes are logged once.

A pool keeps connecting and lets its callers wait: right while a server restarts, wrong if there is none,
since a caller with the wrong port should learn that at once.  So each attempt is noted here, and a caller
waits only if the server was there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.own_connection import AsyncOwnConnection, OwnConnection
from strandline.schemas.postgres.pools.beginnings import Beginnings, begin, begin_async
from strandline.schemas.postgres.pools.connect_problems import connect_problem
from strandline.schemas.postgres.pools.reconnecting import RECONNECT_SECONDS
from strandline.schemas.postgres.pools.refusals import WILL_TAKE_MORE, Refusals
from strandline.schemas.postgres.translation import Unreachable

logger = logging.getLogger("strandline.database")

# How often whoever waits looks again: soon at first, since a connection is mostly there in milliseconds.
FIRST_STEP_SECONDS = 0.001
MAX_STEP_SECONDS = 0.05

_FAILURES = (ConfigurationError, psycopg.Error, OSError)


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller that wants a connection; ``failures`` counts those before it came."""

    since: float
    failures: int


class Reach:
    """The reachability of one server; safe to share between threads.

    Args:
        url: the server's, for sentences, which show none of its secrets.
        patience_seconds: how long callers wait for a server that was there before.

    Attributes:
        is_fine: whether the server was reached, and nothing has happened since.
    """

    def __init__(self, url: str, patience_seconds: float) -> None:
        self._url = url
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._problem: str | None = None
        self._will_take_more = False
        self._failures = 0
        self._failed_at = 0.0
        self._lost_at = 0.0
        self.is_fine = False
        self.callers = 0
        self.refusal: ConfigurationError | None = None
        self.refusals = Refusals()

    @property
    def problem(self) -> str | None:
        """Why no connection can be made, as a sentence; None while connections succeed."""
        return self._problem

    def note_came(self) -> Caller:
        """Register a caller that wants a connection; it calls ``left`` when it is done."""
        with self._lock:
            self.callers += 1
            return Caller(time.monotonic(), self._failures)

    def note_left(self) -> None:
        """Unregister a caller that no longer waits."""
        with self._lock:
            self.callers -= 1

    def note_connected(self) -> None:
        """Note that a connection was made."""
        with self._lock:
            away_since, self._away_since = self._away_since, None
            self.is_fine, self._problem, self.refusal = True, None, None
            self._lost_at = away_since or self._lost_at
        if away_since is not None:
            seconds = round(time.monotonic() - away_since, 1)
            logger.warning("database is back", extra={"action": "database_back", "after_seconds": seconds})

    def note_failed(self, error: Exception, code: str | None = None) -> None:
        """Note that a connection could not be made; ``code`` is the SQLSTATE of a server that refused it."""
        problem = connect_problem(error, self._url, code)
        with self._lock:
            self._problem = problem
            self.refusal = error if isinstance(error, ConfigurationError) else None
            self._will_take_more = code in WILL_TAKE_MORE
            self._failures += 1
            self._failed_at = time.monotonic()
            # A server that is merely full still serves its open connections.
            is_news = self.is_fine and not self._will_take_more
            if is_news:
                self.is_fine, self._away_since = False, self._failed_at
        if is_news:
            self._say_away(problem)

    def note_failures_of(self, find_url: Callable[[], str] | None) -> Callable[[], str] | None:
        """The same function with its failures noted: without a URL no connection can be made."""
        if find_url is None:
            return None

        def find_noted() -> str:
            try:
                return find_url()
            except Exception as error:
                self.note_failed(error)
                raise

        return find_noted

    def note_lost(self, connection: OwnConnection | AsyncOwnConnection) -> None:
        """Note that a connection broke; one older than the last loss was lost in that loss."""
        with self._lock:
            is_news = self._away_since is None and connection.opened_at > self._lost_at
            if is_news:
                self.is_fine, self._away_since = False, time.monotonic()
        if is_news:
            self._say_away("a connection was lost")

    def may_go_on(self, caller: Caller) -> bool:
        """Whether to ask the pool for a connection now; False: look again soon.

        Raises:
            Unreachable: there is nothing to wait for.
            ConfigurationError: the connections that succeed cannot be used.
        """
        now = time.monotonic()
        with self._lock:
            if self.is_fine:
                return True
            if self._problem is not None and not self._is_worth_waiting(now, caller):
                is_recent = self._failures > caller.failures or now - self._failed_at < RECONNECT_SECONDS
                if is_recent and self.refusal is not None:
                    raise self.refusal
                if is_recent or now - caller.since > self._patience:
                    raise Unreachable(self._problem)
            # The pool then says that it has waited long enough.
            return now - caller.since > self._patience

    def _is_worth_waiting(self, now: float, caller: Caller) -> bool:
        if self._will_take_more:
            return now - caller.since < self._patience
        return self._away_since is not None and now - self._away_since < self._patience

    def _say_away(self, problem: str) -> None:
        logger.warning("database away", extra={"action": "database_away", "reason": problem})


def connection_class(
    kind: type[Any], reach: Reach, statement_seconds: float, beginnings: Beginnings
) -> type[Any]:
    """A class like ``kind``: ``reach`` notes its connections, which wait for ``statement_seconds``.

    They begin as ``beginnings`` says.
    """

    class Noted(kind):  # type: ignore[misc]
        @classmethod
        def connect(cls, *arguments: Any, **options: Any) -> Any:
            connect, connection = super().connect, None
            try:
                connection = beginnings.connect(lambda taken: connect(*arguments, **taken), options)
                connection.statement_seconds = statement_seconds
                begin(connection, beginnings)
            except BaseException as error:
                if connection is not None:
                    connection.close()
                if isinstance(error, _FAILURES):
                    reach.note_failed(
                        error, reach.refusals.code(error, arguments[0], beginnings.arguments(options))
                    )
                raise
            reach.note_connected()
            return connection

    return Noted


def async_connection_class(
    kind: type[Any],
    reach: Reach,
    connections: weakref.WeakSet[Any],
    statement_seconds: float,
    beginnings: Beginnings,
) -> type[Any]:
    """Twin of ``connection_class`` for the pool of an event loop; ``connections`` gets each."""

    class Noted(kind):  # type: ignore[misc]
        @classmethod
        async def connect(cls, *arguments: Any, **options: Any) -> Any:
            connect, connection = super().connect, None
            try:
                connection = await beginnings.connect_async(
                    lambda taken: connect(*arguments, **taken), options
                )
                connections.add(connection)
                connection.statement_seconds = statement_seconds
                await begin_async(connection, beginnings)
            except BaseException as error:
                if connection is not None:
                    await connection.close()
                if isinstance(error, _FAILURES):
                    taken = beginnings.arguments(options)
                    code = await asyncio.to_thread(reach.refusals.code, error, arguments[0], taken)
                    reach.note_failed(error, code)
                raise
            reach.note_connected()
            return connection

    return Noted
