"""Fixtures on real services: one embedded Postgres and broker per run, one cloned database per test."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import hypothesis
import pytest
from redis import Redis

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack, start_stack
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.inspection.status import StatusWorkers
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings, load_settings
from tests.support.opened_rows import rows_in_clear
from tests.support.processes.side_by_side import (  # noqa: F401  # hooks of pytest
    pytest_addoption,
    pytest_runtestloop,
)
from tests.support.processes.template import import_everything
from tests.support.ram_folder import make_ram_folder, remove
from tests.support.servers.databases import (
    ENCRYPTION,
    TEST_KEYS,
    forgo_durability,
    look,
    seal_everything,
    template,
    temporary_database,
)
from tests.support.servers.model_server import ModelServer
from tests.support.sql.declared_nulls import undeclared, watch_nulls
from tests.support.workers.worker_processes import WorkerProcess, launch_worker

TESTS = Path(__file__).parent

_broker_databases = count()
_homes = count()

# Run the suite as with that setting; tests of what it gives up are skipped (``needs_internals``).
PUBLIC_APIS_ONLY = os.environ.get("STRANDLINE_TEST_PUBLIC_APIS_ONLY", "").lower() in ("1", "true")

# An example takes as long as the machine takes.
hypothesis.settings.register_profile("strandline", deadline=None)
hypothesis.settings.load_profile("strandline")


if ENCRYPTION:
    # For what is made before a test, too.
    os.environ["STRANDLINE_KEYRING_KEYS"] = TEST_KEYS
    seal_everything()

needs_internals = pytest.mark.skipif(
    PUBLIC_APIS_ONLY,
    reason="STRANDLINE_PUBLIC_APIS_ONLY gives this up (docs/architecture/borrowed-internals.md)",
)
"""Marks tests of what undocumented parts of psycopg, Kombu and Celery bring."""


# Whatever takes many seconds: whole installations, campaigns, processes that are killed and come back.
SLOW = (
    "bench", "chaos", "deploy", "environments", "faults", "fuzz", "workers", "pipelines/custom",
    "pipelines/engine", "pipelines/facts", "pipelines/flush", "pipelines/inspect",
    "pipelines/models/test_model_setup.py",
    "pipelines/replay", "pipelines/vectors", "producers/doorbell", "producers/erasing",
    "producers/search/test_search_scopes.py", "strandline/service",
    "producers/writing/correcting/test_corrections_at_random.py",
    "producers/writing/correcting/test_delivered_corrections.py",
    "producers/writing/test_import.py", "project/test_contracts.py", "project/test_documentation.py",
    "project/test_packaging.py", "project/test_replay_recipes.py", "project/test_forked_commands.py",
    "schemas/postgres/pools", "schemas/postgres/test_durability.py",
    "schemas/postgres/test_isolation.py", "schemas/postgres/test_plans.py", "schemas/test_errors_carried.py",
    "schemas/test_fork_safety.py", "schemas/values/test_linear_work.py", "documents", "strandline/adapters",
    "strandline/chat_import", "strandline/cli", "strandline/test_import_cost.py", "strandline/wiring",
)  # fmt: skip
_SLOW_PATHS = tuple(str(TESTS / part) for part in SLOW)
# Among these, those that wait most: others use the processors meanwhile.
_WAITING_PATHS = tuple(
    str(TESTS / part) for part in ("workers/test_brokers.py", "workers/test_public_apis_only.py")
)


# To import everything takes as long as the tests of some files.
MANY_FILES = 100

_ram_folder = pytest.StashKey[Path]()


# First, since pytest's own plugin reads the option when it is configured.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep what tests write in memory, unless ``--basetemp`` says where."""
    if config.option.basetemp is None and (folder := make_ram_folder()):
        config.stash[_ram_folder] = config.option.basetemp = folder


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """After a failure it stays until the next run; a worker is not the one that made it."""
    folder = session.config.stash.get(_ram_folder, None)
    if folder is not None and exitstatus == 0 and not hasattr(session.config, "workerinput"):
        remove(folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without garbage collection: half of the time went into looking at modules, which stay.

    Later collections leave them out as well, and are a tenth as many as otherwise.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10 * gc.get_threshold()[0])


