"""Run as root, the embedded Postgres runs under another account, and no directory is opened for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from strandline.deploy.embedded.postgres import EmbeddedPostgres
from strandline.deploy.embedded.postgres_cluster import make_cluster, reachable_programs
from strandline.deploy.embedded.processes import wait_gone, works_in
from strandline.deploy.embedded.server_account import server_account
from strandline.deploy.embedded.wheel_binaries import postgres_programs
from strandline.schemas.errors import EmbeddedUnavailableError
from tests.conftest import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has Postgres run under another account")


def modes_above(path: Path) -> dict[Path, int]:
    return {directory: directory.stat().st_mode for directory in path.parents}


def answers(url: str, *statements: str) -> list[object]:
    found: list[object] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            found.append(row[0] if row else None)
    return found


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory that root alone may pass."""
    directory = tmp_path / "closed"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every account may pass."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_no_directory_above_the_cluster_is_opened_also_after_a_kill(closed: Path) -> None:
    data_dir = closed / "home" / "postgres"
    data_dir.parent.mkdir(mode=0o700)
    before = modes_above(data_dir)
    server = EmbeddedPostgres(data_dir)
    try:
        url = server.start()
        assert modes_above(data_dir) == before
        answers(url, "CREATE EXTENSION vector", "CREATE TABLE kept AS SELECT 7 AS n")
        pid = server.pid()
        assert pid is not None
        assert works_in(pid, data_dir)
        os.kill(pid, signal.SIGKILL)
        assert wait_gone(pid, timeout_seconds=50.0)
        assert answers(server.start(), "SELECT n FROM kept", "SELECT '[1]'::vector::text") == [7, "[1]"]
        assert EmbeddedPostgres(data_dir).url == server.url
    finally:
        server.stop()
    assert modes_above(data_dir) == before


def test_settings_in_a_closed_directory_are_read_again(closed: Path) -> None:
    server = EmbeddedPostgres(closed / "postgres")
    try:
        url = server.start()
        answers(url, "ALTER SYSTEM SET work_mem = '5MB'", "SELECT pg_reload_conf()")
        wait_until(
            lambda: answers(url, "SHOW work_mem") == ["5MB"], timeout=10, what="the settings to be read"
        )
    finally:
        server.stop()


@pytest.fixture
def closed_programs(closed: Path) -> Path:
    """The programs of the wheel, installed where root alone may pass."""
    programs = postgres_programs()
    package = programs.parent.parent
    for folder in (programs.parent, package.with_name(package.name + ".libs")):
        shutil.copytree(folder, closed / folder.relative_to(package.parent), symlinks=True)
    return closed / programs.relative_to(package.parent)


def test_programs_in_a_closed_directory_are_run_from_a_copy_of_roots(
    closed_programs: Path, open_to_all: Path, tmp_path: Path
) -> None:
    account, before = server_account(), modes_above(closed_programs)
    copies = open_to_all / "strandline"
    (copies / "unfinished" / "left by a kill").mkdir(parents=True)
    programs = reachable_programs(closed_programs, account, copies=copies)
    assert programs.is_relative_to(copies)
    assert reachable_programs(closed_programs, account, copies=copies) == programs
    assert not (copies / "unfinished").exists()
    assert all(path.lstat().st_uid == 0 for path in copies.rglob("*"))
    make_cluster(tmp_path / "postgres", programs=programs, account=account)
    assert (tmp_path / "postgres" / "PG_VERSION").exists()
    assert modes_above(closed_programs) == before


def test_programs_that_the_account_reaches_are_run_in_place(open_to_all: Path) -> None:
    package = postgres_programs()
    shutil.copytree(package, open_to_all / "bin")
    found = reachable_programs(open_to_all / "bin", server_account(), copies=open_to_all / "copies")
    assert found == open_to_all / "bin"
    assert not (open_to_all / "copies").exists()


def test_an_error_says_that_no_copy_of_the_programs_could_be_made(
    closed_programs: Path, open_to_all: Path
) -> None:
    (open_to_all / "file").write_text("")
    with pytest.raises(EmbeddedUnavailableError, match=r"could not be made.*STRANDLINE_DATABASE_URL"):
        reachable_programs(closed_programs, server_account(), copies=open_to_all / "file")
    (open_to_all / "loose").mkdir()
    (open_to_all / "loose").chmod(0o777)
    with pytest.raises(EmbeddedUnavailableError, match="writable only by root"):
        reachable_programs(closed_programs, server_account(), copies=open_to_all / "loose")


# With a copy of /etc in a mount namespace of its own: the machine's accounts stay as they are.
WITH_OWN_ACCOUNTS = """
set -e
mount --bind "$1" /etc
sed --in-place /^pgserver:/d /etc/passwd /etc/group /etc/shadow /etc/gshadow
"$2" -c "$3" &
while [ "$(ls "$4" | wc -l)" -lt 8 ]; do sleep 0.02; done
touch "$4/go"
wait
"""
ASK_FOR_ACCOUNT = """
import os, pathlib, sys, time
from strandline.deploy.embedded.server_account import server_account
meeting = pathlib.Path(sys.argv[1])
# Eight in all, each of which has yet to ask: they differ in nothing from eight that were started.
is_first = all(os.fork() for _ in range(7))
(meeting / str(os.getpid())).touch()
while not (meeting / "go").exists():
    time.sleep(0.001)
# In one piece: another process prints at the same time.
os.write(1, b"%d " % server_account().uid)
for _ in range(7 if is_first else 0):
    os.wait()
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.call(["unshare", "--mount", "true"]) != 0,
    reason="this system does not allow mount namespaces",
)
def test_processes_that_make_the_account_at_once_agree_on_its_number(tmp_path: Path) -> None:
    accounts, meeting = tmp_path / "etc", tmp_path / "meeting"
    shutil.copytree("/etc", accounts, symlinks=True)
    meeting.mkdir()
    ask = ASK_FOR_ACCOUNT.replace("sys.argv[1]", repr(str(meeting)))
    script = ["bash", "-c", WITH_OWN_ACCOUNTS, "bash", str(accounts), sys.executable, ask, str(meeting)]
    finished = subprocess.run(
        ["unshare", "--mount", *script], check=False, capture_output=True, text=True, timeout=300
    )
    numbers = finished.stdout.split()
    assert len(numbers) == 8, finished.stderr
    assert len(set(numbers)) == 1
    made = [line for line in (accounts / "passwd").read_text().splitlines() if line.startswith("pgserver:")]
    assert [line.split(":")[2] for line in made] == numbers[:1]
