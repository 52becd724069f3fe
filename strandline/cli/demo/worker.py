"""The demo's worker: a separate process, restarted when it dies, unless told not to."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from strandline.deploy.supervisor import ChildCommand, Supervisor, describe_end

_STOP_SECONDS = 10.0


class WorkerKeeper(Protocol):
    """Runs the worker; ``ends`` counts how often it ended by itself."""

    @property
    def ends(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def pids(self) -> set[int]: ...


class RestartingWorker:
    """A supervised worker."""

    def __init__(self, command: ChildCommand, *, say: Callable[[str], None]) -> None:
        self.ends = 0
        self._supervisor = Supervisor(
            [command], say=say, on_end=self._count_end, stop_timeout_seconds=_STOP_SECONDS
        )

    def start(self) -> None:
        self._supervisor.start()

    def stop(self) -> None:
        self._supervisor.stop()

    def pids(self) -> set[int]:
        return set(self._supervisor.pids().values())

    def _count_end(self) -> None:
        self.ends += 1


class SingleWorker:
    """A worker that stays dead when it dies, so that a person can start another by hand."""

    def __init__(self, command: ChildCommand, *, say: Callable[[str], None], attach: str) -> None:
        self.ends = 0
        self._command = command
        self._say = say
        self._attach = attach
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="demo-worker", daemon=True)

    def start(self) -> None:
        assert self._command.log_path is not None  # noqa: S101  # the demo gives its worker a log
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(self._command.log_path, flags, 0o600), "ab") as log:
            self._process = subprocess.Popen(
                list(self._command.argv),
                env=self._command.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._process.kill()
        self._thread.join()

    def pids(self) -> set[int]:
        running = self._process is not None and self._process.poll() is None
        return {self._process.pid} if self._process is not None and running else set()

    def _wait(self) -> None:
        assert self._process is not None  # noqa: S101  # the thread starts after the process
        status = self._process.wait()
        if self._stopping.is_set():
            return
        self.ends += 1
        how = f"{self._command.name} {describe_end(status)}"
        self._say(f"{how} and is not started again; start one with: {self._attach}")
