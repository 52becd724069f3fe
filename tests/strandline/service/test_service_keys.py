"""What a key means: the audit trail names it whoever else is named; what is forgotten is not given again."""

from __future__ import annotations

from time import monotonic
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from strandline import Memory
from strandline.schemas.values.identity import identify_session
from strandline.schemas.wire.keys import SCOPES, NewKey
from strandline.schemas.wire.messages import MessageOut
from strandline.service import records
from strandline.service.idempotency import DONE_BEFORE
from strandline.service.routes import ROUTES
from tests.conftest import rows_of
from tests.support.servers.service_server import RunningService

Recorded = tuple[str | None, str | None, Any]


@pytest.fixture
def user() -> str:
    return f"u-{uuid4().hex}"


def put(client: httpx2.Client, session: str, text: str, **body: Any) -> httpx2.Response:
    messages = [{"role": "user", "content": text}]
    return client.post(f"/v1/sessions/{session}/messages", json={"messages": messages, **body})


def acts(running: RunningService, key: NewKey, kind: str) -> list[Recorded]:
    """Actor, origin and detail of the acts of a kind in the namespace of a key."""
    return rows_of(
        running.database_url,
        "SELECT actor, origin, detail FROM strandline.audit_entry WHERE namespace = %s AND act = %s"
        " ORDER BY created_at",
        key.namespace,
        kind,
    )


def test_the_trail_has_the_key_and_whom_it_acts_for(running: RunningService, user: str) -> None:
    key = running.make_key(f"n-{user}", scopes=SCOPES)
    me = f"key:{key.key_id}"
    with running.client(key, user=user) as client:
        put(client, "s", "one"), put(client, "s", "two")
        fact = client.post(f"/v1/users/{user}/facts", json={"text": "Likes tea.", "actor": "ben"})
        assert fact.status_code == 201
        client.post(f"/v1/users/{user}/facts", json={"text": "Likes jam."})
        client.post(f"/v1/users/{user}/facts", json={"text": "Likes figs.", "actor": user})
        client.patch("/v1/sessions/s/policy", json={"token_limit": 9_000, "actor": "ben"})
        client.post("/v1/sessions/s/rewind", json={"from_seq": 2, "actor": "ben"})
        erased = client.post(
            f"/v1/users/{user}/erasures", json={"actor": "desk"}, headers={"Prefer": "wait=10"}
        )
    ben = {"on_behalf_of": "ben"}
    added = acts(running, key, "facts.add")
    assert [(actor, detail) for actor, _, detail in added[:2]] == [(me, ben), (me, None)]
    # The user's own name is not in the trail.
    assert added[2][2]["on_behalf_of"].startswith("user:") and user not in str(added)
    for kind in ("policy", "rewind"):
        ((actor, _, detail),) = acts(running, key, kind)
        assert (actor, detail["on_behalf_of"]) == (me, "ben")
    assert (erased.status_code, erased.json()["actor"]) == (200, "desk")
    assert acts(running, key, "erasure") == [(me, None, {"on_behalf_of": "desk", "origin": "127.0.0.1"})]


def test_the_origin_of_a_users_own_key_goes_with_the_user(running: RunningService, user: str) -> None:
    key = running.make_key(f"n-{user}", user_id=user, scopes=("write", "erase"))
    with running.client(key) as client:
        put(client, "s", "one")
        answer = client.post(f"/v1/users/{user}/erasures", json={}, headers={"Prefer": "wait=10"})
    assert answer.status_code == 200
    assert acts(running, key, "erasure") == [(f"key:{key.key_id}", None, None)]


@pytest.mark.parametrize("actor", ["key:0123456789abcdef", " KEY:x", "key:"])
def test_no_actor_passes_for_a_key(running: RunningService, key: NewKey, user: str, actor: str) -> None:
    with running.client(key, user=user) as client:
        put(client, user, "one")
        for answer in (
            client.post(f"/v1/users/{user}/facts", json={"text": "Likes tea.", "actor": actor}),
            client.post(f"/v1/sessions/{user}/rewind", json={"from_seq": 1, "actor": actor}),
            client.post(f"/v1/users/{user}/erasures", json={"actor": actor}),
        ):
            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/body/actor")
            assert actor not in answer.text or actor == "key:"
        assert client.get(f"/v1/sessions/{user}/messages").status_code == 200


