"""What blocks in threads ends with its request; what waits for memory ends in time, in nobody's way."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.errors import DatabaseTimeoutError, NotFoundError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.application.service import HasServiceKey
from strandline.service.gate import authentication, deadlines
from strandline.service.gate.deadlines import Deadline, Threads
from strandline.service.gate.limits import Admission, Asker, ClassLimits
from strandline.service.gate.problems import READ_ENDED, STILL_AT_WORK, ProblemError
from strandline.service.service import Readiness
from tests.conftest import rows_of, wait_until
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

FACT = "1d8a3b3e-0000-4000-8000-000000000001"
SAID = {"messages": [{"role": "user", "content": "hi", "id": "m1"}]}
WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
ALL_TABLES = """
    SELECT string_agg('strandline.' || quote_ident(tablename), ', ') FROM pg_tables
    WHERE schemaname = 'strandline' AND NOT starts_with(tablename, 'service_key')
"""

# More at once than the loop has threads of its own.
BLOCKING: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/v1/sessions", None),
    ("GET", "/v1/sessions/s", None),
    ("GET", "/v1/explain/messages/m1", None),
    ("GET", f"/v1/explain/facts/{FACT}", None),
    ("POST", "/v1/sessions/late/import", SAID),
    ("POST", "/v1/users/ana/facts/import", {"facts": [{"id": "f1", "text": "Ana has a boat."}]}),
    ("GET", "/v1/status", None),
    ("GET", "/v1/admin/dead-letters", None),
    ("GET", "/v1/admin/operations", None),
    ("GET", "/v1/admin/generations", None),
    ("PUT", "/v1/admin/namespaces/late/limits", {"calls_per_day": 5}),
)


@pytest.fixture(scope="module")
def hurried(stack: EmbeddedStack) -> Iterator[RunningService]:
    """A service whose requests have two seconds, and whose reads have one place."""
    with (
        temporary_database(stack.database_url) as url,
        RunningService(
            url,
            service_request_seconds=2.0,
            pool_max_size=2,
            service_key_share=1.0,
            service_namespace_share=1.0,
        ) as service,
    ):
        yield service


@pytest.fixture(scope="module")
def client(hurried: RunningService) -> Iterator[httpx2.Client]:
    """A client that may do everything in one namespace, for a user with a session."""
    with hurried.client(hurried.make_key(), user="ana") as client:
        assert client.post("/v1/sessions/s/messages", json=SAID).status_code == 201
        yield client


@pytest.mark.usefixtures("client")
def test_what_blocks_in_threads_ends_with_its_request(hurried: RunningService) -> None:
    """Its statement is ended, its permit and its thread are free, and it takes no effect afterwards."""
    user, root = hurried.make_key(), hurried.make_key(None, scopes=["operate"])

    def ask(request: tuple[str, str, Any]) -> httpx2.Response:
        method, path, body = request
        operates = path.startswith(("/v1/admin", "/v1/status"))
        with hurried.client(root if operates else user, user=None if operates else "ana") as client:
            return client.request(method, path, json=body)

    ((tables,),) = rows_of(hurried.database_url, ALL_TABLES)
    with ThreadPoolExecutor(len(BLOCKING)) as threads, hurried.database.transaction() as tx:
        tx._connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        answers = list(threads.map(ask, BLOCKING))
        assert [answer.status_code for answer in answers] == [504] * len(BLOCKING)
        details = {answer.json()["detail"] for answer in answers}
        assert READ_ENDED in details and STILL_AT_WORK not in details
        wait_until(
            lambda: not rows_of(hurried.database_url, WAITING), timeout=10, what="their statements' end"
        )
        wait_until(lambda: at_work(hurried) == 0, timeout=10, what="their permits")
    assert ask(("GET", "/v1/sessions/late/messages", None)).status_code == 404
    assert ask(("GET", "/v1/users/ana/facts", None)).json()["items"] == []
    assert ask(("GET", "/v1/admin/namespaces/late/limits", None)).status_code == 404
    assert ask(("GET", "/v1/status", None)).status_code == 200


def at_work(running: RunningService) -> int:
    return sum(running.service.admissions[queue].at_work for queue in ("reads", "others"))


async def test_what_goes_on_says_so_and_keeps_its_permit(
    hurried: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no statement; its next one is refused."""
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.05)
    let_go, refused = threading.Event(), threading.Event()

    def work(database: Database) -> None:
        let_go.wait(60)
        try:
            database.fetch(HasServiceKey())
        except DatabaseTimeoutError:
            refused.set()

    threads, admission = Threads(1), Admission(ClassLimits(2, 0, 1.0))
    with pytest.raises(ProblemError) as ended:
        async with admission.permit(Asker("default", "k")), Deadline(0.05, READ_ENDED):
            await threads.run(hurried.database, work)
    assert (ended.value.kind.name, ended.value.detail) == ("timed-out", STILL_AT_WORK)
    assert admission.at_work == 1
    let_go.set()
    async with asyncio.timeout(30):
        await threads.close()
    assert (admission.at_work, refused.is_set()) == (0, True)


