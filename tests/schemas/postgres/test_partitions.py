"""Partitions of the big tables: made on demand, like whole tables in all else, and an owner's work in one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from strandline import ConfigurationError, Memory, SchemaError
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import divided_tables, migrate
from strandline.schemas.postgres.migrations import HEAD_REVISION
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.statements import compile_statements
from strandline.schemas.settings import load_settings
from tests.conftest import rows_of, wait_until
from tests.schemas.postgres.test_plans import KEPT, KEYS, PLANNED_INSIDE, fill, make_ready, parameters
from tests.support.servers.databases import make_tables, temporary_database
from tests.support.workers.draining import drain_everything
from tools.queries.headers import read_all

PARTITIONS = 4
DIVIDED = ("answer", "chunk", "message", "receipt")

# Of a table: columns with their defaults, storage and statistics, options, constraints, indexes and their
# statistics.
SHAPE = """
SELECT 'column', a.attname::text, concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.attstorage, a.attcompression, a.attgenerated, coalesce(a.attstattarget, -1),
    pg_get_expr(d.adbin, d.adrelid))
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %(table)s::regclass AND a.attnum > 0
UNION ALL
SELECT 'options', '', c.reloptions::text FROM pg_class c WHERE c.oid = %(table)s::regclass
UNION ALL
SELECT 'constraint', '', pg_get_constraintdef(k.oid) FROM pg_constraint k
WHERE k.conrelid = %(table)s::regclass
UNION ALL
SELECT 'index', '', concat_ws(' ', pg_get_indexdef(i.indexrelid), x.reloptions,
    (SELECT array_agg(coalesce(a.attstattarget, -1) ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = x.oid))
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = %(table)s::regclass
"""
# How often this connection has begun to scan each partition.
SCANS = """
SELECT relname::text, coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_xact_user_tables
WHERE schemaname = 'strandline' AND relname ~ '_p[0-9]+$'
"""
# Who listens to a namespace hears of all its owners.
HOT = sorted({*KEPT, *PLANNED_INSIDE, "plan_window", "batch_events", "stored_answer"} - {"happenings"})


@pytest.fixture(scope="module")
def divided_url(stack: EmbeddedStack) -> Iterator[str]:
    """A database with divided tables and the standard pipelines."""
    with temporary_database(stack.database_url, "template0") as url:
        make_tables(url, PARTITIONS)
        yield url


@pytest.fixture(scope="module")
def whole_url(stack: EmbeddedStack) -> Iterator[str]:
    """A database with whole tables, whatever the run's template has."""
    with temporary_database(stack.database_url, "template0") as url:
        migrate(url, "strandline")
        yield url


@pytest.fixture(scope="module")
def full(divided_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to divided tables with 200 owners."""
    with psycopg.connect(divided_url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        fill(connection, 1, 200)
        connection.execute("VACUUM ANALYZE")
        connection.execute("SET enable_seqscan = off")
        yield connection


def shape(url: str, table: str) -> list[tuple[Any, ...]]:
    """The table's shape, without its own name and those of its indexes."""
    names = [(name, "index") for (name,) in rows_of(url, INDEX_NAMES, f"strandline.{table}")]
    names.append((table, "table"))

    def unnamed(text: str | None) -> str:
        for name, stand_in in names:
            text = re.sub(rf"\b{name}\b", stand_in, text or "")
        return text or ""

    with psycopg.connect(url) as connection:
        rows = connection.execute(SHAPE.encode(), {"table": f"strandline.{table}"}).fetchall()
    return sorted((kind, name, unnamed(text)) for kind, name, text in rows)


INDEX_NAMES = """
SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %s::regclass ORDER BY length(c.relname) DESC
"""


@pytest.mark.parametrize("table", DIVIDED)
def test_each_partition_has_the_shape_of_the_whole_table(
    table: str, divided_url: str, whole_url: str
) -> None:
    """Storage and statistics too, which a CREATE TABLE … PARTITION OF does not take on."""
    whole = shape(whole_url, table)
    assert [kind for kind, *_ in whole if kind == "index"]
    for number in range(PARTITIONS):
        assert shape(divided_url, f"{table}_p{number}") == whole


def test_tables_are_whole_unless_partitions_are_asked_for(whole_url: str, divided_url: str) -> None:
    assert divided_tables(whole_url, "strandline") == {}
    assert divided_tables(divided_url, "strandline") == dict.fromkeys(DIVIDED, PARTITIONS)


def test_asking_for_the_partitions_that_are_there_changes_nothing(divided_url: str) -> None:
    before = rows_of(divided_url, "SELECT oid FROM pg_class ORDER BY oid")
    assert migrate(divided_url, "strandline", partitions=PARTITIONS) == HEAD_REVISION
    assert migrate(divided_url, "strandline") == HEAD_REVISION
    assert rows_of(divided_url, "SELECT oid FROM pg_class ORDER BY oid") == before


def test_tables_that_are_there_are_not_divided_otherwise(whole_url: str, divided_url: str) -> None:
    for url, there in ((whole_url, "no"), (divided_url, str(PARTITIONS))):
        before = rows_of(url, "SELECT oid FROM pg_class ORDER BY oid")
        with pytest.raises(SchemaError, match=f"exist already, with {there} partitions, not 8") as error:
            migrate(url, "strandline", partitions=8)
        assert "docs/operations.md#partitions" in str(error.value)
        assert rows_of(url, "SELECT oid FROM pg_class ORDER BY oid") == before


@pytest.mark.parametrize("number", [-1, 0, 1, 1_025])
def test_the_number_of_partitions_has_bounds(number: int, empty_database_url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"2 to 1,024 partitions, not "):
        migrate(empty_database_url, "strandline", partitions=number)
    assert divided_tables(empty_database_url, "strandline") == {}


def scans(connection: psycopg.Connection[Any]) -> Counter[str]:
    return Counter(dict(connection.execute(SCANS).fetchall()))


def scanned_by(name: str, connection: psycopg.Connection[Any], wanted: dict[str, Any]) -> set[str]:
    """The partitions that a prepared statement scans, in its functions as well."""
    values = [wanted[field.name] for field in read_all()[name].params]
    with connection.transaction(force_rollback=True):
        make_ready(connection, name, wanted)
        connection.execute(b"PREPARE kept AS " + compile_statements("strandline")[name])
        before = scans(connection)
        places = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(values)))
        connection.execute(sql.SQL("EXECUTE kept {}").format(places if values else sql.SQL("")), values)
        after = scans(connection)
        connection.execute("DEALLOCATE kept")
    return set(after - before)


