"""The campaign's own Postgres and broker: real servers that can be ended at once and started again.

Postgres comes back on the same data; the broker comes back empty, on the same port.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

import redis

from strandline.deploy.embedded.postgres import EmbeddedPostgres
from strandline.deploy.embedded.processes import wait_gone
from strandline.deploy.embedded.wheel_binaries import broker_server
from strandline.schemas.private_files import write_private

READY_SECONDS = 300.0


class PostgresServer:
    """The embedded Postgres, with an end as after a power cut: no checkpoint, no farewell to clients."""

    def __init__(self, directory: Path) -> None:
        self._server = EmbeddedPostgres(directory / "postgres")
        self.url = ""

    def start(self) -> None:
        """Start it, or recover it; returns once it accepts connections."""
        self.url = self._server.start()

    def crash(self) -> None:
        """What ``pg_ctl stop -m immediate`` does; returns once it is gone."""
        if (pid := self._server.pid()) is not None:
            os.kill(pid, signal.SIGQUIT)
            wait_gone(pid, timeout_seconds=READY_SECONDS)

    def kill(self) -> None:
        """Kill all its processes, so that nothing more is written; returns once they are gone."""
        if (pid := self._server.pid()) is not None:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for process in (pid, *map(int, children)):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            for process in (pid, *map(int, children)):
                wait_gone(process, timeout_seconds=READY_SECONDS)

    def stop(self) -> None:
        self._server.stop()


class BrokerMissingError(Exception):
    """The broker that was asked for is not installed."""


class BrokerServer(Protocol):
    """A broker as the campaign disturbs it."""

    @property
    def url(self) -> str:
        """As Celery takes it; the same after each start."""
        ...

    def start(self) -> None:
        """Start it, empty; returns once it accepts connections."""
        ...

    def kill(self) -> None:
        """End it at once, with all that it holds."""
        ...

    def empty(self) -> None:
        """Take everything away that it holds, while it runs."""
        ...

    def refuse(self, *, hints: bool) -> None:
        """Take no hints any more, while it runs and answers; or take them again."""
        ...

    def stop(self) -> None:
        """End it for good."""
        ...


_REDIS_CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
protected-mode yes
daemonize no
dir .
save ""
appendonly no
loglevel warning
"""


class RedisServer:
    """Valkey (or another ``program``) on loopback, with further ``settings``; keeps nothing on the disk."""

    def __init__(self, directory: Path, settings: str = "", program: Path | None = None) -> None:
        self._directory = directory / "broker"
        self._directory.mkdir(mode=0o700)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        password = secrets.token_urlsafe(24)
        self.url = f"redis://:{password}@127.0.0.1:{self._port}/0"
        self._program = program or broker_server()
        config = _REDIS_CONFIG.format(port=self._port, password=password) + settings
        write_private(self._directory / "broker.conf", config)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._program), str(self._directory / "broker.conf")],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, f"the broker did not start; see {self._directory}/broker.log"
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def empty(self) -> None:
        with closing(self._client()) as client:
            client.flushall()

    def refuse(self, *, hints: bool) -> None:
        with closing(self._client()) as client:
            client.config_set("maxmemory", "1mb" if hints else "0")

    def stop(self) -> None:
        self.kill()

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, socket_connect_timeout=1.0, socket_timeout=5.0, retry=None)

    def _answers(self) -> bool:
        try:
            with closing(self._client()) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
