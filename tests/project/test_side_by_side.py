"""``pytest --workers``: what the copies see is reported, and what goes wrong in them is not lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
