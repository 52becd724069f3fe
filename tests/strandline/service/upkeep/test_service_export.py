"""Exports over HTTP: every line, as a stream that says when it is whole."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partialmethod
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from strandline.administration.keys import revoke_key
from strandline.erasure import Erasures
from strandline.producers.exports import export
from strandline.producers.exports.pages import ExportTarget, Section, sections
from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.wire.keys import NewKey
from strandline.service.gate import authentication
from strandline.service.gate.sending import Sending
from strandline.service.routes import exports
from tests.conftest import wait_until
from tests.support.servers.service_server import RunningService


@pytest.fixture(scope="module")
def told(running: RunningService, client: httpx2.Client) -> None:
    """Ana has two sessions and a fact, Bo one session."""
    for session, number in (("one", 3), ("two", 2)):
        messages = [{"role": "user", "content": f"{session} {index}"} for index in range(number)]
        assert client.post(f"/v1/sessions/{session}/messages", json={"messages": messages}).status_code == 201
    client.post("/v1/users/ana/facts", json={"text": "Likes tea."})
    with running.client(client.headers["authorization"].removeprefix("Bearer "), user="bo") as bo:
        bo.post("/v1/sessions/bos/messages", json={"messages": [{"role": "user", "content": "Bo's"}]})


def lines_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/jsonl"
    assert answer.text.endswith("}\n")
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.usefixtures("told")
def test_it_is_the_export_of_the_library(
    running: RunningService, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lines_of(client.get("/v1/users/ana/export"))
    monkeypatch.setattr(exports, "CHUNK_BYTES", 1)
    assert lines_of(client.get("/v1/users/ana/export"))[1:] == given[1:]
    library = Erasures.of_namespace(database_url=running.database_url)
    expected = [json.loads(line) for line in library.export_user("ana")]
    library.close()
    assert given[1:] == expected[1:]
    assert given[-1]["lines"] == Counter(line["kind"] for line in given[:-1])
    assert {"message", "session", "fact", "fact_revision"} <= set(given[-1]["lines"])
    alone = lines_of(client.get("/v1/sessions/two/export"))
    assert alone[0]["session_id"] == "two"
    said = [line["message"]["content"] for line in alone if line["kind"] == "message"]
    assert said == ["two 0", "two 1"]


@pytest.mark.usefixtures("told")
def test_another_users_session_is_none(client: httpx2.Client) -> None:
    assert client.get("/v1/sessions/bos/export").status_code == 404
    assert client.get("/v1/sessions/none/export").status_code == 404
    nobody = lines_of(client.get("/v1/users/nobody/export"))
    # To ask is an act about a user, who has a pseudonym in the trail from then on.
    assert [line["kind"] for line in nobody] == ["header", "audit_pseudonym", "trailer"]


@pytest.mark.usefixtures("told")
def test_one_that_breaks_off_has_no_trailer(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(target: ExportTarget) -> Iterator[Section]:
        yield next(iter(sections(target)))

        def refuse(_last: Any) -> Any:
            raise DatabaseUnavailableError("Postgres went away while ana's secret was read")

        yield Section(refuse, lambda row: row)

    monkeypatch.setattr(export, "sections", broken)
    before = client.get("/v1/users/ana/export")
    assert before.status_code == 503  # nothing was sent yet
    monkeypatch.setattr(exports, "CHUNK_BYTES", 1)
    with client.stream("GET", "/v1/users/ana/export") as answer:
        lines = answer.iter_lines()
        kinds = [json.loads(next(lines))["kind"] for _ in range(3)]
        with pytest.raises(httpx2.RemoteProtocolError):
            next(lines)
    assert kinds == ["header", "directory", "directory"]
    assert "an export broke off" in caplog.messages
    assert "a request failed" not in caplog.messages
    assert "secret" not in caplog.text


@pytest.mark.usefixtures("told")
def test_one_whose_key_is_revoked_has_no_trailer(
    running: RunningService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exports, "CHUNK_BYTES", 1)
    monkeypatch.setattr(authentication, "TRUSTED_SECONDS", 0.0)
    key = running.make_key(scopes=["erase"])
    may_go_on = threading.Event()
    read = exports._read

    async def read_when_told(lines: AsyncIterator[str]) -> bytes:
        part = await read(lines)
        if b'"header"' not in part:
            await asyncio.to_thread(may_go_on.wait, 30)
        return part

    monkeypatch.setattr(exports, "_read", read_when_told)
    with running.client(key) as other, other.stream("GET", "/v1/users/ana/export") as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["kind"] == "header"
        running.database.run(revoke_key(key.key_id))
        may_go_on.set()
        with pytest.raises(httpx2.RemoteProtocolError):
            next(lines)
    (record,) = (one for one in caplog.records if one.getMessage() == "an export broke off")
    assert record.__dict__["reason"] == "its key has ended"
    wait_until(lambda: running.service.exports.at_work == 0, timeout=20, what="its place")


@pytest.mark.usefixtures("told")
def test_no_tenant_has_all_places_and_who_leaves_gives_its_own_back(
    running: RunningService, client: httpx2.Client, key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def held(lines: AsyncIterator[str]) -> bytes:
        """The first line, and nothing more."""
        async for line in lines:
            if '"header"' in line:
                return line.encode() + b"\n"
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(exports, "_read", held)
    reading = []
    other_key, other_tenant = running.make_key(key.namespace), running.make_key(uuid4().hex)
    with ExitStack() as places:

        def begin(of: NewKey) -> int:
            begun = places.enter_context(running.client(of)).stream("GET", "/v1/users/ana/export")
            answer = places.enter_context(begun)
            if answer.status_code == 200:
                lines = answer.iter_lines()
                reading.append(lines)  # one that nobody has closes its connection
                assert json.loads(next(lines))["kind"] == "header"
            return answer.status_code

        assert [begin(key) for _ in range(3)] == [200, 200, 429]
        assert [begin(other_key) for _ in range(2)] == [200, 429]
        assert [begin(other_tenant) for _ in range(2)] == [200, 503]
        assert client.get("/v1/sessions/one/context").status_code == 200
    wait_until(lambda: running.service.exports.at_work == 0, timeout=20, what="the places")
    monkeypatch.undo()
    assert lines_of(client.get("/v1/users/ana/export"))[-1]["kind"] == "trailer"


@pytest.mark.usefixtures("told")
def test_a_client_that_takes_nothing_gives_its_place_back(
    running: RunningService, key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the help of the garbage collector, which may come by much later."""

    async def endless(lines: AsyncIterator[str]) -> bytes:
        return b"x" * 2**20

    monkeypatch.setattr(exports, "_read", endless)
    monkeypatch.setattr(Sending, "__init__", partialmethod(_hurried, Sending.__init__))
    gc.disable()
    try:
        with socket.create_connection(("127.0.0.1", running.port)) as deaf:
            head = f"GET /v1/users/ana/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key.key}\r\n\r\n"
            deaf.sendall(head.encode())
            wait_until(lambda: running.service.exports.at_work == 1, timeout=20, what="its place")
            wait_until(lambda: running.service.exports.at_work == 0, timeout=20, what="the end of it")
    finally:
        gc.enable()


def _hurried(sending: Sending, original: Any, send: Any, **options: Any) -> None:
    original(sending, send, **options | {"seconds": 0.2})
