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


class DemoEnvironment:
    """The servers and processes that the demo runs on; ``worker_ends`` counts how often the worker ended.

    Args:
        settings: those of this process; they name the demo's own servers.
        restart: whether a worker that ends is started again.
        say: takes a line about the processes, from any thread.
    """

    def __init__(
        self,
        settings: Settings,
        servers: Servers,
        database: Database,
        *,
        restart: bool,
        say: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.servers = servers
        self.database = database
        self.say = say
        self.home = settings.home
        self.attach = _attach_command(self.home)
        self.worker_ends = 0
        self._log_path = self.home / "worker.log"
        self.supervisor = Supervisor(
            [worker_command("the worker", servers, settings, log_path=self._log_path)],
            say=say,
            on_end=self._count_end,
            instead_of_restart=None if restart else f"start one with: {self.attach}",
        )

    def _count_end(self) -> None:
        self.worker_ends += 1

    def worker_pids(self) -> set[int]:
        """The workers that the demo itself runs."""
        return set(self.supervisor.pids().values())

    def await_worker(self, check: Callable[[], None]) -> None:
        """Wait until the worker has registered."""

        def has_failed() -> bool:
            check()
            return self.worker_ends > 0

        pid = await_worker(
            self.database,
            self.settings,
            pids=self.worker_pids,
            give_up=has_failed,
            timeout_seconds=_WORKER_START_SECONDS,
        )
        if pid is None:
            raise ConfigurationError(f"The worker did not start. It said: {_last_line(self._log_path)}")

    def end_attached(self) -> None:
        """Ask workers that were attached by hand to end: they would keep the demo's servers running."""
        dead_after = self.settings.worker_dead_after_seconds
        try:
            rows = self.database.fetch(StatusWorkers(dead_after_seconds=dead_after))
        except StrandlineError:
            # The database is gone, which must not take the place of what ended the demo.
            return
        for pid in [row.pid for row in rows if row.host == socket.gethostname()]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
                self.say(f"the attached worker {pid} was asked to end, since its servers end now")
                wait_gone(pid, timeout_seconds=_ATTACHED_END_SECONDS)


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
                environment = DemoEnvironment(settings, servers, database, restart=restart, say=say)
                try:
                    with environment.supervisor:
                        environment.await_worker(check)
                        yield environment
                finally:
                    environment.end_attached()
    finally:
        if keep:
            say(f"the home directory was kept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def _attach_command(home: Path) -> str:
    """The command for a second terminal; what would point it elsewhere is taken out of its environment."""
    unset = [name for name in ("STRANDLINE_DATABASE_URL", "STRANDLINE_BROKER_URL") if os.environ.get(name)]
    prefix = "env " + " ".join(f"-u {name}" for name in unset) + " " if unset else ""
    return f"{prefix}STRANDLINE_HOME={shlex.quote(str(home))} {program()} worker"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
