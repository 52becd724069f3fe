"""Processes that a case runs beside itself: workers and the stand-in for a model; what they take."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from bench.environment import Ground, NotMeasuredError
from strandline.administration.keys import KeySpec, create_key
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process that was started here, by its id; what it takes is read from ``/proc``."""

    pid: int

    def processor_seconds(self) -> float:
        """Seconds on a processor so far, of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_megabytes(self) -> float:
        """Memory that it holds now."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise NotMeasuredError("the worker has ended")


@dataclass(frozen=True, slots=True)
class ModelProcess:
    """The stand-in for a model server (``tests/support/servers/model_server.py``) in its own process."""

    base_url: str

    def requests(self) -> int:
        """How many it has received."""
        return self._counted()["requests"]

    def open_requests(self) -> int:
        """How many it is answering at this moment."""
        return self._counted()["open"]

    def _counted(self) -> dict[str, int]:
        counted: dict[str, int] = httpx2.get(self.base_url.removesuffix("/v1") + "/control").json()
        return counted

    def environment(self, *, embedding: bool = True) -> dict[str, str]:
        """For a worker that asks it for everything, or embeds by itself."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": "none",
            "STRANDLINE_EMBEDDING_BACKEND": "openai" if embedding else "local",
            "STRANDLINE_EMBEDDING_DIMENSIONS": "256",
        }


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """The HTTP service on a case's database, and two keys."""

    port: int
    key: str
    other_key: str


@contextmanager
def service(ground: Ground) -> Iterator[ServiceProcess]:
    """Start ``strandline serve`` on a free port, and make keys for it."""
    settings = load_settings(database_url=ground.url)
    database = Database.connect(ConnectionOptions.from_settings(ground.url, settings, pool_size=1))
    spec = KeySpec("default", ["read", "write", "facts"])
    keys = [database.run(create_key(spec)).key for _ in range(2)]
    database.close()
    given = {"STRANDLINE_DATABASE_URL": ground.url, "STRANDLINE_BROKER_URL": ground.broker_url}
    with _running(["-m", "strandline", "serve", "--port", "0"], given, output=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://[^:]+:(\d+)", line)
        if address is None:
            raise NotMeasuredError("the service did not start")
        yield ServiceProcess(int(address[1]), *keys)


LOCAL = {"STRANDLINE_TEXT_BACKEND": "local", "STRANDLINE_EMBEDDING_BACKEND": "local"}


@contextmanager
def model_server(latency_seconds: float) -> Iterator[ModelProcess]:
    """Start the stand-in; each answer takes ``latency_seconds``."""
    command = ["-m", "tests.support.servers.model_server", "--latency", str(latency_seconds), "--keep", "1"]
    with _running(command, {}, output=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield ModelProcess(process.stdout.readline().strip())


@contextmanager
def worker(
    ground: Ground, environment: dict[str, str], *command: str, concurrency: int, processor: int | None = None
) -> Iterator[Process]:
    """Start a worker on the case's database and wait until it has registered.

    Args:
        command: what runs it; default ``strandline worker``.
        processor: the only one it may run on; default: any.
    """
    require_proc()
    given = {
        "STRANDLINE_DATABASE_URL": ground.url,
        "STRANDLINE_BROKER_URL": ground.broker_url,
        "STRANDLINE_WORKER_CONCURRENCY": str(concurrency),
    }
    with ExitStack() as stack:
        with _only_on(processor):
            process = stack.enter_context(
                _running(command or ("-m", "strandline", "worker"), given | environment)
            )

        def is_registered() -> bool:
            if process.poll() is not None:
                raise NotMeasuredError(f"the worker ended with exit code {process.returncode}")
            return bool(ground.rows("SELECT FROM strandline.worker WHERE pid = %s", process.pid))

        wait_until(is_registered, seconds=60)
        yield Process(process.pid)


@contextmanager
def idle_worker(ground: Ground, *, concurrency: int) -> Iterator[None]:
    """Start the worker whose tasks do nothing; it looks at no database."""
    given = {
        "STRANDLINE_BROKER_URL": ground.broker_url,
        "STRANDLINE_WORKER_CONCURRENCY": str(concurrency),
    }
    with _running(("-m", "bench.worker_process", "nothing"), given):
        yield


def wait_until(condition: Callable[[], object], *, seconds: float, pause: float = 0.02) -> None:
    """Wait until the condition holds.

    Raises:
        NotMeasuredError: it did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotMeasuredError(f"what it waits for did not come within {seconds:.0f} s")
        time.sleep(pause)


def require_proc() -> None:
    """Make sure that Linux's figures of what a process takes can be read.

    Raises:
        NotMeasuredError: there is no ``/proc``.
    """
    if not Path("/proc/self/stat").exists():
        raise NotMeasuredError("what a process takes is read from /proc, which this system does not have")


@contextmanager
def _running(
    command: tuple[str, ...] | list[str], environment: dict[str, str], *, output: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A Python process, ended by its own id."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE_", "OPENAI_"))
    }
    process = subprocess.Popen(
        [sys.executable, *command],
        env=inherited | environment,
        cwd=ROOT,
        stdout=output,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def _only_on(processor: int | None) -> Iterator[None]:
    """Processes started inside run on one processor: a child inherits this process's."""
    if processor is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[processor % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
