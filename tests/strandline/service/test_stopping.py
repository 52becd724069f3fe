"""A process of the service stops while it is used: nothing fails, nothing is lost, nothing is done twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from strandline.administration.keys import KeySpec, create_key
from strandline.client import RemoteMemory, RemoteService, Retries
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import wait_until
from tests.support.processes.service_process import RoundRobin, ServiceProcess, two_processes
from tests.support.proxies.cutting_proxy import CuttingProxy
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import NO_AUTHORITIES


@pytest.fixture
def url(stack: EmbeddedStack) -> Iterator[str]:
    with temporary_database(stack.database_url) as url:
        yield url


@pytest.fixture
def key(url: str) -> str:
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings(database_url=url)))
    made = database.run(create_key(KeySpec("default", ["read", "write"])))
    database.close()
    return made.key


def test_a_process_stops_under_load_and_nobody_notices(url: str, key: str, tmp_path: Path) -> None:
    """Behind a round robin that loses one answer in ten, for a client that repeats with its keys."""
    puts, callers = 30, 4
    acknowledged: dict[str, list[str]] = {f"{uuid4().hex}": [] for _ in range(callers)}
    with (
        two_processes(url, tmp_path) as processes,
        RoundRobin(processes) as balancer,
        CuttingProxy(lambda: balancer.next().url, lambda number: number % 10 == 3) as proxy,
        RemoteService(proxy.url, key, retries=Retries(base_seconds=0.01, longest_seconds=0.1)) as service,
    ):

        def converse(session: str) -> None:
            memory = RemoteMemory.from_defaults(session, user_id="ana", service=service)
            for number in range(puts):
                memory.put({"role": "user", "content": f"{number}"})
                acknowledged[session].append(f"{number}")

        def said() -> int:
            return sum(map(len, acknowledged.values()))

        with ThreadPoolExecutor(callers) as threads:
            talks = [threads.submit(converse, session) for session in acknowledged]
            wait_until(lambda: said() > callers * puts // 4, timeout=60, what="some puts")
            processes[0].process.send_signal(signal.SIGTERM)
            for talk in talks:
                talk.result()
        assert processes[0].ended() == 0
        assert processes[0].said() == ""
        assert proxy.cut >= callers * puts // 10
        for session, texts in acknowledged.items():
            assert stored(processes[1], key, session) == texts == [str(number) for number in range(puts)]


def stored(process: ServiceProcess, key: str, session: str) -> list[str]:
    headers = {"Authorization": f"Bearer {key}", "Strandline-User": "ana"}
    answer = httpx2.get(
        f"{process.url}/v1/sessions/{session}/messages?limit=1000", headers=headers, verify=NO_AUTHORITIES
    )
    return [item["content"] for item in answer.json()["items"]]


def test_it_says_that_it_stops_before_it_stops(url: str, key: str, tmp_path: Path) -> None:
    # Until the second signal.
    settings = {"STRANDLINE_SERVICE_DRAIN_SECONDS": "60", "STRANDLINE_SERVICE_SHUTDOWN_SECONDS": "5"}
    process = ServiceProcess(url, tmp_path / "log", **settings)
    headers = {"Authorization": f"Bearer {key}"}
    with (
        httpx2.Client(base_url=process.url, headers=headers, timeout=30, verify=NO_AUTHORITIES) as client,
        client.stream("GET", "/v1/events") as stream,
    ):
        heard = stream.iter_bytes()
        next(heard)
        process.process.send_signal(signal.SIGTERM)
        b"".join(heard)  # to its end, while the process goes on
        wait_until(lambda: not process.is_ready(), timeout=5, what="its word that it stops")
        answer = client.get("/v1/whoami")  # and it still answers
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert client.get("/healthz/live").status_code == 200
        stopping = client.get("/v1/events")
        assert (stopping.status_code, stopping.headers["retry-after"]) == (503, "1")
        process.process.send_signal(signal.SIGTERM)  # again: at once
    assert process.ended() == 0
    assert process.said() == ""
