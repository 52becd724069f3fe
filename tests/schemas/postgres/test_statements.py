"""The statements: every one is valid SQL for the tables there are, in whatever schema they live."""

from __future__ import annotations

import re

import psycopg
import pytest

from strandline.schemas.postgres.statements import function_names, function_source, in_schema, statements
from strandline.schemas.tables import metadata
from tests.conftest import rows_of
from tests.support.opened_rows import clear_only

NAMES = sorted(statements("strandline"))
TABLES = {table.name for table in metadata.tables.values()}
PLACEHOLDER = re.compile(r"%\((\w+)\)s")


def test_every_statement_has_a_line_of_meaning() -> None:
    assert NAMES
    assert [name for name in NAMES if not statements("strandline")[name].startswith("-- ")] == []


@pytest.mark.parametrize("schema", ["strandline", "tenant_7"])
def test_statements_name_tables_of_their_schema_alone(schema: str) -> None:
    used = [
        found
        for sql in statements(schema).values()
        for found in re.findall(r"(?:FROM|JOIN|INTO|UPDATE)\s+(\w+)\.(\w+)", sql)
        if found[1] in TABLES
    ]
    assert {table for _, table in used} > {"session", "message", "due", "generation"}
    assert {qualifier for qualifier, _ in used} == {schema}


def test_postgres_understands_every_statement(database_url: str) -> None:
    """PREPARE parses and analyses it: each table, column and function is there, each type agrees."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name in NAMES:
            sql = statements("strandline")[name]
            for number, parameter in enumerate(dict.fromkeys(PLACEHOLDER.findall(sql)), 1):
                sql = sql.replace(f"%({parameter})s", f"${number}")
            if re.search(r"^(SET|CREATE TEMPORARY|COPY|VACUUM) ", sql, re.MULTILINE):
                continue  # not a statement that can be prepared; it names nothing of ours
            if "pg_temp." in sql:
                connection.execute(statements("strandline")["make_import_table"].encode())
            connection.execute(f"PREPARE {name} AS {sql.replace('%%', '%')}".encode())


@clear_only("an encrypted suite adds a function of its own")
def test_functions_are_those_of_the_database(database_url: str) -> None:
    found = rows_of(
        database_url,
        "SELECT proname::text, prosrc FROM pg_proc"
        " WHERE pronamespace = 'strandline'::regnamespace ORDER BY 1",
    )
    assert [name for name, _ in found] == function_names()
    for name, source in found:
        assert source in function_source(name, "strandline")
        assert name.endswith("_v1"), "a function's name ends in its version, for rolling deploys"


def test_a_schema_name_replaces_the_qualifier_and_nothing_else() -> None:
    sql = "SELECT strandline.fact.text, 'substrandline.x' FROM strandline.fact"
    assert in_schema(sql, "t") == "SELECT t.fact.text, 'substrandline.x' FROM t.fact"
