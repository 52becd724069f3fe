"""Requires that transactions begin at ``read committed``, the default of Postgres. Strandline's statements
wait for a row that another transaction changes, and continue with its new version.

At a stricter level they would be refused instead, whenever two meet. Connections of our own pools are set to
this level as they are opened; those of a pooler or of a caller's pool are checked once each.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.rows import tuple_row

from strandline.schemas.errors import ConfigurationError

# Asked of a connection before it is used, whatever the schema; so it is not among the named statements.
_QUESTION = (
    b"SELECT current_setting('transaction_isolation'), current_setting('default_transaction_read_only')"
)


class LookedAt:
    """The connections whose transactions begin as they have to."""

    def __init__(self) -> None:
        self._known: WeakSet[psycopg.Connection[Any] | psycopg.AsyncConnection[Any]] = WeakSet()

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Look at a connection that is new.

        Raises:
            ConfigurationError: its transactions begin otherwise; the sentence says what to set.
        """
        if connection not in self._known:
            check_isolation(connection)
            self._known.add(connection)

    async def alook(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Async twin of ``look``."""
        if connection not in self._known:
            await check_isolation_async(connection)
            self._known.add(connection)


def check_isolation(connection: psycopg.Connection[Any]) -> None:
    """Ask a connection how its transactions begin; raises as ``LookedAt.look``."""
    for defaults in psycopg.RawCursor(connection, row_factory=tuple_row).execute(_QUESTION):
        _judge(*defaults)


async def check_isolation_async(connection: psycopg.AsyncConnection[Any]) -> None:
    """Async twin of ``check_isolation``."""
    cursor = await psycopg.AsyncRawCursor(connection, row_factory=tuple_row).execute(_QUESTION)
    async for defaults in cursor:
        _judge(*defaults)


def _judge(isolation: str, read_only: str) -> None:
    if isolation != "read committed":
        raise ConfigurationError(
            f"Transactions on this connection begin as {isolation!r}, and Strandline needs 'read committed'."
            " Run `ALTER ROLE … SET default_transaction_isolation = 'read committed'` for the role that it"
            " connects as, and do not set isolation_level on a pool that you pass."
        )
    if read_only == "on":
        raise ConfigurationError(
            "Transactions on this connection are read-only by default, and Strandline writes. Run"
            " `ALTER ROLE … SET default_transaction_read_only = off` for the role that it connects as."
        )
