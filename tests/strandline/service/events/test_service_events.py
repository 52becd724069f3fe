"""Streams of events: what is flushed and covered reaches those who may hear it, and nothing is missed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from strandline import Memory
from strandline.administration.keys import revoke_key
from strandline.schemas.wire.keys import NewKey
from strandline.service import events
from tests.conftest import wait_until
from tests.support.servers.service_server import RunningService


class Stream:
    """A stream that is read in a thread."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.is_open = threading.Event()
        self.has_ended = threading.Event()

    def read(self, response: HTTPResponse) -> None:
        try:
            while line := response.readline().decode().rstrip("\n"):
                self._take(line)
                while (line := response.readline().decode().rstrip("\n")) != "":
                    self._take(line)
        except (OSError, HTTPException, ValueError):
            pass  # the stream was ended here
        self.has_ended.set()

    def _take(self, line: str) -> None:
        self.is_open.set()
        if line.startswith("id: "):
            self.events[-1] = (line[4:], self.events[-1][1])
        elif line.startswith("data: "):
            self.events.append(("", json.loads(line[6:])))

    def last_id(self) -> str:
        """Behind it a later stream goes on; there is one from the beginning on."""
        wait_until(lambda: self.events and self.events[-1][0], timeout=10, what="an id")
        return self.events[-1][0]

    def sessions(self) -> set[str]:
        """The sessions that it told of."""
        return {one["session_id"] for _, one in self.events if "session_id" in one}

    def of(self, session: str) -> list[tuple[str, str | None]]:
        """Kind and pipeline of each event of a session."""
        return [
            (one["kind"], one.get("pipeline")) for _, one in self.events if one.get("session_id") == session
        ]


