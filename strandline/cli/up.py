"""``strandline up``: Postgres, a broker and workers in one terminal."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType

import click
from rich.console import Console
from rich.table import Table

from strandline.cli.command import cli_command
from strandline.cli.servers.options import settings_alone
from strandline.cli.servers.processes import (
    START_SECONDS,
    LocalService,
    await_worker,
    local_service,
    models_used,
    worker_command,
)
from strandline.cli.servers.targets import Running, Servers, opened_pool, started_servers
from strandline.cli.terminal.interrupts import Interrupts, ends_as_interrupts
from strandline.cli.terminal.output import console, masked_url, program, styled_text
from strandline.cli.terminal.streams import log_to_stderr
from strandline.deploy.embedded.stack import runs_in
from strandline.deploy.supervisor import RestartPolicy, Supervisor
from strandline.schemas.errors import StrandlineError
from strandline.schemas.settings import Settings
from strandline.wiring.assembly import ensure_tables, prepare_stages

WORKER_START_SECONDS = 120.0
# Beyond the grace time that a worker gives its batches.
STOP_MARGIN_SECONDS = 10.0


@cli_command("up", settings_alone)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N")
@click.option("--no-service", is_flag=True, help="Do not serve HTTP beside the workers.")
def command(settings: Settings, workers: int, no_service: bool) -> None:
    """Run everything in this terminal, until Ctrl-C; the data stays in STRANDLINE_HOME.

    Workers and embedded servers that end are started again.

    A configured database or broker is used in place of the embedded one.  The tables are brought to this
    release.  The HTTP service listens on loopback, if the extra `service` is installed; its key is printed,
    and an operator's key for its page; both end with this command.
    """
    log_to_stderr("WARNING", settings.log_format)
    screen = console()
    with ends_as_interrupts() as interrupts:
        _say(screen, "starting")
        with started_servers(settings) as servers, opened_pool(servers.database_url, settings) as database:
            running = Running(settings, servers, database)
            if servers.joined:
                _say(screen, f"joining the servers that run in {settings.home} already")
            ensure_tables(servers.database_url, database, settings)
            prepare_stages(database, settings)
            serving = nullcontext() if no_service else local_service(running)
            with serving as service, Mending(servers.mend):
                if service is not None and settings.service_port not in (0, service.port):
                    _say(screen, f"port {settings.service_port} is taken; the service is at {service.url}")
                _run(screen, running, workers, service, interrupts)
        _say(screen, _farewell(servers, settings))


def _farewell(servers: Servers, settings: Settings) -> str:
    if servers.database != "embedded":
        return "stopped"
    if runs_in(settings.home):
        return f"stopped; the servers in {settings.home} go on, since other processes use them"
    return "stopped; the data is kept"


@dataclass(frozen=True, slots=True)
class _Announcement:
    screen: Console
    running: Running
    supervisor: Supervisor
    service: LocalService | None
    stopping: threading.Event

    def run(self) -> None:
        try:
            pid = await_worker(
                self.running,
                lambda: set(self._worker_pids()),
                self.stopping.is_set,
                WORKER_START_SECONDS,
            )
        except StrandlineError as error:
            _say(self.screen, str(error))
            return
        if pid is not None and self.service is not None:
            self.service.await_ready(pause=self.stopping.wait, timeout_seconds=START_SECONDS)
        if self.stopping.is_set():
            return
        if pid is not None:
            self._print()
        else:
            _say(self.screen, "no worker has registered yet; see their output above")

    def _worker_pids(self) -> list[int]:
        return [pid for name, pid in self.supervisor.pids().items() if name.startswith("worker")]

    def _print(self) -> None:
        pids = " ".join(map(str, self._worker_pids()))
        settings, servers = self.running.settings, self.running.servers
        rows = {
            "database": f"{masked_url(servers.database_url)} ({servers.database})",
            "broker": f"{masked_url(servers.broker_url)} ({servers.broker})",
            "home": str(settings.home),
            "workers": pids,
            "models": models_used(settings).announcement,
        }
        here = servers.database == "embedded"
        use = (
            "a script in this environment finds it:" if here else "with the same settings, a script uses it:"
        )
        if self.service is not None:
            rows |= {"service": self.service.url, "key": self.service.key}
            rows |= {"page": f"{self.service.url}/page", "operator": self.service.operator_key}
        hints = {
            "use": f'{use} Memory.from_defaults("a-session")',
            "look": f"{program()} status",
            "stop": "Ctrl-C",
        }
        self.screen.print(styled_text("strandline is ready", style="bold green"))
        _print_rows(self.screen, rows)
        self.screen.print()
        _print_rows(self.screen, hints)


def _run(
    screen: Console, running: Running, workers: int, service: LocalService | None, interrupts: Interrupts
) -> None:
    names = ["worker"] if workers == 1 else [f"worker-{number}" for number in range(1, workers + 1)]
    supervisor = Supervisor(
        [
            *(worker_command(name, running) for name in names),
            *([service.command] if service else []),
        ],
        say=lambda line: _say(screen, line),
        stop_timeout_seconds=running.settings.shutdown_grace_seconds + STOP_MARGIN_SECONDS,
    )
    stopping = threading.Event()
    announcement = _Announcement(screen, running, supervisor, service, stopping)
    announcing = threading.Thread(target=announcement.run, name="announce", daemon=True)
    announcing.start()
    try:
        supervisor.run(check=interrupts.check, on_stop=stopping.set)
    finally:
        stopping.set()
        announcing.join()


def _print_rows(screen: Console, rows: dict[str, str]) -> None:
    if not screen.is_terminal:
        for label, value in rows.items():
            screen.print(styled_text(f"  {label:9} {value}"), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for label, value in rows.items():
        table.add_row(styled_text(f"  {label}", style="dim"), styled_text(value, overflow="fold"))
    screen.print(table)


def _say(screen: Console, line: str) -> None:
    screen.print(styled_text(f"strandline: {line}"), soft_wrap=True)


logger = logging.getLogger("strandline.embedded")

# How long its end waits for a server that is being started.
STOP_SECONDS = 10.0


class Mending:
    """Calls ``mend``, which restarts ended servers, every half second; ever more rarely while it fails."""

    def __init__(self, mend: Callable[[], bool], waits: RestartPolicy | None = None) -> None:
        self._mend = mend
        self._waits = waits or RestartPolicy()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strandline-mend", daemon=True)

    def __enter__(self) -> Mending:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        failures = 0
        while not self._stop.wait(self._waits.wait_seconds(failures + 1)):
            try:
                failures = 0 if self._mend() else failures + 1
            except Exception:
                # The outermost edge of this thread: a defect, or a home that was removed.
                failures += 1
                logger.exception("embedded servers cannot be looked after", extra={"action": "mending_broke"})
