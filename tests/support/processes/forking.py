"""Starting commands in a moment: each is a process, forked from one that has imported Strandline already.

Most of a command's processor time is importing, and most of the suite's was that of commands.  A forked
process is otherwise as real as any: it is this process's child, with its own pid, signals, streams,
environment and exit code.  What is about starting itself (what is imported, what an installation runs) takes
:mod:`subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, AnyStr

from tests.support.processes.template import LARGEST_ORDER

ROOT = Path(__file__).resolve().parent.parent.parent.parent

PR_SET_CHILD_SUBREAPER = 36

# What the interpreter reads while it starts: a process with another one has to start itself.
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "MALLOC", "LD_", "OPENBLAS", "OMP_")
TAKEN_UP = ("PYTHONUNBUFFERED", "PYTHONPATH")


class Popen(subprocess.Popen[AnyStr]):
    """As :class:`subprocess.Popen`; ``python -m …`` and ``python -c …`` are forked.

    Anything else, and what could behave otherwise as a fork, starts as it would there.
    """

    # How every method of the class gets its process; the arguments are those of CPython 3.11 to 3.14.
    def _execute_child(self, *arguments: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        given = inspect.signature(start).bind(*arguments).arguments
        command = given["args"] if isinstance(given["args"], Sequence) else ()
        env = dict(os.environ if given["env"] is None else given["env"])
        if not _is_forkable(given, command, env):
            start(*arguments)
            return
        order = {
            "arguments": [os.fsdecode(argument) for argument in command[1:]],
            "env": env,
            "cwd": str(given["cwd"] or Path.cwd()),
            "new_session": given["start_new_session"],
            "process_group": -1 if given["process_group"] is None else given["process_group"],
        }
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if fd == -1 else fd for number, fd in enumerate(streams)]
        self.pid = _template().fork(order, streams)
        self._child_created = True
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]


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
    done = subprocess.CompletedProcess(process.args, process.returncode, printed, complaints)
    if check:
        done.check_returncode()
    return done


class _Template:
    """The process that is copied; it ends with this one, whose end of the socket closes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.processes.template", str(number)],
                cwd=ROOT,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def fork(self, order: dict[str, Any], streams: list[int]) -> int:
        data = json.dumps(order).encode()
        assert len(data) < LARGEST_ORDER
        with self._lock, _adopting_orphans():
            socket.send_fds(self._control, [data], streams)
            answer = self._control.recv(32)
        assert answer, "the template of processes has ended"
        return int(answer)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


_made: list[_Template] = []
_making = threading.Lock()


def _template() -> _Template:
    """This process's template, made when the first command is started."""
    with _making:
        if not _made:
            _made.append(_Template())
        return _made[0]


def _is_forkable(given: dict[str, Any], command: Sequence[Any], env: dict[str, str]) -> bool:
    plain = not (given["shell"] or given["executable"] or given["preexec_fn"] or given["pass_fds"])
    return (
        plain
        and given["uid"] is None
        and len(command) > 2
        and command[0] == sys.executable
        and command[1] in ("-c", "-m")
        and _read_at_start(env) == _read_at_start(dict(os.environ))
    )


def _read_at_start(env: dict[str, str]) -> dict[str, str]:
    return {name: env[name] for name in env if name.startswith(READ_AT_START) and name not in TAKEN_UP}


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
