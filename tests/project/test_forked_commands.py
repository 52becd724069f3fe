"""A command that is forked behaves as one that is started: with the same code, output and complaints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.processes import forking, shell

# At the end come its thread, what it registered, and the end of all that it made, with complaints about that.
PROGRAM = """
import atexit, logging, sys, threading
from strandline.schemas import tracing, version
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
version.of_ours, tracing._tracer = apart["Thing"]("of ours"), apart["Thing"]("in place")
del apart
class Complaining:
    def __del__(self):
        print(logging is None, version.VERSION is None, file=sys.stderr)
        raise ValueError("at the end")
kept, ring, listed, complaining = Thing("kept"), Thing("ring"), [Thing("listed")], Complaining()
ring.itself = ring
atexit.register(print, "registered")
def wait_for_the_end():
    threading.main_thread().join()
    print("thread")
threading.Thread(target=wait_for_the_end).start()
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit('a sentence')", "sys.exit(3)", "1 / 0", "raise KeyboardInterrupt"]
)
def test_a_forked_program_ends_as_one_that_started(end: str) -> None:
    command = [sys.executable, "-c", PROGRAM + end]
    started = subprocess.run(command, capture_output=True, text=True, check=False, cwd=forking.ROOT)
    forked = forking.run(command, capture_output=True, cwd=forking.ROOT)
    assert forked.returncode == started.returncode
    for process in (started, forked):
        first, second, *gone = process.stdout.splitlines()
        assert (first, second) == ("thread", "registered")
        names = ("in place", "kept", "listed", "of ours", "ring")
        assert sorted(gone) == [f"gone: {name}" for name in names], "in whichever order"
        complaint = process.stderr.splitlines()[-5:]
        assert complaint[0] == "False False", "what its end needs is there"
        assert (complaint[1][:17], complaint[-1]) == ("Exception ignored", "ValueError: at the end")


def test_a_forked_program_says_that_its_words_cannot_be_written() -> None:
    command = [sys.executable, "-c", "print('words')"]
    with Path("/dev/full").open("w") as full:
        for run in (subprocess.run, forking.run):
            done = run(command, env={}, stdout=full, stderr=subprocess.PIPE, check=False)
            assert done.returncode == 120
            words = ("Exception ignored", "<stdout>", "OSError")
            assert [word for word in words if word not in str(done.stderr)] == []


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


# ``pytest --workers``: what the copies see is reported, and what goes wrong in them is not lost.
ROOT = Path(__file__).parent.parent.parent
SHARED = """
import os, pathlib, time, warnings
import pytest

@pytest.fixture(scope="session")
def server():
    # Each waits for the other, so that neither takes all files before the other has come.
    folder = pathlib.Path(__file__).parent
    (folder / f"begun-{{os.environ['PYTEST_XDIST_WORKER']}}").touch()
    for _ in range(6_000):
        if len(list(folder.glob("begun-*"))) == 2:
            break
        time.sleep(0.01)
    yield os.getpid()
    if {fails!r} == "shared":
        raise RuntimeError("it did not stop")

@pytest.fixture(scope="module", autouse=True)
def file():
    yield
    assert {fails!r} != "module", "the file's end"
"""
TESTS = """
def test_a_copy_has_a_folder_of_its_own(server, tmp_path):
    assert os.environ["PYTEST_XDIST_WORKER"] in str(tmp_path) and server == os.getpid() != os.getppid()

def test_it_fails():
    print("on the way")
    assert {fails!r} != "test"

def test_it_warns():
    if {fails!r} == "warning":
        warnings.warn("beware")

def test_it_dies():
    if {fails!r} == "worker":
        os._exit(7)

@pytest.mark.skipif({fails!r} == "nothing", reason="because")
def test_it_is_skipped():
    pass
"""


@pytest.mark.parametrize(
    ("fails", "code", "words"),
    [
        ("nothing", 0, ["12 passed, 3 skipped", "SKIPPED [1]", "because"]),
        ("test", 1, ["3 failed, 12 passed", "[gw0]", "[gw1]", "on the way", "test_0.py::test_it_fails"]),
        ("module", 1, ["15 passed, 3 errors", "the file's end"]),
        ("warning", 0, ["15 passed, 3 warnings", "UserWarning: beware"]),
        ("shared", 3, ["gw0: ", "gw1: ", "RuntimeError: it did not stop", "15 passed"]),
        ("worker", 3, ["gw0 ended with 7 in ", "test_0.py::test_it_dies", "6 passed"]),
    ],
)
def test_the_first_process_reports_what_its_copies_see(
    tmp_path: Path, fails: str, code: int, words: list[str]
) -> None:
    for number in range(3):
        text = (SHARED + TESTS).format(fails=fails)
        (tmp_path / f"test_{number}.py").write_text(text, encoding="utf-8")
    done = run_pytest(tmp_path, "--workers", "2")
    assert done.returncode == code, done.stdout + done.stderr
    assert [word for word in words if word not in done.stdout] == [], done.stdout


def test_a_run_that_has_failed_enough_begins_nothing_more(tmp_path: Path) -> None:
    for number in range(6):
        text = "def test_one():\n    assert False\n" + "def test_two():\n    assert False\n"
        (tmp_path / f"test_{number}.py").write_text(text, encoding="utf-8")
    done = run_pytest(tmp_path, "--workers", "1", "--exitfirst")
    assert (done.returncode, "1 failed" in done.stdout) == (1, True), done.stdout + done.stderr


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plugin = ("-p", "tests.support.processes.side_by_side")
    command = [sys.executable, "-m", "pytest", "-ra", *plugin, "-c", "/dev/null", f"--rootdir={folder}"]
    options = (*options, f"--basetemp={folder / 'temporary'}", str(folder))
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, *options], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
