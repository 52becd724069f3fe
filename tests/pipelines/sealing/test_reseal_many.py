"""Resealing many owners: one that does not open holds up no other, and a worker goes on where it was."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import pytest

from strandline.pipelines.sealing.enabling import enable, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, Progress, reseal_namespace
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from strandline.workers.upkeep.resealing import Resealing
from tests.conftest import MakeMemory, rows_of

AGED = "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1"
BROKEN = """UPDATE strandline.message SET envelope = '"sealed:1:9:AAAA"' WHERE shard_key = (
    SELECT shard_key FROM strandline.message ORDER BY shard_key LIMIT 1) RETURNING 1"""
IN_CLEAR = (
    "SELECT shard_key FROM strandline.message WHERE position('in clear' IN envelope::text) > 0 ORDER BY 1"
)
UNSETTLED = "SELECT count(*) FROM strandline.data_key WHERE settled_at IS NULL"
OWNERS = 5


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> SealedContent:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", f"main {b64encode(b'k' * 32).decode()}")
    return sealed_content(load_settings())


@pytest.fixture
def opened(database_url: str, content: SealedContent, make_memory: MakeMemory) -> Iterator[Database]:
    """Five owners in clear, whose namespace is encrypted by now, and whose keys every process knows."""
    for number in range(OWNERS):
        make_memory(f"s{number}", user_id=f"u{number}").put({"role": "user", "content": "hello in clear"})
    database = Database.connect(ConnectionOptions.from_settings(database_url, load_settings()), content)
    assert enable(database, content, "default", "main", "clear")
    for _made in prepare_owners(database, content, "default"):
        pass
    rows_of(database_url, AGED)
    yield database
    database.close()


def reseal(database: Database, content: SealedContent) -> Progress:
    *_, last = reseal_namespace(database, content, "default", cache_seconds=300, pace=Pace())
    return last


def test_an_owner_that_does_not_open_holds_up_no_other(
    opened: Database, content: SealedContent, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows_of(database_url, BROKEN)
    progress = reseal(opened, content)
    assert (progress.owners, progress.failed, progress.waiting) == (OWNERS, 1, OWNERS - 1)
    assert rows_of(database_url, IN_CLEAR) == []
    assert reseal(opened, content).settled == OWNERS - 1
    assert rows_of(database_url, UNSETTLED) == [(1,)]
    ((broken,),) = rows_of(database_url, "SELECT shard_key FROM strandline.data_key WHERE settled_at IS NULL")
    assert {record.__dict__["owner_key"] for record in caplog.records if "owner_key" in record.__dict__} == {
        str(broken)
    }


def test_a_pass_that_was_stopped_goes_on_after_its_last_owner(
    opened: Database, content: SealedContent, database_url: str
) -> None:
    owners = [row[0] for row in rows_of(database_url, IN_CLEAR)]
    assert len(owners) == OWNERS
    stops: list[bool] = []
    passes = reseal_namespace(
        opened, content, "default", cache_seconds=300, pace=Pace(None, lambda: bool(stops))
    )
    for first in passes:
        stops += [True] * first.owners
    assert first.position == owners[0]
    *_, second = reseal_namespace(
        opened, content, "default", cache_seconds=300, pace=Pace(), after_owner=first.position
    )
    assert first.owners == 1
    assert (second.owners, second.position) == (OWNERS - 1, None)
    assert rows_of(database_url, IN_CLEAR) == []


def test_a_worker_comes_round_to_every_owner(opened: Database, database_url: str) -> None:
    """It begins anywhere, so the first round may leave some; the next one begins with the first owner."""
    worker = Resealing(opened, cache_seconds=300, is_stopping=lambda: False)
    for _turn in range(2):
        worker.tick()
    assert rows_of(database_url, IN_CLEAR) == []
    for _turn in range(2):
        worker.tick()
    assert rows_of(database_url, UNSETTLED) == [(0,)]
