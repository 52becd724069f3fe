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

from strandline.cli.servers.targets import Servers, opened_pool
from strandline.cli.servers.worker_command import await_worker, worker_command
from strandline.cli.terminal.output import program
from strandline.deploy.embedded.processes import wait_gone
from strandline.deploy.embedded.stack import start_stack
from strandline.deploy.supervisor import Supervisor
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
        settings: of this process; they name the demo's own servers.
        supervisor: runs the worker.
        attach: the command that starts another worker from a second terminal.
        say: takes a line about the processes, from any thread.
    """

    settings: Settings
    servers: Servers
    database: Database
    supervisor: Supervisor
    attach: str
    say: Callable[[str], None]

    @property
    def home(self) -> Path:
        return self.settings.home

    def worker_pids(self) -> set[int]:
        """The workers that the demo itself runs."""
        return set(self.supervisor.pids().values())


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
    attach = _attach_command(home)
    instead = None if restart else f"start one with: {attach}"
    try:
        with start_stack(home, with_broker=True, embedded=load_settings().embedded) as stack:
            settings = load_settings(home=home, database_url=stack.database_url, broker_url=stack.broker_url)
            servers = Servers(stack.database_url, stack.broker_url, "embedded", "embedded")
            command = worker_command("the worker", servers, settings, log_path=home / "worker.log")
            with opened_pool(stack.database_url, settings) as database:
                ensure_tables(stack.database_url, database, settings)
                check()
                try:
                    with Supervisor([command], say=say, instead_of_restart=instead) as supervisor:
                        environment = DemoEnvironment(settings, servers, database, supervisor, attach, say)
                        _await_worker(environment, check)
                        yield environment
                finally:
                    _end_attached(database, settings, say)
    finally:
        if keep:
            say(f"the home directory was kept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def _await_worker(environment: DemoEnvironment, check: Callable[[], None]) -> None:
    def has_failed() -> bool:
        check()
        return environment.supervisor.ends > 0

    pid = await_worker(
        environment.database,
        environment.settings,
        pids=environment.worker_pids,
        give_up=has_failed,
        timeout_seconds=_WORKER_START_SECONDS,
    )
    if pid is None:
        log = environment.home / "worker.log"
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        raise ConfigurationError(f"The worker did not start. It said: {last}")


def _end_attached(database: Database, settings: Settings, say: Callable[[str], None]) -> None:
    """Ask workers that were attached by hand to end: they would keep the demo's servers running."""
    try:
        rows = database.fetch(StatusWorkers(dead_after_seconds=settings.worker_dead_after_seconds))
    except StrandlineError:
        # The database is gone, which must not take the place of what ended the demo.
        return
    for pid in [row.pid for row in rows if row.host == socket.gethostname()]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
            say(f"the attached worker {pid} was asked to end, since its servers end now")
            wait_gone(pid, timeout_seconds=_ATTACHED_END_SECONDS)


def _attach_command(home: Path) -> str:
    """The command for a second terminal, without the variables that would point it elsewhere."""
    unset = [name for name in ("STRANDLINE_DATABASE_URL", "STRANDLINE_BROKER_URL") if os.environ.get(name)]
    prefix = "env " + " ".join(f"-u {name}" for name in unset) + " " if unset else ""
    return f"{prefix}STRANDLINE_HOME={shlex.quote(str(home))} {program()} worker"
