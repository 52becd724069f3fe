"""Child processes that are kept running until told to stop: the workers of ``strandline up``.

One thread per child starts it, waits for its end in the kernel and starts it again.  Each child has its own
process group, so that Ctrl-C in the terminal reaches only the supervisor, which then ends them in order. If
the supervisor itself is killed, its children live on: a worker needs no supervisor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from strandline.schemas.errors import ConfigurationError
from strandline.workers.signal_pipe import SignalPipe, ending_signals

_OUTPUT_DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How long to wait before a child that ended is started again.

    The wait doubles with each end in a row; a child that ran ``healthy_after_seconds`` starts afresh.
    """

    first_seconds: float = 0.5
    most_seconds: float = 30.0
    healthy_after_seconds: float = 60.0

    def wait_seconds(self, ends_in_a_row: int) -> float:
        """The wait after the given number of ends in a row (1 or more)."""
        # The exponent is bounded since a float overflows at 2**1024.
        return float(min(self.most_seconds, self.first_seconds * 2 ** min(ends_in_a_row - 1, 32)))


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """A child: its name in messages, its argument list, its whole environment (None: ours), its log file.

    With no ``log_path`` its output is passed on line by line, each line behind its name.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    log_path: Path | None = None


class Supervisor:
    """Keeps children running; ``with`` starts and stops them, ``run`` does so until a signal asks for an end.

    Args:
        commands: the children; their names must differ.
        say: takes one line of text at a time, from several threads but never two at once; default stderr.
        stop_timeout_seconds: how long children have after SIGTERM before they are killed.
        restarts: the waits between an unexpected end and the next start.
        instead_of_restart: if given, a child that ended is not started again, and ``say`` adds this.

    Attributes:
        ends: how often a child has ended untold, or could not be started.

    Raises:
        ConfigurationError: two children share a name.
    """

    def __init__(
        self,
        commands: Sequence[ChildCommand],
        *,
        say: Callable[[str], None] | None = None,
        stop_timeout_seconds: float = 10.0,
        restarts: RestartPolicy | None = None,
        instead_of_restart: str | None = None,
    ) -> None:
        if len({command.name for command in commands}) != len(commands):
            raise ConfigurationError("Two supervised processes have the same name; give each its own.")
        self._say_line = say or _say_on_stderr
        self._say_lock = threading.Lock()
        self.ends = 0
        self._stop_timeout_seconds = stop_timeout_seconds
        self._restarts = restarts or RestartPolicy()
        self._instead_of_restart = instead_of_restart
        self._changed = threading.Condition()
        self._stopping = False
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._threads = [
            threading.Thread(target=self._keep, args=(command,), name=f"keep-{command.name}", daemon=True)
            for command in commands
        ]

    def start(self) -> None:
        """Start every child; returns at once."""
        for thread in self._threads:
            thread.start()

    def pids(self) -> dict[str, int]:
        """Process ids of the children that run now, by name."""
        with self._changed:
            return {name: process.pid for name, process in self._running.items()}

    def wait_for_children(self, *, timeout_seconds: float) -> bool:
        """Wait until every child has a running process; False when the time is over first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: len(self._running) == len(self._threads), timeout=timeout_seconds
            )

    def run(
        self, *, check: Callable[[], None] = lambda: None, on_stop: Callable[[], None] = lambda: None
    ) -> None:
        """Start, stay until Ctrl-C, SIGTERM or the terminal's end, stop.  For the main thread.

        A second signal while the children stop kills them at once.  A SIGHUP that is ignored (``nohup``) is
        none.  ``check`` is called once signals are taken here, and raises if an earlier one was missed;
        ``on_stop`` before the children are stopped.
        """
        with SignalPipe(ending_signals()) as signals:
            check()
            self.start()
            signals.wait()
            on_stop()
            self._say("stopping; Ctrl-C again stops at once")
            stopping = threading.Thread(target=self._stop_and_tell, args=(signals,), name="stop-children")
            stopping.start()
            if signals.wait() is not None:
                self.kill()
            stopping.join()

    def _stop_and_tell(self, signals: SignalPipe) -> None:
        try:
            self.stop()
        finally:
            signals.wake()

    def stop(self) -> None:
        """Send SIGTERM to every child, then SIGKILL to children that outlast the time allowed; safe to
        repeat.

        A KeyboardInterrupt while this waits kills the remaining children at once, and is not raised further.
        """
        try:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
                for process in self._running.values():
                    process.terminate()
                ended = self._changed.wait_for(lambda: not self._running, timeout=self._stop_timeout_seconds)
            if not ended:
                self._say(
                    f"still running after {self._stop_timeout_seconds:g} s: {', '.join(self.pids())}; killed"
                )
                self.kill()
        except KeyboardInterrupt:
            self.kill()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def kill(self) -> None:
        """SIGKILL to every child and its process group, without a grace period."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            for process in self._running.values():
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _keep(self, command: ChildCommand) -> None:
        ends_in_a_row = 0
        while True:
            started = time.monotonic()
            reason = self._run_once(command)
            if time.monotonic() - started >= self._restarts.healthy_after_seconds:
                ends_in_a_row = 0
            ends_in_a_row += 1
            wait = self._restarts.wait_seconds(ends_in_a_row)
            with self._changed:
                if self._stopping:
                    return
                self.ends += 1
            if self._instead_of_restart is not None:
                self._say(f"{command.name} {reason} and is not started again; {self._instead_of_restart}")
                return
            self._say(f"{command.name} {reason}; starts again in {wait:g} s")
            with self._changed:
                if self._changed.wait_for(lambda: self._stopping, timeout=wait):
                    return

    def _run_once(self, command: ChildCommand) -> str:
        try:
            process = self._spawn(command)
        except OSError as error:
            return f"could not be started ({error.strerror})"
        if process is None:
            return "was not started"
        reader = self._pass_on_output(command.name, process)
        status = process.wait()
        if reader is not None:
            # A process that the child left behind may hold the pipe open: do not wait for that.
            reader.join(_OUTPUT_DRAIN_SECONDS)
        with self._changed:
            del self._running[command.name]
            self._changed.notify_all()
        return describe_end(status)

    def _spawn(self, command: ChildCommand) -> subprocess.Popen[bytes] | None:
        # Under the condition, so that a stop sees the child or the child sees the stop.
        with self._changed, _output_of(command) as output:
            if self._stopping:
                return None
            process = subprocess.Popen(
                list(command.argv),
                env=command.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            self._running[command.name] = process
            self._changed.notify_all()
            return process

    def _pass_on_output(self, name: str, process: subprocess.Popen[bytes]) -> threading.Thread | None:
        if process.stdout is None:
            return None
        arguments = (name, process.stdout)
        reader = threading.Thread(target=self._read_lines, args=arguments, name=f"read-{name}", daemon=True)
        reader.start()
        return reader

    def _read_lines(self, name: str, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._say(f"{name} | {line.decode(errors='replace').rstrip()}")

    def _say(self, line: str) -> None:
        # Keep the child even if the terminal was closed.
        with self._say_lock, suppress(OSError):
            self._say_line(line)


@contextmanager
def _output_of(command: ChildCommand) -> Iterator[int | IO[bytes]]:
    if command.log_path is None:
        yield subprocess.PIPE
        return
    descriptor = os.open(command.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as log:
        yield log


def describe_end(status: int) -> str:
    """How a process ended, from the status that ``subprocess`` gives: "was ended by SIGKILL"."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _say_on_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
