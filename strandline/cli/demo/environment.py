"""The demo's environment: a home directory, Postgres, a broker and a worker process, all gone in the end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from strandline.cli.demo.worker import RestartingWorker, SingleWorker, WorkerKeeper
from strandline.cli.servers.targets import Servers, opened_pool
from strandline.cli.servers.worker_command import await_worker, worker_command
from strandline.cli.terminal.output import program
from strandline.deploy.embedded.processes import wait_gone
from strandline.deploy.embedded.stack import start_stack
from strandline.schemas.errors import ConfigurationError, StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.inspection.status import StatusWorkers
from strandline.schemas.settings import Settings, load_settings
from strandline.wiring.assembly import ensure_tables

_WORKER_START_SECONDS = 60.0
_ATTACHED_END_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """The servers and processes that the demo runs on.

    Attributes:
        settings: those of this process; they name the demo's own servers.
        attach: the command that starts another worker from a second terminal.
    """

    home: Path
    settings: Settings
    servers: Servers
    database: Database
    worker: WorkerKeeper
    worker_pid: int
    attach: str


@contextmanager
def demo_environment(
    *, restart: bool, keep: bool, say: Callable[[str], None], check: Callable[[], None]
) -> Iterator[DemoEnvironment]:
    """Start the environment, and stop it again; ``keep`` leaves the home directory.

    ``check`` raises once the demo is to end.

    Raises:
        EmbeddedUnavailableError: the embedded servers are forbidden or not installed.
        ConfigurationError: the worker did not come up; the sentence says why.
    """
    home = Path(tempfile.mkdtemp(prefix="strandline-demo-")).resolve()
    if os.geteuid() == 0:
        # Postgres does not run as root, and its own account has to pass through.
        home.chmod(0o711)
    try:
        with start_stack(home, with_broker=True, embedded=load_settings().embedded) as stack:
            settings = load_settings(home=home, database_url=stack.database_url, broker_url=stack.broker_url)
            servers = Servers(stack.database_url, stack.broker_url, "embedded", "embedded")
            with opened_pool(stack.database_url, settings) as database:
                ensure_tables(stack.database_url, database, settings)
                check()
                try:
                    with _worker(
                        home, settings, servers, database, restart=restart, say=say, check=check
                    ) as environment:
                        yield environment
                finally:
                    _end_attached(database, settings, say)
    finally:
        if keep:
            say(f"the home directory was kept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _worker(
    home: Path,
    settings: Settings,
    servers: Servers,
    database: Database,
    *,
    restart: bool,
    say: Callable[[str], None],
    check: Callable[[], None],
) -> Iterator[DemoEnvironment]:
    log_path, attach = home / "worker.log", _attach_command(home)
    command = worker_command("the worker", servers, settings, log_path=log_path)
    worker: WorkerKeeper = (
        RestartingWorker(command, say=say) if restart else SingleWorker(command, say=say, attach=attach)
    )

    def has_failed() -> bool:
        check()
        return worker.ends > 0

    worker.start()
    try:
        pid = await_worker(
            database,
            settings,
            pids=worker.pids,
            give_up=has_failed,
            timeout_seconds=_WORKER_START_SECONDS,
        )
        if pid is None:
            raise ConfigurationError(f"The worker did not start. It said: {_last_line(log_path)}")
        yield DemoEnvironment(home, settings, servers, database, worker, pid, attach)
    finally:
        worker.stop()


def _attach_command(home: Path) -> str:
    """The command for a second terminal; what would point it elsewhere is taken out of its environment."""
    unset = [name for name in ("STRANDLINE_DATABASE_URL", "STRANDLINE_BROKER_URL") if os.environ.get(name)]
    prefix = "env " + " ".join(f"-u {name}" for name in unset) + " " if unset else ""
    return f"{prefix}STRANDLINE_HOME={shlex.quote(str(home))} {program()} worker"


def _end_attached(database: Database, settings: Settings, say: Callable[[str], None]) -> None:
    """Ask workers that were attached by hand to end: they would keep the demo's servers running."""
    for pid in _workers_here(database, settings):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
            say(f"the attached worker {pid} was asked to end, since its servers end now")
            wait_gone(pid, timeout_seconds=_ATTACHED_END_SECONDS)


def _workers_here(database: Database, settings: Settings) -> list[int]:
    try:
        rows = database.fetch(StatusWorkers(dead_after_seconds=settings.worker_dead_after_seconds))
    except StrandlineError:
        # Its database is gone, which must not take the place of what ended the demo.
        return []
    here = socket.gethostname()
    return [row.pid for row in rows if row.host == here]


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