@pytest.mark.parametrize("end", ["a result", NotFoundError("There is none.")])
def test_what_came_to_its_end_as_its_time_did_says_how(hurried: RunningService, end: str | Exception) -> None:
    let_go = threading.Event()

    def work(_database: Database) -> str:
        let_go.wait(60)
        if isinstance(end, Exception):
            raise end
        return end

    async def scenario() -> str:
        threads = Threads(1)
        asyncio.get_running_loop().call_later(0.1, let_go.set)
        try:
            async with Deadline(0.05, READ_ENDED):
                return await threads.run(hurried.database, work)
        finally:
            await threads.close()

    if isinstance(end, Exception):
        with pytest.raises(NotFoundError):
            asyncio.run(scenario())
    else:
        assert asyncio.run(scenario()) == end


def waits(client: httpx2.Client, prefer: str | None, seq: int = 10**9) -> httpx2.Response:
    headers = {} if prefer is None else {"Prefer": prefer}
    return client.post("/v1/sessions/s/context", json={"wait_for": seq}, headers=headers)


@pytest.mark.parametrize("prefer", [None, "wait=60"])
def test_a_wait_ends_before_the_request_does_with_what_there_is(
    client: httpx2.Client, prefer: str | None
) -> None:
    answer = waits(client, prefer)
    assert (answer.status_code, answer.json()["caught_up"]) == (200, False)


def test_reads_that_wait_leave_others_their_places(hurried: RunningService, client: httpx2.Client) -> None:
    """There is one place, and a read needs it only while it looks."""
    reads = hurried.service.admissions["reads"]
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(waits, client, None) for _ in range(4)]
        wait_until(lambda: reads.at_work == 4, timeout=10, what="reads that wait")
        assert client.post("/v1/sessions/s/context").status_code == 200
        assert client.get("/v1/sessions/s/messages", headers={"Prefer": "wait=1"}).status_code == 200
        assert not any(one.done() for one in waiting)
        assert [one.result().status_code for one in waiting] == [200] * 4


def test_a_client_that_takes_nothing_has_no_place(hurried: RunningService) -> None:
    """It has its permit, for as long as a response may take."""
    key, service = hurried.make_key(), hurried.service
    said = [{"role": "user", "content": "word " * 20_000} for _ in range(8)]
    with hurried.client(key, user="ana") as client:
        assert client.post("/v1/sessions/long/messages", json={"messages": said}).status_code == 201
    request = (
        "GET /v1/sessions/long/messages HTTP/1.1\r\nHost: x\r\nStrandline-User: ana\r\n"
        f"Authorization: Bearer {key.key}\r\n\r\n"
    )
    times = 0

    def waits_without_a_place() -> bool:
        nonlocal times
        is_so = service.admissions["reads"].at_work == 1 and service.turns._in_hand == 0
        times = times + 1 if is_so else 0
        return times == 5  # so it is not between two of its steps

    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect(("127.0.0.1", hurried.port))
        deaf.sendall(request.encode() * 8)
        wait_until(waits_without_a_place, timeout=10, what="a response that is not taken")


