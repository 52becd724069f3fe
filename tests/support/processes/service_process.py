"""The HTTP service as processes of their own, and a round robin over them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import IO

from tests.conftest import wait_until
from tests.support.processes import forking

DRAIN_SECONDS = 1.0


class ServiceProcess:
    """``strandline serve`` in a process of its own.

    Args:
        log: where its stderr is written.
        settings: by the names of environment variables.
    """

    def __init__(self, database_url: str, log: Path, **settings: str) -> None:
        self._log = log
        with log.open("w") as errors:
            self.process = self._start(database_url, errors, settings)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert address is not None, (line, self.said())
        self.port = int(address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def _start(self, database_url: str, errors: IO[str], settings: dict[str, str]) -> forking.Popen[str]:
        return forking.Popen(
            [sys.executable, "-m", "strandline", "serve", "--port", "0"],
            env={
                "PATH": "/usr/bin:/bin",
                "STRANDLINE_DATABASE_URL": database_url,
                "STRANDLINE_SERVICE_DRAIN_SECONDS": str(DRAIN_SECONDS),
                "STRANDLINE_EMBEDDED": "never",
                **settings,
            },
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def said(self) -> str:
        """What it wrote on stderr."""
        return self._log.read_text()

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        code = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def is_ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/healthz/ready")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()


class RoundRobin:
    """Sends each request to the next process that says it is ready, as a load balancer does."""

    def __init__(self, processes: list[ServiceProcess]) -> None:
        self._processes = processes
        self._ready = [process for process in processes if process.is_ready()]
        self._turns = count()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> RoundRobin:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def add(self, process: ServiceProcess) -> None:
        self._processes.append(process)

    def remove(self, process: ServiceProcess) -> None:
        self._processes.remove(process)

    def next(self) -> ServiceProcess:
        ready = self._ready
        return ready[next(self._turns) % len(ready)]

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self._ready = [process for process in list(self._processes) if process.is_ready()] or self._ready


@contextmanager
def two_processes(url: str, folder: Path) -> Iterator[list[ServiceProcess]]:
    with ExitStack() as stack:
        processes = []
        for number in range(2):
            process = ServiceProcess(url, folder / f"{number}.log")
            stack.callback(process.ended)
            stack.callback(process.process.send_signal, signal.SIGTERM)
            processes.append(process)
        for process in processes:
            wait_until(process.is_ready, timeout=30, what="the service")
        yield processes
