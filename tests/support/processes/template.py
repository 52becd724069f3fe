"""The process that :mod:`tests.support.processes.forking` copies: it has imported what commands import.

It has loaded the vocabulary that most of them count with as well, which takes a third of a second.  It forks
when it is told to and does nothing else, so it has no threads, no connections and nothing in its hands.
What a copy runs, it runs as if its interpreter had started for it: as ``__main__``, with its own arguments,
environment, working directory and streams, and through the interpreter's own end.

A command that starts processes in its turn, such as ``strandline up`` its worker, has a template of its own:
a second copy, which has run nothing either.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

MAX_ORDER_BYTES = 160_000

# Adapters need frameworks that no command needs; the other is a program.
LEFT_OUT = ("strandline.adapters", "strandline.__main__")

# What workers and commands import only once they run.
IMPORTED_LATE = (
    "celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log",
    "celery.app.trace", "celery.apps.worker", "celery.concurrency.solo", "celery.concurrency.thread",
    "celery.fixups.django", "celery.loaders.app", "celery.worker.autoscale", "celery.worker.components",
    "celery.worker.consumer", "celery.worker.state", "celery.worker.strategy", "kombu.transport.pyamqp",
    "kombu.transport.redis", "openai.resources.chat", "openai.resources.embeddings",
    "tiktoken_ext.openai_public",
)  # fmt: skip


# What starts Pythons of its own, and how its command line begins.
STARTS_OTHERS = (
    ["-m", "strandline", "up"],
    ["-m", "strandline", "demo"],
    ["-m", "bench"],
    ["-m", "tests.chaos"],
)


# Modules that the interpreter takes apart at its end as ever: ours, and those that it needs for that.
OWN = ("strandline", "tests", "__main__", "builtins", "sys")
LIBRARIES: list[str] = []
KEPT: list[object] = []


def main(control: socket.socket) -> None:
    gc.disable()
    atexit.register(leave_libraries)  # before anything else registers, since what registers first runs last
    import_everything()
    tokens = importlib.import_module("strandline.producers.tokens")
    KEPT.append(tokens.load_encoding(tokens.DEFAULT_ENCODING))
    importlib.import_module("tests.support.processes.forking")
    LIBRARIES.extend(name for name in sys.modules if name.partition(".")[0] not in OWN)
    gc.enable()
    gc.freeze()  # copies need not touch, and so copy, the memory of what was imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = await_order(control)
    if order is not None:
        become(order)


def leave_libraries() -> None:
    """Spare the end of a process most of its work: to take apart libraries, and so to copy their memory.

    What the process made is collected before, with all of them there, and our own modules end as ever.
    """
    gc.collect()
    KEPT.extend(sys.modules.pop(name) for name in LIBRARIES if name in sys.modules)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(KEPT))


def import_everything() -> None:
    import_package("strandline")
    for name in IMPORTED_LATE:
        importlib.import_module(name)


def import_package(name: str) -> None:
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__, f"{name}."):
        if not module.name.startswith(LEFT_OUT):
            load = import_package if module.ispkg else importlib.import_module
            with without_extras():
                load(module.name)


@contextlib.contextmanager
def without_extras() -> Iterator[None]:
    """An environment may lack what an extra brings; a command that needs it says so itself."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise


def await_order(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each order, and answer with the pid; returns the order in the copy, None at the end."""
    while True:
        data, streams, _flags, _address = socket.recv_fds(control, MAX_ORDER_BYTES, 3)
        if not data:
            return None
        order = dict(json.loads(data))
        pid = fork_orphan(order)
        if pid:
            control.send(str(pid).encode())
        else:
            control.close()
            orders = fork_spare() if starts_others(order["arguments"]) else None
            if orders is None:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                for number in order["closed"]:
                    os.close(number)
                return order
            control = orders
        for stream in streams:
            os.close(stream)


def starts_others(arguments: list[str]) -> bool:
    return any(arguments[: len(beginning)] == beginning for beginning in STARTS_OTHERS)


def fork_spare() -> socket.socket | None:
    """Fork a template for what this process will start; returns in both, in the template its orders' socket.

    It is in a group of its own: what is sent to that of the command, to end it, is not for the template.
    """
    forking = sys.modules["tests.support.processes.forking"]
    control, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        control.close()
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return orders
    orders.close()
    forking.use_template(control, pid)
    subprocess.Popen = forking.Popen  # type: ignore[misc]
    return None


def fork_orphan(order: dict[str, Any]) -> int:
    """Fork a process whose parent has ended, so that whoever adopts orphans is its parent.

    Returns:
        Its pid, once its group, its session and its signals are its own; 0 in the process itself.
    """
    pid_read, pid_write = os.pipe()
    gate_read, gate_write = os.pipe()
    ready_read, ready_write = os.pipe()
    between = os.fork()
    if not between:
        for descriptor in (pid_read, gate_write, ready_read):
            os.close(descriptor)
        pid = os.fork()
        if pid:
            os.write(pid_write, str(pid).encode())
            os._exit(0)
        os.close(pid_write)
        os.read(gate_read, 1)
        os.close(gate_read)
        stand_alone(order)
        os.close(ready_write)
        return 0
    for descriptor in (pid_write, gate_read, ready_write):
        os.close(descriptor)
    pid = int(os.read(pid_read, 32))
    os.close(pid_read)
    os.waitpid(between, 0)
    os.close(gate_write)
    os.read(ready_read, 1)
    os.close(ready_read)
    return pid


def stand_alone(order: dict[str, Any]) -> None:
    if order["new_session"]:
        os.setsid()
    elif order["process_group"] >= 0:
        os.setpgid(0, order["process_group"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN if order["ignores_hang_up"] else signal.SIG_DFL)


def become(order: dict[str, Any]) -> None:
    """Run what was ordered, as the interpreter would have."""
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    open_streams(order["closed"])
    kind, what, *arguments = order["arguments"]
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.orig_argv = [sys.executable, kind, what, *arguments]
    sys.argv = [kind, *arguments]
    if kind == "-m":
        sys.path[0] = order["cwd"]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = ""
        run_code(what)


def open_streams(closed: Sequence[int]) -> None:
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if number in closed:
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
            continue
        # Until the process ends; what is not buffered is not written again then.
        buffering = 0 if unbuffered and number else -1
        raw = open(number, "wb" if number else "rb", buffering, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            raw,
            encoding="utf-8",
            errors="backslashreplace" if name == "stderr" else "strict",
            line_buffering=raw.isatty() or name == "stderr",
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run_code(code: str) -> None:
    main_module = ModuleType("__main__")
    main_module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main_module
    exec(compile(code, "<string>", "exec"), main_module.__dict__)  # noqa: S102  # the test's own


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
