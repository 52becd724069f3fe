"""Signals whose exception Python drops, since it comes while a finalizer or a callback runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.cli.terminal.interrupts import Interrupts, Terminated, ends_as_interrupts
from tests.support.processes import forking

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


def _interrupted(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The end of a command whose main thread is interrupted by the garbage collector."""
    return forking.run(
        [sys.executable, "-c", WHILE_COLLECTING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
