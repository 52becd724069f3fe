"""A trail cannot be hidden from ``audit verify`` by what its rows are named, or stand under."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strandline.cli.entry import run
from strandline.pipelines.audit.appending import Act, append_act
from strandline.pipelines.audit.keys import one_key
from strandline.pipelines.audit.verifying import verify_trail
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import audit_chain_key
from tests.conftest import rows_of
from tests.support.sealed_trail import seal_all
from tests.support.servers.databases import temporary_database

Capture = pytest.CaptureFixture[str]
SECRET = "a secret of this test"
KEYS = one_key(SECRET)
SHOP, BOLT = audit_chain_key("shop"), audit_chain_key("bolt")
OTHER = "00000000-0000-4000-8000-000000000001"
TABLES = ("audit_chain", "audit_seal", "audit_sealed")

EVERYTHING = [
    f"UPDATE strandline.{table} SET shard_key = '{OTHER}' WHERE shard_key = '{SHOP}'" for table in TABLES
]
CHANGES = {
    "renamed": [f"UPDATE strandline.audit_chain SET namespace = 'shop2' WHERE shard_key = '{SHOP}'"],
    "renamed to one that exists": [
        f"UPDATE strandline.audit_chain SET namespace = 'bolt' WHERE shard_key = '{SHOP}'"
    ],
    "names swapped": [
        "UPDATE strandline.audit_chain SET namespace = CASE namespace WHEN 'shop' THEN 'bolt' ELSE 'shop' END"
    ],
    "keys swapped": [
        f"UPDATE strandline.audit_chain SET shard_key = '{OTHER}' WHERE shard_key = '{SHOP}'",
        f"UPDATE strandline.audit_chain SET shard_key = '{SHOP}' WHERE shard_key = '{BOLT}'",
        f"UPDATE strandline.audit_chain SET shard_key = '{BOLT}' WHERE shard_key = '{OTHER}'",
    ],
    "chain moved": EVERYTHING[:1],
    "chain deleted": [f"DELETE FROM strandline.audit_chain WHERE shard_key = '{SHOP}'"],
    "chain emptied": [f"UPDATE strandline.audit_chain SET seals = 0, entries = 0 WHERE shard_key = '{SHOP}'"],
    "chain and seals deleted": [
        f"DELETE FROM strandline.{table} WHERE shard_key = '{SHOP}'" for table in TABLES[:2]
    ],
    "everything moved": EVERYTHING,
    "everything moved and renamed": [
        *EVERYTHING, f"UPDATE strandline.audit_chain SET namespace = 'x' WHERE shard_key = '{OTHER}'",
    ],
    "everything moved, chain deleted": [
        *EVERYTHING, f"DELETE FROM strandline.audit_chain WHERE shard_key = '{OTHER}'",
    ],
    "a seal moved to a new key": [
        f"UPDATE strandline.audit_seal SET shard_key = '{OTHER}' WHERE shard_key = '{SHOP}' AND number = 2"
    ],
    "a seal moved to another trail": [
        f"UPDATE strandline.audit_seal SET shard_key = '{BOLT}', number = 9"
        f" WHERE shard_key = '{SHOP}' AND number = 2"
    ],
    "entries moved to a new key": [
        f"UPDATE strandline.audit_sealed SET shard_key = '{OTHER}' WHERE shard_key = '{SHOP}' AND seal = 2"
    ],
    "entries moved to another trail": [
        f"UPDATE strandline.audit_sealed SET shard_key = '{BOLT}', seal = 9"
        f" WHERE shard_key = '{SHOP}' AND seal = 2"
    ],
    "entries added under a new key": [
        f"INSERT INTO strandline.audit_sealed (shard_key, seal, place, entry_id, act, created_at)"
        f" VALUES ('{OTHER}', 1, 1, gen_random_uuid(), 'pop', now())"
    ],
}  # fmt: skip


def append_and_seal(database: Database, *namespaces: str) -> None:
    for namespace in namespaces:
        database.run(append_act(namespace, Act.here("limits", actor="ben")))
    database.run(seal_all(KEYS))


@pytest.fixture(scope="module")
def filled(stack: Any) -> Iterator[str]:
    """The trails of two namespaces, each of two seals."""
    with temporary_database(stack.database_url) as url:
        database = Database.connect(ConnectionOptions.from_settings(url, load_settings(), pool_size=1))
        for _seal in range(2):
            append_and_seal(database, "shop", "bolt")
        database.close()
        yield url


@pytest.fixture
def url(filled: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("STRANDLINE_AUDIT_KEY", SECRET)
    with temporary_database(filled, filled.rpartition("/")[2].partition("?")[0]) as copy:
        monkeypatch.setenv("STRANDLINE_DATABASE_URL", copy)
        yield copy


@pytest.fixture
def anchors(url: str, capfd: Capture, tmp_path: Path) -> Path:
    assert run(["audit", "anchors", "--json"]) == 0
    file = tmp_path / "anchors"
    file.write_text(capfd.readouterr().out, encoding="utf-8")
    return file


def change(url: str, statements: list[str]) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            assert connection.execute(statement.encode()).rowcount > 0


def test_untouched_trails_are_sound(url: str, anchors: Path) -> None:
    for arguments in ([], ["--namespace", "shop"], ["--anchors", str(anchors)]):
        assert run(["audit", "verify", *arguments]) == 0


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_found_by_every_way_of_looking(
    url: str, anchors: Path, capfd: Capture, case: str
) -> None:
    change(url, CHANGES[case])
    # Where nothing says any more that there is such a namespace, the command would refuse its name.
    change(url, ["INSERT INTO strandline.audit_level (namespace, level) VALUES ('shop', 'changes')"])
    for names in ([], ["--namespace", "shop"]):
        for kept in ([], ["--anchors", str(anchors)]):
            assert run(["audit", "verify", "--json", *names, *kept]) == 1, (names, kept)
            trails = json.loads(capfd.readouterr().out)["trails"]
            assert any(trail["findings"] for trail in trails)


@pytest.mark.parametrize("case", CHANGES)
def test_an_anchor_names_the_trail_that_it_is_of(url: str, anchors: Path, capfd: Capture, case: str) -> None:
    """By the key of the chain: what its row says can be changed."""
    change(url, CHANGES[case])
    change(url, ["INSERT INTO strandline.audit_level (namespace, level) VALUES ('shop', 'changes')"])
    run(["audit", "anchors", "--json"])
    before = [json.loads(line) for line in anchors.read_text(encoding="utf-8").splitlines()]
    after = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [anchor for anchor in after if anchor not in before] == []
    if case in ("renamed", "renamed to one that exists", "names swapped"):
        assert after == before
        assert run(["audit", "anchors", "--json", "--namespace", "shop"]) == 0
        assert json.loads(capfd.readouterr().out) in before


def test_only_anchors_know_a_trail_that_is_wholly_gone(url: str, anchors: Path) -> None:
    change(url, [f"DELETE FROM strandline.{table} WHERE shard_key = '{SHOP}'" for table in TABLES])
    assert run(["audit", "verify"]) == 0
    assert run(["audit", "verify", "--anchors", str(anchors)]) == 1


def test_a_tenant_is_shown_its_own_trail_alone(url: str) -> None:
    """What lies under unknown keys is for who has the database."""
    change(url, CHANGES["entries added under a new key"])
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings(), pool_size=1))
    assert database.run(verify_trail("shop", KEYS)).is_sound
    change(url, CHANGES["renamed to one that exists"])
    assert {one.problem for one in database.run(verify_trail("shop", KEYS)).findings} == {"name"}
    assert {one.problem for one in database.run(verify_trail("bolt", KEYS)).findings} == {"name"}
    database.close()


def test_a_renamed_chain_is_extended_under_its_key(url: str) -> None:
    """Else its acts would never be sealed again, or end in the chain of another namespace."""
    change(url, CHANGES["renamed to one that exists"])
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings(), pool_size=1))
    append_and_seal(database, "shop", "bolt")
    seals = "SELECT max(number) FROM strandline.audit_seal GROUP BY shard_key"
    assert rows_of(url, seals) == [(3,), (3,)]
    assert {one.problem for one in database.run(verify_trail("bolt", KEYS)).findings} == {"name"}
    database.close()
