"""Keys name the key that made them, end with it, and are revoked with it."""

from __future__ import annotations

import threading
from uuid import uuid4

from strandline.administration.keys import KeyMaker, KeySpec, create_key, revoke_key
from strandline.schemas.errors import ConflictError
from strandline.schemas.wire.keys import SCOPES, NewKey
from tests.conftest import lock_is_awaited, rows_of, wait_until
from tests.support.servers.service_server import RunningService


def make(running: RunningService, maker: NewKey, **body: object) -> NewKey:
    with running.client(maker) as client:
        answer = client.post("/v1/admin/keys", json={"scopes": ["operate", "read"]} | body)
    assert answer.status_code == 201, answer.text
    return NewKey(**answer.json())


def rotate(running: RunningService, by: NewKey, key: NewKey, **body: object) -> NewKey:
    with running.client(by) as client:
        answer = client.post(f"/v1/admin/keys/{key.key_id}/rotate", json=body)
    assert answer.status_code == 201, answer.text
    return NewKey(**answer.json())


def test_a_revoked_key_takes_all_with_it_that_it_made(running: RunningService) -> None:
    namespace = f"n-{uuid4().hex}"
    first = running.make_key(namespace, scopes=SCOPES)
    other = running.make_key(namespace, scopes=SCOPES)
    child = make(running, first)
    grandchild = make(running, child)
    rotated = rotate(running, other, grandchild)
    apart = make(running, other)
    makers = ((first, None), (child, first), (grandchild, child), (rotated, other), (apart, other))
    with running.client(other) as client:
        listed = {one["key_id"]: one["made_by"] for one in client.get("/v1/admin/keys").json()["items"]}
        for key, maker in makers:
            assert listed[key.key_id] == (maker and maker.key_id)
        alone = client.delete(f"/v1/admin/keys/{rotated.key_id}").json()
        assert alone["with_made"] == []
        done = client.delete(f"/v1/admin/keys/{first.key_id}", params={"with_made": True}).json()
        assert done["with_made"] == sorted(key.key_id for key in (child, grandchild, rotated))
        acts = client.get("/v1/admin/audit", params={"kind": "key.revoke"}).json()["items"]
        revoked = {act["detail"]["key"] for act in acts}
        assert revoked == {first.key_id, child.key_id, grandchild.key_id, rotated.key_id}
        open_keys = [one for one in client.get("/v1/admin/keys").json()["items"] if not one["is_over"]]
        assert {one["key_id"] for one in open_keys} == {other.key_id, apart.key_id}


def test_a_rotated_key_still_answers_for_what_it_made(running: RunningService) -> None:
    namespace = f"n-{uuid4().hex}"
    first, other = (running.make_key(namespace, scopes=SCOPES) for _ in range(2))
    lasting = running.make_key(namespace, scopes=SCOPES)
    child = make(running, first)
    again = rotate(running, first, rotate(running, other, first))
    spared = make(running, lasting)
    rotate(running, again, lasting)  # made by it, and of another line
    running.database.run(revoke_key(again.key_id, with_made=True))
    with running.client(other) as client:
        is_over = {one["key_id"]: one["is_over"] for one in client.get("/v1/admin/keys").json()["items"]}
    assert all(is_over[key.key_id] for key in (first, child, again))
    assert not is_over[spared.key_id] and not is_over[lasting.key_id]


def test_a_key_does_not_outlive_the_key_that_made_it(running: RunningService) -> None:
    short = running.make_key(f"n-{uuid4().hex}", scopes=SCOPES, expires_in_seconds=3_600)
    lasting = running.make_key(short.namespace, scopes=SCOPES)
    child = make(running, short)
    assert make(running, short, expires_in_seconds=86_400).expires_at == child.expires_at == short.expires_at
    sooner = make(running, child, expires_in_seconds=60)
    assert sooner.expires_at is not None and short.expires_at is not None
    assert sooner.expires_at < short.expires_at
    assert rotate(running, short, lasting).expires_at == short.expires_at
    assert rotate(running, short, short, expires_in_seconds=86_400).expires_at == short.expires_at
    assert make(running, lasting).expires_at is not None, "it was rotated, so it has an end itself"


def test_a_key_that_is_revoked_meanwhile_makes_none_behind_its_back(running: RunningService) -> None:
    """Its request was admitted by a process that knows it for some seconds more."""
    maker = running.make_key(f"n-{uuid4().hex}", scopes=SCOPES)
    spec = KeySpec(maker.namespace, ["read"])
    failures: list[Exception] = []

    def make_late() -> None:
        try:
            running.database.run(create_key(spec, KeyMaker(maker.key_id)))
        except ConflictError as error:
            failures.append(error)

    with running.database.transaction() as tx:
        tx.run(revoke_key(maker.key_id, with_made=True))
        late = threading.Thread(target=make_late)
        late.start()
        wait_until(lambda: lock_is_awaited(running.database_url), timeout=30, what="the maker's lock")
    late.join(30)
    assert [str(error) for error in failures] == ["The key of this request has ended."]
    counted = "SELECT count(*) FROM strandline.service_key WHERE made_by = %s"
    assert rows_of(running.database_url, counted, maker.key_id) == [(0,)]
