"""Statistics: Postgres keeps no samples of what users said, so nothing of it outlives its rows."""

from __future__ import annotations

import psycopg

from strandline.schemas.settings import load_settings
from strandline.schemas.tables import SCHEMA, metadata
from strandline.schemas.tables.base import PERSONAL
from tests.conftest import Rig, rows_of
from tests.support.workers.draining import drain_everything

SECRET = "zyzzyva"

# A tenant's name is the application's, and statements over a whole namespace are planned by how many it has.
TENANT = {"namespace"}
COLUMNS = """
SELECT c.relname::text, a.attname::text, t.typname::text, a.attstattarget IS NOT DISTINCT FROM 0
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname = 'strandline' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0
    AND NOT a.attisdropped AND c.relname <> 'alembic_version'
"""
NEVER_SAID = {
    "uuid",
    "_uuid",
    "int2",
    "int4",
    "int8",
    "_int4",
    "_int8",
    "bool",
    "date",
    "timestamptz",
    "float8",
    "numeric",
}

SAMPLES = """
SELECT regexp_replace(s.tablename::text, '_p[0-9]+$', ''), s.attname::text,
    concat_ws(' ', s.most_common_vals::text, s.histogram_bounds::text, s.most_common_elems::text)
FROM pg_stats s WHERE s.schemaname = 'strandline'
"""


def test_columns_of_content_are_declared_and_keep_no_statistics(database_url: str) -> None:
    found = rows_of(database_url, COLUMNS)
    without = {(table, column) for table, column, _, none in found if none}
    declared = {
        (table.name, column.name)
        for table in metadata.sorted_tables
        for column in table.columns
        if column.info.get(PERSONAL)
    }
    assert without == declared
    undecided = {
        f"{table}.{column}"
        for table, column, kind, _ in found
        if kind not in NEVER_SAID and column not in TENANT
        if PERSONAL not in metadata.tables[f"{SCHEMA}.{table}"].columns[column].info
    }
    assert undecided == set(), "declare it with personal() or impersonal()"


def test_nothing_that_was_said_is_left_in_statistics(rig: Rig) -> None:
    settings = load_settings(database_url=rig.url, text_backend="local", embedding_backend="local")
    for number in range(12):
        memory = rig.memory(
            f"{SECRET}-session-{number}",
            user_id=f"{SECRET}-user-{number % 3}",
            shared_scope=f"{SECRET}-scope",
        )
        said = f"My {SECRET} lives in Bergen and I like {SECRET} number {number}."
        memory.put({"role": "user", "content": said, "metadata": {SECRET: SECRET}, "name": SECRET})
        call = {
            "id": f"{SECRET}-{number}",
            "type": "function",
            "function": {"name": SECRET, "arguments": "{}"},
        }
        memory.put({"role": "assistant", "content": None, "tool_calls": [call]})
        memory.put({"role": "tool", "tool_call_id": call["id"], "content": SECRET})
        memory.put({"role": "user", "content": said, "id": f"{SECRET}-message-{number}"})
        memory.flush(all=True)
        memory.facts.add(f"{SECRET} fact {number}", topics=[SECRET])
    drain_everything(rig.database, rig.url, settings)
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    samples = rows_of(rig.url, SAMPLES)
    tables = {table for table, _, _ in samples}
    assert {"message", "session", "fact", "fact_revision", "chunk", "block_state"} <= tables, "analyzed"
    assert [(table, column) for table, column, values in samples if SECRET[:6] in values] == []
    said_columns = {
        (table.name, column.name)
        for table in metadata.sorted_tables
        for column in table.columns
        if column.info.get(PERSONAL)
    }
    assert {(table, column) for table, column, _ in samples}.isdisjoint(said_columns)
    assert not [table for table, _, _ in samples if table == "chunk_terms"]
