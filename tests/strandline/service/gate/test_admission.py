"""Admission: how many are worked on, who has the next turn, and who is refused before anything is read."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres import async_database
from strandline.service.access import Queue
from strandline.service.gate.bodies import ClientGone
from strandline.service.gate.limits import Admission, Asker, ClassLimits
from strandline.service.gate.problems import ProblemError
from strandline.service.gate.sending import Sending
from tests.conftest import rows_of, wait_until
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

LIMITS = ClassLimits(at_once=2, waiting=4, wait_seconds=60, waiting_per_key=2)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Requests:
    """Requests that hold their permits until they are let go: ``a1`` is of key a, of a namespace of its own.

    A capital letter names the namespace of the keys behind it: ``Aa1`` and ``Ab1`` are of one.
    """

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.order: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str) -> None:
        self.gates[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._hold(name))
        await settle()

    async def _hold(self, name: str) -> None:
        try:
            async with self.admission.permit(Asker(name[0], name.rstrip("0123456789"))):
                self.order.append(name)
                await self.gates[name].wait()
        except ProblemError as refusal:
            self.refused.append((name, refusal.kind.name))

    async def end(self, name: str) -> None:
        self.gates[name].set()
        await settle()


def test_keys_take_turns_whoever_came_first() -> None:
    async def scenario() -> None:
        requests = Requests(Admission(LIMITS))
        for name in ("a1", "a2", "a3", "a4", "b1"):
            await requests.begin(name)
        assert requests.order == ["a1", "a2"]
        await requests.end("a1")
        await requests.end("a2")
        assert requests.order == ["a1", "a2", "a3", "b1"]
        await requests.end("a3")
        assert requests.order[-1] == "a4"

    run(scenario())


def test_too_many_of_a_key_and_too_many_in_all_are_told_apart() -> None:
    async def scenario() -> None:
        requests = Requests(Admission(LIMITS))
        for name in ("a1", "a2", "a3", "a4", "a5", "b1", "b2", "c1"):
            await requests.begin(name)
        assert requests.refused == [("c1", "busy")]
        await requests.tasks["a5"]  # a key that has its share is refused after a while
        assert requests.refused[1:] == [("a5", "too-many-requests")]

    run(scenario())


def test_a_key_has_its_share_and_leaves_the_rest_to_others() -> None:
    async def scenario() -> None:
        requests = Requests(Admission(ClassLimits(3, 8, wait_seconds=60, at_once_per_key=2)))
        for name in ("a1", "a2", "a3", "a4", "b1", "c1"):
            await requests.begin(name)
        assert requests.order == ["a1", "a2", "b1"]
        await requests.end("b1")
        assert requests.order[3:] == ["c1"]  # a came before, and has its share
        await requests.end("c1")
        assert requests.order[4:] == []
        await requests.end("a1")
        await requests.end("a2")
        assert requests.order[4:] == ["a3", "a4"]
        assert requests.refused == []

    run(scenario())


def test_namespaces_take_turns_however_many_keys_they_have() -> None:
    async def scenario() -> None:
        requests = Requests(Admission(ClassLimits(1, 8, wait_seconds=60)))
        for name in ("x1", "Aa1", "Ab1", "Ac1", "Aa2", "Bd1", "Bd2"):
            await requests.begin(name)
        for name in ("x1", "Aa1", "Bd1", "Ab1", "Bd2", "Ac1"):
            await requests.end(name)
        assert requests.order == ["x1", "Aa1", "Bd1", "Ab1", "Bd2", "Ac1", "Aa2"]

    run(scenario())


def test_the_keys_of_a_namespace_leave_the_rest_to_others() -> None:
    async def scenario() -> None:
        limits = ClassLimits(3, 4, wait_seconds=60, at_once_per_namespace=2, waiting_per_namespace=3)
        requests = Requests(Admission(limits))
        for name in ("Aa1", "Ab1", "Ac1", "Ad1", "Ae1", "Af1", "Bg1", "Bg2"):
            await requests.begin(name)
        assert requests.order == ["Aa1", "Ab1", "Bg1"]
        await requests.tasks["Af1"]
        assert requests.refused == [("Af1", "too-many-requests")]
        await requests.end("Aa1")
        assert requests.order[3:] == ["Ac1"]
        await requests.end("Bg1")
        assert requests.order[4:] == ["Bg2"]

    run(scenario())


def test_nobody_waits_longer_than_the_bound() -> None:
    async def scenario() -> None:
        admission = Admission(ClassLimits(1, 4, wait_seconds=0.05))
        requests = Requests(admission)
        await requests.begin("a1")
        await requests.begin("b1")
        await requests.tasks["b1"]
        assert (requests.refused, admission.queue_length) == ([("b1", "busy")], 0)

    run(scenario())


@settings(max_examples=80)
@given(
    st.sampled_from([None, 1]),
    st.sampled_from([None, 1]),
    st.lists(st.tuples(st.sampled_from(["begin", "end", "cancel"]), st.integers(0, 30)), max_size=60),
)
def test_no_permit_is_lost_or_given_twice(
    per_key: int | None, per_namespace: int | None, steps: list[tuple[str, int]]
) -> None:
    async def scenario() -> None:
        limits = replace(LIMITS, at_once_per_key=per_key, at_once_per_namespace=per_namespace)
        admission = Admission(limits)
        requests = Requests(admission)
        for number, (act, which) in enumerate(steps):
            names = [name for name, task in requests.tasks.items() if not task.done()]
            if act == "begin":
                await requests.begin(f"{('a', 'Bb', 'Bc')[which % 3]}{number}")
            elif names and act == "end":
                requests.gates[names[which % len(names)]].set()  # and the next step at once
            elif names:
                requests.tasks[names[which % len(names)]].cancel()
            if which % 2:
                await settle()
            assert 0 <= admission.at_work <= LIMITS.at_once
            assert 0 <= admission.queue_length <= LIMITS.waiting
        for gate in requests.gates.values():
            gate.set()
        await asyncio.gather(*requests.tasks.values(), return_exceptions=True)
        assert (admission.at_work, admission.queue_length) == (0, 0)

    run(scenario())


@pytest.fixture(scope="module")
def narrow(stack: EmbeddedStack) -> Any:
    """A service with one permit for reads, that waits for nothing for long."""
    with (
        temporary_database(stack.database_url) as url,
        RunningService(
            url,
            service_reads_at_once=1,
            service_queue_length=2,
            service_queue_seconds=0.2,
            service_body_seconds=0.5,
            service_request_seconds=1.5,
        ) as service,
    ):
        yield service


def connect(running: RunningService) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port))


def head(running: RunningService, key: str, length: int | str, path: str = "/v1/sessions/s/context") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nStrandline-User: bo\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def received(connection: socket.socket) -> bytes:
    connection.settimeout(30)
    parts = b""
    while part := connection.recv(65536):
        parts += part
        if b"\r\n\r\n" in parts and parts.rstrip().endswith(b"}"):
            break
    return parts


def test_a_body_that_trickles_costs_a_permit_for_a_bounded_time(narrow: RunningService) -> None:
    key = narrow.make_key().key
    admission = narrow.service.admissions["reads"]
    with connect(narrow) as slow, narrow.client(key, user="bo") as client:
        slow.sendall(head(narrow, key, 1_000))
        slow.sendall(b"{")
        wait_until(lambda: admission.at_work == 1, timeout=5, what="the slow request's permit")
        busy = client.get("/v1/sessions/s/context")
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
        assert received(slow).startswith(b"HTTP/1.1 408")
        assert client.get("/v1/sessions/s/context").status_code == 404
    assert admission.at_work == 0


def test_a_body_of_a_gigabyte_is_refused_by_its_header(narrow: RunningService) -> None:
    key = narrow.make_key().key
    with connect(narrow) as connection:
        connection.sendall(head(narrow, key, 2**30))
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 413") and b"connection: close" in answer.lower()


@pytest.mark.parametrize("body", ["Content-Length: 100000000", "Transfer-Encoding: chunked"])
def test_who_is_refused_by_the_head_is_not_waited_for(narrow: RunningService, body: str) -> None:
    with connect(narrow) as connection:
        start = head(narrow, "sl_none", 0).replace(b"Content-Length: 0", body.encode())
        connection.sendall(start)
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 401") and b"connection: close" in answer.lower()
        assert connection.recv(1) == b""


def test_a_body_without_end_is_refused_after_what_a_body_may_have(narrow: RunningService) -> None:
    key = narrow.make_key().key
    sent = 0
    with connect(narrow) as connection:
        start = head(narrow, key, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        connection.sendall(start)
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        try:
            while sent < 2**30:
                connection.sendall(chunk)
                sent += 0x10000
        except OSError:
            pass
    assert sent < 64 * 2**20  # what the kernel's buffers and the bound take, and not the gigabyte


def test_a_refused_request_leaves_its_body_unread_and_its_database_alone(
    narrow: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only = narrow.make_key(scopes=["facts"]).key
    asked: list[str] = []
    execute = async_database.execute

    def note(connection: Any, statement: bytes, query: Any) -> Any:
        asked.append(query.name)
        return execute(connection, statement, query)

    monkeypatch.setattr(async_database, "execute", note)
    with connect(narrow) as connection:
        connection.sendall(head(narrow, read_only, 1_000))  # and no body
        assert received(connection).startswith(b"HTTP/1.1 403")
    with connect(narrow) as connection:
        connection.sendall(head(narrow, "sl_none", 1_000))
        assert received(connection).startswith(b"HTTP/1.1 401")
    assert set(asked) == {"find_service_keys"}


def test_a_client_that_reads_nothing_keeps_no_permit(narrow: RunningService) -> None:
    key = narrow.make_key().key
    with narrow.client(key, user="bo") as client:
        text = "word " * 20_000
        for _ in range(4):
            client.post("/v1/sessions/long/messages", json={"messages": [{"role": "user", "content": text}]})
    admission = narrow.service.admissions["reads"]
    with connect(narrow) as deaf, narrow.client(key, user="bo") as client:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        request = head(narrow, key, 2, "/v1/sessions/long/context")
        for _ in range(8):
            deaf.sendall(request + b"{}")
        wait_until(lambda: admission.at_work == 0, timeout=20, what="its permit")

        def others_are_served() -> bool:
            return client.get("/v1/sessions/long/context").status_code == 200

        wait_until(others_are_served, timeout=10, what="an answer to another")


def test_a_client_that_takes_nothing_is_given_up_in_time() -> None:
    async def scenario() -> None:
        taken = asyncio.Event()

        async def send(_message: Any) -> None:
            await taken.wait()

        sending = Sending(send, seconds=0.01, closes=False)
        async with asyncio.timeout(30):
            with pytest.raises(ClientGone):
                await sending({"type": "http.response.body", "body": b"x"})

    run(scenario())


def test_a_request_that_takes_too_long_ends_with_its_statement(narrow: RunningService) -> None:
    url = narrow.database_url
    with narrow.client(narrow.make_key(), user="ana") as client:
        message = {"messages": [{"role": "user", "content": "hi", "id": "m1"}]}
        assert client.post("/v1/sessions/held/messages", json=message).status_code == 201
        with narrow.database.transaction() as tx:
            hold(tx)
            answer = client.post(
                "/v1/sessions/held/messages", json={"messages": [{"role": "user", "content": "x"}]}
            )
            assert (answer.status_code, answer.json()["type"]) == (504, "urn:strandline:problem:timed-out")
            waiting = (
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            wait_until(lambda: not rows_of(url, waiting), timeout=10, what="the end of the statement")
        assert len(client.get("/v1/sessions/held/messages").json()["items"]) == 1


def hold(tx: Any) -> None:
    """Lock the rows of all sessions, as another transaction may."""
    tx._connection.execute("SELECT FROM strandline.session FOR UPDATE")


def test_a_client_that_leaves_ends_its_wait(narrow: RunningService) -> None:
    key = narrow.make_key().key
    admission = narrow.service.admissions["reads"]
    with connect(narrow) as connection:
        connection.sendall(head(narrow, key, 100))
        wait_until(lambda: admission.at_work == 1, timeout=5, what="its permit")
    wait_until(lambda: admission.at_work == 0, timeout=5, what="its end")
    assert httpx2.get(f"{narrow.url}/healthz/live").json() == {"status": "ok", "reason": None}


@pytest.mark.parametrize(
    "start",
    [
        b"GET /healthz/live HTTP/1.1\r\nHost: x\r\nX-Long: ",
        b"GET /healthz/live HTTP/1.1\r\nHost: x\r\n" + b"X-Short: 1\r\n" * 100,
        b"GET /healthz/live?",
    ],
)
def test_a_head_without_end_is_refused(narrow: RunningService, start: bytes) -> None:
    with connect(narrow) as connection:
        connection.settimeout(30)
        sent = 0
        with suppress(ConnectionError):
            connection.sendall(start)
            while sent < 2**23 and not select.select([connection], [], [], 0)[0]:
                sent += connection.send(b"X-Short: 1\r\n" * 500 if b"X-Short" in start else b"a" * 6_000)
        assert sent < 2**23, "it was taken for as long as it came"
        with suppress(ConnectionError):  # what was on its way as the connection closed resets it
            assert connection.recv(12) == b"HTTP/1.1 431"


def test_what_follows_a_chunked_body_is_bounded_as_well(narrow: RunningService) -> None:
    key = narrow.make_key().key
    start = head(narrow, key, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connect(narrow) as connection:
        connection.settimeout(30)
        sent = 0
        with suppress(ConnectionError):
            connection.sendall(start + b"2\r\n{}\r\n0\r\n")
            while sent < 2**23:
                sent += connection.send(b"X-Trailer: " + b"a" * 6_000 + b"\r\n")
        assert sent < 2**23, "it was taken for as long as it came"


def test_a_head_that_does_not_come_to_its_end_is_refused_in_time(narrow: RunningService) -> None:
    with connect(narrow) as connection:
        connection.sendall(b"GET /healthz/live HTTP/1.1\r\nHost: x\r\n")
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 408") and b"slow-head" in answer
    assert b"application/problem+json" in answer


def test_the_rest_of_a_refused_body_is_not_waited_for(narrow: RunningService) -> None:
    with connect(narrow) as connection:
        connection.sendall(head(narrow, "sl_none", 5_000) + b"{")
        connection.settimeout(30)
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")
        with suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_what_is_no_http_gets_a_problem(narrow: RunningService) -> None:
    with connect(narrow) as connection:
        connection.sendall(b"\x16\x03\x01 what a client of TLS says\r\n\r\n")
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 400") and b"application/problem+json" in answer


def test_requests_one_behind_the_other_have_the_whole_bound_each(narrow: RunningService) -> None:
    """A head of 60,000 bytes is allowed, however many come on one connection."""
    long = b"GET /healthz/live HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 60_000 + b"\r\n\r\n"
    with connect(narrow) as connection:
        for _ in range(4):
            connection.sendall(long)
            assert received(connection).startswith(b"HTTP/1.1 200")


def test_a_key_is_revoked_while_others_hold_all_else(
    narrow: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooding, operator = narrow.make_key(), narrow.make_key(scopes=("operate",))
    classes: tuple[Queue, ...] = ("reads", "writes", "others")
    for queue in classes:
        monkeypatch.setattr(narrow.service.admissions[queue]._working, "total", 10_000)
    with narrow.client(flooding, user="bo") as client:
        assert client.get("/v1/sessions/s/context").status_code == 503
    with narrow.client(operator) as client:
        assert client.get("/v1/admin/audit").status_code == 503
        assert client.delete(f"/v1/admin/keys/{flooding.key_id}").is_success
