"""The HTTP service as ``up`` and ``demo`` start it: on loopback, with a key that ends with them."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from strandline.cli.servers.targets import Servers
from strandline.cli.servers.worker_command import environment_of
from strandline.deploy.supervisor import ChildCommand
from strandline.producers.service.gate.keys import KeySpec, create_key, revoke_key
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

LOOPBACK = "127.0.0.1"
# Should its revocation fail, it does not live for ever.
KEY_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class LocalService:
    """A service that is to be started: its command, its address, and a key of the namespace ``default``."""

    command: ChildCommand
    url: str
    key: str

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
    spec = KeySpec.check(
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
        yield LocalService(command, f"http://{LOOPBACK}:{port}", new_key.key)
    finally:
        with suppress(StrandlineError):  # the servers may be gone
            database.run(revoke_key(new_key.key_id))


def _is_installed() -> bool:
    return all(find_spec(name) is not None for name in ("fastapi", "uvicorn"))


def _free_port(preferred: int) -> int:
    """The port that the settings name, or another one if it is taken."""
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
