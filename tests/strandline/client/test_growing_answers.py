"""A later release of the service adds fields and values within /v1; this release's client goes on reading.

Answers are made of the OpenAPI document, and given to each operation of the client.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from strandline.client.operations import Call, Operation, Reply
from strandline.schemas.errors import ServiceError
from strandline.schemas.wire.facts import FactIn
from strandline.schemas.wire.work import LimitsReport
from tests.support.remote.client_operations import description_of, every_operation
from tools.typescript import DOCUMENT

DESCRIBED: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
TEXTS = {
    "uuid": "73f29f21-6e09-4f0a-a382-3babda36d7d2",
    "date-time": "2026-11-25T10:00:00Z",
    "date": "2026-11-25",
}
VALUES = "x-extensible-enum"


def resolved(schema: Any) -> Any:
    while "$ref" in schema:
        schema = DESCRIBED["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def sample(schema: Any, *, fields: bool, values: bool) -> Any:
    """A body of the schema, with further fields at every level, or values that the document does not name."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return sample(schema["anyOf"][0], fields=fields, values=values)
    if VALUES in schema:
        return "of-a-later-release" if values else schema[VALUES][0]
    kind = schema.get("type")
    if kind == "array":
        return [sample(schema["items"], fields=fields, values=values)]
    if kind == "object" and "properties" in schema:
        named = {
            name: sample(one, fields=fields, values=values) for name, one in schema["properties"].items()
        }
        if "next_cursor" in named:
            named["next_cursor"] = None
        return named | ({"of_a_later_release": {"deep": [1]}} if fields else {})
    if kind == "object":
        of = schema.get("additionalProperties")
        return {"k": sample(of, fields=fields, values=values) if isinstance(of, dict) and of else "v"}
    if kind == "string":
        return TEXTS.get(schema.get("format", ""), "x")
    return {"integer": 1, "number": 1.5, "boolean": True}[kind]


def schema_of(call: Call) -> Any:
    """Of what the route answers when it is done; None: of nothing."""
    answers = description_of(call)["responses"]
    good = next(answer for status, answer in answers.items() if status.startswith("2"))
    return good.get("content", {}).get("application/json", {}).get("schema")


def carried_out(operation: Operation[Any], **grown: bool) -> Any:
    reply: Reply | None = None
    while True:
        try:
            call = next(operation) if reply is None else operation.send(reply)
        except StopIteration as done:
            return done.value
        schema = schema_of(call)
        content = b"" if schema is None else json.dumps(sample(schema, **grown)).encode()
        reply = Reply(200, content)


def test_added_fields_are_left_out_at_every_level() -> None:
    compared = 0
    plainly, grown = list(every_operation()), list(every_operation())
    for (name, operation), (_, other) in zip(plainly, grown, strict=True):
        plain = carried_out(operation, fields=False, values=False)
        if name == "RemoteAdmin.receipt":  # as it was signed
            continue
        assert carried_out(other, fields=True, values=False) == plain, name
        compared += 1
    assert compared > 80


def test_values_that_are_not_known_yet_are_given_as_they_are() -> None:
    given = {name: carried_out(operation, fields=False, values=True) for name, operation in every_operation()}
    assert given["RemoteAdmin.whoami"].scopes == ["of-a-later-release"]
    assert given["RemoteMemory.get"].messages[0].role == "of-a-later-release"
    assert given["RemoteMemory.explain"].stages[0].state == "of-a-later-release"


def enums(schema: Any, seen: set[str]) -> list[Any]:
    """The closed sets in a schema and in what it refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in seen:
        return []
    if name:
        seen.add(name)
        schema = resolved(schema)
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    parts += [part for key in ("items", "additionalProperties") if isinstance(part := schema.get(key), dict)]
    closed = [schema] if "enum" in schema or "const" in schema else []
    return closed + [one for part in parts for one in enums(part, seen)]


def test_no_answer_describes_a_closed_set() -> None:
    """A generated client takes no other value of one."""
    found = 0
    for methods in DESCRIBED["paths"].values():
        for operation in methods.values():
            for answer in operation["responses"].values():
                for content in answer.get("content", {}).values():
                    found += 1
                    assert enums(content["schema"], set()) == []
    assert found > 60
    assert enums({"$ref": "#/components/schemas/KeyRequest"}, set())


def test_what_lacks_a_field_or_is_sent_is_still_refused() -> None:
    with pytest.raises(ServiceError, match="namespaces"):
        Reply(200, b'{"others": []}').read(LimitsReport)
    with pytest.raises(ValidationError):
        LimitsReport.model_validate_json('{"namespaces": [], "others": []}')
    with pytest.raises(ValidationError):
        FactIn.model_validate_json('{"text": "x", "others": []}')
