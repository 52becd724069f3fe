"""Worker processes as operators start them: ``strandline worker``, told apart and ended by their own pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import forking

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@dataclass
class WorkerProcess:
    """A real worker process and what it has printed."""

    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(100)

    def stop(self, timeout: float = 200.0) -> int:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def end(self) -> None:
        """Kill it if it lives, stopped or not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


def launch_worker(database_url: str, broker_url: str, *arguments: str, **environment: str) -> WorkerProcess:
    """Start ``strandline worker`` with these arguments; it may not have registered yet."""
    process = forking.Popen(
        [sys.executable, "-m", "strandline", "worker", *arguments],
        env={
            **os.environ,
            "STRANDLINE_DATABASE_URL": database_url,
            "STRANDLINE_BROKER_URL": broker_url,
            "PYTHONUNBUFFERED": "1",
            **environment,
        },
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    return collect_output(process)


def collect_output(process: subprocess.Popen[str]) -> WorkerProcess:
    """A worker that runs already, and whose output is a pipe."""
    worker = WorkerProcess(process)
    threading.Thread(target=_collect, args=(process, worker.output), daemon=True).start()
    return worker


def _collect(process: subprocess.Popen[str], output: list[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        output.extend(process.stdout)
