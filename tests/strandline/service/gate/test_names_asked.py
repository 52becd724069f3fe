"""Names that a request gives, in its head, path, query or body: what is no name is refused at its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import quote

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.wire.keys import SCOPES
from strandline.service.gate.heads import address_in
from tests.support.names.bad_names import BAD_NAMES, RESERVED_USERS
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

USERS = [name for name in (*BAD_NAMES, *RESERVED_USERS) if name != "\ud800"]
# What a header can hold, and a server does not drop.
IN_HEADERS = [
    name
    for name in USERS
    if name != "-" and all(ord(one) >= 32 and one != "\x7f" for one in name) and name == name.strip(" ")
]


@pytest.fixture(scope="module")
def operator(running: RunningService) -> Iterator[httpx2.Client]:
    with running.client(running.make_key("named", scopes=SCOPES)) as client:
        yield client


def test_a_user_in_the_header_is_a_name(operator: httpx2.Client) -> None:
    for name in IN_HEADERS:
        answer = operator.get("/v1/sessions/s/messages", headers={b"Strandline-User": name.encode()})
        assert answer.status_code == 422, (name, answer.text)
        assert [one["pointer"] for one in answer.json()["errors"]] == ["/header/Strandline-User"]


def test_names_in_the_path_are_names(operator: httpx2.Client) -> None:
    """Percent-encoded blanks come through, and would be another user than the header's."""
    for name in USERS:
        encoded = quote(name, safe="")
        if encoded:
            answer = operator.get(f"/v1/users/{encoded}/facts")
            assert answer.status_code == 422, (name, answer.text)
            if name not in RESERVED_USERS:
                asked = operator.get(f"/v1/sessions/{encoded}/messages", headers={"Strandline-User": "ana"})
                assert asked.status_code == 422, (name, asked.text)


def test_names_in_the_query_and_the_body_are_names(operator: httpx2.Client) -> None:
    for name in USERS:
        query = operator.get("/v1/admin/audit", params={"user_id": name})
        body = operator.post("/v1/admin/keys", json={"scopes": ["read"], "user_id": name})
        assert (query.status_code, body.status_code) == (422, 422), (name, query.text, body.text)
        assert body.json()["errors"][0]["pointer"] == "/body/user_id"


def test_both_spellings_of_a_header_are_one_user(running: RunningService, operator: httpx2.Client) -> None:
    """Servers drop blanks around a header's value, so no other user can have the name with them."""
    message = {"messages": [{"role": "user", "content": "mine"}]}
    put = operator.post("/v1/sessions/edge/messages", json=message, headers={"Strandline-User": "ana9"})
    assert put.status_code == 201
    for spelling in (" ana9", "ana9  ", "\tana9"):  # clients in Python refuse to send these
        connection = HTTPConnection(operator.base_url.host, operator.base_url.port, timeout=30)
        headers = {"Authorization": operator.headers["Authorization"], "Strandline-User": spelling}
        connection.request("GET", "/v1/sessions/edge/messages", headers=headers)
        read = json.loads(connection.getresponse().read())
        connection.close()
        # The server drops the blanks, or leaves one that is refused.
        items = read.get("items", [{"content": "mine"}] if read.get("status") == 422 else [])
        assert [one["content"] for one in items] == ["mine"], read


PUT = "/v1/sessions/k/messages"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PUT, '{"messages":[],"messages":[{"role":"user","content":"hi"}]}'),
        (
            PUT,
            '{"messages":[{"role":"user","content":"hi","metadata":{"a":1,"\\u0061":2}}]}',
        ),
        (
            PUT,
            '{"messages":[{"role":"user","content":"hi","metadata":{"a":[{"b":1,"b":1}]}}]}',
        ),
        ("/v1/sessions/k/flush", '{"all":false,"all":true}'),
        ("/v1/admin/keys", '{"scopes":["read"],"user_id":"ana","user_id":"eve"}'),
        ("/v1/admin/keys", '{"scopes":["read"],"user_id":"ana","user\\u005fid":"eve"}'),
        ("/v1/users/ana/facts", '{"text":"a","text":"b"}'),
        ("/mcp", '{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}'),
    ],
)
def test_a_key_that_is_given_twice_is_refused(operator: httpx2.Client, path: str, body: str) -> None:
    """What stands before the service, as a firewall, may read the other one."""
    headers = {"Strandline-User": "ana", "Content-Type": "application/json"}
    answer = operator.post(path, content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert "has a key twice" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("client", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:8080", "192.0.2.7"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:8080", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        *[
            (text, None)
            for text in (
                "unknown",
                "_hidden",
                "a b",
                "",
                "\u00e9",
                "x" * 513,
                "1.2.3",
                "/run/s",
                "for=192.0.2.7",
            )
        ],
    ],
)
def test_only_an_address_is_an_origin(client: str, origin: str | None) -> None:
    assert address_in(client) == origin


PASSED = ("x" * 513, "unknown", "9.9.9.9, 192.0.2.7:80", "[2001:db8::1]:80")


def test_what_a_proxy_passes_on_makes_no_write_fail(stack: EmbeddedStack) -> None:
    with (
        temporary_database(stack.database_url) as url,
        RunningService(url, service_trusted_proxies="127.0.0.1") as proxied,
        proxied.client(proxied.make_key("p", scopes=SCOPES), user="ana") as asking,
    ):
        said = {"messages": [{"role": "user", "content": "hi"}]}
        for number, passed in enumerate(PASSED):
            headers = {"X-Forwarded-For": passed}
            assert (
                asking.post(f"/v1/sessions/{number}/messages", json=said, headers=headers).status_code == 201
            )
            assert (
                asking.post("/v1/admin/keys", json={"scopes": ["read"]}, headers=headers).status_code == 201
            )
        acts = asking.get("/v1/admin/audit", params={"kind": "key.create"}).json()["items"]
        assert {act["origin"] for act in acts} == {None, "192.0.2.7", "2001:db8::1"}
