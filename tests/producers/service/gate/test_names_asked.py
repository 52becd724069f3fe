"""Names that a request gives, in its head, path, query or body: what is no name is refused at its place."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from urllib.parse import quote

import httpx2
import pytest

from strandline.schemas.wire.keys import SCOPES
from tests.support.bad_names import BAD_NAMES, RESERVED_USERS
from tests.support.servers.service_server import RunningService

USERS = [name for name in (*BAD_NAMES, *RESERVED_USERS) if name != "\ud800"]
# What a header can hold, and a server does not drop.
IN_HEADERS = [
    name
    for name in USERS
    if name != "-" and all(ord(one) >= 32 and one != "\x7f" for one in name) and name == name.strip(" ")
]


@pytest.fixture(scope="module")
def operator(running: RunningService) -> httpx2.Client:
    return running.client(running.make_key("named", scopes=SCOPES))


def test_a_user_in_the_header_is_a_name(operator: httpx2.Client) -> None:
    for name in IN_HEADERS:
        answer = operator.get("/v1/sessions/s/messages", headers={"Strandline-User": name.encode()})
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
        assert [one["content"] for one in read["items"]] == ["mine"]