def partition_of(connection: psycopg.Connection[Any], shard_key: UUID) -> int:
    """The number of the partition that an owner's rows are in."""
    ((name,),) = connection.execute(
        "SELECT DISTINCT tableoid::regclass::text FROM strandline.message WHERE shard_key = %s", (shard_key,)
    )
    return int(name.rpartition("_p")[2])


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("name", HOT)
def test_a_statement_of_the_hot_path_looks_into_one_partition_of_a_table(
    name: str, mode: str, full: psycopg.Connection[Any]
) -> None:
    own = partition_of(full, KEYS.shard_key)
    wanted = parameters(full, name) | ({"step": "s"} if name == "stored_answer" else {})
    full.execute(f"SET plan_cache_mode = {mode}".encode())
    scanned = scanned_by(name, full, wanted)
    numbers = {int(partition.rpartition("_p")[2]) for partition in scanned}
    # Whose turn it is, Postgres decides.
    assert len(numbers) <= 1 if name == "take_turn" else numbers <= {own}
    if name in ("read", "history", "search_chunks"):
        assert scanned >= {f"message_p{own}"}


def test_only_the_words_of_a_long_history_are_looked_up_in_every_partition(
    full: psycopg.Connection[Any],
) -> None:
    """There the owner's key is compared in a form that leads to the index over words, but to no partition."""
    own = partition_of(full, KEYS.shard_key)
    wanted = parameters(full, "search_chunks") | {"visible_from": 10**6}
    with full.transaction(force_rollback=True):
        full.execute(LONG_HISTORY, wanted)
        scanned = scanned_by("search_chunks", full, wanted)
    assert scanned == {*(f"chunk_p{number}" for number in range(PARTITIONS)), f"message_p{own}"}


LONG_HISTORY = """
INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq, event_id,
        batch_id, length, lexemes)
SELECT %(shard_key)s, %(generation_id)s, %(session_key)s, n, 1, n, gen_random_uuid(), gen_random_uuid(), 2,
    'chunk:1 x:2' FROM generate_series(1, 1001) AS n
"""


def test_the_work_of_an_owner_stays_in_its_partition(stack: EmbeddedStack) -> None:
    """Puts, reads, searches, all stages, changes of facts, a reset: nothing scans what belongs to others."""
    with temporary_database(stack.database_url, "template0") as url:
        make_tables(url, PARTITIONS)
        at_first = reported_scans(url)
        live_and_forget(url)
        scanned = [name.rpartition("_p") for name in reported_scans(url) - at_first]
        assert {table for table, _, _ in scanned} == set(DIVIDED)
        assert len({number for _, _, number in scanned}) == 1, scanned


def reported_scans(url: str) -> Counter[str]:
    """How often each partition was scanned by connections that have ended, which all have."""
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    wait_until(lambda: rows_of(url, others) == [(0,)], timeout=20, what="the others' connections to end")
    return Counter(dict(rows_of(url, SCANS.replace("pg_stat_xact_user_tables", "pg_stat_user_tables"))))


def live_and_forget(url: str) -> None:
    """Everything that is done for one owner, a few times."""
    settings = load_settings(database_url=url, text_backend="local", embedding_backend="local")
    database = Database.connect(ConnectionOptions.from_settings(url, settings))
    options: dict[str, Any] = {
        "user_id": "ana",
        "database_url": url,
        "token_limit": 500,
        "token_flush_size": 60,
    }
    memories = [Memory.from_defaults(f"chat {number}", **options) for number in range(2)]
    for number in range(7):
        for memory in memories:
            memory.put({"role": "user", "content": f"My dog {number} is called Bolt, and lives in Porto."})
            memory.put({"role": "assistant", "content": f"So is the cat of flat {number}."})
            memory.flush(all=True)
        drain_everything(database, url, settings)
        assert memories[0].get("Which dog?").to_openai()
        assert memories[0].search("Bolt", kinds=["message", "fact"])
    memories[0].put({"role": "user", "content": "Forget that."})
    memories[0].pop()
    memories[0].facts.add("Ana likes tea.")
    memories[0].facts.search("tea")
    memories[1].reset(derived=True)
    drain_everything(database, url, settings)
    for memory in memories:
        memory.close()
    database.close()
