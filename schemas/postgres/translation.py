"""The one boundary at which errors of the driver and of its pools become Strandline's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from strandline.schemas.errors import (
    DatabaseBusyError,
    DatabaseError,
    DatabaseRightsError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    SchemaError,
    ServerLimitError,
    StrandlineError,
)
from strandline.schemas.postgres.deadlines import DeadlineExceeded

# The server ends statements and transactions that take too long.
_ENDED_BY_LIMIT = (pg.QueryCanceled, pg.IdleInTransactionSessionTimeout, pg.TransactionTimeout)

# The connection is gone.  (With the last two Postgres ends a session; psycopg lays them to the statement.)
_GONE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    pg.IdleInTransactionSessionTimeout,
    pg.TransactionTimeout,
)


# A pool has no connection to lend: nothing was sent on it.
NOTHING_TO_LEND = (PoolTimeout, TooManyRequests)

# These pass by themselves, mostly at once: the transaction was rolled back for another in its way.
_ROLLED_BACK = (pg.SerializationFailure, pg.DeadlockDetected)

# Postgres is there, and does not do it now.
_BUSY: tuple[tuple[tuple[type[psycopg.Error], ...], str], ...] = (
    (
        _ROLLED_BACK,
        (
            "Postgres rolled this back because of a conflict with another transaction; nothing was done. Try"
            " again."
        ),
    ),
    (
        (pg.DiskFull,),
        "Postgres has no space left on its disk; nothing was done. Free some, then try again.",
    ),
    (
        (pg.TooManyConnections,),
        "Postgres takes no more connections; nothing was done. Raise its max_connections, lower"
        " STRANDLINE_POOL_MAX_SIZE, or put a pooler before it.",
    ),
    (
        (pg.OutOfMemory, pg.InsufficientResources, pg.ConfigurationLimitExceeded),
        "Postgres lacks memory or another resource; nothing was done. Look at its log, then try again.",
    ),
    (
        (pg.ReadOnlySqlTransaction,),
        "Postgres accepts reads only here, as a standby does, or a READ ONLY transaction; nothing was done."
        " Try again when the URL leads to the primary, or in a transaction that may write.",
    ),
)


class Unreachable(psycopg.OperationalError):
    """No connection can be made; the sentence says where, and why."""


class _Translated:
    """``with translate_errors():`` in the form that costs least if nothing is raised."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (psycopg.Error, PoolClosed, *NOTHING_TO_LEND)):
            raise _meaning(error) from error


_TRANSLATED = _Translated()


def translate_errors() -> AbstractContextManager[None]:
    """The one boundary at which driver errors become Strandline's."""
    return _TRANSLATED


def _meaning(error: Exception) -> StrandlineError:
    if isinstance(error, Unreachable):
        return DatabaseUnavailableError(str(error))
    line = _first_line(error)
    if isinstance(error, (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.UndefinedColumn)):
        return SchemaError(
            "The Strandline tables are missing in this database, or are of another version;"
            f" run `strandline migrate`. ({line})"
        )
    if isinstance(error, DeadlineExceeded):
        return DatabaseUnavailableError(f"Postgres did not answer, and the connection was closed. ({line})")
    if isinstance(error, _ENDED_BY_LIMIT):
        return ServerLimitError(
            "Postgres ended a statement or a transaction that took longer than its limit;"
            f" nothing was half-done. Try again. ({line})"
        )
    if isinstance(error, (*NOTHING_TO_LEND, pg.LockNotAvailable)):
        return DatabaseTimeoutError(
            f"Postgres did not answer in time; nothing was half-done. Try again. ({line})"
        )
    for kinds, sentence in _BUSY:
        if isinstance(error, kinds):
            return DatabaseBusyError(f"{sentence} ({line})")
    if isinstance(error, (*_GONE, PoolClosed)):
        return DatabaseUnavailableError(
            f"Postgres cannot be reached or ended the connection; try again. ({line})"
        )
    if isinstance(error, pg.InsufficientPrivilege):
        return DatabaseRightsError(
            f"Postgres denies this user a right, and nothing was done; `strandline doctor` names it. ({line})"
        )
    return DatabaseError(f"Postgres refused a statement: {line}")


def is_lost(error: psycopg.Error, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the connection broke, so that a repeatable statement may be sent again on another."""
    return isinstance(error, _GONE) and connection.closed


def may_pass(error: psycopg.Error) -> bool:
    """Whether nothing was done, and an immediate retry may succeed."""
    return isinstance(error, _ROLLED_BACK) or is_refused_by_standby(error)


def is_rolled_back(error: DatabaseBusyError) -> bool:
    """Whether a transaction was rolled back in favour of another, so that it may be repeated at once."""
    return isinstance(error.__cause__, _ROLLED_BACK)


def is_refused_by_standby(error: psycopg.Error) -> bool:
    """Whether the server only reads: after a failover a new connection may lead to another one."""
    if isinstance(error, pg.FeatureNotSupported):  # READ WRITE, where a pooler led to the primary before
        return error.diag.source_function == "call_bool_check_hook"
    return isinstance(error, pg.ReadOnlySqlTransaction)


def pauses() -> Iterator[float]:
    """Seconds to wait before each further attempt, jittered, to keep colliding calls apart."""
    for seconds in (0.0, 0.02, 0.05, 0.1, 0.2):
        yield seconds * random.uniform(0.5, 1.5)  # noqa: S311


def ended_by_limit(error: Exception) -> bool:
    """Whether a running Postgres ended a session because of its limits, which affects no other session."""
    return isinstance(error, (ServerLimitError, *_ENDED_BY_LIMIT))


def is_ended_by_server(error: DatabaseUnavailableError) -> bool:
    """Whether a running Postgres ended a statement at one of its limits: of time, or for a lock."""
    return isinstance(error, ServerLimitError) or isinstance(error.__cause__, pg.LockNotAvailable)


def outcome_unknown(error: psycopg.Error) -> OutcomeUnknownError:
    """The error to raise if a statement was sent, and its answer did not come."""
    return OutcomeUnknownError(
        "The connection to Postgres ended before the answer came, so whether the statement took effect is"
        " unknown. A read, or a put with the same message id, may be repeated; before you repeat another"
        f" change, check whether it took effect. ({_first_line(error)})"
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
