"""Whether Postgres can be reached, as the connections of one pool find it; changes are logged once.

A pool keeps connecting and lets its callers wait: right while a server restarts, wrong if there is none,
since a caller with the wrong port should learn that at once.  So each attempt is noted here, and a caller
waits only if the server was there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import selectors
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from strandline.schemas.display.shown_url import server_place, without_secrets
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.own_connection import AsyncOwnConnection, OwnConnection
from strandline.schemas.postgres.pools.beginnings import Beginnings, begin, begin_async
from strandline.schemas.postgres.pools.reconnecting import RECONNECT_SECONDS
from strandline.schemas.postgres.translation import Unreachable

logger = logging.getLogger("strandline.database")

# How often whoever waits looks again: soon at first, since a connection is mostly there in milliseconds.
FIRST_STEP_SECONDS = 0.001
MAX_STEP_SECONDS = 0.05

_FAILURES = (ConfigurationError, psycopg.Error, OSError)
# A server that says so is there, and will take connections: when it has started, or others have left.
TOO_MANY = "53300"
# A second attempt may have succeeded.
_SUCCEEDED = "00000"
WILL_TAKE_MORE = frozenset({"57P03", TOO_MANY, _SUCCEEDED})
_CODE = re.compile(rb'ErrorResponse\t.* C "(\w{5})"')
_SECONDS = 5.0
_MAX_SENTENCES = 100
_OF_PSYCOPG = frozenset({"autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"})
_CHECK = "check that it runs, and that the database URL is right (STRANDLINE_DATABASE_URL)"
_DENIED = "correct user and password in the database URL (STRANDLINE_DATABASE_URL)"
# Advice for a server that answers and refuses, by SQLSTATE.
_ADVICE = {
    "22023": "correct it in PGOPTIONS, PGTZ, PGDATESTYLE, PGGEQO or the options of the database URL",
    "28000": _DENIED,
    "28P01": _DENIED,
    "3D000": "create it, or name another one in the database URL (STRANDLINE_DATABASE_URL)",
    "42501": "let its owner run GRANT CONNECT ON DATABASE",
}
# libpq's own words, which are English, about a server that did not answer.
_MEANINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile("Connection refused"), f"the connection was refused; {_CHECK}"),
    (
        re.compile("no password supplied"),
        "it asks for a password, which neither the URL nor a password file has; the file that passfile"
        " or PGPASSFILE names is read only if it is closed to others (chmod 600)",
    ),
    (
        re.compile("definition of service"),
        "no service file defines the service of PGSERVICE or of the database URL; correct it",
    ),
    (re.compile("No such file or directory"), f"no server listens on that socket; {_CHECK}"),
    (
        re.compile("failed to resolve|could not translate host name|Name or service not known"),
        "the name of the host cannot be resolved; check it in the database URL (STRANDLINE_DATABASE_URL)",
    ),
)


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


class Refusals:
    """The SQLSTATEs with which one server refuses connections, looked up once for each of its sentences.

    A second attempt is another line in the server's log, more load where it is full, and another wrong
    password where an account is locked after some.
    """

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}

    def code(self, error: Exception, url: str, options: Mapping[str, Any]) -> str | None:
        """The SQLSTATE of ``error``, of the first attempt; None if the server did not answer."""
        if not isinstance(error, psycopg.OperationalError) or is_unanswered(error):
            return None
        sentence = str(error)
        code = error.sqlstate or self._codes.get(sentence) or _look_up(url, options)
        if code is not None and code != _SUCCEEDED and len(self._codes) < _MAX_SENTENCES:
            self._codes[sentence] = code
        return code


def _look_up(url: str, options: Mapping[str, Any]) -> str | None:
    arguments = {name: value for name, value in options.items() if name not in _OF_PSYCOPG}
    conninfo = make_conninfo(url, **arguments).encode()
    try:
        return _attempt(conninfo)
    except (AttributeError, psycopg.NotSupportedError):  # nothing is traced but on Linux
        return "57P03" if pq.PGconn.ping(conninfo) == pq.Ping.REJECT else None
    except (OSError, psycopg.Error):  # the first attempt's own error says enough
        return None


def _attempt(conninfo: bytes) -> str | None:
    connection = pq.PGconn.connect_start(conninfo)
    ends_at = time.monotonic() + _SECONDS
    with os.fdopen(os.memfd_create("strandline"), "rb") as trace:
        try:
            connection.trace(trace.fileno())
            while (polled := connection.connect_poll()) not in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
                event = selectors.EVENT_READ if polled == pq.PollingStatus.READING else selectors.EVENT_WRITE
                with selectors.DefaultSelector() as selector:
                    selector.register(connection.socket, event)
                    if not selector.select(max(0.0, ends_at - time.monotonic())):
                        return None
            connection.untrace()
        finally:
            connection.finish()
        trace.seek(0)
        codes = _CODE.findall(trace.read())
    return _SUCCEEDED if polled == pq.PollingStatus.OK else codes[-1].decode() if codes else None


def connect_problem(error: Exception, url: str, code: str | None = None) -> str:
    """A sentence that names the server of ``url``, and why an attempt to connect to it failed.

    ``code`` is the SQLSTATE, where the server refused it.
    """
    where, reason = server_place(url), _reason(error, url, code)
    if code is None:
        return f"Postgres cannot be reached at {where}: {reason}."
    advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
    return f"Postgres at {where} refuses the connection: {reason}{advice}."


def is_unanswered(error: Exception) -> bool:
    """Whether no server answered an attempt to connect; libpq tells of each of several hosts."""
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return True
    unanswered = sum(len(pattern.findall(str(error))) for pattern, _meaning in _MEANINGS)
    return unanswered > 0 and unanswered >= str(error).count("connection to server")


def _reason(error: Exception, url: str, code: str | None) -> str:
    """The reason, without the server, which the message already names."""
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return f"it did not answer in time; {_CHECK}"
    if code == TOO_MANY:
        return (
            "it takes no more connections; raise its max_connections, lower STRANDLINE_POOL_MAX_SIZE, or put"
            " a pooler before it"
        )
    text = " ".join(str(error).split())
    match = re.search(r"FATAL: +(.*)", text)
    for pattern, meaning in _MEANINGS:
        if match is None and pattern.search(text):
            return meaning
    return without_secrets((match[1] if match else text or type(error).__name__).rstrip("."), url)
