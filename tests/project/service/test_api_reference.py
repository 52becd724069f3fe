"""The reference of the HTTP service: current, and with every route, value and error of the document."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import pytest

from tools.api_reference import DOCUMENT, REFERENCE, reference


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(json.loads(DOCUMENT.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def page() -> str:
    return REFERENCE.read_text(encoding="utf-8")


def test_the_reference_is_that_of_the_document(document: dict[str, Any], page: str) -> None:
    assert page == reference(document), "run `python -m tools.api_reference`"


def test_each_route_has_a_row_with_its_scope_and_a_section(document: dict[str, Any], page: str) -> None:
    rows = dict(re.findall(r"^\| `([A-Z]+ [^`]+)` \| ([^|]*) \|", page, re.MULTILINE))
    sections = set(re.findall(r"^### `([A-Z]+ [^`]+)`$", page, re.MULTILINE))
    scopes = {
        f"{method.upper()} {path}": (operation.get("x-strandline-scope", "none") or "*any*")
        + ("".join(f", *{holder}*" for holder in [operation.get("x-strandline-key")] if holder))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert rows == scopes
    assert sections == set(scopes)


def test_each_value_and_each_kind_of_error_is_there(document: dict[str, Any], page: str) -> None:
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == set(document["components"]["schemas"])
    text = json.dumps(document)
    kinds = set(re.findall(r"urn:strandline:problem:([\w-]+)", text))
    assert kinds == set(re.findall(r"^\| \d{3} \| `([\w-]+)` \|", page, re.MULTILINE))


def test_what_repeating_gives_is_what_the_document_says(document: dict[str, Any]) -> None:
    changed = deepcopy(document)
    put = changed["paths"]["/v1/sessions/{session_id}/messages"]["post"]
    row = "| `POST /v1/sessions/{session_id}/messages` | write | header | %s |"
    assert row % "key" in reference(changed)
    put["x-strandline-repeating"] = "refused"
    assert row % "look" in reference(changed)


def test_the_tables_of_other_memories_name_routes_that_exist(document: dict[str, Any]) -> None:
    routes = {f"{m.upper()} {path}" for path, operations in document["paths"].items() for m in operations}
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", (REFERENCE.parent / "coming-from.md").read_text(), re.M)
    named = {route for row in rows for route in re.findall(r"`([A-Z]+ /v1/[^`]+)`", row)}
    assert len(named) > 20
    assert named <= routes