def pytest_collection_finish(session: pytest.Session) -> None:
    """What tests import once they run is imported once, where most of them run in copies of this process."""
    if session.config.option.workers and len({item.path for item in session.items}) > MANY_FILES:
        import_everything()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m "not slow"`` what is slow is not even imported."""
    return (config.option.markexpr == "not slow" and _is_slow(collection_path)) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and begin with it: what begins last is what the whole run then waits for."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker("slow")
    items.sort(key=lambda item: (not str(item.path).startswith(_WAITING_PATHS), not _is_slow(item.path)))


def _is_slow(path: Path) -> bool:
    return str(path).startswith(_SLOW_PATHS)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test depends on, or touches, what the machine's user has configured.

    Its home is not there yet, and few tests make it: a folder for each would be looked for among all others.
    """
    for name in list(os.environ):
        if name.startswith(("STRANDLINE_", "OPENAI_")):
            monkeypatch.delenv(name)
    if ENCRYPTION:
        monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", TEST_KEYS)
    home = tmp_path_factory.getbasetemp() / f"home-{next(_homes)}"
    monkeypatch.setenv("STRANDLINE_HOME", str(home))
    monkeypatch.setenv("STRANDLINE_EMBEDDED", "never")
    if PUBLIC_APIS_ONLY:
        monkeypatch.setenv("STRANDLINE_PUBLIC_APIS_ONLY", "true")


@pytest.fixture
def hung_up() -> Iterator[None]:
    """SIGHUP ends what a test starts, also where whoever runs the tests ignores it, as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True)
def _no_handler_stays() -> Iterator[None]:
    """Commands that run in this process write their log to streams that end with their test."""
    loggers = [logging.getLogger(), logging.getLogger("strandline")]
    before = [list(logger.handlers) for logger in loggers]
    yield
    for logger, handlers in zip(loggers, before, strict=True):
        for handler in [one for one in logger.handlers if one not in handlers]:
            logger.removeHandler(handler)


watch_nulls()


@pytest.fixture(autouse=True)
def _nothing_undeclared() -> Iterator[None]:
    """Check what the headers in schemas/sql say of NULL, in every statement that a test's process runs."""
    undeclared.clear()
    yield
    assert sorted(set(undeclared)) == [], "came as NULL, or was given, and is declared otherwise"


# Another Postgres than the embedded one, for tests that do not ask for that one by name: a superuser's URL.
OTHER_SERVER = os.environ.get("STRANDLINE_TEST_DATABASE_URL")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """Postgres and a broker of our own, for the whole run."""
    with start_stack(tmp_path_factory.mktemp("stack"), with_broker=True) as running:
        forgo_durability(running.database_url)
        stack = running if OTHER_SERVER is None else replace(running, database_url=OTHER_SERVER)
        with template(stack.database_url):
            yield stack


@pytest.fixture
def empty_database_url(stack: EmbeddedStack) -> Iterator[str]:
    """A database without tables, gone after the test."""
    with temporary_database(stack.database_url, "template0") as url:
        yield url


@pytest.fixture
def database_url(stack: EmbeddedStack) -> Iterator[str]:
    """A database with tables and the standard pipelines registered, gone after the test."""
    with temporary_database(stack.database_url) as url:
        yield url


@pytest.fixture
def broker_url(stack: EmbeddedStack) -> str:
    """The broker, in a logical database that no other running test uses, and that holds nothing.

    What a killed worker had taken and not acknowledged would come back to a later test.
    """
    assert stack.broker_url is not None
    url = stack.broker_url.rpartition("/")[0] + f"/{next(_broker_databases) % 15 + 1}"
    with Redis.from_url(url) as broker:
        broker.flushdb()
    return url


@pytest.fixture
def settings(database_url: str) -> Settings:
    return load_settings(database_url=database_url)


@pytest.fixture
def local_settings(database_url: str) -> Settings:
    """Without a model server: the local models of Strandline."""
    return load_settings(database_url=database_url, text_backend="local", embedding_backend="local")


@pytest.fixture
def model_settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The model server for texts, the local model for embeddings."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    return load_settings(database_url=database_url, embedding_backend="local")


