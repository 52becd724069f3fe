"""The runtimes of this process: the resources shared by memories of the same database, by settings.

A ``Memory`` may be made and used before a fork, and used after it: it keeps a ``Runtime``, which has separate
resources in each process. A child never touches its parent's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, get_args
from weakref import WeakSet

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.execution import Measure
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.forking import ProcessKey, renew_in_child, this_process
from strandline.schemas.postgres.pools.engine_pool import Pool, is_async_engine, is_engine
from strandline.schemas.settings import Settings
from strandline.wiring.given_pool import GivenPool
from strandline.wiring.metrics import operation_metrics
from strandline.wiring.process_resources import Consume, ProcessResources
from strandline.wiring.traces import operation_spans

__all__ = ["Consume", "Pool", "Runtime", "runtime_for"]


def storing_redaction(settings: Settings, hook: object | None = None) -> Redaction | None:
    """The settings' hooks before storing, and then ``hook``; None: no hook.

    Raises:
        ConfigurationError: one cannot be loaded, or is not a hook.
    """
    if not settings.redact_before_storing and hook is None:
        return None
    from strandline.pipelines.redaction.hook import Redaction, RedactionHook, load_hooks
    from strandline.producers.redacting import SETTING, put_calls

    own = () if hook is None else (RedactionHook.check(hook, _name_of(hook)),)
    hooks = (*load_hooks(settings.redact_before_storing, SETTING), *own)
    return Redaction(hooks, settings.redact_timeout_seconds, put_calls) if hooks else None


def _name_of(hook: object) -> str:
    kind = hook if hasattr(hook, "__qualname__") else type(hook)
    return f"{getattr(kind, '__module__', '?')}:{getattr(kind, '__qualname__', '?')}"


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runtimes: dict[tuple[object, ...], Runtime] = {}
        # Also those that were closed: a memory that still has one opens it again.
        self.living: WeakSet[Runtime] = WeakSet()

    def all(self) -> list[Runtime]:
        with self.lock:
            return list(self.living)


_registry = _Registry()


def runtime_for(settings: Settings, *, pool: Pool | None = None, consume: Consume | None = None) -> Runtime:
    """The runtime of this process for these settings; made at the first call, without any I/O.

    Raises:
        ConfigurationError: ``consume`` or ``pool`` is not valid.
    """
    _check(pool, consume)
    key = (settings, id(pool), consume)
    with _registry.lock:
        if key not in _registry.runtimes:
            _registry.runtimes[key] = Runtime(
                settings, pool=pool, consume=consume, forget=lambda: _forget(key)
            )
            _registry.living.add(_registry.runtimes[key])
        return _registry.runtimes[key]


def close() -> None:
    """End the pools, threads and embedded servers of this process; a later call opens them again.

    Call it once, when the process ends; running work of ``consume="background"`` gets five seconds.
    """
    for runtime in _registry.all():
        runtime.close()


async def aclose() -> None:
    """Async twin of ``close``, on the event loop that used the memories; closes that loop's pools as well."""
    for runtime in _registry.all():
        await runtime.aclose()


def _check(pool: object, consume: object) -> None:
    if consume is not None and (type(consume) is not str or consume not in get_args(Consume)):
        raise ConfigurationError(
            f"consume is {quote(consume)}; it must be 'background', for threads of this process, or None, for"
            " workers."
        )
    if pool is not None and not _is_pool(pool):
        raise ConfigurationError(
            f"pool is of the type {quote(type(pool).__name__)}; give a psycopg_pool.ConnectionPool or"
            " AsyncConnectionPool, or a SQLAlchemy engine on psycopg 3."
        )


def _is_pool(pool: object) -> bool:
    if isinstance(pool, (ConnectionPool, AsyncConnectionPool)):
        return True
    try:
        return is_engine(pool) or is_async_engine(pool)
    except Exception as error:  # the edge to foreign code: a proxy that stands for nothing as yet
        raise ConfigurationError(
            f"pool is of the type {quote(type(pool).__name__)}, which raised {type(error).__name__} when"
            " it was looked at."
        ) from error


if TYPE_CHECKING:
    _OfProcess = ProcessResources
else:
    _OfProcess = object


class Runtime(_OfProcess):
    """Implements ``producers.execution.Resources``; safe to share between threads, event loops and forks.

    Other attributes and methods are those of the calling process's ``ProcessResources``.
    """

    def __init__(
        self, settings: Settings, *, pool: Pool | None, consume: Consume | None, forget: Callable[[], None]
    ) -> None:
        self.settings = settings
        self._given_pool = pool
        self._consume = consume
        self._forget = forget
        self._made_in = this_process()
        # A child keeps its parent's as well, unused: to let go of them would be to end some of them.
        self._of_process: dict[ProcessKey, ProcessResources] = {}

    def __reduce__(self) -> tuple[Callable[..., Runtime], tuple[object, ...]]:
        """Another process has its own, by the same settings; a pool of the caller's stays where it is."""
        if self._given_pool is not None:
            raise ConfigurationError(
                "A Memory with pool= cannot go to another process, since connections cannot; give it"
                " database_url=, or make the Memory in that process."
            )
        return partial(runtime_for, consume=self._consume), (self.settings,)

    @property
    def redaction(self) -> Redaction | None:
        return storing_redaction(self.settings) if self.settings.redact_before_storing else None

    @property
    def measure(self) -> Measure | None:
        metrics = operation_metrics() if self.settings.operation_metrics else None
        spans = operation_spans() if self.settings.traces else None
        if metrics is None or spans is None:
            return metrics or spans
        return _both(metrics, spans)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self.own(), name)

    def own(self) -> ProcessResources:
        """The resources of the calling process; made at the first call, without any I/O."""
        process = this_process()
        own = self._of_process.get(process)
        # Without a lock, which another thread might have held when this process was forked.
        return own or self._of_process.setdefault(process, self._make(process))

    def _make(self, process: ProcessKey) -> ProcessResources:
        pool = None
        if self._given_pool is not None:
            pool = GivenPool(self._given_pool, inherited=process != self._made_in)
        return ProcessResources(self.settings, pool=pool, consume=self._consume, forget=self._forget)


def _both(outer: Measure, inner: Measure) -> Measure:
    @contextmanager
    def measure(operation: str, subject: object) -> Iterator[None]:
        with outer(operation, subject), inner(operation, subject):
            yield

    return measure


def _forget(key: tuple[object, ...]) -> None:
    with _registry.lock:
        _registry.runtimes.pop(key, None)


def _after_fork() -> None:
    _registry.lock = threading.Lock()
    for runtime in _registry.runtimes.values():
        runtime.own()  # now, since the caller's pool holds the parent's connections at this moment


renew_in_child(_after_fork)
