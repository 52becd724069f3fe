"""What a worker writes need not wait for the disk, but for an answer that was paid for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from strandline.schemas.connections import ConnectionOptions
from strandline.schemas.settings import Settings
from strandline.schemas.statements import statements

SETTING = "SELECT current_setting('synchronous_commit')"


@pytest.fixture
def connection(database_url: str, settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    options = ConnectionOptions.from_settings(database_url, settings, durable=False)
    with psycopg.connect(options.url, **options.connect_arguments()) as opened:
        yield opened


def setting(connection: psycopg.Connection[Any]) -> str:
    return str(connection.execute(SETTING).fetchall()[0][0])


def test_a_workers_commits_do_not_wait_for_the_disk(connection: psycopg.Connection[Any]) -> None:
    assert setting(connection) == "off"


def test_a_stored_answer_does(connection: psycopg.Connection[Any]) -> None:
    keys = dict.fromkeys(("shard_key", "scope_key", "worker_id", "batch_id"), uuid4())
    answer = {"step": "s", "model": "m", "prompt_hash": "h", "body": b"", "seconds": 0.1, "cost_usd": None}
    lane = {"generation_id": 1, "stage": "summary", "lease_epoch": 1, "input_tokens": 1, "output_tokens": 1}
    with connection.transaction():
        connection.execute(
            "INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, lease_epoch,"
            " event_ids) VALUES (%(shard_key)s, %(batch_id)s, %(scope_key)s, 1, 'summary', 1,"
            " ARRAY[%(batch_id)s::uuid])",
            keys,
        )
        connection.execute(
            "INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage, lease_epoch, holder)"
            " VALUES (%(shard_key)s, %(scope_key)s, 1, 'summary', 1, %(worker_id)s)",
            keys,
        )
        connection.execute(statements("strandline")["store_answer"].encode(), keys | answer | lane)
        assert setting(connection) == "on", "until the end of its transaction"
    assert setting(connection) == "off"


def test_producers_wait_for_the_disk(database_url: str, settings: Settings) -> None:
    options = ConnectionOptions.from_settings(database_url, settings)
    with psycopg.connect(options.url, **options.connect_arguments()) as connection:
        assert setting(connection) == "on"
