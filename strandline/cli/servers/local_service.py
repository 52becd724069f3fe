"""The HTTP service as ``up`` and ``demo`` start it: on loopback, with a key that ends with them."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from strandline.administration.keys import KeySpec, create_key, revoke_key
from strandline.cli.servers.targets import Servers
from strandline.cli.servers.worker_command import environment_of
from strandline.deploy.supervisor import ChildCommand
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

LOOPBACK = "127.0.0.1"
# Should its revocation fail, it does not live for ever.
KEY_SECONDS = 30 * 86_400.0
START_SECONDS = 60.0
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LocalService:
    """A service that is to be started: its command, its address, and a key of the namespace ``default``."""

    command: ChildCommand
    port: int
    key: str

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://{LOOPBACK}:{self.port}"

    def await_ready(self, *, pause: Callable[[float], object], timeout_seconds: float) -> bool:
        """Wait until it may be sent requests; False when the time is over first.

        Args:
            pause: waits so many seconds; true, or an exception, if the wait is given up.
            timeout_seconds: the longest wait.
        """
        deadline = time.monotonic() + timeout_seconds
        while not (is_ready := _is_ready(self.port)) and time.monotonic() < deadline:
            if pause(PAUSE_SECONDS):
                break
        return is_ready

    def curl(self, session_id: str, user_id: str) -> str:
        """A command line that reads a session."""
        path = f"{self.url}/v1/sessions/{quote(session_id, safe='')}/context"
        headers = (f"Authorization: Bearer {self.key}", f"Strandline-User: {user_id}")
        return " ".join(["curl", *(f"-H {shlex.quote(header)}" for header in headers), shlex.quote(path)])


@contextmanager
def local_service(
    database: Database, servers: Servers, settings: Settings, *, log_path: Path | None = None
) -> Iterator[LocalService | None]:
    """A service for as long as this lasts; None without the extra ``service``."""
    if not _is_installed():
        yield None
        return
    spec = KeySpec(
        DEFAULT_NAMESPACE,
        ["read", "write", "facts"],
        label="made by strandline up",
        expires_in_seconds=KEY_SECONDS,
    )
    new_key = database.run(create_key(spec))
    port = _free_port(settings.service_port)
    address = ["--host", LOOPBACK, "--port", str(port)]
    command = ChildCommand(
        "service",
        [sys.executable, "-m", "strandline", "serve", *address],
        {**os.environ, **environment_of(servers, settings)},
        log_path,
    )
    try:
        yield LocalService(command, port, new_key.key)
    finally:
        with suppress(StrandlineError):  # the servers may be gone
            database.run(revoke_key(new_key.key_id))


def _is_ready(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/healthz/ready")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _is_installed() -> bool:
    return all(find_spec(name) is not None for name in ("fastapi", "uvicorn"))


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            free: int = probe.getsockname()[1]
            return free
    return preferred
