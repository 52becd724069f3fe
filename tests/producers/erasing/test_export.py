"""Export of everything that is kept about a user or a session."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from strandline.erasure import Erasures
from strandline.producers.exports import export
from strandline.producers.exports.lines import ExportLine
from strandline.producers.exports.pages import ExportTarget, Section, sections
from strandline.schemas.tables import metadata
from strandline.schemas.tables.base import ERASURE, EXPORT, Export
from strandline.schemas.values.identity import identify_session
from tests.conftest import rows_of
from tests.producers.erasing.conftest import retain
from tests.support.opened_rows import clear_only

WORD = "zanzibarq"
PUBLISHED = Path(__file__).parent.parent.parent.parent / "docs" / "export.schema.json"
# Lines that are more than a table's columns; the other kinds are declared with their tables.
BY_HAND = {
    "message": "message",
    "block_state": "state",
    "answer": "answer",
    "flush_event": "flush",
    "session": "session",
}
DECLARED: dict[str, Export] = {
    table.name: table.info[EXPORT] for table in metadata.tables.values() if table.info[EXPORT]
}
BY_OWNER = {name: export.kind for name, export in DECLARED.items() if export.owned_by == ("shard_key",)}
# Named by something else than the owner's key alone: each of them by a test of its own.
BY_NAME = {"session_owner", "capture_act", "service_key"}
# docs/export.md says why.
NOT_EXPORTED = {"audit_entry", "lane", "replay", "shared_message", "shared_session", "store_item"}
# They hold no more than numbers, keys and digests.
WITHOUT_LINES = {
    "archived_input", "data_key", "expired_life", "given_up_step", "kept_response",
    "batch", "chunk", "derived_change", "condensation", "due", "fact_owner", "former_fact", "popped",
    "receipt",
    "scope_generation", "superseded", "watch",
}  # fmt: skip


@pytest.fixture
def lines(erasures: Erasures) -> list[dict[str, Any]]:
    return [json.loads(line) for line in erasures.export_user("ann")]


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == ExportLine.model_json_schema()


def test_each_line_is_as_the_schema_says(lines: list[dict[str, Any]]) -> None:
    validator = jsonschema.Draft202012Validator(ExportLine.model_json_schema())
    for line in lines:
        validator.validate(line)
    assert (lines[0]["kind"], lines[-1]["kind"]) == ("header", "trailer")
    assert lines[-1]["lines"] == Counter(line["kind"] for line in lines[:-1])


def test_every_row_of_a_user_is_a_line(lines: list[dict[str, Any]], database_url: str) -> None:
    """And no other: none of the other user's words, names and keys is in it."""
    owner = lines[0]["owner_key"]
    kinds = Counter(line["kind"] for line in lines)
    for table, kind in (BY_HAND | BY_OWNER).items():
        ((rows,),) = rows_of(
            database_url, f"SELECT count(*) FROM strandline.{table} WHERE shard_key = %s", owner
        )
        assert kinds[kind] == rows, table
    losing = {table.name for table in metadata.tables.values() if table.info[ERASURE].kind != "kept"}
    assert losing == {*BY_HAND, *BY_OWNER, *BY_NAME, *WITHOUT_LINES, *NOT_EXPORTED}
    assert kinds["directory"] == 3
    assert kinds["capture_act"] == 1
    assert "bob" not in json.dumps(lines)


@clear_only("keys of the user are made by SQL")
def test_what_operators_keep_is_exported_and_archives_are_named(
    erasures: Erasures, database_url: str, tmp_path: Path
) -> None:
    retain(database_url, tmp_path)
    whole = [json.loads(line) for line in erasures.export_user("ann")]
    ((subject,),) = rows_of(
        database_url, "SELECT subject::text FROM strandline.audit_subject WHERE user_id = 'ann'"
    )
    assert [one["subject"] for one in whole if one["kind"] == "audit_pseudonym"] == [subject]
    (act,) = [one for one in whole if one["kind"] == "retention_act"]
    assert (act["number"], act["max_messages"], act["actor"]) == (1, 10, "ann")
    (opens,) = [one for one in whole if one["kind"] == "service_key"]
    assert (opens["key_id"], opens["scopes"]) == ("k1", ["read"])
    validator = jsonschema.Draft202012Validator(ExportLine.model_json_schema())
    for line in whole:
        validator.validate(line)
    for lines in (erasures.export_user("ann"), erasures.export_session(f"{WORD}-one")):
        ranges = [line for line in map(json.loads, lines) if line["kind"] == "archived"]
        assert [(one["archive"], one["object_name"]) for one in ranges] == [
            (f"file://{tmp_path}", "object"),
            ("handler:at.sea:keep", None),
        ]


def test_a_message_comes_as_it_was_put(lines: list[dict[str, Any]]) -> None:
    said = [line for line in lines if line["kind"] == "message"]
    first = next(line["message"] for line in said if f"{WORD}two0 is" in str(line["message"]["content"]))
    assert first["role"] == "user"
    assert first["name"] == WORD
    assert first["metadata"] == {"mark": WORD}
    assert first["id"] and first["created_at"]
    # A fact leads to its messages.
    revision = next(one for one in lines if one["kind"] == "fact_revision" and one["seqs"])
    places = {(line["session_key"], line["seq"]) for line in said}
    assert {(revision["session_key"], seq) for seq in revision["seqs"]} & places


def test_pages_join_without_gap_or_repetition(
    erasures: Erasures, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two rows a page the lines are the same, in the same order."""

    def small(target: ExportTarget) -> list[Section]:
        return [replace(one, page=_pages_of_two(one.page), limit=2) for one in sections(target)]

    monkeypatch.setattr(export, "sections", small)
    again = [json.loads(line) for line in erasures.export_user("ann")]
    assert again[1:] == lines[1:]


def _pages_of_two(page: Callable[[Any | None], Any]) -> Callable[[Any | None], Any]:
    def small(last: Any | None) -> Any:
        query = page(last)
        return type(query)(**{**query.params, "limit": 2})

    return small


def test_the_async_twin_gives_the_same(erasures: Erasures, lines: list[dict[str, Any]]) -> None:
    async def all_lines() -> list[dict[str, Any]]:
        given = [json.loads(line) async for line in erasures.aexport_user("ann")]
        await erasures.aclose()
        return given

    assert asyncio.run(all_lines())[1:] == lines[1:]


def test_a_session_is_exported_alone(erasures: Erasures) -> None:
    lines = [json.loads(line) for line in erasures.export_session(f"{WORD}-two")]
    key = str(identify_session("default", f"{WORD}-two", "ann").session_key)
    assert lines[0]["session_id"] == f"{WORD}-two"
    assert {line["session_key"] for line in lines if line["kind"] in ("message", "flush", "session")} == {key}
    assert {line["kind"] for line in lines} >= {
        "message",
        "flush",
        "fact",
        "fact_revision",
        "state",
        "answer",
    }
    assert f"{WORD}one" not in json.dumps([line for line in lines if line["kind"] != "fact"])


def test_nothing_is_exported_of_who_was_erased(erasures: Erasures) -> None:
    erasures.erase_user("ann")
    kinds = [json.loads(line)["kind"] for line in erasures.export_user("ann")]
    assert kinds == ["header", "trailer"]
