"""`Strandline-User: -` is what has no user: never what users have, and never a user of that name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import NO_USER
from strandline.schemas.wire.keys import NewKey
from tests.support.servers.service_server import RunningService

MARK = "amber-walrus"


@pytest.fixture(scope="module")
def names(running: RunningService) -> tuple[NewKey, str, str]:
    """A namespace's key, a session of ana's, and one of nobody's, each flushed."""
    key = running.make_key(f"n-{uuid4().hex}", scopes=("read", "write", "facts", "erase", "operate"))
    anas, nobodys = f"a-{uuid4().hex}", f"n-{uuid4().hex}"
    for user, session, text in (("ana", anas, MARK), (NO_USER, nobodys, "plain")):
        with running.client(key, user=user) as client:
            message = {"role": "user", "content": text, "id": f"m-{session}"}
            put = client.post(f"/v1/sessions/{session}/messages", json={"messages": [message]})
            assert put.status_code == 201, put.text
            assert client.post(f"/v1/sessions/{session}/flush", json={"all": True}).status_code == 200
    return key, anas, nobodys


@pytest.fixture
def nobody(running: RunningService, names: tuple[NewKey, str, str]) -> Iterator[httpx2.Client]:
    with running.client(names[0], user=NO_USER) as client:
        yield client


@pytest.fixture
def everybody(running: RunningService, names: tuple[NewKey, str, str]) -> Iterator[httpx2.Client]:
    """A client whose requests name nobody at all."""
    with running.client(names[0]) as client:
        yield client


def sessions(client: httpx2.Client) -> list[str]:
    return [one["session_id"] for one in client.get("/v1/sessions").json()["items"]]


def test_lists_have_what_has_no_user(
    nobody: httpx2.Client, everybody: httpx2.Client, names: tuple[NewKey, str, str]
) -> None:
    _, anas, nobodys = names
    assert sessions(nobody) == [nobodys]
    assert sessions(everybody) == sorted([anas, nobodys])


def test_nothing_of_a_user_is_shown(
    running: RunningService,
    nobody: httpx2.Client,
    everybody: httpx2.Client,
    names: tuple[NewKey, str, str],
) -> None:
    key, anas, nobodys = names
    with running.client(key, user="ana") as client:
        fact = client.post("/v1/users/ana/facts", json={"text": f"Likes the {MARK}."}).json()["fact_id"]
    hidden = (
        f"/v1/sessions/{anas}",
        f"/v1/explain/messages/m-{anas}",
        f"/v1/explain/messages/m-{anas}?session_id={anas}",
    )
    for path in hidden:
        answer = nobody.get(path)
        assert answer.status_code == 404, path
        assert MARK not in answer.text and anas not in answer.text
        assert everybody.get(path).status_code == 200, path
    answer = nobody.get(f"/v1/explain/facts/{fact}")
    assert answer.status_code == 404 and MARK not in answer.text
    assert nobody.get(f"/v1/sessions/{nobodys}").json()["session"]["user_id"] is None
    assert nobody.get(f"/v1/explain/messages/m-{nobodys}").status_code == 200


def test_a_stream_tells_of_what_has_no_user(
    nobody: httpx2.Client, everybody: httpx2.Client, names: tuple[NewKey, str, str]
) -> None:
    _, anas, nobodys = names
    assert nobodys in until(nobody, nobodys) and anas in until(everybody, nobodys)
    assert anas not in until(nobody, nobodys)  # which was flushed before


def until(client: httpx2.Client, session: str) -> str:
    """What a stream of the namespace tells, resumed from the beginning, up to an event of a session."""
    told: list[str] = []
    with client.stream("GET", "/v1/events", headers={"Last-Event-ID": "1"}) as stream:
        for line in stream.iter_lines():
            told.append(line)
            if session in line:
                return "\n".join(told)
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/facts", None),
        ("POST", "/facts", {"text": "Nobody's."}),
        ("GET", "/figures", None),
        ("POST", "/erasures", {}),
        ("GET", "/export", None),
    ],
)
def test_no_user_of_a_path_is_nobody(everybody: httpx2.Client, method: str, path: str, body: Any) -> None:
    answer = everybody.request(method, f"/v1/users/{NO_USER}{path}", json=body)
    assert answer.status_code == 422
    (place,) = answer.json()["errors"]
    assert place["pointer"] == "/path/user" and "name a user" in place["detail"]


def test_no_key_is_nobodys(running: RunningService, everybody: httpx2.Client) -> None:
    with pytest.raises(InvalidMessageError, match="a session has none"):
        running.make_key(user_id=NO_USER)
    answer = everybody.post("/v1/admin/keys", json={"scopes": ["read"], "user_id": NO_USER})
    assert answer.status_code == 422
