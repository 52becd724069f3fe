"""A command that is forked behaves as one that is started: with the same code, output and complaints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from textwrap import dedent

import pytest

from tests.support.processes import forking, shell

# At the end come its thread, what it registered, and the end of all that it made, with complaints about that.
PROGRAM = """
import atexit, logging, sys, threading
from strandline.schemas import version
THING = '''
class Thing:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("gone:", self.name, flush=True)
'''
exec(THING)
apart = {}
exec(THING, apart)
version.of_ours = apart["Thing"]("of ours")
del apart
class Complaining:
    def __del__(self):
        print(logging is None, version.VERSION is None, file=sys.stderr)
        raise ValueError("at the end")
kept, ring, complaining = Thing("kept"), Thing("ring"), Complaining()
ring.itself = ring
atexit.register(print, "registered")
def wait_for_the_end():
    threading.main_thread().join()
    print("thread")
threading.Thread(target=wait_for_the_end).start()
"""


@pytest.mark.parametrize("end", ["", "sys.exit('a sentence')", "raise KeyboardInterrupt"])
def test_a_forked_program_ends_as_one_that_started(end: str) -> None:
    command = [sys.executable, "-c", PROGRAM + end]
    started = subprocess.run(command, capture_output=True, text=True, check=False, cwd=forking.ROOT)
    forked = forking.run(command, capture_output=True, cwd=forking.ROOT)
    assert forked.returncode == started.returncode
    for process in (started, forked):
        first, second, *gone = process.stdout.splitlines()
        assert (first, second) == ("thread", "registered")
        assert sorted(gone) == ["gone: kept", "gone: of ours", "gone: ring"], "in whichever order"
        complaint = process.stderr.splitlines()[-5:]
        assert complaint[0] == "False False", "what its end needs is there"
        assert (complaint[1][:17], complaint[-1]) == ("Exception ignored", "ValueError: at the end")


def test_a_program_without_a_locale_is_as_one_with_utf_8() -> None:
    """So it can be forked: few environments that a test writes name a locale."""
    code = "import locale, sys; print(sys.stdout.encoding, locale.getpreferredencoding().lower())"
    command = [sys.executable, "-c", code]
    with_locale, without = ({"PATH": os.defpath, **locale} for locale in ({"LANG": "C.UTF-8"}, {}))
    assert forking.read_at_start(with_locale) == forking.read_at_start(without)
    for env in (with_locale, without):
        for run in (subprocess.run, forking.run):
            done = run(command, env=env, capture_output=True, check=True)
            assert done.stdout in ("utf-8 utf-8\n", b"utf-8 utf-8\n")


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1, 2)])
def test_a_forked_program_lacks_the_streams_that_are_closed(closed: tuple[int, ...]) -> None:
    """And what it opens takes the first number that is free, as it does everywhere."""
    code = """
        import os, sys
        streams = [sys.stdin, sys.stdout, sys.stderr]
        lacking = sum(2 ** number for number, stream in enumerate(streams) if stream is None)
        os._exit(16 * lacking + os.open("/dev/null", 0))
    """
    command = forking.WithoutStreams([sys.executable, "-c", dedent(code)], *closed)
    with subprocess.Popen(command) as started, forking.Popen[str](command) as forked:
        expected = 16 * sum(2**number for number in closed) + closed[0]
        assert (started.wait(), forked.wait()) == (expected, expected)


def test_a_shells_commands_have_its_streams_variables_and_codes() -> None:
    script = """
        export STRANDLINE_DATABASE_URL=foo://x
        strandline --version | tr a-z A-Z
        strandline get session 2> /dev/null || echo "ended with $?"
        strandline nonsense
        echo never
    """
    done = shell.run(script, capture_output=True)
    assert done.returncode == 2
    assert re.fullmatch(r"STRANDLINE, VERSION \S+\nended with 1\n", done.stdout)
    assert "No such command 'nonsense'" in done.stderr and "foo" not in done.stderr
