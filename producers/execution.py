"""Running operations with a process's resources: sync and async, alone or in a caller's transaction."""

from __future__ import annotations

from typing import TypeVar

import psycopg

from strandline.producers.resources import Resources
from strandline.schemas.postgres.async_database import AsyncTransaction
from strandline.schemas.postgres.caller_connection import driver_connection
from strandline.schemas.postgres.database import Transaction
from strandline.schemas.postgres.operations import Operation

T = TypeVar("T")


class OperationRunner:
    """Runs operations; safe to share between threads and tasks.

    ``connection`` is the caller's, inside a transaction that the caller ends; without it, each statement runs
    in its own transaction, except inside an ``Atomic``.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def run(self, operation: Operation[T], connection: object | None = None) -> T:
        """Run an operation in this thread.

        Raises:
            ConfigurationError: ``connection`` holds no synchronous psycopg connection.
        """
        if connection is not None:
            joined = driver_connection(connection, psycopg.Connection)
            return Transaction(joined, self._schema).run(operation)
        return self._resources.database().run(operation)

    async def arun(self, operation: Operation[T], connection: object | None = None) -> T:
        """Async twin of ``run``."""
        if connection is not None:
            joined = driver_connection(connection, psycopg.AsyncConnection)
            return await AsyncTransaction(joined, self._schema).run(operation)
        database = await self._resources.async_database()
        return await database.run(operation)

    @property
    def _schema(self) -> str:
        return self._resources.settings.database_schema
