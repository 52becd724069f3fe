"""A PgBouncer of our own in transaction mode: loopback, its own port and files, no system service."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.servers.databases import server_address

READY_SECONDS = 200.0

# What makes it drop the settings of a session without a word.
DROPS_OPTIONS = "ignore_startup_parameters = extra_float_digits,options"

# So few that clients are sure to be given each other's connections.
SERVER_CONNECTIONS = 3

# It starts in the folder of the socket: folders above may be closed to the account that it runs under.
_WORKING_DIRECTORY = "/proc/self/cwd"

_CONFIG = """\
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
{settings}
"""


def program() -> str | None:
    """PgBouncer as this user may run it, or None where it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pgbouncer_before(database_url: str, settings: str = "") -> Iterator[str]:
    """Run one before a Postgres, with further ``settings``; gives the same database's URL by way of it."""
    parts = urlsplit(database_url)
    host, port = server_address(database_url)
    local = host.startswith("/")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen_port = probe.getsockname()[1]
    config = _CONFIG.format(
        host=_WORKING_DIRECTORY if local else host,
        port=port,
        listen_port=listen_port,
        connections=SERVER_CONNECTIONS,
        settings=settings,
    )
    with tempfile.TemporaryDirectory(prefix="strandline-pgbouncer-") as folder:
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(config, encoding="utf-8")
        # The socket belongs to the user that Postgres runs as; PgBouncer refuses to run as root anyway.
        uid, gid = _account(Path(host) if local else Path(folder))
        os.chown(folder, uid, gid)
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(program()), str(file)],
                cwd=host if local else folder,
                stderr=log,
                stdout=log,
                user=uid if os.getuid() == 0 else None,
                group=gid if os.getuid() == 0 else None,
            )
        try:
            url = f"postgresql://postgres@127.0.0.1:{listen_port}{parts.path}"
            _await(url, process, Path(folder) / "log")
            yield url
        finally:
            process.terminate()
            process.wait(10)


def _account(folder: Path) -> tuple[int, int]:
    """The user and group to run as: this one's, or as root the folder's owner, or ``nobody``."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    owner = folder.stat()
    if owner.st_uid != 0:
        return owner.st_uid, owner.st_gid
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=2, options="").close()
        except psycopg.OperationalError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return
