"""The process that :mod:`tests.support.processes.forking` copies: it has imported what commands import.

It has loaded the vocabulary that most of them count with as well, which takes a third of a second.  It forks
when it is told to and does nothing else, so it has no threads, no connections and nothing in its hands.
What a copy runs, it runs as if its interpreter had started for it: as ``__main__``, with its own arguments,
environment, working directory and streams, and to an end as the interpreter's: see ``end``.

A command that starts processes in its turn, such as ``strandline up`` its worker, has a template of its own:
a second copy, which has run nothing either.
"""

from __future__ import annotations

import atexit
import contextlib
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
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from functools import _lru_cache_wrapper
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, NoReturn

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


# Where a program leaves what it has made: in names of our modules, or in what these names had before.
OURS = ("strandline", "__main__")
HOLDERS = (dict, list, set, deque)
# Of each of our modules before a copy begins: what it has, under which names, and what of it may be changed,
# with how much it holds.
HELD: dict[str, tuple[dict[str, Any], frozenset[str], dict[str, int | None]]] = {}
LOADED: list[str] = []


def main(control: socket.socket) -> None:
    gc.disable()
    import_everything()
    tokens = importlib.import_module("strandline.producers.tokens")
    tokens.load_encoding(tokens.DEFAULT_ENCODING)
    importlib.import_module("tests.support.processes.forking")
    LOADED.extend(sys.modules)
    for name in filter(is_ours, LOADED[LOADED.index("__main__") + 1 :]):
        held = vars(sys.modules[name])
        state = {key: size_of(value) for key, value in held.items() if is_stateful(value)}
        HELD[name] = held, frozenset(held), state
    gc.enable()
    gc.freeze()  # copies need not touch, and so copy, the memory of what was imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = await_order(control)
    if order is not None:
        end(run(order))


def run(order: dict[str, Any]) -> int:
    """Run what was ordered; returns the code that the interpreter would end with, and its signal below 0."""
    try:
        become(order)
    except SystemExit as asked:
        if asked.code is None or isinstance(asked.code, int):
            return (asked.code or 0) & 0xFF
        print(asked.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001  # as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end(code: int) -> NoReturn:
    """End as the interpreter does, but take nothing apart that was there before the copy began.

    That took four fifths of the time of a short command: each page of memory was copied, to free what lay in
    it.  First come threads, then what was registered, then the end of all that the program has made.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:  # noqa: BLE001  # as the interpreter does
        complain(error, threading)
    atexit._run_exitfuncs()
    code = flush_streams(code)
    let_go()
    code = flush_streams(code)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def let_go() -> None:
    """Take out of our modules what the program has left there, those first that were imported last.

    Nothing else is as much as looked at, since to count a reference is to write.
    """
    sys.setswitchinterval(1_000)  # threads that nobody waits for end here as well
    threading.excepthook = lambda _: None
    come = filter(is_ours, islice(reversed(sys.modules), max(0, len(sys.modules) - len(LOADED))))
    kept = []
    for name in [*come, "__main__"]:
        made = vars(sys.modules[name])
        for key in [key for key in made if key[:2] != "__" and made is not globals()]:
            if isinstance(made[key], (ModuleType, FunctionType, type)):
                kept.append((made, key))
            else:
                made[key] = None
    for held, known, state in reversed(HELD.values()):
        for key in held.keys() - known if len(held) > len(known) else ():
            held[key] = None
        for key, size in state.items():
            value: Any = held.get(key)
            if isinstance(value, _lru_cache_wrapper):
                value.cache_clear()
            elif type(value) in HOLDERS:
                if not size or len(value) != size:
                    value.clear()
            elif size is None:
                held[key] = None
            else:
                kept.append((held, key))
            value = None
    gc.collect()
    # Only now, since what has just ended may have needed them for that.
    for held, key in kept:
        held[key] = None
    gc.collect()


def is_ours(name: str) -> bool:
    return name.partition(".")[0] in OURS


def is_stateful(value: object) -> bool:
    is_one_of_ours = not isinstance(value, type) and is_ours(type(value).__module__)
    return value is None or type(value) in (*HOLDERS, _lru_cache_wrapper) or is_one_of_ours


def size_of(value: Any) -> int | None:
    """How much a collection holds; None for nothing, and 0 for all else."""
    return len(value) if type(value) in HOLDERS else None if value is None else 0


def flush_streams(code: int) -> int:
    """Write what is still to be written; where that fails, 120 is the code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            if not stream.closed:
                stream.flush()
        except (OSError, ValueError) as error:
            if stream is sys.stdout:
                complain(error, stream)
            code = 120
    return code


def complain(error: BaseException, place: object) -> None:
    print(f"Exception ignored in: {place!r}", file=sys.stderr)
    traceback.print_exception(error)


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
        if error.name is None or error.name.partition(".")[0] in ("strandline", "tests"):
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
        setattr(getattr(raw, "raw", raw), "name", f"<{name}>")  # noqa: B010  # complaints name it so
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
