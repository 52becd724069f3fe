"""Running operations with a process's resources: sync and async, alone or in a caller's transaction.

The composition root supplies the resources.  A ``Memory`` itself holds no connection, so making one costs
nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import psycopg

from strandline.pipelines.models.contract import ModelAnswer, Task, TextModel
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.audit.carrying_out import KnownLevels
from strandline.producers.audit.compliance import Compliance
from strandline.producers.reading.window_cache import WindowCache
from strandline.producers.search.index.index_cache import IndexCache
from strandline.producers.writing.group_commit import GroupCommit
from strandline.schemas.postgres.async_database import AsyncDatabase, AsyncTransaction
from strandline.schemas.postgres.caller_connection import driver_connection
from strandline.schemas.postgres.database import Database, Transaction, drive
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.sealing.codec import ContentCodec
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Lane

T = TypeVar("T")
P = ParamSpec("P")

# Opened with the name of an operation and its subject, such as a session, for as long as it runs.
Measure = Callable[[str, object], AbstractContextManager[object]]


class Resources(Protocol):
    """Shared by all memories of a process that name the same database.

    Implemented by ``strandline.wiring.runtime.Runtime``, which forwards to the ``ProcessResources`` of the
    calling process: a memory may be used on both sides of a fork.
    """

    @property
    def settings(self) -> Settings: ...

    @property
    def redaction(self) -> Redaction | None:
        """The settings' hooks before storing, or None; raises ConfigurationError if one cannot be loaded."""
        ...

    @property
    def compliance(self) -> Compliance | None:
        """The compliance hook of this process, if any; the first use imports it (ConfigurationError)."""
        ...

    @property
    def audit_levels(self) -> KnownLevels:
        """Which namespaces have their reads recorded in the audit trail."""
        ...

    @property
    def windows(self) -> WindowCache:
        """The windows that this process has read before."""
        ...

    @property
    def content(self) -> ContentCodec:
        """Seals and opens the content of encrypted namespaces."""
        ...

    @property
    def indexes(self) -> IndexCache:
        """The indexes of the scopes that this process searches again and again."""
        ...

    def database(self) -> Database:
        """The process's pool; the first call opens it (and starts the embedded Postgres)."""
        ...

    async def async_database(self) -> AsyncDatabase:
        """The running event loop's pool; the first call opens it."""
        ...

    async def group_commit(self) -> GroupCommit:
        """The group commit of the running event loop's puts; made at the first call."""
        ...

    def ring(self, lanes: Iterable[Lane]) -> None:
        """Tell the workers that these lanes have work; never blocks, never fails."""
        ...

    @property
    def measure(self) -> Measure | None:
        """Measures operations by name, if the settings ask for it; None measures nothing."""
        ...

    @property
    def broker_trouble(self) -> str | None:
        """Why the broker takes no hints; None if it took the last ones, or there is none."""
        ...

    def embed_query(self, text: str, config: Mapping[str, Any]) -> str | None:
        """The query's vector as pgvector text, or None if this process lacks the embedder of ``config``.

        Raises:
            ModelError: the embedder failed or ran out of its time budget.
        """
        ...

    def ask_model(self, task: Task, *, model: str | None = None) -> ModelAnswer:
        """The answer of the text model for facts, or of ``model`` on the same server; waits for it.

        Raises:
            ModelError: it failed.
            ConfigurationError: no model is configured, or many have been named.
        """
        ...

    def build_facts_model(self, config: Mapping[str, Any], prompts: Mapping[str, str]) -> TextModel:
        """The text model of a derivation of facts, from the config and the prompts of its recipe.

        Raises:
            ConfigurationError: this process cannot reach that model.
        """
        ...

    def close(self) -> None:
        """Release the process's pools, threads and embedded servers."""
        ...

    async def aclose(self) -> None:
        """Async twin of ``close``; closes the running loop's pool as well."""
        ...


class _OnDatabase:
    def __init__(self, resources: Resources, database: Database) -> None:
        self._resources = resources
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resources, name)

    def database(self) -> Database:
        return self._database


def on_database(resources: Resources, database: Database) -> Resources:
    """The same resources with another database for threads, such as one for work that can be ended."""
    return cast(Resources, _OnDatabase(resources, database))


