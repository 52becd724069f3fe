"""What bad clients cost a process: each at most a permit and a megabyte, however long they take."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest

from strandline.administration.keys import KeySpec, create_key
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import wait_until
from tests.support.processes.service_process import ServiceProcess
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import NO_AUTHORITIES

CLIENTS = 16
MEGABYTE = 2**20
GIGABYTE = 2**30


@pytest.fixture
def key(stack: EmbeddedStack) -> Iterator[tuple[str, str]]:
    """A database, and a key in it."""
    with temporary_database(stack.database_url) as url:
        options = ConnectionOptions.from_settings(url, load_settings(database_url=url))
        with closing(Database.connect(options)) as database:
            yield url, database.run(create_key(KeySpec("default", ["read", "write"]))).key


def resident(process: ServiceProcess) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1_024


def begin(process: ServiceProcess, key: str, path: str, *fields: str) -> socket.socket:
    """A connection on which a POST has begun."""
    connection = socket.create_connection(("127.0.0.1", process.port), timeout=60)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    head = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", "Strandline-User: ana"]
    head += ["Content-Type: application/json", *fields]
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    return connection


def pour(connection: socket.socket) -> int:
    """Send a body of a gigabyte in chunks until the service has enough; returns the bytes that went."""
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    sent = 0
    try:
        while sent < GIGABYTE:
            connection.sendall(chunk)
            sent += 0x10000
    except OSError:
        pass
    return sent


def test_each_costs_a_permit_and_a_megabyte(key: tuple[str, str], tmp_path: Path) -> None:
    url, secret = key
    context = "/v1/sessions/long/context"
    # Long enough that the slow ones are there all the time, whatever the machine is busy with.
    process = ServiceProcess(
        url, tmp_path / "log", STRANDLINE_SERVICE_BODY_SECONDS="600", STRANDLINE_SERVICE_DRAIN_SECONDS="0"
    )
    headers = {"Authorization": f"Bearer {secret}", "Strandline-User": "ana"}
    with (
        ExitStack() as bad,
        httpx2.Client(base_url=process.url, headers=headers, timeout=60, verify=NO_AUTHORITIES) as good,
    ):
        wait_until(process.is_ready, timeout=30, what="the service")
        said = {"messages": [{"role": "user", "content": "word " * 20_000}]}
        assert good.post("/v1/sessions/long/messages", json=said).status_code == 201
        for _ in range(3):
            answer = good.post(context, json={"token_limit": 60_000})
            assert len(answer.content) > 100_000
        before = resident(process)
        for _ in range(CLIENTS):
            slow = begin(process, secret, "/v1/sessions/s/messages", f"Content-Length: {MEGABYTE}")
            bad.callback(slow.close)
            slow.sendall(b" " * (MEGABYTE - 1))  # and the last byte never
            deaf = begin(process, secret, context, "Content-Length: 22")
            bad.callback(deaf.close)
            deaf.sendall(b'{"token_limit": 60000}')  # and its answer is not read
            large = begin(process, secret, "/v1/sessions/s/messages", "Transfer-Encoding: chunked")
            bad.callback(large.close)
            assert pour(large) < 64 * MEGABYTE
        assert good.post(context, json={"token_limit": 60_000}).status_code == 200
        said = {"messages": [{"role": "user", "content": "and on"}]}
        assert good.post("/v1/sessions/long/messages", json=said).status_code == 201
        assert resident(process) - before < 3 * CLIENTS * MEGABYTE
    process.process.send_signal(signal.SIGTERM)
    assert process.ended() == 0
    assert process.said() == ""
