"""The stack that is disturbed: servers, workers, producers and a model, each its own process on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages
from tests.chaos.children import ROOT, Child, Start, run_command
from tests.chaos.faults.line import PostgresLine
from tests.chaos.judging.owners_book import OwnersBook
from tests.chaos.judging.timeline import Timeline
from tests.chaos.plan import Shape
from tests.chaos.servers import BrokerServer, PostgresServer
from tests.upgrade.next_release import SETTING

READY_SECONDS = 300.0

# Heartbeat, sweep and leases stay at their defaults: the bounds on recovery are to hold with those.
WORKER_SETTINGS = {
    "STRANDLINE_EMBEDDING_BACKEND": "local",
    "STRANDLINE_MODEL_TIMEOUT_SECONDS": "4",
    "STRANDLINE_RETRY_BASE_SECONDS": "0.2",
    "STRANDLINE_RETRY_MAX_SECONDS": "5",
}


@dataclass
class Stack:
    """All that runs, as ``build`` describes it.

    Attributes:
        line: what every process but the campaign reaches Postgres by.
        environment: what a command needs to reach the servers.
        at_work: the same with the settings of workers.
        book: what is known of sessions that no producer puts to.
        timeline: when what was away.
        ending: set when the campaign is to end early.
        keep: True keeps the directory with the logs, the journals and the data.
        popen: what starts commands.
        release: the folder of the release that commands run.
    """

    directory: Path
    postgres: PostgresServer
    line: PostgresLine
    broker: BrokerServer
    environment: Mapping[str, str]
    at_work: Mapping[str, str]
    model: Child
    model_url: str
    workers: list[Child]
    producers: list[Child]
    timeline: Timeline = field(default_factory=Timeline)
    book: OwnersBook = field(default_factory=OwnersBook)
    ending: threading.Event = field(default_factory=threading.Event)
    keep: bool = False
    popen: Start = subprocess.Popen
    release: Path = ROOT

    def run(self, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run ``strandline`` with the settings of workers."""
        return run_command(self.popen, arguments, self.at_work, seconds, self.release)

    @property
    def children(self) -> list[Child]:
        return [self.model, *self.workers, *self.producers]

    def journal_path(self, slot: int) -> Path:
        return _journal_path(self.directory, slot)

    def control_model(self, behaviour: Mapping[str, Any]) -> None:
        """Tell the model how to behave; an empty mapping means well."""
        request = urllib.request.Request(
            f"{self.model_url}/control", json.dumps(dict(behaviour)).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            response.read()

    def end_children(self) -> None:
        """End every process but the servers, whatever state it is in."""
        for child in self.children:
            child.end_for_good()


def build(
    directory: Path,
    postgres: PostgresServer,
    line: PostgresLine,
    broker: BrokerServer,
    shape: Shape,
    *,
    seed: int,
    rate: float,
) -> Stack:
    """Make the tables and describe the processes; both servers run already.

    ``rate``: puts per second of all producers together.
    """
    environment = _environment(directory, line.url, broker.url)
    _prepare(postgres.url)
    port = _free_port()
    model_url = f"http://127.0.0.1:{port}"
    python = [sys.executable, "-m"]
    at_work = environment | WORKER_SETTINGS | {"OPENAI_BASE_URL": f"{model_url}/v1"}

    def child(name: str, *argv: str, env: Mapping[str, str] = environment) -> Child:
        return Child(name, [*python, *argv], env, directory / f"{name.replace(' ', '-')}.log")

    def producer(slot: int) -> Child:
        journal = str(_journal_path(directory, slot))
        options = ["--slot", str(slot), "--journal", journal, "--seed", str(seed)]
        options += ["--puts-per-second", str(rate / shape.producers)]
        return child(f"producer {slot}", "tests.chaos.producer", *options)

    return Stack(
        directory,
        postgres,
        line,
        broker,
        environment,
        at_work,
        model=child("model", "tests.support.servers.model_server", "--port", str(port), "--keep", "0"),
        model_url=model_url,
        workers=[
            child(f"worker {slot}", "strandline", "worker", env=at_work) for slot in range(shape.workers)
        ],
        producers=[producer(slot) for slot in range(shape.producers)],
    )


def start_model(stack: Stack) -> None:
    """Start the model and wait until it answers."""
    stack.model.start()
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            stack.control_model({})
        except OSError:
            assert time.monotonic() < deadline, f"the model did not start; see {stack.model.log_path}"
            time.sleep(0.05)
        else:
            return


def _environment(directory: Path, database_url: str, broker_url: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE_", "OPENAI_"))
    }
    return kept | {
        "STRANDLINE_HOME": str(directory / "home"),
        "STRANDLINE_EMBEDDED": "never",
        "STRANDLINE_DATABASE_URL": database_url,
        "STRANDLINE_BROKER_URL": broker_url,
        "PYTHONUNBUFFERED": "1",
        # Both names of the setting that the next release renames.
        **{f"STRANDLINE_{name.upper()}": "150" for name in SETTING},
    }


def _prepare(database_url: str) -> None:
    """Tables and pipelines, so that producers need not wait for a worker."""
    migrate(database_url, "strandline")
    settings = load_settings(text_backend="local", embedding_backend="local")
    database = Database.connect(ConnectionOptions.from_settings(database_url, settings))
    prepare_stages(database, settings)
    database.close()


def _journal_path(directory: Path, slot: int) -> Path:
    return directory / f"journal-{slot}.jsonl"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
