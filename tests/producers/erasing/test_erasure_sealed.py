"""Export and erasure of a user whose namespace is encrypted."""

from __future__ import annotations

import json
from base64 import b64encode

import psycopg
import pytest

from strandline.erasure import Erasures
from strandline.pipelines.sealing.enabling import enable, prepare_owners
from strandline.producers.items.operations import answer_requests, claim_item, items_by_key
from strandline.producers.items.requests import ItemPut
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import adapter_items_key, identify_user
from tests.conftest import Rig, rows_of
from tests.producers.erasing.conftest import LIMITS
from tests.support.opened_rows import clear_only
from tests.support.whole_words import says

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

# Rows of the only owner that is sealed, and its keys.
LEFT = """
SELECT (SELECT count(*) FROM strandline.message WHERE shard_key = %(owner)s)
    + (SELECT count(*) FROM strandline.fact WHERE shard_key = %(owner)s)
    + (SELECT count(*) FROM strandline.fact_event WHERE shard_key = %(owner)s),
    (SELECT count(*) FROM strandline.data_key)
"""
KEYS = f"first {b64encode(b'1' * 32).decode()}"


def test_what_is_sealed_is_exported_in_clear_and_erased_with_its_keys(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    settings = load_settings()
    content = sealed_content(settings)
    database = Database.connect(ConnectionOptions.from_settings(rig.url, settings), content)
    try:
        assert enable(database, content, "default", "first", "clear")
        memory = rig.memory("sealed", user_id="eve", **LIMITS)
        memory.put({"role": "user", "content": "the canary is xylophone"})
        memory.facts.add("Ann has a marzipan boat.", topics=["boats"])
        erasures = Erasures.of_namespace(database_url=rig.url)
        lines = [json.loads(line) for line in erasures.export_user("eve")]
        said = json.dumps(lines)
        assert "xylophone" in said
        assert "Ann has a marzipan boat." in said
        edit = next(line for line in lines if line["kind"] == "fact_edit")
        assert "marzipan" in json.dumps(edit)
        assert rows_of(rig.url, "SELECT count(*) FROM strandline.data_key") == [(1,)]
        left: list[tuple[int, int]] = []
        eve = {"owner": identify_user("default", "eve").shard_key}

        def look() -> list[tuple[int, int]]:
            with psycopg.connect(rig.url) as connection:
                return connection.execute(LEFT, eve).fetchall()

        # Whoever reads while an erasure waits to be finished opens what is left.
        erasures.erase_user("eve", on_progress=lambda *_: left.extend(look()))
        assert [row for row in left if row[0] and not row[1]] == []
        assert left[-1] == (0, 0)
        erasures.close()
    finally:
        database.close()


def test_what_an_adapter_keeps_of_a_user_goes_where_nobody_sees_whose_it_is(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    settings = load_settings()
    content = sealed_content(settings)
    database = Database.connect(ConnectionOptions.from_settings(database_url, settings), content)
    items = adapter_items_key("default", "agno_1")
    try:
        assert enable(database, content, "default", "first", "clear")
        for _made in prepare_owners(database, content, "default"):
            pass
        for user in ("eve", "bob"):
            named = {"user_id": user, "fact_id": f"fact-of-{user}"}
            claim = ItemPut("ids.", f"id-of-{user}", json.dumps(named))
            assert database.run(claim_item(items, claim)) == (named, True)
            assert database.run(claim_item(items, claim)) == (named, False)
            database.run(answer_requests(items, [ItemPut("facts.", f"fact-of-{user}", '{"id": 1}')]))
        stored = str(rows_of(database_url, "SELECT value::text FROM strandline.store_item"))
        assert not says(stored, "eve")
        assert [key for key, _value in database.run(items_by_key(items, "ids.", "", 9))] == [
            "id-of-bob",
            "id-of-eve",
        ]
        erasures = Erasures.of_namespace(database_url=database_url)
        receipt = erasures.erase_user("eve")
        assert receipt.counts["store_item"] == 2
        left = rows_of(database_url, "SELECT key FROM strandline.store_item ORDER BY 1")
        assert left == [("fact-of-bob",), ("id-of-bob",)]
        erasures.close()
    finally:
        database.close()


@pytest.mark.parametrize("lost", ["a character", "the keyring", "the data key"])
def test_content_that_does_not_open_is_erased(rig: Rig, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    settings = load_settings()
    content = sealed_content(settings)
    database = Database.connect(ConnectionOptions.from_settings(rig.url, settings), content)
    assert enable(database, content, "default", "first", "clear")
    database.close()
    memory = rig.memory("sealed", user_id="eve", **LIMITS)
    memory.put({"role": "user", "content": "the canary is xylophone"})
    memory.facts.add("Eve has a boat.", topics=["boats"])
    memory.close()
    eve = identify_user("default", "eve").shard_key
    if lost == "a character":
        changed = "to_json(overlay(envelope #>> '{}' placing '////////' from 20))"
        damaged = f"UPDATE strandline.message SET envelope = {changed} WHERE shard_key = '{eve}' RETURNING 1"
        rows_of(rig.url, damaged)
    elif lost == "the data key":
        rows_of(rig.url, "DELETE FROM strandline.data_key RETURNING 1")
    else:
        monkeypatch.delenv("STRANDLINE_KEYRING_KEYS")
    erasures = Erasures.of_namespace(database_url=rig.url)
    receipt = erasures.erase_user("eve")
    again = erasures.erase_user("eve")
    erasures.close()
    assert again == receipt and receipt.counts["fact_event"] == 1
    assert any(one.startswith("Search and explain: content of 1 session") for one in receipt.not_covered)
    assert {check.remaining for check in receipt.checks} == {0}
    left = f"SELECT count(*) FROM strandline.message WHERE shard_key = '{eve}'"
    assert rows_of(rig.url, left) == [(0,)]
