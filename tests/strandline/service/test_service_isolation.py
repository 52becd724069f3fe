"""Nobody reaches another: every route, with every id of another namespace and of another user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest

from strandline.schemas.postgres import async_database
from strandline.schemas.postgres import database as sync_database
from strandline.schemas.wire.keys import SCOPES, NewKey
from tests.conftest import wait_until
from tests.support.servers.service_server import RunningService

MARK = "violet-elephant"


@dataclass(frozen=True)
class Whose:
    """Somebody with a session, a fact, a message: what a stranger tries to reach."""

    key: NewKey
    user: str
    session: str
    message: str
    fact: str
    source: str
    erasure: int

    @property
    def words(self) -> tuple[str, ...]:
        """What must appear nowhere else."""
        return (MARK, self.session, self.message, self.fact, self.source)


def settle(running: RunningService, namespace: str, user: str, *, own_key: bool) -> Whose:
    key = running.make_key(namespace, user_id=user if own_key else None, scopes=SCOPES)
    session, message = f"s-{uuid4().hex}", f"m-{uuid4().hex}"
    with running.client(key, user=None if own_key else user) as client:
        body = {"messages": [{"role": "user", "content": f"My word is {MARK}.", "id": message}]}
        assert client.post(f"/v1/sessions/{session}/messages", json=body).status_code == 201
        fact = client.post(f"/v1/users/{user}/facts", json={"text": f"Likes the {MARK}."})
        assert fact.status_code == 201, fact.text
        body = {"messages": [{"role": "user", "content": f"I like every {MARK}."}]}
        source = client.post(f"/v1/users/{user}/facts/from-messages", json=body)
        assert source.status_code == 200, source.text
        client.post(
            f"/v1/sessions/{session}-gone/messages", json={"messages": [{"role": "user", "content": MARK}]}
        )
        erasure = client.post(f"/v1/sessions/{session}-gone/erasures", json={}, headers={"Prefer": "wait=10"})
        assert erasure.status_code == 200, erasure.text
    number = erasure.json()["number"]
    return Whose(key, user, session, message, fact.json()["fact_id"], source.json()["source_id"], number)


@pytest.fixture(scope="module")
def victim(running: RunningService) -> Whose:
    return settle(running, "violet", "vera", own_key=False)


@pytest.fixture(scope="module")
def neighbour(running: RunningService) -> Whose:
    """Another user of the same namespace, with a key of their own."""
    return settle(running, "violet", "nils", own_key=True)


@pytest.fixture(scope="module")
def stranger(running: RunningService) -> Whose:
    """Somebody of another namespace, whose key may name any user."""
    return settle(running, "scarlet", "sam", own_key=False)


def operations(running: RunningService) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in running.app.openapi()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def example(running: RunningService, operation: dict[str, Any]) -> Any:
    """A body that the route takes: the fields that it requires."""
    if "requestBody" not in operation:
        return None
    document = running.app.openapi()
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return _fill(document, schema)


def _fill(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _fill(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return _fill(document, schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type"))
    if schema.get("title") == "MessageIn":
        return {"role": "user", "content": "text", "id": f"m-{uuid4().hex}"}
    if kind == "object":
        return {name: _fill(document, schema["properties"][name]) for name in schema.get("required", ())}
    if kind == "array":
        return [_fill(document, schema["items"])] * schema.get("minItems", 0)
    return {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "null": None}[kind]


# What concerns no id of anybody's: lists of one's own, what is public, and what makes something new.
WITHOUT_IDS = {
    "/v1/sessions", "/v1/events", "/v1/users", "/v1/whoami", "/v1/admin/keys", "/v1/admin/namespaces",
    "/v1/admin/dead-letters", "/v1/admin/audit", "/v1/admin/audit/level", "/v1/admin/audit/verification",
    "/v1/erasures", "/healthz", "/healthz/live", "/healthz/ready",
}  # fmt: skip
# Only for the operator of the whole installation: others are told so, whatever the id.
OF_THE_INSTALLATION = re.compile(
    r"/v1/status|/v1/admin/(workers|replays|operations|generations|pipelines)|/v1/admin/namespaces/\{namespace\}/limits"
)


def fill_path(path: str, whose: Whose) -> str:
    values = {
        "session_id": whose.session,
        "user": whose.user,
        "fact_id": whose.fact,
        "message_id": whose.message,
        "key_id": whose.key.key_id,
        "namespace": str(whose.key.namespace),
        "source": whose.source,
        "event_id": str(uuid4()),
        "entry_id": str(uuid4()),
        "number": str(whose.erasure),
        "seq": "1",
        "run_id": "run",
        "scope": "drafts",
        "operation_id": "1",
        "generation": "1",
        "pipeline": "facts",
    }
    return re.sub(r"\{(\w+)\}", lambda match: quote(values[match[1]], safe=""), path)


def nowhere(answer: httpx2.Response, whose: Whose) -> None:
    seen = answer.text + json.dumps(dict(answer.headers))
    for word in whose.words:
        assert word not in seen, (answer.request.url, word)


def ask(client: httpx2.Client, method: str, path: str, body: Any) -> httpx2.Response:
    return client.request(method, path, json=body)


# Puts begin a session of one's own under any name that is free; so do they in another namespace.
BEGINS = {
    ("POST", "/v1/sessions/{session_id}/messages"),
    ("POST", "/v1/sessions/{session_id}/import"),
    ("PUT", "/v1/sessions/{session_id}/runs/{run_id}"),
    ("GET", "/v1/sessions/{session_id}/scopes/{scope}"),  # only the name is computed
}


# Of a user of that name of one's own: nothing keeps them away, or their erasure still runs.
# The stranger erases its own user of that name, which may be unfinished.
OF_ONES_OWN = {"/v1/users/{user}/readmission": {404, 409}, "/v1/users/{user}/export": {409}}


def test_another_user_of_the_namespace_finds_nothing(
    running: RunningService, victim: Whose, neighbour: Whose
) -> None:
    with running.client(neighbour.key) as client:
        asked = 0
        for method, path, operation in operations(running):
            if path in WITHOUT_IDS or path == "/v1/status":
                continue
            answer = ask(client, method, fill_path(path, victim), example(running, operation))
            if path.startswith("/v1/admin/"):
                assert answer.status_code == 403, (method, path)
            elif path.endswith("/scopes/{scope}"):
                assert answer.status_code == 200
                continue
            else:
                assert answer.status_code == 404, (method, path, answer.text)
            nowhere(answer, victim)
            asked += 1
        assert asked > 50
        for path in sorted(WITHOUT_IDS - {"/v1/events"}):
            nowhere(client.get(path), victim)
    untouched(running, victim)


def queries(running: RunningService, path: str) -> set[str]:
    """The parameters of a route's query."""
    document = running.app.openapi()
    declared = document["paths"][path].get("get", {}).get("parameters", ())
    named = document["components"].get("parameters", {})
    whole = [named[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in declared]
    return {one["name"] for one in whole if one["in"] == "query"}


def test_no_query_names_what_is_anothers(running: RunningService, victim: Whose, stranger: Whose) -> None:
    """Whoever manages one namespace asks for another's by each parameter that could name it."""
    values = {
        "namespace": str(victim.key.namespace),
        "user_id": victim.user,
        "session_id": victim.session,
        "actor": f"key:{victim.key.key_id}",
        "contains": MARK,
        "input": MARK,
    }
    asked = set()
    with running.client(stranger.key, user=stranger.user) as client:
        for path in running.app.openapi()["paths"]:
            for name in queries(running, path) & values.keys():
                answer = client.get(fill_path(path, stranger), params={name: values[name]})
                nowhere_else(answer, victim)
                if name == "namespace":
                    assert answer.status_code in (403, 404), path
                asked.add(name)
    assert asked == values.keys()


def nowhere_else(answer: httpx2.Response, victim: Whose) -> None:
    """Nothing of the victim's; the mark is also in what the stranger has."""
    for word in victim.words[1:]:
        assert word not in answer.text, (answer.request.url, word)


def test_another_namespace_finds_nothing(running: RunningService, victim: Whose, stranger: Whose) -> None:
    with running.client(stranger.key, user=victim.user) as client:
        for method, path, operation in operations(running):
            if path in WITHOUT_IDS or (method, path) in BEGINS:
                continue
            answer = ask(client, method, fill_path(path, victim), example(running, operation))
            if OF_THE_INSTALLATION.match(path) and "limits" not in path:
                assert answer.status_code == 403, (method, path)
            elif (method, path) == ("PUT", "/v1/admin/namespaces/{namespace}/limits"):
                assert answer.status_code == 403
            elif (
                "{user}" in path and "{fact_id}" not in path and "{source}" not in path
            ):  # a user of that name of their own
                assert answer.is_success or answer.status_code in OF_ONES_OWN.get(path, {502}), (method, path)
            else:
                assert answer.status_code == 404, (method, path, answer.text)
            nowhere(answer, victim)
        for path in sorted(WITHOUT_IDS - {"/v1/events"}):
            nowhere(client.get(path), victim)
    untouched(running, victim)


@pytest.fixture
def statements(running: RunningService, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all statements that any connection sends, in their order."""
    erasures = running.service.erasures
    wait_until(lambda: not erasures._running, timeout=20, what="the end of erasures of earlier tests")
    sent: list[str] = []
    for module in (async_database, sync_database):
        monkeypatch.setattr(module, "execute", _noting(module.execute, sent))
    return sent


def test_an_unknown_id_looks_like_anothers_on_every_route(
    running: RunningService, victim: Whose, neighbour: Whose, statements: list[str]
) -> None:
    """The same answer, with the same headers, after the same statements: nothing else takes time."""
    unknown = Whose(
        victim.key, "nobody", "s-none", "m-none", str(uuid4()), "strandline.source.none", 2**31 - 1
    )
    asked: dict[str, list[str]] = {}
    with running.client(neighbour.key) as client:
        for method, path, operation in operations(running):
            if path in WITHOUT_IDS or path.startswith(("/v1/admin", "/v1/status")):
                continue
            if (method, path) in BEGINS:
                continue
            body = example(running, operation)
            seen = []
            for whose in (victim, unknown):
                statements.clear()
                answer = ask(client, method, fill_path(path, whose), body)
                ran = [name for name in statements if name not in OF_THE_PROCESS]
                seen.append((answer.status_code, answer.content, _stable(answer), ran))
            assert seen[0] == seen[1], (method, path)
            assert seen[0][0] == 404, (method, path)
            asked[path] = seen[0][3]
    assert len(asked) > 40
    # An owner's name in the path is refused without a look; anything else is looked for.
    assert all(ran for path, ran in asked.items() if "{user}" not in path)


# What a process asks by itself, whoever's request it is: whether a key still holds.
OF_THE_PROCESS = {"find_service_keys"}


def _noting(execute: Any, sent: list[str]) -> Any:
    def noted(connection: Any, statement: bytes, query: Any) -> Any:
        sent.append(query.name)
        return execute(connection, statement, query)

    return noted


def _stable(answer: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


def untouched(running: RunningService, whose: Whose) -> None:
    """All of them is as it was."""
    with running.client(whose.key, user=whose.user) as client:
        (message,) = client.get(f"/v1/sessions/{whose.session}/messages").json()["items"]
        assert (message["id"], MARK in message["content"]) == (whose.message, True)
        facts = client.get(f"/v1/users/{whose.user}/facts").json()
        assert [fact["fact_id"] for fact in facts["items"]] == [whose.fact]
        assert client.get("/v1/whoami").status_code == 200
        keys = client.get("/v1/admin/keys").json()["items"]
        assert {key["namespace"] for key in keys} == {whose.key.namespace}


def test_a_users_key_does_not_take_another_name(
    running: RunningService, neighbour: Whose, victim: Whose
) -> None:
    with running.client(neighbour.key, user=victim.user) as client:
        assert client.get(f"/v1/sessions/{victim.session}/context").status_code == 404
        assert client.get("/v1/sessions").status_code == 404
    with running.client(neighbour.key, user=neighbour.user) as client:
        assert client.get(f"/v1/sessions/{neighbour.session}/context").status_code == 200


def test_what_is_cached_for_one_is_not_given_to_another(
    running: RunningService, victim: Whose, neighbour: Whose
) -> None:
    with running.client(victim.key, user=victim.user) as client:
        assert client.get(f"/v1/sessions/{victim.session}/context").status_code == 200
    with running.client(neighbour.key, user="-") as client:
        assert client.get(f"/v1/sessions/{victim.session}/context").status_code == 404
    with running.client(victim.key, user="-") as client:  # without a user, the session is nobody's
        assert client.get(f"/v1/sessions/{victim.session}/context").status_code == 404
