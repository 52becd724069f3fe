"""Worker processes as ``up`` and ``demo`` start them, and waiting until they have registered."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from strandline.cli.servers.targets import Servers
from strandline.deploy.supervisor import ChildCommand
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.inspection.status import StatusWorkers
from strandline.schemas.settings import Settings

_PAUSE_SECONDS = 0.05


def worker_command(
    name: str, servers: Servers, settings: Settings, *, log_path: Path | None = None
) -> ChildCommand:
    """The command of one worker process; secrets go by its environment, which only its user sees."""
    environment = {**os.environ, **environment_of(servers, settings)}
    return ChildCommand(name, [sys.executable, "-m", "strandline", "worker"], environment, log_path)


def environment_of(servers: Servers, settings: Settings) -> dict[str, str]:
    """What tells a child where its servers are."""
    return {
        "STRANDLINE_HOME": str(settings.home),
        "STRANDLINE_DATABASE_URL": servers.database_url,
        "STRANDLINE_BROKER_URL": servers.broker_url or "",
        "STRANDLINE_DATABASE_SCHEMA": settings.database_schema,
        "PYTHONUNBUFFERED": "1",
    }


def live_workers(database: Database, settings: Settings) -> set[int]:
    """Process ids with a heartbeat; a killed worker stays for some seconds."""
    rows = database.fetch(StatusWorkers(dead_after_seconds=settings.worker_dead_after_seconds))
    return {row.pid for row in rows}


def await_worker(
    database: Database,
    settings: Settings,
    *,
    pids: Callable[[], set[int]],
    give_up: Callable[[], bool],
    timeout_seconds: float,
) -> int | None:
    """Wait until one of ``pids()`` has registered, and return it; None when the time is over first."""
    deadline = time.monotonic() + timeout_seconds
    pause = threading.Event()
    while not give_up() and time.monotonic() < deadline:
        if alive := live_workers(database, settings) & pids():
            return min(alive)
        pause.wait(_PAUSE_SECONDS)
    return None
