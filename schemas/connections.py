"""What both drivers share: the URL in psycopg's form, connection options, and the error boundary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from strandline.schemas.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    SchemaError,
)
from strandline.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to connect and how long to wait, in seconds; ``pool_size`` counts connections.

    ``durable=False`` commits without waiting for the disk (Postgres's ``synchronous_commit = off``): what
    is lost when the server dies is the last moment's commits, whole and in order.  For workers, whose
    every write but a model's answer is made again from what is due.
    """

    url: str
    schema: str
    pool_size: int
    pool_timeout: float
    connect_timeout: float
    statement_timeout: float
    idle_in_transaction_timeout: float = 15.0
    durable: bool = True

    @classmethod
    def from_settings(
        cls, url: str, settings: Settings, *, pool_size: int | None = None, durable: bool = True
    ) -> ConnectionOptions:
        return cls(
            url=psycopg_url(url),
            schema=settings.database_schema,
            pool_size=pool_size or settings.pool_max_size,
            pool_timeout=settings.pool_timeout_seconds,
            connect_timeout=settings.connect_timeout_seconds,
            statement_timeout=settings.statement_timeout_seconds,
            durable=durable,
        )

    def connect_arguments(self) -> dict[str, Any]:
        """Keyword arguments for psycopg: autocommit, since every statement stands alone."""
        options: dict[str, int | str] = {
            "statement_timeout": int(self.statement_timeout * 1000),
            "idle_in_transaction_session_timeout": int(self.idle_in_transaction_timeout * 1000),
        }
        if not self.durable:
            options["synchronous_commit"] = "off"
        return {
            "autocommit": True,
            "connect_timeout": max(2, int(self.connect_timeout)),
            "application_name": "strandline",
            "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
            "keepalives_idle": 30,
        }


def psycopg_url(url: str) -> str:
    """Turn ``postgresql+asyncpg://`` and the like into what psycopg takes.

    Raises:
        ConfigurationError: it is no Postgres URL.
    """
    parts = urlsplit(url)
    dialect, _, _driver = parts.scheme.partition("+")
    if dialect not in ("postgresql", "postgres"):
        raise ConfigurationError(
            f"The database URL begins with {parts.scheme or 'no scheme'!r}; Strandline keeps its log, its"
            " queue and its vectors in one Postgres transaction, so it runs on Postgres only:"
            " postgresql://user@host/database"
        )
    # As it stands, since "+" is a plus sign to libpq, and a space to those who read URLs as forms.
    query = parts.query.replace("+", "%2B").split("&")
    renamed = ("sslmode" + option[len("ssl") :] if option.startswith("ssl=") else option for option in query)
    return urlunsplit(("postgresql", parts.netloc, parts.path, "&".join(renamed), ""))


@contextmanager
def translated() -> Iterator[None]:
    """The one boundary at which driver errors become Strandline's."""
    try:
        yield
    except (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.UndefinedColumn) as error:
        raise SchemaError(
            "The Strandline tables are missing in this database, or are of another version;"
            f" run `strandline migrate`. ({_first_line(error)})"
        ) from error
    except (PoolTimeout, TooManyRequests, pg.QueryCanceled, pg.LockNotAvailable) as error:
        raise DatabaseTimeoutError(
            f"Postgres did not answer in time; nothing was half-done, try again. ({_first_line(error)})"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolClosed) as error:
        raise DatabaseUnavailableError(
            f"Postgres cannot be reached or ended the connection; try again. ({_first_line(error)})"
        ) from error
    except psycopg.Error as error:
        raise DatabaseError(f"Postgres refused a statement: {_first_line(error)}") from error


def is_lost(error: psycopg.Error, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the connection broke, so that a repeatable statement may be sent again on another."""
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and connection.closed


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
