"""Joining a caller's transaction: from whatever connection object the caller has to psycopg's."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any, TypeVar

import psycopg

from strandline.schemas.errors import ConfigurationError

C = TypeVar("C", psycopg.Connection[Any], psycopg.AsyncConnection[Any])

# SQLAlchemy: Connection.connection is the pool's proxy, whose driver_connection is psycopg's; an
# AsyncConnection holds such a Connection as sync_connection. Django: django.db.connection.connection.
_STEPS = ("driver_connection", "sync_connection", "connection")
_MAX_STEPS = 4


def driver_connection(connection: object, kind: type[C]) -> C:
    """The psycopg connection inside ``connection``: psycopg's own, SQLAlchemy's, or Django's.

    Raises:
        ConfigurationError: it has no connection of the kind that this method (sync or async) needs.
    """
    candidate: object = connection
    for _step in range(_MAX_STEPS):
        if isinstance(candidate, kind):
            return candidate
        _begin(candidate)
        steps = (_attribute(candidate, name) for name in _STEPS)
        inner: Any = next((step for step in steps if step is not None), None)
        if iscoroutinefunction(inner):
            break
        # A SQLAlchemy Session hands its connection out by a call.
        candidate = inner() if callable(inner) and not isinstance(inner, kind) else inner
    expected = (
        "psycopg.AsyncConnection" if issubclass(kind, psycopg.AsyncConnection) else "psycopg.Connection"
    )
    raise ConfigurationError(
        f"connection= is a {type(connection).__name__} without a {expected} inside; pass a psycopg"
        " connection, or a SQLAlchemy or Django connection on psycopg 3 (async ones to the a… methods"
        " only; of an AsyncSession, what `await session.connection()` gives)"
    )


def _attribute(candidate: object, name: str) -> object:
    try:
        return getattr(candidate, name, None)
    except RuntimeError as error:  # as of a web framework's proxy outside of a request
        raise ConfigurationError(
            f"connection= is a {type(candidate).__name__}, which raised {type(error).__name__} when it was"
            " looked at."
        ) from error


def _begin(candidate: Any) -> None:
    """Begin the transaction of a SQLAlchemy Connection; no round trip.

    It does not see statements on the driver's connection: with nothing begun, its ``commit`` would do
    nothing, and the put would be lost.
    """
    is_sqlalchemys = _attribute(candidate, "exec_driver_sql") is not None and not hasattr(
        candidate, "sync_connection"
    )
    if is_sqlalchemys and not candidate.in_transaction():
        candidate.begin()
