"""The ground of a case: a separate database on embedded servers, workers, and model stand-ins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from strandline import Memory
from strandline.deploy.embedded.stack import start_stack
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import nothing_due, rows_of, wait_until
from tests.support.servers.databases import template, temporary_database
from tests.support.servers.model_server import ModelServer
from tests.support.workers.worker_processes import WorkerProcess, launch_worker

ROOT = Path(__file__).resolve().parent.parent.parent.parent
REGISTER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ground:
    """The database and the broker of one case; what a case starts here ends with it.

    Attributes:
        database_url: a database with tables and the standard pipelines on the local models.
        broker_url: the broker, in a logical database of the case's own.
    """

    database_url: str
    broker_url: str
    _ending: ExitStack = field(repr=False)

    def memory(self, session_id: str | None = None, **options: Any) -> Memory:
        """A memory on this database; it rings workers only if ``broker_url`` is given."""
        options.setdefault("database_url", self.database_url)
        memory = Memory.from_defaults(session_id or uuid4().hex, **options)
        self._ending.callback(memory.close)
        return memory

    def database(self, **settings: Any) -> Database:
        """The database as workers and commands use it."""
        loaded = load_settings(database_url=self.database_url, **settings)
        opened = Database.connect(ConnectionOptions.from_settings(self.database_url, loaded))
        self._ending.callback(opened.close)
        return opened

    def model(self) -> ModelServer:
        """A stand-in for a model server, in this process."""
        return self._ending.enter_context(ModelServer())

    def worker(self, *arguments: str, **environment: str) -> WorkerProcess:
        """A worker process that has registered."""
        worker = launch_worker(self.database_url, self.broker_url, *arguments, **environment)
        self._ending.callback(worker.end)
        wait_until(
            lambda: worker.process.poll() is not None or self._is_registered(worker.pid),
            timeout=REGISTER_SECONDS,
            what="the worker to register",
        )
        assert worker.process.poll() is None, "".join(worker.output)
        return worker

    @staticmethod
    def plain_environment() -> dict[str, str]:
        """This process's environment without settings of Strandline or of a model."""
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("STRANDLINE_", "OPENAI_"))
        }

    @contextmanager
    def environment(self, **settings: str) -> Iterator[None]:
        """Memories that are made within find these settings."""
        before = dict(os.environ)
        os.environ.update(settings)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def rows(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        """Look at the tables on a separate connection."""
        return rows_of(self.database_url, sql, *params)

    def nothing_due(self) -> bool:
        """Whether every event has been consumed by all its pipelines."""
        return nothing_due(self.database_url)

    def _is_registered(self, pid: int) -> bool:
        return bool(self.rows("SELECT FROM strandline.worker WHERE pid = %s", pid))


@dataclass
class Grounds:
    """Embedded servers that run, and grounds on them."""

    server_url: str
    broker_url: str
    _made: int = 0

    @contextmanager
    def fresh(self) -> Iterator[Ground]:
        """A separate ground, removed in the end with everything that was started on it."""
        self._made += 1
        broker_url = self.broker_url.rpartition("/")[0] + f"/{self._made % 15 + 1}"
        with temporary_database(self.server_url) as database_url, ExitStack() as ending:
            yield Ground(database_url, broker_url, ending)


@contextmanager
def running_grounds(home: Path) -> Iterator[Grounds]:
    """Start the servers in ``home``; they end with the block."""
    with start_stack(home, with_broker=True) as stack:
        assert stack.broker_url is not None
        with template(stack.database_url):
            yield Grounds(stack.database_url, stack.broker_url)
