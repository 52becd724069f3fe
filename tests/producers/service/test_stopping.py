"""A process of the service stops while it is used: nothing fails, nothing is lost, nothing is done twice."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import IO
from uuid import uuid4

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.producers.service.gate.keys import KeySpec, create_key
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import wait_until
from tests.support.processes import forking
from tests.support.servers.databases import temporary_database

DRAIN_SECONDS = 1.0


class ServiceProcess:
    """``strandline serve`` in a process of its own."""

    def __init__(self, database_url: str, log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self.process = self._start(database_url, errors)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert address is not None, (line, self.said())
        self.port = int(address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def _start(self, database_url: str, errors: IO[str]) -> forking.Popen[str]:
        return forking.Popen(
            [sys.executable, "-m", "strandline", "serve", "--port", "0"],
            env={
                "PATH": "/usr/bin:/bin",
                "STRANDLINE_DATABASE_URL": database_url,
                "STRANDLINE_SERVICE_DRAIN_SECONDS": str(DRAIN_SECONDS),
                "STRANDLINE_EMBEDDED": "never",
            },
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def said(self) -> str:
        """What it wrote on stderr."""
        return self._log.read_text()

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        code = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def is_ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/healthz/ready")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()


class RoundRobin:
    """Sends each request to the next process that says it is ready, as a load balancer does."""

    def __init__(self, processes: list[ServiceProcess]) -> None:
        self._processes = processes
        self._ready = [process for process in processes if process.is_ready()]
        self._turns = count()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> RoundRobin:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def next(self) -> ServiceProcess:
        ready = self._ready
        return ready[next(self._turns) % len(ready)]

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self._ready = [process for process in self._processes if process.is_ready()] or self._ready


@contextmanager
def two_processes(url: str, folder: Path) -> Iterator[list[ServiceProcess]]:
    with ExitStack() as stack:
        processes = []
        for number in range(2):
            process = ServiceProcess(url, folder / f"{number}.log")
            stack.callback(process.ended)
            stack.callback(process.process.send_signal, signal.SIGTERM)
            processes.append(process)
        for process in processes:
            wait_until(process.is_ready, timeout=30, what="the service")
        yield processes


@pytest.fixture
def url(stack: EmbeddedStack) -> Iterator[str]:
    with temporary_database(stack.database_url) as url:
        yield url


@pytest.fixture
def key(url: str) -> str:
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings(database_url=url)))
    made = database.run(create_key(KeySpec.check("default", ["read", "write"])))
    database.close()
    return made.key


def put(url: str, clients: dict[str, httpx2.Client], session: str, text: str) -> None:
    """Put as a client does that honours Retry-After, and repeats with its key."""
    body = {"messages": [{"role": "user", "content": text}]}
    while True:
        answer = clients[url].post(
            f"/v1/sessions/{session}/messages", json=body, headers={"Idempotency-Key": text}
        )
        if answer.status_code == 201:
            return
        assert answer.status_code in (429, 503), answer.text
        time.sleep(float(answer.headers["retry-after"]))


def cut(process: ServiceProcess, key: str, session: str, text: str) -> None:
    """The same put, whose answer never arrives."""
    body = f'{{"messages":[{{"role":"user","content":"{text}"}}]}}'
    with socket.create_connection(("127.0.0.1", process.port)) as connection:
        connection.sendall(
            (
                f"POST /v1/sessions/{session}/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
                f"Strandline-User: ana\r\nIdempotency-Key: {text}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}"
            ).encode()
        )


def test_a_process_stops_under_load_and_nobody_notices(url: str, key: str, tmp_path: Path) -> None:
    session, puts, callers = uuid4().hex, 30, 4
    acknowledged: list[str] = []
    with two_processes(url, tmp_path) as processes, RoundRobin(processes) as balancer:

        def converse(caller: int) -> None:
            headers = {"Authorization": f"Bearer {key}", "Strandline-User": "ana"}
            clients = {
                process.url: httpx2.Client(base_url=process.url, headers=headers, timeout=60)
                for process in processes
            }
            for number in range(puts):
                text = f"{caller}-{number}"
                process = balancer.next()
                if number % 10 == 9:
                    cut(process, key, session, text)
                put(process.url, clients, session, text)
                acknowledged.append(text)
            for client in clients.values():
                client.close()

        with ThreadPoolExecutor(callers) as threads:
            talks = [threads.submit(converse, caller) for caller in range(callers)]
            wait_until(lambda: len(acknowledged) > callers * puts // 4, timeout=60, what="some puts")
            processes[0].process.send_signal(signal.SIGTERM)
            for talk in talks:
                talk.result()
        assert processes[0].ended() == 0
        assert processes[0].said() == ""
        stored = texts(processes[1], key, session)
    assert Counter(stored) == Counter(acknowledged)
    assert len(stored) == puts * callers


def texts(process: ServiceProcess, key: str, session: str) -> list[str]:
    headers = {"Authorization": f"Bearer {key}", "Strandline-User": "ana"}
    answer = httpx2.get(f"{process.url}/v1/sessions/{session}/messages?limit=1000", headers=headers)
    return [item["content"] for item in answer.json()["items"]]


def test_it_says_that_it_stops_before_it_stops(url: str, key: str, tmp_path: Path) -> None:
    process = ServiceProcess(url, tmp_path / "log")
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=process.url, headers=headers) as client:
        wait_until(process.is_ready, timeout=30, what="the service")
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not process.is_ready(), timeout=5, what="its word that it stops")
        answer = client.get("/v1/whoami")  # and it still answers
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert client.get("/healthz/live").status_code == 200
        stopping = client.get("/v1/events")
        assert (stopping.status_code, stopping.headers["retry-after"]) == (503, "1")
        process.process.send_signal(signal.SIGTERM)  # again: at once
    assert process.ended() == 0
    assert process.said() == ""
