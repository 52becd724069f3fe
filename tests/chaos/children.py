"""Child processes of the campaign: started, killed, frozen and ended by their own process id only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
STOP_SECONDS = 30.0


Start = type[subprocess.Popen[Any]]


def run_command(
    start: Start,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    release: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Run ``strandline`` as its user would, in a separate session; it is killed after so many seconds."""
    with starter_of(release, start)(
        [sys.executable, "-m", "strandline", *arguments],
        env={**environment, **path_of(release)},
        cwd=release,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, printed, said)


def path_of(release: Path) -> dict[str, str]:
    """The variable by which Python finds a release's modules, and this checkout's tests."""
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([str(release), str(ROOT)]))}


def starter_of(release: Path, start: Start) -> Start:
    """How its processes start: never as a copy of one that has imported this checkout, if it is another."""
    return start if release == ROOT else subprocess.Popen


class StoppedTooLateError(Exception):
    """A process that was asked to end did not, and was killed."""


@dataclass(frozen=True, slots=True)
class Life:
    """A life of a process that ended by itself: monotonic seconds, and its exit code."""

    begin: float
    end: float
    code: int


@dataclass
class Child:
    """One process that is started again and again; its output is appended to one file.

    Attributes:
        away: True from a kill or stop until the next start: no other thread starts it meanwhile.
        popen: what starts it.
        release: the folder whose modules the next start takes.
        ended_by_itself: the lives that ended without being told to, oldest first.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    away: bool = True
    frozen: bool = False
    popen: Start = subprocess.Popen
    release: Path = ROOT
    started_at: float = 0.0
    ended_by_itself: list[Life] = field(default_factory=list)
    _turn: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def start(self) -> None:
        """Start it, unless it runs, in a separate session, so that Ctrl-C reaches only the campaign."""
        with self._turn, self.log_path.open("ab") as log:
            self.away = False
            if self.pid is not None:
                return
            self.process = starter_of(self.release, self.popen)(
                list(self.argv),
                env={**self.environment, **path_of(self.release)},
                cwd=self.release,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.started_at = time.monotonic()

    def kill(self) -> int | None:
        """Kill it at once; the process id it had."""
        with self._turn:
            pid, self.away = self.pid, True
            if self.process is not None:
                self.process.kill()
                self.process.wait()
            return pid

    def ask_to_end(self) -> int | None:
        """Send SIGTERM; the process id it has."""
        with self._turn:
            pid, self.away = self.pid, True
            if pid is not None and self.process is not None:
                self.process.terminate()
            return pid

    def wait_for_end(self, seconds: float = STOP_SECONDS) -> None:
        """Wait until it has ended.

        Raises:
            StoppedTooLateError: it had to be killed.
        """
        if self.process is None:
            return
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise StoppedTooLateError(f"{self.name} did not end within {seconds:.0f} s of SIGTERM.") from None

    def freeze(self) -> int | None:
        """Stop it in the middle of whatever it does; its process id."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGSTOP)
            self.frozen = True
        return pid

    def thaw(self) -> None:
        """Let it go on."""
        self.frozen = False
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGCONT)

    def revive(self) -> bool:
        """Start it again if it ended without being told to; True if it did."""
        with self._turn:
            if self.away or self.process is None or (code := self.process.poll()) is None:
                return False
            self.ended_by_itself.append(Life(self.started_at, time.monotonic(), code))
            self.start()
            return True

    def end_for_good(self) -> None:
        """Whatever state it is in: it is gone afterwards."""
        self.away = True
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