@pytest.fixture
def database(database_url: str, settings: Settings) -> Iterator[Database]:
    options = ConnectionOptions.from_settings(database_url, settings)
    opened = Database.connect(options, sealed_content(settings))
    yield opened
    opened.close()


MakeMemory = Callable[..., Memory]


@pytest.fixture
def make_memory(database_url: str) -> Iterator[MakeMemory]:
    """Makes memories on the test's database; nothing consumes unless ``consume`` or a worker does."""
    made: list[Memory] = []

    def make(session_id: str | None = None, **options: Any) -> Memory:
        options.setdefault("database_url", database_url)
        memory = Memory.from_defaults(session_id or uuid4().hex, **options)
        made.append(memory)
        return memory

    yield make
    for memory in made:
        memory.close()


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """The stand-in for a model: a real HTTP server that speaks the OpenAI protocol."""
    with ModelServer() as server:
        yield server


StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def start_worker(database_url: str, broker_url: str, database: Database) -> Iterator[StartWorker]:
    """Starts worker processes and waits until each has registered; stops them by their own pid."""
    started: list[WorkerProcess] = []

    def start(*arguments: str, **environment: str) -> WorkerProcess:
        worker = launch_worker(database_url, broker_url, *arguments, **environment)
        process = worker.process
        started.append(worker)
        wait_until(
            lambda: process.poll() is not None or _registered(database, process.pid),
            timeout=30,
            what="the worker to register",
        )
        assert process.poll() is None, "".join(worker.output)
        return worker

    yield start
    for worker in started:
        worker.end()


class Rig:
    """What most tests stand on: a database and its settings; the rest is made when it is asked for."""

    def __init__(self, request: pytest.FixtureRequest, url: str, settings: Settings) -> None:
        self._request = request
        # pytest makes fixtures in one thread at a time; tests ask from several.
        self._making = threading.Lock()
        self.url = url
        self.settings = settings

    def _fixture(self, name: str) -> Any:
        with self._making:
            return self._request.getfixturevalue(name)

    @property
    def database(self) -> Database:
        """The test's database, opened."""
        database: Database = self._fixture("database")
        return database

    @property
    def memory(self) -> MakeMemory:
        """Makes memories on the test's database."""
        make_memory: MakeMemory = self._fixture("make_memory")
        return make_memory

    @property
    def model(self) -> ModelServer:
        """The stand-in for a model."""
        server: ModelServer = self._fixture("model_server")
        return server

    @property
    def broker_url(self) -> str:
        """The broker, which holds nothing."""
        url: str = self._fixture("broker_url")
        return url

    @property
    def start_worker(self) -> StartWorker:
        """Starts worker processes on the database and the broker."""
        start_worker: StartWorker = self._fixture("start_worker")
        return start_worker


@pytest.fixture
def rig(request: pytest.FixtureRequest, database_url: str, settings: Settings) -> Rig:
    return Rig(request, database_url, settings)


# Nothing may depend on how fast the machine is just then: a limit only ends what would never come.
PATIENCE = 10


def wait_until(condition: Callable[[], Any], *, timeout: float, what: str) -> None:
    """Wait until ``condition`` holds; fails with ``what`` was waited for.

    Args:
        timeout: seconds within which it comes on an idle machine; waited for is ``PATIENCE`` times as long.
    """
    deadline = time.monotonic() + PATIENCE * timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE * timeout} s in vain for {what}"
        time.sleep(0.02)


def rows_of(database_url: str, sql: str, *params: object) -> list[tuple[Any, ...]]:
    """Look at the tables from outside, on a connection of the test's own."""
    if ENCRYPTION:
        return rows_in_clear(database_url, sql, params, TEST_KEYS)
    return look(database_url, sql, params)


def nothing_due(database_url: str) -> bool:
    """Whether every event has been consumed by all its pipelines."""
    return rows_of(database_url, "SELECT count(*) FROM strandline.due") == [(0,)]


def lock_is_awaited(database_url: str) -> bool:
    """Whether a statement in this database waits for a lock that another transaction holds."""
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(rows_of(database_url, waiting))


def _registered(database: Database, pid: int) -> bool:
    rows = database.fetch(StatusWorkers(dead_after_seconds=5.0))
    return any(row.pid == pid for row in rows)
