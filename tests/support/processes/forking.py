"""Starting commands quickly: each is a process, forked from one that has imported Strandline already.

Most of a command's processor time is importing, and most of the suite's was that of commands.  A forked
process is otherwise as real as any: it is this process's child, with its own pid, signals, streams,
environment and exit code.  Elsewhere than on Linux each command starts as usual, and so does everywhere what
is about starting itself (what is imported, what an installation runs): it takes :mod:`subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, AnyStr

from tests.support.processes.template import MAX_ORDER_BYTES

ROOT = Path(__file__).resolve().parent.parent.parent.parent

PR_SET_CHILD_SUBREAPER = 36

# What the interpreter reads while it starts: a process with another one has to start itself.
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "MALLOC", "LD_", "OPENBLAS", "OMP_")
# Where the suite runs encrypted, what a test starts has the keyring that the test has.
GIVEN_TO_ALL = ("STRANDLINE_KEYRING_KEYS",) if os.environ.get("STRANDLINE_TEST_ENCRYPTION") else ()
TAKEN_UP = ("PYTHONUNBUFFERED", "PYTHONPATH")
# What it takes where it is given no locale.
TAKEN_FOR_NONE = {"LANG": "C.UTF-8"}


class Popen(subprocess.Popen[AnyStr]):
    """As :class:`subprocess.Popen`; ``python -m …`` and ``python -c …`` are forked.

    Anything else, and what could behave otherwise as a fork, starts as it would there.
    """

    # How every method of the class gets its process; the arguments are those of CPython 3.11 to 3.14.
    def _execute_child(self, *arguments: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        bound = inspect.signature(start).bind(*arguments)
        options = bound.arguments
        given = options["args"] if isinstance(options["args"], Sequence) else ()
        command, closed = (given.command, given.closed) if isinstance(given, WithoutStreams) else (given, ())
        env = dict(os.environ if options["env"] is None else options["env"])
        options["env"] = env = {name: os.environ[name] for name in GIVEN_TO_ALL if name in os.environ} | env
        if not (_is_forkable(options, command) and _template().can_stand_for(env)):
            start(*bound.args)
            return
        order = {
            "arguments": [os.fsdecode(argument) for argument in command[1:]],
            "env": TAKEN_FOR_NONE | env,
            "cwd": str(options["cwd"] or Path.cwd()),
            "closed": closed,
            "new_session": options["start_new_session"],
            "process_group": -1 if options["process_group"] is None else options["process_group"],
            "ignores_hang_up": signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
        }
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        streams = [options[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if fd == -1 else fd for number, fd in enumerate(streams)]
        self.pid = _template().fork(order, streams)
        self._child_created = True
        self._close_pipe_fds(*(options[name] for name in pipes))  # type: ignore[attr-defined]


class WithoutStreams(list[str]):
    """A command with some of its standard streams closed, as ``>&-`` does: what a shell would be told.

    Args:
        command: what is started.
        closed: the numbers of the streams that it does not have.
    """

    def __init__(self, command: Sequence[str], *closed: int) -> None:
        closing = " ".join(f"{number}>&-" for number in closed)
        super().__init__(["sh", "-c", f'exec "$@" {closing}', "sh", *command])
        self.command = command
        self.closed = closed


def run(
    command: Sequence[str | bytes | os.PathLike[str]],
    *,
    input: str | None = None,  # the name that subprocess has
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """As :func:`subprocess.run`; what is printed is text."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, text=True, **options) as process:
        try:
            printed, complaints = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    completed = subprocess.CompletedProcess(process.args, process.returncode, printed, complaints)
    if check:
        completed.check_returncode()
    return completed


class _Template:
    """The process that is copied; it ends with this one, whose end of the socket closes."""

    def __init__(self, control: socket.socket, wait: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._environment = read_at_start(os.environ)
        self._control = control
        self._wait = wait
        self._owner = os.getpid()
        atexit.register(self._end)

    def can_stand_for(self, env: Mapping[str, str]) -> bool:
        """Whether an interpreter that starts with ``env`` would be no other."""
        return read_at_start(env) == self._environment

    def fork(self, order: dict[str, Any], streams: list[int]) -> int:
        data = json.dumps(order).encode()
        assert len(data) < MAX_ORDER_BYTES
        with self._lock, _adopting_orphans():
            socket.send_fds(self._control, [data], streams)
            answer = self._control.recv(32)
        assert answer, "the template of processes has ended"
        return int(answer)

    def _end(self) -> None:
        self._control.close()
        if os.getpid() == self._owner:
            self._wait()


_templates: list[_Template] = []
_templates_lock = threading.Lock()


def _template() -> _Template:
    """This process's template, made when the first command is started."""
    with _templates_lock:
        if not _templates:
            _templates.append(_start_template())
        return _templates[0]


def _start_template() -> _Template:
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.template", str(number)],
            cwd=ROOT,
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
        )
    return _Template(control, process.wait)


def use_template(control: socket.socket, pid: int) -> None:
    """Have this process, which was forked itself, start others by the template behind ``control``."""
    _templates[:] = [_Template(control, partial(os.waitpid, pid, 0))]


# What a fork would have to do itself, each with the value that asks for nothing.
_ASKS_NOTHING = {
    "shell": False, "executable": None, "preexec_fn": None, "pass_fds": (), "close_fds": True,
    "restore_signals": True, "uid": None, "gid": None, "gids": None, "umask": -1,
}  # fmt: skip


def _is_forkable(options: dict[str, Any], command: Sequence[Any]) -> bool:
    return (
        sys.platform == "linux"
        and len(command) > 2
        and command[0] == sys.executable
        and command[1] in ("-c", "-m")
        and all(options[name] == value for name, value in _ASKS_NOTHING.items())
    )


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    read = {name: env[name] for name in env if name.startswith(READ_AT_START) and name not in TAKEN_UP}
    return TAKEN_FOR_NONE | read


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Meanwhile, this process and not that with pid 1 is the parent of descendants whose parents end.

    So a copy becomes a child of this process, which can wait for it as for any other.
    """
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
