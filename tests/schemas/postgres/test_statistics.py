"""Statistics: Postgres keeps no samples of what users said, so nothing of it outlives its rows."""

from __future__ import annotations

import psycopg

from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.schemas.tables import metadata
from strandline.schemas.tables.base import KEEPS_NO_STATISTICS
from tests.conftest import MakeMemory, rows_of
from tests.support.workers.draining import drain_everything

SECRET = "zyzzyva"

# A tenant's name is the application's, and statements over a whole namespace are planned by how many it has.
TENANT = {"namespace"}
# Columns of kinds that could hold what users said, and do not.  A new column belongs here, or is declared
# with ``said``.
OPERATORS_OWN = {
    "answer": {"step", "model", "prompt_hash"},
    "audit_entry": {"act", "detail", "flags"},
    "audit_level": {"level"},
    "audit_seal": {"leaves", "root", "previous", "key_id", "mac"},
    "audit_sealed": {"act", "detail", "flags", "origin_digest"},
    "audit_subject": {"salt"},
    "archived_input": {"role"},
    "batch": {"stage", "state", "capture_hash"},
    "chunk": {"role"},
    "condensation": {"outcome", "reason"},
    "correction": {"kind"},
    "data_key": {"kek_id", "wrapped"},
    "dead_letter": {"stage", "reason"},
    "derived_change": {"kind"},
    "due": {"stage"},
    "encryption": {"kek_id", "probe", "vectors"},
    "erasure": {"kind", "state", "steps", "receipt", "missed"},
    "fact": set(),
    "fact_candidate": {"model", "prompt_hash"},
    "fact_event": {"kind"},
    "fact_revision": {"operation", "model", "prompt_hash"},
    "flush_event": {"cause"},
    "generation": {"pipeline", "version", "state", "entry_stage", "entry_scope", "config", "prompts"},
    "kept_response": {"request_digest"},
    "lane": {"stage", "last_error"},
    "message": {"role"},
    "model_call": {"stage", "step", "model", "prompt_hash"},
    "namespace_limit": {"waits_for"},
    "receipt": {"stage", "outcome"},
    "replay_budget": {"pace"},
    "replay": {"kind", "pipeline", "state", "outcome", "counts", "reason"},
    "retention_act": {"archive", "ages"},
    "retention_run": {"state", "counts"},
    "given_up_step": {"cause", "state", "archive", "object_name", "reason"},
    "retention_step": {
        "cause",
        "state",
        "archive",
        "object_name",
        "object_digest",
        "rows_digest",
        "last_error",
    },
    "scope_generation": {"pipeline"},
    "service_key": {"key_id", "secret_digest", "scopes", "label", "rotated_from", "made_by"},
    "session_retention_act": {"archive", "tightened"},
    "session_owner": {"kind"},
    "session_run": {"status"},
    "session": {"tokenizer", "pipelines", "deliver", "time_zone"},
    "shared_message": {"role"},
    "watch": {"cause"},
    "worker": {"host", "version", "stages", "condition"},
}

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
        if column.info.get(KEEPS_NO_STATISTICS)
    }
    assert without == declared
    undeclared = {
        f"{table}.{column}"
        for table, column, kind, none in found
        if not none and kind not in NEVER_SAID and column not in OPERATORS_OWN.get(table, set()) | TENANT
    }
    assert undeclared == set(), "declare it with said(), and in a migration, or name it as operators' own"


def test_nothing_that_was_said_is_left_in_statistics(
    make_memory: MakeMemory, database: Database, database_url: str
) -> None:
    settings = load_settings(database_url=database_url, text_backend="local", embedding_backend="local")
    for number in range(12):
        memory = make_memory(
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
    drain_everything(database, database_url, settings)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    samples = rows_of(database_url, SAMPLES)
    tables = {table for table, _, _ in samples}
    assert {"message", "session", "fact", "fact_revision", "chunk", "block_state"} <= tables, "analyzed"
    assert [(table, column) for table, column, values in samples if SECRET[:6] in values] == []
    said_columns = {
        (table.name, column.name)
        for table in metadata.sorted_tables
        for column in table.columns
        if column.info.get(KEEPS_NO_STATISTICS)
    }
    assert {(table, column) for table, column, _ in samples}.isdisjoint(said_columns)
    assert not [table for table, _, _ in samples if table == "chunk_terms"]
