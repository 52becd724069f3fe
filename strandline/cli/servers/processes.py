"""Processes that ``up`` and ``demo`` start (workers, the HTTP service), and the models that these use."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import sys
import threading
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
from strandline.cli.servers.targets import Running
from strandline.deploy.supervisor import ChildCommand
from strandline.pipelines.models.local.text_model import LOCAL_EMBEDDERS
from strandline.pipelines.models.local.text_model import MODEL as LOCAL_TEXT_MODEL
from strandline.schemas.errors import StrandlineError
from strandline.schemas.model_roles import TEXT_ROLES
from strandline.schemas.queries.inspection.status import StatusWorkers, StatusWorkersRow
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class ModelsUsed:
    """The models by name."""

    text: str
    embedding: str
    text_is_local: bool
    embedding_is_local: bool

    @property
    def announcement(self) -> str:
        """One line about them."""
        if self.text_is_local and self.embedding_is_local:
            return (
                f"local stand-ins: {self.text} picks sentences as facts and summary, {self.embedding} embeds"
                " (set OPENAI_API_KEY or OPENAI_BASE_URL for real models)"
            )
        text = f"{self.text} (local stand-in)" if self.text_is_local else self.text
        embedding = f"{self.embedding} (local)" if self.embedding_is_local else self.embedding
        return f"{text} for facts and summary, {embedding} for vectors"


def models_used(settings: Settings) -> ModelsUsed:
    """The models of workers with these settings."""
    text_is_local = {settings.backend(role) for role in TEXT_ROLES} == {"local"}
    embedder = settings.backend("embedding")
    embedding_is_local = embedder in LOCAL_EMBEDDERS
    served = dict.fromkeys(
        LOCAL_TEXT_MODEL if settings.backend(role) == "local" else str(settings.text_role(role).of.model)
        for role in TEXT_ROLES
    )
    others = "no model" if embedder == "none" else settings.embedding_model
    return ModelsUsed(
        text=" and ".join(served),
        embedding=LOCAL_EMBEDDERS[embedder][0] if embedding_is_local else others,
        text_is_local=text_is_local,
        embedding_is_local=embedding_is_local,
    )


_PAUSE_SECONDS = 0.05


def worker_command(name: str, running: Running, *, log_path: Path | None = None) -> ChildCommand:
    """The command of one worker process; secrets go by its environment, which only its user sees."""
    return ChildCommand(
        name, [sys.executable, "-m", "strandline", "worker"], _environment_of(running), log_path
    )


def _environment_of(running: Running) -> dict[str, str]:
    """The variables that tell a child where its servers are."""
    return {
        **os.environ,
        "STRANDLINE_HOME": str(running.settings.home),
        "STRANDLINE_DATABASE_URL": running.servers.database_url,
        "STRANDLINE_BROKER_URL": running.servers.broker_url or "",
        "STRANDLINE_DATABASE_SCHEMA": running.settings.database_schema,
        "PYTHONUNBUFFERED": "1",
    }


def live_workers(running: Running) -> list[StatusWorkersRow]:
    """Workers with a heartbeat; a killed one stays for some seconds."""
    dead_after = running.settings.worker_dead_after_seconds
    return running.database.fetch(StatusWorkers(dead_after_seconds=dead_after))


def await_worker(
    running: Running, pids: Callable[[], set[int]], give_up: Callable[[], bool], timeout_seconds: float
) -> int | None:
    """Wait until one of ``pids()`` has registered, and return it; None when the time is over first."""
    deadline = time.monotonic() + timeout_seconds
    pause = threading.Event()
    while not give_up() and time.monotonic() < deadline:
        if alive := {row.pid for row in live_workers(running)} & pids():
            return min(alive)
        pause.wait(_PAUSE_SECONDS)
    return None


LOOPBACK = "127.0.0.1"
# Should its revocation fail, it does not live for ever.
KEY_SECONDS = 30 * 86_400.0
START_SECONDS = 60.0
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LocalService:
    """A service that is to be started: its command, its address, and a key of the namespace ``default``.

    ``operator_key`` is one of the installation, with which the page shows whether memory keeps up.
    """

    command: ChildCommand
    port: int
    key: str
    operator_key: str

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://{LOOPBACK}:{self.port}"

    def await_ready(self, *, pause: Callable[[float], object], timeout_seconds: float) -> bool:
        """Wait until it takes requests; False if the time is over, or ``pause`` returned true."""
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
def local_service(running: Running, *, log_path: Path | None = None) -> Iterator[LocalService | None]:
    """A service for as long as this lasts; None without the extra ``service``."""
    if not all(find_spec(name) for name in ("starlette", "uvicorn")):
        yield None
        return
    label = "made by strandline up"
    specs = (
        KeySpec(DEFAULT_NAMESPACE, ["read", "write", "facts"], label=label, expires_in_seconds=KEY_SECONDS),
        KeySpec(None, ["operate"], label=label, expires_in_seconds=KEY_SECONDS),
    )
    new_key, operator_key = (running.database.run(create_key(spec)) for spec in specs)
    port = _free_port(running.settings.service_port)
    address = ["--host", LOOPBACK, "--port", str(port)]
    command = ChildCommand(
        "service",
        [sys.executable, "-m", "strandline", "serve", *address],
        {"STRANDLINE_SERVICE_PAGE_SECRET": secrets.token_hex(), **_environment_of(running)},
        log_path,
    )
    try:
        yield LocalService(command, port, new_key.key, operator_key.key)
    finally:
        with suppress(StrandlineError):  # the servers may be gone
            for key in (new_key, operator_key):
                running.database.run(revoke_key(key.key_id))


def _is_ready(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/healthz/ready")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


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
