"""Keys: what they open, how long, and that nothing but a digest is kept of them."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.administration.keys import (
    KeySpec,
    any_key,
    create_key,
    digest_of,
    list_keys,
    parse_key,
    revoke_key,
    rotate_key,
)
from strandline.schemas.errors import (
    ConfigurationError,
    ConflictError,
    DatabaseUnavailableError,
    NotFoundError,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.application.service import FindServiceKeys, FindServiceKeysRow
from strandline.schemas.wire.keys import SCOPES, KeyInfo, NewKey
from strandline.service.gate import authentication
from strandline.service.gate.authentication import RENEWED_AFTER_SECONDS, TRUSTED_SECONDS, KeyRing
from strandline.service.gate.problems import ProblemError
from tests.conftest import rows_of, wait_until
from tests.support.servers.service_server import NO_AUTHORITIES, RunningService

KNOWN = "0" * 16


def status(running: RunningService, key: NewKey | str | None) -> int:
    with running.client(key) as client:
        return client.get("/v1/whoami").status_code


def test_a_key_says_whose_it_is(running: RunningService) -> None:
    made = running.make_key("acme", user_id="ana", scopes=["facts", "read"], label="chat backend")
    with running.client(made) as client:
        me = client.get("/v1/whoami").json()
    assert me == {
        "key_id": made.key_id,
        "namespace": "acme",
        "user_id": "ana",
        "scopes": ["read", "facts"],
        "shared_scopes": [],
        "label": "chat backend",
        "expires_at": None,
    }


@pytest.mark.parametrize(
    "spoilt",
    [
        None,
        "sl_",
        "sl_0123456789abcdef_" + "0" * 64,
        "x" * 10_000,
        "sl_0123456789abcdef_" + "é" * 32,
    ],
)
def test_what_is_no_key_opens_nothing(running: RunningService, spoilt: str | None) -> None:
    headers = {} if spoilt is None else {b"Authorization": f"Bearer {spoilt}".encode()}
    answer = httpx2.get(f"{running.url}/v1/whoami", headers=headers, verify=NO_AUTHORITIES)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.json()["type"] == "urn:strandline:problem:unauthenticated"


def test_the_secret_counts_and_no_other_scheme_does(running: RunningService, key: NewKey) -> None:
    other = key.key[:-1] + ("0" if key.key[-1] != "0" else "1")
    assert (status(running, key), status(running, other)) == (200, 401)
    for value in (f"Basic {key.key}", key.key, f"Bearer  {key.key} x"):
        answer = httpx2.get(
            f"{running.url}/v1/whoami", headers={"Authorization": value}, verify=NO_AUTHORITIES
        )
        assert answer.status_code == 401


def test_scopes_are_kept_to(running: RunningService) -> None:
    with running.client(running.make_key(scopes=["read"]), user="ana") as client:
        message = {"messages": [{"role": "user", "content": "hi"}]}
        assert client.post("/v1/sessions/scoped/messages", json=message).status_code == 403
        assert client.post("/v1/users/ana/facts", json={"text": "x"}).status_code == 403
        assert client.get("/v1/users/ana/facts").status_code == 200
        assert client.get("/v1/admin/keys").status_code == 403
        assert client.get("/v1/sessions/scoped/context").status_code == 404


def test_a_revoked_key_is_refused_by_a_process_that_trusted_it(running: RunningService) -> None:
    made = running.make_key()
    assert status(running, made) == 200
    running.database.run(revoke_key(made.key_id))
    wait_until(lambda: status(running, made) == 401, timeout=TRUSTED_SECONDS + 1, what="the revocation")
    assert TRUSTED_SECONDS < 5.0
    assert RENEWED_AFTER_SECONDS < TRUSTED_SECONDS


def test_a_key_ends_when_it_is_to_even_if_it_is_remembered(running: RunningService) -> None:
    made = running.make_key(expires_in_seconds=1.0)
    assert status(running, made) == 200
    wait_until(lambda: status(running, made) == 401, timeout=3, what="the end of the key")


def test_both_keys_open_while_a_rotation_overlaps(running: RunningService) -> None:
    old = running.make_key("acme", user_id="ana", scopes=["read"])
    new = running.database.run(rotate_key(old.key_id, overlap_seconds=60))
    assert (new.namespace, new.user_id, new.scopes, new.rotated_from) == ("acme", "ana", ["read"], old.key_id)
    assert (status(running, old), status(running, new)) == (200, 200)
    at_once = running.database.run(rotate_key(new.key_id, overlap_seconds=0))
    assert status(running, at_once) == 200
    with pytest.raises(ConflictError, match="has ended"):
        running.database.run(rotate_key(new.key_id))
    with pytest.raises(NotFoundError):
        running.database.run(rotate_key(old.key_id, namespace="another"))


def test_a_rotation_does_not_lengthen_a_life(running: RunningService) -> None:
    old = running.make_key(expires_in_seconds=30)
    running.database.run(rotate_key(old.key_id, overlap_seconds=3600))
    listed = {key.key_id: key for key in running.database.run(list_keys(None, limit=1000))}
    assert listed[old.key_id].expires_at == old.expires_at


def test_a_rotated_key_lives_as_long_as_the_old_one_was_to(running: RunningService) -> None:
    old = running.make_key(expires_in_seconds=3_600)
    new = running.database.run(rotate_key(old.key_id))
    assert old.expires_at is not None and new.expires_at is not None
    assert new.expires_at - new.created_at == old.expires_at - old.created_at
    longer = running.database.run(rotate_key(new.key_id, expires_in_seconds=7_200))
    assert longer.expires_at is not None
    assert (longer.expires_at - longer.created_at).total_seconds() == 7_200
    endless = running.make_key()
    assert running.database.run(rotate_key(endless.key_id)).expires_at is None
    with running.client(running.make_key(None, scopes=["operate"])) as client:
        path = f"/v1/admin/keys/{longer.key_id}/rotate"
        by_http = KeyInfo.model_validate(client.post(path, json={"expires_in_seconds": 60}).json())
        assert by_http.expires_at is not None
        assert (by_http.expires_at - by_http.created_at).total_seconds() == 60


def test_operators_manage_the_keys_of_their_namespace_alone(running: RunningService) -> None:
    operator = running.make_key("acme", scopes=["operate"])
    foreign = running.make_key("globex", scopes=["read"])
    with running.client(operator) as client:
        made = client.post("/v1/admin/keys", json={"scopes": ["read"], "user_id": "bo", "label": "x"})
        assert (made.status_code, made.json()["namespace"]) == (201, "acme")
        assert status(running, made.json()["key"]) == 200
        elsewhere = client.post("/v1/admin/keys", json={"scopes": ["read"], "namespace": "globex"})
        assert elsewhere.status_code == 403
        ids = [key["key_id"] for key in client.get("/v1/admin/keys").json()["items"]]
        assert made.json()["key_id"] in ids and foreign.key_id not in ids
        rotated = client.post(f"/v1/admin/keys/{made.json()['key_id']}/rotate", json={"overlap_seconds": 0})
        assert rotated.status_code == 201
        assert client.delete(f"/v1/admin/keys/{foreign.key_id}").status_code == 404
        assert client.delete(f"/v1/admin/keys/{rotated.json()['key_id']}").json()["is_over"] is True
    assert status(running, foreign) == 200


def test_an_operator_of_the_installation_opens_no_memory(running: RunningService) -> None:
    root = running.make_key(None, scopes=["operate"])
    with running.client(root, user="ana") as client:
        assert client.get("/v1/status").status_code == 200
        assert client.get("/v1/sessions").status_code == 403
        everywhere = {key["namespace"] for key in client.get("/v1/admin/keys").json()["items"]}
        assert len(everywhere) > 1
        made = client.post("/v1/admin/keys", json={"scopes": ["read"], "namespace": "new-tenant"})
        assert made.json()["namespace"] == "new-tenant"


@pytest.mark.parametrize(
    ("namespace", "scopes", "user"),
    [(None, ["read"], None), (None, ["operate"], "ana"), ("acme", [], None), ("acme", ["everything"], None)],
)
def test_a_key_that_means_nothing_is_not_made(
    namespace: str | None, scopes: list[str], user: str | None
) -> None:
    with pytest.raises(ConfigurationError):
        KeySpec(namespace, scopes, user_id=user)


def test_pages_of_keys_join(running: RunningService) -> None:
    for _ in range(5):
        running.make_key("paged", scopes=["read"])
    with running.client(running.make_key("paged", scopes=["operate"])) as client:
        seen: list[str] = []
        page: dict[str, Any] = {"next_cursor": None}
        while True:
            params = {"limit": 2} | ({"cursor": page["next_cursor"]} if page["next_cursor"] else {})
            page = client.get("/v1/admin/keys", params=params).json()
            seen += [key["key_id"] for key in page["items"]]
            if page["next_cursor"] is None:
                break
    assert len(seen) == len(set(seen)) == 6


def test_the_secret_is_nowhere(running: RunningService, caplog: pytest.LogCaptureFixture) -> None:
    made = running.make_key(scopes=SCOPES)
    secret = made.key.rpartition("_")[2]
    url = running.database_url
    with caplog.at_level(logging.DEBUG), running.client(made) as client:
        listed = client.get("/v1/admin/keys")
        client.get("/v1/whoami")
        client.post("/v1/admin/keys", content=b"{")
    assert secret not in listed.text and secret not in caplog.text
    stored = rows_of(url, "SELECT to_jsonb(k)::text FROM strandline.service_key k")
    assert all(secret not in row[0] for row in stored)
    assert any(digest_of(secret).hex() in row[0] for row in stored)


def test_a_flood_of_unknown_keys_is_looked_up_once_each(running: RunningService) -> None:
    ring: KeyRing = running.service.keys
    looked: list[str] = []
    real = ring._look_up

    async def noted(query: Any) -> Any:
        looked.append(query.values[0])
        return await real(query)

    ring._look_up = noted
    try:
        unknown = "sl_" + "ab" * 8 + "_" + "0" * 64
        began = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: status(running, unknown), range(40)))
    finally:
        ring._look_up = real
    assert set(answers) == {401}
    assert looked.count("ab" * 8) <= 2 + (time.monotonic() - began)  # and not 40: others are renewals


@given(st.text(max_size=120))
def test_any_text_is_a_key_or_none(text: str) -> None:
    parsed = parse_key(text)
    assert (parsed is None) or re.fullmatch("sl_[0-9a-f]{16}_[0-9a-f]{64}", text)


def test_a_database_without_keys_has_none(database: Database) -> None:
    assert database.run(any_key()) is False
    made = database.run(create_key(KeySpec("default", ["read"])))
    assert database.run(any_key()) is True
    database.run(revoke_key(made.key_id))
    assert database.run(any_key()) is False


def make_row(key_id: str) -> FindServiceKeysRow:
    digest = parse_key(make_text(key_id))
    assert digest is not None
    fields: dict[str, Any] = dict.fromkeys(FindServiceKeysRow._fields)
    return FindServiceKeysRow(**fields | {"key_id": key_id, "secret_digest": digest[1], "scopes": ["read"]})


class Table:
    """The keys of an installation: looked up one statement after the other, which may be held up or fail."""

    def __init__(self, *key_ids: str) -> None:
        self.rows = {key_id: make_row(key_id) for key_id in key_ids}
        self.statements: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def look_up(self, query: FindServiceKeys) -> list[FindServiceKeysRow]:
        (key_ids,) = cast(tuple[list[str]], query.values)
        self.statements.append(key_ids)
        await self.gate.wait()
        if self.fails:
            raise DatabaseUnavailableError("Postgres went away")
        return [self.rows[key_id] for key_id in key_ids if key_id in self.rows]


async def test_invented_ids_take_nothing_from_keys_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "MAX_LOOKUPS_WAITING", 3)
    monkeypatch.setattr(authentication, "MAX_REMEMBERED", 3)
    text = make_text(KNOWN)

    table = Table(KNOWN)
    ring = KeyRing(table.look_up)
    assert await ring.find(text) is table.rows[KNOWN]
    for trusted in (4.0, -1.0):  # then as if it were looked up again each time
        monkeypatch.setattr(authentication, "TRUSTED_SECONDS", trusted)
        invented = [asyncio.create_task(ring.find(make_text(f"{n:016x}"))) for n in range(1, 20)]
        await asyncio.sleep(0)
        assert await ring.find(text) is table.rows[KNOWN]
        refusals = await asyncio.gather(*invented, return_exceptions=True)
        kinds = {one.kind.name for one in refusals if isinstance(one, ProblemError)}
        assert kinds == {"busy", "unauthenticated"}
        assert len(ring._unknown) == 3
        assert await ring.find(text) is table.rows[KNOWN]


async def test_a_key_that_is_not_known_yet_waits_for_two_statements_in_a_flood() -> None:
    table = Table(KNOWN)
    ring = KeyRing(table.look_up)
    table.gate.clear()
    flood = [asyncio.create_task(ring.find(make_text(f"{n:016x}"))) for n in range(1, 900)]
    await asyncio.sleep(0)  # they ask
    await asyncio.sleep(0)  # and the first statement is in hand
    valid = [asyncio.create_task(ring.find(make_text(KNOWN))) for _ in range(5)]
    await asyncio.sleep(0)
    table.gate.set()
    assert await asyncio.gather(*valid) == [table.rows[KNOWN]] * 5
    assert ([KNOWN] in table.statements, len(table.statements)) == (True, 2)
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_renewal_that_failed_is_tried_by_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "RENEWED_AFTER_SECONDS", 0.0)

    table = Table(KNOWN)
    ring = KeyRing(table.look_up)
    await ring.find(make_text(KNOWN))
    table.fails = True
    for _ in range(3):  # no request waits for it, or fails with it
        assert await ring.find(make_text(KNOWN)) is table.rows[KNOWN]
        await asyncio.sleep(0.001)
    assert len(table.statements) == 4
    table.fails = False
    await ring.find(make_text(KNOWN))


def make_text(key_id: str) -> str:
    return f"sl_{key_id}_{'0' * 64}"


def test_a_head_that_says_two_things_is_refused(running: RunningService, key: NewKey) -> None:
    authorization = f"Authorization: Bearer {key.key}"
    for status, fields in (
        (400, [authorization]),
        (400, ["Host: x", authorization, authorization]),
        (415, ["Host: x", authorization, "Content-Encoding: gzip"]),
        (200, ["Host: x", authorization]),
    ):
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
            request = "\r\n".join(["GET /v1/whoami HTTP/1.1", *fields, "", ""])
            connection.sendall(request.encode())
            assert connection.recv(12) == f"HTTP/1.1 {status}".encode()
