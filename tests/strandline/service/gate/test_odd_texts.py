"""Texts that JSON and URLs can hold and Postgres cannot: in each parameter and field of text, no defect."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from strandline.schemas.wire.keys import SCOPES
from tests.support.servers.service_server import RunningService

# NUL, which no text of Postgres holds, and half of a surrogate pair, which UTF-8 cannot write.
ODD = ("a\0b", "a\ud800b")
IN_PATHS = {
    "event_id": "00000000-0000-4000-8000-000000000001", "fact_id": "00000000-0000-4000-8000-000000000001",
    "entry_id": "00000000-0000-4000-8000-000000000001", "seq": "1", "number": "1", "generation": "1",
    "operation_id": "1",
}  # fmt: skip
STREAMS = ("/v1/events", "/v1/sessions/{session_id}/events")


def requests(document: dict[str, Any], text: str) -> Iterator[tuple[str, str, Any]]:
    """Each request with the text in one of its places, by method, path with query, and body."""
    encoded = quote(text.encode(errors="surrogatepass"))
    for path, methods in document["paths"].items():
        if path in STREAMS:
            continue
        for method, operation in methods.items():
            place = path
            for name, value in IN_PATHS.items():
                place = place.replace(f"{{{name}}}", value)
            whole = place.replace("{", "").replace("}", "")
            body = _body(document, operation)
            if "{" in place:
                yield (
                    method,
                    "/".join(encoded if part[:1] == "{" else part for part in place.split("/")),
                    body,
                )
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "query" and "integer" not in str(parameter["schema"]):
                    yield method, f"{whole}?{parameter['name']}={encoded}", body
            if isinstance(body, dict):
                for field, schema in _schema(document, operation)["properties"].items():
                    if "string" in str(schema) or "$ref" in str(schema):
                        yield method, whole, {**body, field: _with(document, schema, text)}


def _schema(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    content = operation["requestBody"]["content"]["application/json"]["schema"]
    return _resolved(document, content)


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _body(document: dict[str, Any], operation: dict[str, Any]) -> Any:
    """The required fields of a body."""
    if "requestBody" not in operation:
        return None
    schema = _schema(document, operation)
    return {name: _with(document, schema["properties"][name], "text") for name in schema.get("required", ())}


def _with(document: dict[str, Any], schema: dict[str, Any], text: str) -> Any:
    """A value of the schema with the text wherever there may be any."""
    schema = _resolved(document, schema)
    if "anyOf" in schema:
        return _with(document, schema["anyOf"][0], text)
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type"))
    if kind == "object":
        fields = schema.get("properties", {})
        if not fields:
            return {"key": text, text: "value"}
        needed = {name for name in fields if name in schema.get("required", ()) or name == "content"}
        return {name: _with(document, fields[name], text) for name in needed}
    if kind == "array":
        return [_with(document, schema["items"], text)]
    return {"string": text, "integer": 1, "number": 1.0, "boolean": True}.get(kind)


def _with_metadata(value: str) -> str:
    return f'{{"messages":[{{"role":"user","content":"x","metadata":{{"a":{value}}}}}]}}'


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63) - 1, 2**64, 10**30 + 1, int("9" * 4_300)])
def test_a_large_whole_number_keeps_its_value(running: RunningService, number: int) -> None:
    with running.client(running.make_key("odd", scopes=["write", "read"]), user="ana") as client:
        body = _with_metadata(str(number)).encode()
        path = f"/v1/sessions/n{number % 997}/messages"
        client.post(path, content=body, headers={"Content-Type": "application/json"}).raise_for_status()
        assert client.get(path).json()["items"][-1]["metadata"] == {"a": number}


@pytest.mark.parametrize("text", ODD, ids=["nul", "half a pair"])
def test_none_is_a_defect(running: RunningService, caplog: pytest.LogCaptureFixture, text: str) -> None:
    keys = running.make_key("odd", scopes=SCOPES), running.make_key(None, scopes=["operate"])
    asked = 0
    wrong = []
    with (
        running.client(keys[0], user="ana") as tenant,
        running.client(keys[1]) as operator,
        caplog.at_level(logging.ERROR, "strandline.service"),
    ):
        tenant.post("/v1/sessions/session_id/messages", json={"messages": [{"role": "user", "content": "x"}]})
        for method, path, body in requests(running.app.openapi(), text):
            content = None if body is None else json.dumps(body).encode()
            headers = {} if body is None else {"Content-Type": "application/json"}
            for client in (tenant, operator) if "/admin/" in path or "/status" in path else (tenant,):
                answer = client.request(method.upper(), path, content=content, headers=headers)
                asked += 1
                if answer.status_code >= 500 and answer.status_code not in (502, 503):
                    wrong.append((method, path, body, answer.status_code))
    assert wrong == []
    assert caplog.records == []
    assert asked > 200


@pytest.mark.parametrize("moment", ["0145-11-13T23:02:21+20:29", "0001-01-01T00:00:00+14:00"])
def test_times_that_postgres_refuses_are_refused_before(running: RunningService, moment: str) -> None:
    with running.client(running.make_key("odd", scopes=SCOPES), user="ana") as client:
        assert client.get("/v1/admin/audit", params={"since": moment}).status_code == 422
        said = {"role": "user", "content": "x", "created_at": moment}
        assert client.post("/v1/sessions/times/messages", json={"messages": [said]}).status_code == 422
        near = client.get("/v1/admin/audit", params={"since": "2026-11-13T23:02:21+14:00"})
        assert near.status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("messages", r'{"messages":[{"role":"user","content":"cut \ud83d"}]}', "/body/messages/0/content"),
        (
            "messages",
            r'{"messages":[{"role":"user","content":"x","metadata":{"k":"\udc00"}}]}',
            "/body/messages/0/metadata",
        ),
        (
            "messages",
            r'{"messages":[{"role":"user","content":"x","name":"\ud800"}]}',
            "/body/messages/0/name",
        ),
        ("context", r'{"input":"\ud83d cut"}', "/body/input"),
        ("search", r'{"query":"\ude00\ud83d"}', "/body/query"),
        ("messages", r'{"messages":[],"\ud83d":1}', "/body"),
        (
            "messages",
            r'{"messages":[{"role":"user","content":"x"},{"role":"user","content":"cut \ud83d"}]}',
            "/body/messages/1/content",
        ),
        (
            "messages",
            r'{"messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}]}',
            "/body/messages/0/content/0/text",
        ),
        ("messages", _with_metadata("9" * 5_000), "/body/messages/0/metadata"),
        ("messages", _with_metadata("[-" + "1" * 4_301 + "]"), "/body/messages/0/metadata"),
        ("messages", _with_metadata("[" * 150 + "1" + "]" * 150), "/body/messages/0/metadata"),
        ("messages", _with_metadata("[" * 500 + "1" + "]" * 500), "/body/messages/0/metadata"),
        ("messages", _with_metadata('{"a":' * 300 + "1" + "}" * 300), "/body/messages/0/metadata"),
    ],
)
def test_what_json_can_write_and_a_message_not_hold_is_refused_by_its_field(
    running: RunningService, path: str, body: str, pointer: str
) -> None:
    with running.client(running.make_key("odd", scopes=["write", "read"]), user="ana") as client:
        headers = {"Content-Type": "application/json"}
        refused = client.post(f"/v1/sessions/s/{path}", content=body.encode(), headers=headers)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)
        assert re.search("lone surrogate|digits|levels", refused.json()["errors"][0]["detail"])
        broken = client.post(f"/v1/sessions/s/{path}", content=body[:-1].encode(), headers=headers)
        assert broken.status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("search", {"query": ODD[0]}, "/body/query"),
        ("context", {"input": ODD[0]}, "/body/input"),
        ("context", {"input": {"role": "user", "content": ODD[0]}}, "/body/input/content"),
        ("context", {"messages": [{"role": "user", "content": ODD[0]}]}, "/body/messages/0/content"),
        ("messages", {"messages": [{"role": "user", "content": ODD[0]}]}, "/body/messages/0/content"),
    ],
)
def test_nul_is_refused_by_its_field_in_all_that_is_searched(
    running: RunningService, path: str, body: Any, pointer: str
) -> None:
    with running.client(running.make_key("odd", scopes=["write", "read"]), user="ana") as client:
        client.post("/v1/sessions/t/messages", json={"messages": [{"role": "user", "content": "x"}]})
        refused = client.post(f"/v1/sessions/t/{path}", json=body)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)
        assert "NUL" in refused.json()["errors"][0]["detail"]