class OperationRunner:
    """Runs operations; safe to share between threads and tasks.

    ``connection`` is the caller's, inside a transaction that the caller ends; without it, each statement runs
    in its own transaction, except inside an ``Atomic``.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._measure = resources.measure

    def run(
        self,
        operation: Operation[T],
        connection: object | None = None,
        name: str = "",
        subject: object = None,
    ) -> T:
        """Run an operation in this thread; one with a ``name`` is measured, as done to its ``subject``."""
        if self._measure is None or not name:
            return self._run(operation, connection)
        with self._measure(name, subject):
            return self._run(operation, connection)

    async def arun(
        self,
        operation: Operation[T],
        connection: object | None = None,
        name: str = "",
        subject: object = None,
    ) -> T:
        """Async twin of ``run``."""
        running = self._arun(operation, connection)
        return await (running if self._measure is None else self.ameasure(name, subject, running))

    async def ameasure(self, name: str, subject: object, running: Awaitable[T]) -> T:
        """Await an operation that runs in another way, and measure it if it has a name."""
        if self._measure is None or not name:
            return await running
        with self._measure(name, subject):
            return await running

    def _run(self, operation: Operation[T], connection: object | None) -> T:
        if connection is not None:
            joined = driver_connection(connection, psycopg.Connection)
            return Transaction(joined, self._schema, self._resources.content).run(operation)
        return drive(operation, self._resources.database())

    async def _arun(self, operation: Operation[T], connection: object | None) -> T:
        if connection is not None:
            joined = driver_connection(connection, psycopg.AsyncConnection)
            transaction = AsyncTransaction(joined, self._schema, self._resources.content)
            return await transaction.run(operation)
        database = await self._resources.async_database()
        return await database.run(operation)

    @property
    def _schema(self) -> str:
        return self._resources.settings.database_schema


S_co = TypeVar("S_co", covariant=True)
Subject = TypeVar("Subject")
M = TypeVar("M", bound=Callable[..., Any])


class Face(Protocol[S_co]):
    """An object whose methods run operations on its subject: a session, an owner's facts, a namespace."""

    @property
    def _subject(self) -> S_co: ...

    @property
    def _runner(self) -> OperationRunner: ...


def sync_method(
    operation: Callable[Concatenate[Subject, P], Operation[T]],
) -> Callable[Concatenate[Face[Subject], P], T]:
    """A method that runs the operation, in the transaction of its argument ``connection`` if it has one."""

    @wraps(operation)
    def method(face: Face[Subject], /, *arguments: P.args, **named: P.kwargs) -> T:
        running = operation(face._subject, *arguments, **named)
        return face._runner.run(running, named.get("connection"), operation.__name__, face._subject)

    return signed(method, operation)


def async_method(
    operation: Callable[Concatenate[Subject, P], Operation[T]],
) -> Callable[Concatenate[Face[Subject], P], Coroutine[Any, Any, T]]:
    """The same for asyncio."""

    @wraps(operation)
    async def twin(face: Face[Subject], /, *arguments: P.args, **named: P.kwargs) -> T:
        running = operation(face._subject, *arguments, **named)
        return await face._runner.arun(running, named.get("connection"), operation.__name__, face._subject)

    return signed_twin(twin, operation)


def methods(
    operation: Callable[Concatenate[Subject, P], Operation[T]],
) -> tuple[
    Callable[Concatenate[Face[Subject], P], T],
    Callable[Concatenate[Face[Subject], P], Coroutine[Any, Any, T]],
]:
    """The two methods of a face for an operation, for threads and for asyncio."""
    return sync_method(operation), async_method(operation)


def shown_as(operation: Callable[..., Any]) -> Callable[[M], M]:
    """Give a method the signature of an operation, and its docstring unless it has one."""

    def show(method: M) -> M:
        method.__doc__ = method.__doc__ or operation.__doc__
        return signed(method, operation)

    return show


def spelled_out(
    source: Callable[..., Any], *, without: Collection[str] = (), others: str | None = None
) -> Callable[[M], M]:
    """Show the ``**options`` of a function as the parameters of ``source``, which it hands them on to.

    ``others``: the name under which it takes unknown ones, to say why each is refused.
    """

    def show(function: M) -> M:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        known = {*without, *(one.name for one in own)}
        named = [one for one in inspect.signature(source).parameters.values() if one.name not in known]
        options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in named]
        if others is not None:
            options.append(inspect.Parameter(others, inspect.Parameter.VAR_KEYWORD, annotation="Any"))
        shown: Any = function
        shown.__signature__ = signature.replace(parameters=[*own, *options])
        return function

    return show


def signed(method: M, operation: Callable[..., Any], *, page_as: str | None = None) -> M:
    """The method with the operation's signature, for ``help`` and tests.

    ``page_as``: the method's form of the operation's pages; it then follows the cursors itself.
    """
    signature = inspect.signature(operation)
    face, *others = signature.parameters.values()
    result = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    if page_as is not None:
        result = f"{page_as}[{result.removeprefix('PageOf[')}"
        others = others[1:]
    shown: Any = method
    shown.__annotations__ = {**{one.name: one.annotation for one in others}, "return": result}
    shown.__signature__ = signature.replace(
        parameters=[face.replace(name="self", annotation=inspect.Parameter.empty), *others],
        return_annotation=result,
    )
    return method


def signed_twin(twin: M, operation: Callable[..., Any]) -> M:
    """``signed`` for the async twin of a method, which has a name and a docstring of its own."""
    named: Any = twin
    named.__name__ = f"a{operation.__name__}"
    named.__qualname__ = f"{operation.__qualname__.removesuffix(operation.__name__)}{named.__name__}"
    named.__doc__ = f"Async twin of ``{operation.__name__}``."
    return signed(twin, operation)


class Closing:
    """A face that can close what its process shares."""

    _resources: Resources

    def close(self) -> None:
        """Close the resources that this process shares: pools, threads, the embedded servers.

        Nothing else that uses them, such as another memory, can be used after that.
        """
        self._resources.close()

    async def aclose(self) -> None:
        """Async twin of ``close``; to be called on the event loop that used the object."""
        await self._resources.aclose()