@pytest.mark.parametrize("forgetting", ["delete", "reset", "rewind"])
def test_a_popped_message_is_not_given_again_once_it_is_forgotten(
    running: RunningService, client: httpx2.Client, user: str, forgetting: str
) -> None:
    put(client, user, "kept"), put(client, user, "My code is 4711.")
    other = f"{user}-other"
    put(client, other, "of another session")
    once = {"Idempotency-Key": user}

    def pop(session: str) -> httpx2.Response:
        return client.delete(f"/v1/sessions/{session}/messages/last", headers=once)

    first = pop(user)
    assert first.json()["message"]["content"] == "My code is 4711."
    assert pop(other).json()["message"]["content"] == "of another session"
    assert (pop(user).json(), pop(user).headers["idempotency-replayed"]) == (first.json(), "true")
    forgotten = {
        "delete": lambda: client.delete(f"/v1/sessions/{user}"),
        "reset": lambda: client.post(f"/v1/sessions/{user}/reset", json={"derived": True}),
        "rewind": lambda: client.post(f"/v1/sessions/{user}/rewind", json={"from_seq": 1}),
    }[forgetting]()
    assert forgotten.status_code == 200
    again = pop(user)
    assert (again.status_code, again.json()["type"]) == (409, "urn:strandline:problem:conflict")
    assert again.json()["detail"] == DONE_BEFORE, "not that nothing was changed: the message was popped"
    path = f"/v1/sessions/{user}/messages/last"
    reused = client.request("DELETE", path, headers=once, content=b"{}")
    assert reused.json()["type"] == "urn:strandline:problem:idempotency-key-reused"
    assert pop(other).json()["message"]["content"] == "of another session"
    bodies = rows_of(running.database_url, "SELECT body::text FROM strandline.kept_response")
    # Its words, since four digits may stand in a time.
    assert not [body for (body,) in bodies if body is not None and "My code" in body]


def test_only_a_pop_keeps_a_response_with_messages() -> None:
    """Another one that does is to say whose they are (``once(content_of=…)``)."""
    kept = [one for one in ROUTES if one.access is not None and one.access.is_kept]
    keeping = [(one.path_format, one.answer) for one in kept if one.answer is not None]
    assert len(keeping) == 5
    holding = [path for path, answer in keeping if MessageOut.__name__ in str(answer.model_json_schema())]
    assert holding == ["/v1/sessions/{session_id}/messages/last"]


def test_a_users_key_joins_the_shared_scopes_alone_that_it_names(running: RunningService, user: str) -> None:
    space = f"n-{user}"
    backend = running.make_key(space)
    bound = running.make_key(space, user_id="bob", shared_scopes=["open"])
    query = {"query": "vault code", "scope": "shared"}
    with running.client(backend, user=user) as ana, running.client(bound) as bob:
        assert put(ana, "a", "The vault code is 90210.", policy={"shared_scope": "secret"}).status_code == 201
        refused = put(bob, "b", "hi", policy={"shared_scope": "secret"})
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:strandline:problem:forbidden")
        assert bob.get("/v1/sessions/b").status_code == 404, "nothing was begun"
        assert put(bob, "c", "hi", policy={"shared_scope": "open"}).status_code == 201
        assert bob.post("/v1/sessions/c/search", json=query).json()["items"] == []
        assert bob.get("/v1/whoami").json()["shared_scopes"] == ["open"]
        # Who holds a key of all users decides for them.
        with running.client(backend, user="bob") as for_bob:
            assert put(for_bob, "d", "hi", policy={"shared_scope": "secret"}).status_code == 201
        assert bob.post("/v1/sessions/d/search", json=query).status_code == 200


def test_a_rotated_key_names_the_same_shared_scopes(running: RunningService, user: str) -> None:
    operator = running.make_key(f"n-{user}", scopes=("operate",))
    with running.client(operator) as client:
        wish = {"scopes": ["read"], "user_id": "bob", "shared_scopes": ["open", "open", "team"]}
        made = client.post("/v1/admin/keys", json=wish).json()
        again = client.post(f"/v1/admin/keys/{made['key_id']}/rotate", json={}).json()
        assert made["shared_scopes"] == again["shared_scopes"] == ["open", "team"]
        refused = client.post("/v1/admin/keys", json={"scopes": ["read"], "shared_scopes": ["open"]})
        assert refused.status_code == 422


def test_a_kept_response_is_kept_for_a_day(running: RunningService, client: httpx2.Client, user: str) -> None:
    put(client, user, "first"), put(client, user, "second")
    once = {"Idempotency-Key": user}

    def pop() -> tuple[str, str | None]:
        answer = client.delete(f"/v1/sessions/{user}/messages/last", headers=once)
        return answer.json()["message"]["content"], answer.headers.get("idempotency-replayed")

    def pass_by(hours: int) -> None:
        rows_of(
            running.database_url,
            "UPDATE strandline.kept_response SET created_at = created_at - make_interval(hours => %s)"
            " WHERE session_key = %s RETURNING 1",
            hours,
            identify_session("default", user, "ana").session_key,
        )

    assert pop() == ("second", None)
    pass_by(23)
    assert pop() == ("second", "true")
    pass_by(2)
    assert pop() == ("first", None)


def test_a_policy_that_another_process_changed_is_seen(
    running: RunningService, client: httpx2.Client, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, user, "hello")
    path = f"/v1/sessions/{user}/context"
    assert client.get(path).json()["token_limit"] == 30_000
    elsewhere = Memory.from_defaults(user, user_id="ana", database_url=running.database_url)
    elsewhere.set_policy(token_limit=20_000)
    elsewhere.close()
    monkeypatch.setattr(records, "monotonic", lambda: monotonic() + records.TRUSTED_SECONDS)
    assert client.get(path).json()["token_limit"] == 20_000