def test_a_wait_hears_of_a_session_that_begins(hurried: RunningService, client: httpx2.Client) -> None:
    def wait() -> httpx2.Response:
        body = {"wait_for": 1, "begun_only": False}
        return client.post("/v1/sessions/begins/context", json=body)

    reads = hurried.service.admissions["reads"]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        wait_until(lambda: reads.at_work == 1, timeout=10, what="a read that waits")
        assert client.post("/v1/sessions/begins/messages", json=SAID).status_code == 201
        assert [one["content"] for one in waiting.result().json()["messages"]] == ["hi"]


@pytest.fixture
def trusted_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "TRUSTED_SECONDS", 0.0)


@pytest.mark.usefixtures("client", "trusted_briefly")
def test_a_wait_ends_with_its_key(hurried: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with its time, which here is longer than that of a request."""
    monkeypatch.setattr(deadlines, "ANSWERING_SECONDS", -60.0)
    key, operator = hurried.make_key(), hurried.make_key(scopes=["operate"])
    reads = hurried.service.admissions["reads"]
    with (
        ThreadPoolExecutor(1) as threads,
        hurried.client(key, user="ana") as client,
        hurried.client(operator) as operating,
    ):
        waiting = threads.submit(waits, client, None)
        wait_until(lambda: reads.at_work == 1, timeout=10, what="a read that waits")
        assert operating.delete(f"/v1/admin/keys/{key.key_id}").is_success
        assert waiting.result().status_code == 401


@pytest.mark.usefixtures("client", "trusted_briefly")
def test_a_key_that_was_revoked_gets_nothing_for_which_it_waited(hurried: RunningService) -> None:
    key, operator = hurried.make_key(), hurried.make_key(scopes=["operate"])
    with (
        ThreadPoolExecutor(1) as threads,
        hurried.client(key, user="ana") as client,
        hurried.client(operator) as operating,
    ):
        with hurried.database.transaction() as tx:
            tx._connection.execute("LOCK TABLE strandline.message IN ACCESS EXCLUSIVE MODE")
            reading = threads.submit(client.get, "/v1/sessions/s/messages")
            wait_until(lambda: rows_of(hurried.database_url, WAITING), timeout=10, what="a read that waits")
            assert operating.delete(f"/v1/admin/keys/{key.key_id}").is_success
        assert reading.result().status_code == 401


@pytest.mark.usefixtures("trusted_briefly")
def test_a_body_that_comes_after_its_key_was_revoked_stores_nothing(
    hurried: RunningService, client: httpx2.Client
) -> None:
    key, operator = hurried.make_key(), hurried.make_key(scopes=["operate"])
    body = b'{"messages": [{"role": "user", "content": "too late"}]}'
    head = (
        f"POST /v1/sessions/revoked/messages HTTP/1.1\r\nHost: x\r\nStrandline-User: ana\r\n"
        f"Authorization: Bearer {key.key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    writes = hurried.service.admissions["writes"]
    with socket.create_connection(("127.0.0.1", hurried.port)) as slow, hurried.client(operator) as operating:
        slow.settimeout(30)
        slow.sendall(head + body[:10])
        wait_until(lambda: writes.at_work == 1, timeout=10, what="its permit")
        assert operating.delete(f"/v1/admin/keys/{key.key_id}").is_success
        slow.sendall(body[10:])
        assert slow.recv(12) == b"HTTP/1.1 401"
    assert client.get("/v1/sessions/revoked/messages").status_code == 404


async def test_however_many_ask_whether_it_is_ready_the_database_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[None] = []

    async def look() -> str | None:
        looks.append(None)
        await asyncio.sleep(0)
        return "a reason"

    readiness = Readiness()
    ask: Callable[[], Any] = lambda: asyncio.gather(*(readiness.tell(look) for _ in range(50)))  # noqa: E731
    assert await ask() == ["a reason"] * 50
    assert await ask() == ["a reason"] * 50
    assert len(looks) == 1
    readiness._ends_at = 0.0  # half a second later
    assert await ask() == ["a reason"] * 50
    assert len(looks) == 2
