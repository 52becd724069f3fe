"""What an adapter keeps of users for itself: it reads it where it is sealed, and it goes with the user."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from strandline.erasure import Erasures
from strandline.pipelines.sealing.enabling import enable, prepare_owners
from strandline.producers.items.operations import answer_requests, claim_item, items_by_key
from strandline.producers.items.requests import ItemPut, value_json
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import adapter_items_key
from tests.conftest import rows_of
from tests.support.whole_words import says

KEYS = f"first {b64encode(b'1' * 32).decode()}"
STORE = adapter_items_key("default", "agno_1")
VALUES = "SELECT value::text FROM strandline.store_item"


@pytest.fixture(params=["sealed", "clear"])
def database(
    request: pytest.FixtureRequest, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    settings = load_settings()
    content = sealed_content(settings)
    opened = Database.connect(ConnectionOptions.from_settings(database_url, settings), content)
    if request.param == "sealed":
        assert enable(opened, content, "default", "first", "clear")
        assert sum(prepare_owners(opened, content, "default"))
    yield opened
    opened.close()


def item(path: str, key: str, **fields: str) -> ItemPut:
    return ItemPut(path, key, value_json(fields, 8_000))


def keep(database: Database, memory_id: str, user_id: str, fact_id: UUID) -> None:
    """As the adapter keeps an id."""
    known, is_new = database.run(claim_item(STORE, item("ids.", memory_id, user_id=user_id)))
    assert (known, is_new) == ({"user_id": user_id}, True)
    puts = [
        item("ids.", memory_id, user_id=user_id, fact_id=str(fact_id)),
        item("facts.", str(fact_id), id=memory_id),
    ]
    database.run(answer_requests(STORE, puts))


def users(database: Database) -> dict[str, str]:
    return {key: value["user_id"] for key, value in database.run(items_by_key(STORE, "ids.", "", 100))}


def test_an_adapters_items_go_with_their_user(database: Database, database_url: str) -> None:
    for number in range(3):
        keep(database, f"anns-{number}", "ann", uuid4())
    keep(database, "bobs", "bob", bobs := uuid4())
    database.run(claim_item(STORE, item("ids.", "reserved", user_id="ann")))
    is_sealed = rows_of(database_url, "SELECT count(*) FROM strandline.encryption") == [(1,)]
    assert says(str(rows_of(database_url, VALUES)), "ann") is not is_sealed
    assert set(users(database).values()) == {"ann", "bob"}
    erasures = Erasures.of_namespace(database_url=database_url)
    receipt = erasures.erase_user("ann")
    erasures.close()
    assert receipt.counts["store_item"] == 7
    assert users(database) == {"bobs": "bob"}
    left = rows_of(database_url, "SELECT key FROM strandline.store_item ORDER BY key")
    assert left == sorted([(str(bobs),), ("bobs",)])


@pytest.mark.parametrize("database", ["sealed"], indirect=True)
def test_one_that_does_not_open_stays_and_the_receipt_says_so(database: Database, database_url: str) -> None:
    keep(database, "anns", "ann", uuid4())
    keep(database, "broken", "ann", uuid4())
    database.close()
    broken = "value = to_json(overlay(value #>> '{}' placing '////////' from 20))"
    rows_of(database_url, f"UPDATE strandline.store_item SET {broken} WHERE key = 'broken' RETURNING 1")
    erasures = Erasures.of_namespace(database_url=database_url)
    receipt = erasures.erase_user("ann")
    erasures.close()
    assert receipt.counts["store_item"] == 2
    assert receipt.not_covered[-1].startswith("Adapters: 1 item of")
    assert rows_of(database_url, "SELECT key FROM strandline.store_item WHERE path = 'ids.'") == [("broken",)]
