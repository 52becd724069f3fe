"""Signals whose exception Python drops, since it comes while a finalizer or a callback runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import FrameType

import pytest

from strandline.cli.terminal.interrupts import Interrupts, Terminated, ends_as_interrupts, stops_at_signals
from strandline.workers.signal_pipe import ending_signals
from tests.support.processes import forking

Context = Callable[[], AbstractContextManager[object]]

# The garbage collector runs callbacks in the middle of anything, and drops what they raise.
WHILE_COLLECTING = """
import gc, signal, sys, threading
from strandline.cli import main

def interrupt(_phase, _info):
    taken = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if taken and threading.current_thread() is threading.main_thread():
        gc.callbacks.clear()
        signal.raise_signal(signal.SIGINT)

gc.set_threshold(50)
gc.callbacks.append(interrupt)
main()
"""

AS_A_WAIT_BEGINS = """
import signal
from strandline.cli.terminal.interrupts import stops_at_signals

with stops_at_signals() as stop:
    with stop._cond:  # as whoever begins to wait for it
        signal.raise_signal(signal.SIGINT)
    assert stop.wait()
print(stop.exit_code)
"""

AT_A_SECOND_SIGNAL = """
import signal
from strandline.cli.terminal.interrupts import stops_at_signals

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which whoever runs the tests under nohup ignores
with stops_at_signals() as stop:
    signal.raise_signal(signal.{first})
    print(stop.exit_code, flush=True)
    signal.raise_signal(signal.{second})
"""

# A handler that C code has set, as Python finds it when it begins: it has no value for that.
AFTER_A_HANDLER_IN_C = """
import ctypes, signal, sys
c = ctypes.CDLL(None)
c.signal(signal.SIGHUP, ctypes.cast(c.getpid, ctypes.c_void_p))
del sys.modules["_signal"]
import _signal
from strandline.cli.terminal.interrupts import {context}
assert signal.getsignal(signal.SIGHUP) is None
with {context}():
    pass
print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGINT) is None)
"""

CONTEXTS: tuple[Context, ...] = (ends_as_interrupts, stops_at_signals)


class Thing:
    """Its end is told by a callback."""


@pytest.mark.parametrize(
    "look", [Interrupts.check, lambda interrupts: interrupts.pause(3_600), lambda _interrupts: None]
)
def test_a_signal_whose_exception_was_dropped_ends_what_it_came_upon(
    look: Callable[[Interrupts], None],
) -> None:
    def run() -> None:
        thing = Thing()
        reference = weakref.ref(thing, lambda _reference: signal.raise_signal(signal.SIGTERM))
        with ends_as_interrupts() as interrupts:
            del thing
            assert reference() is None, "its callback has run, and raised, and that is over"
            look(interrupts)

    with pytest.raises(Terminated) as ended:
        run()
    assert ended.value.exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize("command", ["demo", "import", "up", "status"])
def test_no_command_loses_a_signal_whose_exception_was_dropped(
    command: str, tmp_path: Path, database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = tmp_path / "chat.jsonl"
    lines = [{"role": "user", "content": f"I saw {number} gulls."} for number in range(4_000)]
    chat.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    monkeypatch.setenv("STRANDLINE_BROKER_URL", broker_url)
    arguments = {
        "demo": ["--file", str(chat), "--pace", "3600"],
        "import": [str(chat), "--session", "s"],
        "up": [],
        "status": ["--watch"],
    }
    if command == "demo":
        monkeypatch.setenv("STRANDLINE_EMBEDDED", "auto")
    done = _interrupted(command, *arguments[command])
    assert done.returncode == (0 if command == "status" else 130), done.stdout
    assert "Traceback" not in done.stdout


def test_a_signal_that_comes_as_a_wait_begins_ends_the_wait() -> None:
    done = forking.run([sys.executable, "-c", AS_A_WAIT_BEGINS], capture_output=True, timeout=600, check=True)
    assert done.stdout == "130\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT"), ("SIGINT", "SIGHUP"), ("SIGHUP", "SIGTERM")],
)
def test_a_second_signal_ends_at_once_whichever_it_is(first: str, second: str) -> None:
    code = AT_A_SECOND_SIGNAL.format(first=first, second=second)
    done = forking.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=600)
    assert done.stdout == f"{128 + signal.Signals[first]}\n"
    assert done.returncode == -signal.Signals[second]


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_closed_terminal_that_is_ignored_stays_ignored(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under ``nohup``; nor does the first signal of those that are taken change it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with suppress(Terminated), context():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_between_two_handlers_leaves_those_of_before() -> None:
    before = [signal.getsignal(number) for number in ending_signals()]
    handled: list[str] = []

    def interrupt(frame: FrameType, event: str, _argument: object) -> None:
        if event == "return" and frame.f_code is signal.signal.__code__:
            handled.append(frame.f_code.co_name)
            if len(handled) == 1:
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        with pytest.raises(Terminated), ends_as_interrupts():
            pytest.fail("the signal came before")
    finally:
        sys.setprofile(None)
        after = [signal.getsignal(number) for number in ending_signals()]
        for number, handler in zip(ending_signals(), before, strict=True):
            signal.signal(number, handler)
    assert handled
    assert after == before


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_handler_that_python_did_not_set_gives_way_to_the_default(context: Context) -> None:
    code = AFTER_A_HANDLER_IN_C.format(context=context.__name__)
    done = forking.run([sys.executable, "-c", code], capture_output=True, timeout=600)
    assert done.stdout == "SIG_DFL False\n", done.stderr


def _interrupted(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The end of a command whose main thread is interrupted by the garbage collector."""
    return forking.run(
        [sys.executable, "-c", WHILE_COLLECTING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
