"""Erasing a user who is called as an operator, a key or a worker leaves what these did under their name."""

from __future__ import annotations

from uuid import uuid4

import pytest

from strandline.schemas.wire.keys import SCOPES
from tests.conftest import rows_of
from tests.support.servers.service_server import RunningService

OPERATORS = ("ops:6fd45", "agent", "worker", "support:ben", "service:mail", "user:1")


@pytest.mark.parametrize("name", [*OPERATORS, "ann", "acme:ann"])
def test_only_an_actor_that_is_the_user_is_renamed(running: RunningService, name: str) -> None:
    key = running.make_key(f"n-{uuid4().hex}", scopes=SCOPES)
    with running.client(key, user=name) as client:
        fact = client.post("/v1/users/ben/facts", json={"text": "Checked.", "actor": name}).json()
        said = {"messages": [{"role": "user", "content": "hi"}]}
        client.post("/v1/sessions/s/messages", json=said).raise_for_status()
        client.post(f"/v1/users/{name}/facts", json={"text": "Of their own."}).raise_for_status()
        path = f"/v1/users/{name}/erasures"
        assert client.post(path, json={}, headers={"Prefer": "wait=15"}).status_code == 200
        history = client.get(f"/v1/users/ben/facts/{fact['fact_id']}/history").json()
    actors = {revision["actor"] for revision in history["revisions"]}
    if name in OPERATORS:
        assert actors == {name}
    else:
        (mark,) = actors
        assert mark.startswith("erased-")


@pytest.mark.parametrize("name", ["cli:root", "key"])
def test_no_user_has_the_name_of_a_command_or_key(running: RunningService, name: str) -> None:
    key = running.make_key(f"n-{uuid4().hex}", scopes=SCOPES)
    of_key = name == "key"
    name = f"key:{key.key_id}" if of_key else name
    actor = {} if of_key else {"actor": name}
    with running.client(key) as client:
        fact = client.post("/v1/users/ben/facts", json={"text": "Checked."} | actor).json()
        said = {"messages": [{"role": "user", "content": "hi"}]}
        as_user = {"Strandline-User": name}
        for refused in (
            client.post("/v1/sessions/s/messages", json=said, headers=as_user),
            client.post(f"/v1/users/{name}/facts", json={"text": "Of their own."}),
            client.post(f"/v1/users/{name}/erasures", json={}, headers={"Prefer": "wait=15"}),
        ):
            assert refused.status_code == 422, refused.text
            assert "must name a user" in refused.text
        history = client.get(f"/v1/users/ben/facts/{fact['fact_id']}/history").json()
    assert {revision["actor"] for revision in history["revisions"]} == {name}
    # Nor does the trail take the key for a user.
    own = "SELECT count(*) FROM strandline.audit_entry WHERE namespace = %s AND actor LIKE 'user:%%'"
    assert rows_of(running.database_url, own, key.namespace) == [(0,)]
    stored = "SELECT count(*) FROM strandline.session_owner WHERE namespace = %s AND user_id <> 'ben'"
    assert rows_of(running.database_url, stored, key.namespace) == [(0,)]
