"""The command line where its standard streams are closed, full, or have no reader any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from tests.conftest import Rig
from tests.support.processes import forking
from tests.support.servers.databases import temporary_database
from tests.support.stored import flush_events

# With little and much output, of click's, of rich's and of Strandline's own.
SHOWING = [
    ("--help",),
    ("--version",),
    ("import", "--help"),
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("status",),
    ("status", "--json"),
    ("dead-letters", "list", "--json-schema"),
]
Start = type[subprocess.Popen[str]]

each_line = pytest.mark.parametrize("line", SHOWING, ids=" ".join)


@pytest.fixture(scope="module")
def full_url(stack: EmbeddedStack) -> Iterator[str]:
    """A database of many sessions: what is shown of them is more than a pipe holds."""
    with temporary_database(stack.database_url) as url:
        for number in range(200):
            name = f"{number:03}-{'x' * 400}"
            memory = Memory.from_defaults(name, database_url=url, memory_blocks=[])
            memory.put({"role": "user", "content": "hello"})
        memory.close()
        yield url


def started(
    line: tuple[str, ...],
    url: str,
    redirection: str,
    stdout: int = subprocess.PIPE,
    start: Start = forking.Popen,
) -> subprocess.Popen[str]:
    """The command with streams as a shell would give them."""
    env = {**os.environ, "STRANDLINE_DATABASE_URL": url}
    command = [sys.executable, "-m", "strandline", *line]
    closed = [number for number, sign in enumerate(("<&-", ">&-", "2>&-")) if sign in redirection.split()]
    if closed:
        command = forking.WithoutStreams(command, *closed)
        return start(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Path("/dev/full").open("w") as full:
        stdout_or_full = full if redirection.startswith(">/dev/full") else stdout
        stderr = full if "2>/dev/full" in redirection else subprocess.PIPE
        return forking.Popen(command, env=env, stdout=stdout_or_full, stderr=stderr, text=True)


def ended(
    line: tuple[str, ...],
    url: str,
    redirection: str,
    stdout: int = subprocess.PIPE,
    start: Start = forking.Popen,
) -> tuple[int, str]:
    with started(line, url, redirection, stdout, start) as process:
        said = process.communicate(timeout=600)[1]
        return process.returncode, said or ""


@each_line
def test_without_a_reader_it_ends_quietly(line: tuple[str, ...], full_url: str) -> None:
    # Closed before the command begins, so that it cannot have printed all of a little by then.
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(line, full_url, "", stdout=writing) == (1, "")
    finally:
        os.close(writing)


@each_line
def test_where_the_output_is_full_a_sentence_says_so(line: tuple[str, ...], full_url: str) -> None:
    code, said = ended(line, full_url, ">/dev/full")
    assert (code, said) == (1, "strandline: The output cannot be written: No space left on device.\n")


@each_line
def test_what_a_closed_output_is_given_is_dropped(line: tuple[str, ...], full_url: str) -> None:
    assert ended(line, full_url, ">&-") == (0, "")


def test_nothing_is_printed_into_a_connection_that_has_the_number_of_a_closed_stream(rig: Rig) -> None:
    """Once by an interpreter that has to start without them, too."""
    starts: dict[str, Start] = {"<&- >&-": forking.Popen, "<&- >&- 2>&-": subprocess.Popen}
    for redirection, start in starts.items():
        memory = rig.memory(redirection)
        memory.put({"role": "user", "content": "hello"})
        line = ("flush", redirection, "--all")
        assert ended(line, rig.url, redirection, start=start) == (0, "")
    assert flush_events(rig.url) == 2


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", ">/dev/full 2>/dev/full", ">&- 2>&-"])
def test_the_exit_code_tells_where_no_sentence_can_be_said(redirection: str, database_url: str) -> None:
    assert ended(("nothing",), database_url, redirection) == (2, "")
    assert ended(("get", "no-such-session"), database_url, redirection) == (1, "")
    assert ended(("status", "--debug"), "foo://x", redirection) == (1, "")
