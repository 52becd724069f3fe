"""A PgBouncer of our own in transaction mode: loopback, its own port and files, no system service."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

READY_SECONDS = 200.0

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
"""


def program() -> str | None:
    """PgBouncer as this user may run it, or None where it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pgbouncer_before(database_url: str) -> Iterator[str]:
    """Run one before an embedded Postgres; gives the same database's URL by way of it."""
    parts = urlsplit(database_url)
    (socket_folder,), (port,) = (parse_qs(parts.query)[name] for name in ("host", "port"))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen_port = probe.getsockname()[1]
    config = _CONFIG.format(
        host=_WORKING_DIRECTORY, port=port, listen_port=listen_port, connections=SERVER_CONNECTIONS
    )
    # The socket belongs to the user that Postgres runs as; root is refused by PgBouncer anyway.
    owner = Path(socket_folder).stat()
    with tempfile.TemporaryDirectory(prefix="strandline-pgbouncer-") as folder:
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(config, encoding="utf-8")
        if os.getuid() == 0:
            os.chown(folder, owner.st_uid, owner.st_gid)
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(program()), str(file)],
                cwd=socket_folder,
                stderr=log,
                stdout=log,
                user=owner.st_uid if os.getuid() == 0 else None,
                group=owner.st_gid if os.getuid() == 0 else None,
            )
        try:
            url = f"postgresql://postgres@127.0.0.1:{listen_port}{parts.path}"
            _await(url, process, Path(folder) / "log")
            yield url
        finally:
            process.terminate()
            process.wait(10)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return