@contextmanager
def listening(client: httpx2.Client, path: str, last: str | None = None) -> Iterator[Stream]:
    stream = Stream()
    headers = dict(client.headers) | ({} if last is None else {"Last-Event-ID": last})
    connection = HTTPConnection("127.0.0.1", client.base_url.port or 0)
    connection.request("GET", path, headers=headers)
    held = connection.sock
    response = connection.getresponse()
    assert (response.status, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    reader = threading.Thread(target=stream.read, args=(response,), daemon=True)
    reader.start()
    assert stream.is_open.wait(30)
    try:
        yield stream
    finally:
        held.shutdown(socket.SHUT_RDWR)
        reader.join(10)
        response.close()
        connection.close()


@pytest.fixture
def namespace() -> str:
    return uuid4().hex


@pytest.fixture
def tenant(running: RunningService, namespace: str) -> NewKey:
    return running.make_key(namespace)


def say(client: httpx2.Client, session: str, text: str = "I live in Lisbon.") -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    assert client.post(f"/v1/sessions/{session}/messages", json=body).status_code == 201
    assert client.post(f"/v1/sessions/{session}/flush", json={"all": True}).json()["events"]


def polled(running: RunningService) -> None:
    """Wait until the poller has looked since now."""
    hub = running.service.events
    before = hub.looks
    wait_until(lambda: hub.looks > before, timeout=10, what="a look of the poller")


def test_a_flush_is_heard_and_so_is_what_covers_it_hours_later(
    running: RunningService, tenant: NewKey, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LATE_SECONDS", 0.0)
    monkeypatch.setattr(events, "DEEP_SECONDS", 0.0)
    url = running.database_url
    with running.client(tenant, user="ana") as client, listening(client, "/v1/events") as stream:
        polled(running)
        say(client, "s1")
        wait_until(lambda: ("flushed", None) in stream.of("s1"), timeout=20, what="the flush")
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE strandline.flush_event SET created_at = now() - interval '3 hours'")
        # Somebody derives it now.
        with_worker = Memory.from_defaults("x", namespace=namespace, database_url=url, consume="background")
        with_worker.get()
        covered = {("covered", name) for name in ("facts", "summary", "vectors")}
        wait_until(lambda: covered <= set(stream.of("s1")), timeout=60, what="what covers it")
        with_worker.close()
        polled(running)
        say(client, "s2")
        wait_until(lambda: stream.of("s2"), timeout=20, what="the next flush")
        with listening(client, "/v1/events", stream.last_id()) as again:
            wait_until(lambda: again.of("s2"), timeout=20, what="the next flush once more")
    assert stream.of("s1")[0] == ("flushed", None)
    assert len(stream.of("s1")) == 4
    assert again.of("s1") == []


def test_one_hears_what_is_ones_own(running: RunningService, tenant: NewKey, namespace: str) -> None:
    other = running.make_key(uuid4().hex)
    bound = running.make_key(namespace, user_id="bo")
    with (
        running.client(tenant, user="ana") as ana,
        running.client(bound) as bo,
        running.client(tenant) as whole,
        running.client(other, user="ana") as stranger,
        listening(ana, "/v1/events") as of_ana,
        listening(bo, "/v1/events") as of_bo,
        listening(whole, "/v1/events") as of_all,
        listening(stranger, "/v1/events") as of_stranger,
    ):
        wait_until(lambda: running.service.events.listeners == 4, timeout=10, what="four listeners")
        polled(running)
        say(ana, "a")
        say(bo, "b")
        with listening(ana, "/v1/sessions/a/events") as of_session:
            say(ana, "a", "And I like it.")
            say(ana, "c")
            for stream, session in ((of_ana, "c"), (of_bo, "b"), (of_all, "c"), (of_session, "a")):
                wait_until(partial(stream.of, session), timeout=20, what=session)
    assert of_ana.sessions() == {"a", "c"}
    assert of_bo.sessions() == {"b"}
    assert of_all.sessions() == {"a", "b", "c"}
    assert of_session.sessions() <= {"a"}
    assert of_stranger.sessions() == set()


def test_who_comes_back_hears_what_was_said_meanwhile(running: RunningService, tenant: NewKey) -> None:
    with running.client(tenant, user="ana") as client:
        with listening(client, "/v1/events") as stream:
            polled(running)
            say(client, "first")
            wait_until(lambda: stream.of("first"), timeout=20, what="the first")
        last = stream.events[-1][0]
        wait_until(lambda: running.service.events.listeners == 0, timeout=20, what="the end of the stream")
        say(client, "meanwhile")
        with listening(client, "/v1/events", last) as again:
            wait_until(lambda: again.of("meanwhile"), timeout=20, what="what was missed")
        with listening(client, "/v1/sessions/meanwhile/events", last) as narrow:
            wait_until(lambda: narrow.of("meanwhile"), timeout=20, what="the same of the session")
        assert narrow.of("first") == []


def test_a_burst_larger_than_a_page_is_told_whole_and_holds_up_nobody(
    running: RunningService, tenant: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "ROWS_PER_PAGE", 2)
    monkeypatch.setattr(events, "SPAN", timedelta(seconds=0.1))
    other = running.make_key(uuid4().hex)
    burst = [f"burst-{number}" for number in range(5)]
    with (
        running.client(tenant, user="ana") as ana,
        running.client(other, user="bo") as bo,
        listening(ana, "/v1/events") as of_ana,
        listening(bo, "/v1/events") as of_bo,
    ):
        polled(running)
        before = of_ana.last_id()
        for session in burst:
            say(ana, session)
        say(bo, "behind")
        wait_until(lambda: of_bo.of("behind"), timeout=9, what="the event behind the burst")
        wait_until(lambda: all(map(of_ana.of, burst)), timeout=9, what="the whole burst")
        with listening(ana, "/v1/events", before) as again:
            wait_until(lambda: all(map(again.of, burst)), timeout=20, what="the burst once more")
        polled(running)
        polled(running)
    assert [of_ana.of(session).count(("flushed", None)) for session in burst] == [1] * 5


def test_who_comes_back_hears_again_of_a_flush_that_has_not_ended(
    running: RunningService, tenant: NewKey, namespace: str
) -> None:
    with running.client(tenant, user="ana") as client:
        say(client, "open")
        wait_until(lambda: not running.service.events.is_polling, timeout=20, what="the end of the poller")
        with listening(client, "/v1/events", "1") as stream:
            wait_until(lambda: stream.of("open"), timeout=20, what="the flush")
            last = stream.events[-1][0]
        with listening(client, "/v1/events", last) as again:
            wait_until(lambda: again.of("open"), timeout=20, what="the flush, which has not ended")


def test_a_stream_ends_when_its_key_does(running: RunningService, namespace: str) -> None:
    revoked, ending, other = (
        running.make_key(namespace, expires_in_seconds=seconds) for seconds in (None, 3.0, None)
    )
    with (
        running.client(revoked) as one,
        running.client(ending) as two,
        running.client(other) as three,
        listening(three, "/v1/events"),
        listening(one, "/v1/events"),
        listening(two, "/v1/events"),
    ):
        wait_until(lambda: running.service.events.listeners == 3, timeout=10, what="three listeners")
        running.database.run(revoke_key(revoked.key_id))
        wait_until(lambda: running.service.events.listeners == 1, timeout=10, what="the end of two")
        assert running.service.admissions["streams"].at_work == 1


def test_nobody_polls_when_nobody_listens(running: RunningService, tenant: NewKey) -> None:
    with running.client(tenant) as client, listening(client, "/v1/events"):
        polled(running)
        with listening(client, "/v1/events"), listening(client, "/v1/events"):
            wait_until(lambda: running.service.events.listeners == 3, timeout=10, what="three listeners")
            assert running.service.events.is_polling  # one for all
    wait_until(lambda: not running.service.events.is_polling, timeout=20, what="the end of the poller")
    assert running.service.admissions["streams"].at_work == 0


@pytest.mark.parametrize("last", ["x", "-1", "9" * 30, "1 2", "²"])
def test_an_id_of_no_event_is_refused(running: RunningService, tenant: NewKey, last: str) -> None:
    with running.client(tenant) as client:
        assert client.get("/v1/events", headers={b"Last-Event-ID": last.encode("latin-1")}).status_code == 422
