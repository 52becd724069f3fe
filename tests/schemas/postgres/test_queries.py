"""Queries: what Python says of each statement is what Postgres says of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import pq

from strandline import Memory
from strandline.schemas.postgres.statements import (
    compile_statements,
    function_names,
    function_source,
    in_schema,
    statements,
)
from strandline.schemas.queries.application.items import LockItems
from strandline.schemas.queries.derived.generations import ServingGenerations
from strandline.schemas.tables import metadata
from tests.conftest import rows_of
from tests.project.test_contracts import ALL, name_of
from tests.support.opened_rows import clear_only
from tests.support.sql.declared_nulls import wrong_columns
from tests.support.syntax_trees import tree_of
from tools.queries import erasing, exporting, resealing
from tools.queries.headers import Field, Header, class_name, named_types, read_all, read_headers
from tools.queries.modules import QUERIES, ROOMS, TYPES, row_class, write_modules

HEADERS = read_all()
KEY = UUID(int=1)
# They cannot be prepared, or say nothing of themselves, and have neither parameters nor rows.
UTILITY = {"make_import_table", "copy_import", "verify_snapshot"}
OTHERWISE_CALLED = {
    "float8": "double precision",
    "timestamptz": "timestamp with time zone",
    "varchar": "character varying",
}
Spelt = list[tuple[str, str]]


def spelt(field: Field) -> tuple[str, str]:
    kind = OTHERWISE_CALLED.get(field.type, field.type)
    return field.name, f"{kind}[]" if field.is_array else kind


@pytest.fixture
def described(database_url: str) -> dict[str, tuple[list[str], Spelt]]:
    """Parameters and columns of each statement, as Postgres describes them."""
    found = {}
    with psycopg.connect(database_url, autocommit=True) as connection:
        oids = connection.execute("SELECT oid, format_type(oid, NULL) FROM pg_type").fetchall()
        names: dict[int, str] = dict(oids)
        statements = compile_statements("strandline")
        connection.execute(statements["make_import_table"])
        for name, statement in statements.items():
            prepared = connection.pgconn.prepare(name.encode(), statement)
            assert prepared.status == pq.ExecStatus.COMMAND_OK, (name, prepared.get_error_message())
            result = connection.pgconn.describe_prepared(name.encode())
            params = [names[result.param_type(number)] for number in range(result.nparams)]
            columns = [
                ((result.fname(number) or b"").decode(), names[result.ftype(number)])
                for number in range(result.nfields)
            ]
            found[name] = (params, columns)
    return found


def test_each_statement_is_described_as_postgres_describes_it(described: dict[str, Any]) -> None:
    assert set(described) == set(HEADERS)
    for name, (params, columns) in described.items():
        header = HEADERS[name]
        assert [spelt(field)[1] for field in header.params] == params, name
        assert [spelt(field) for field in header.row] == columns, name


def test_the_classes_are_written_from_the_statements() -> None:
    written = write_modules()
    assert set(written) == set(QUERIES.rglob("*.py"))
    stale = [name_of(path) for path, text in written.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "`make queries` writes them anew"
    for of_tables in (resealing, exporting, erasing):
        assert of_tables.PATH.read_text(encoding="utf-8") == of_tables.write_statements()


def test_equal_rows_are_one_class() -> None:
    classes: dict[tuple[Field, ...], set[str]] = {}
    for header in HEADERS.values():
        classes.setdefault(header.row, set()).add(row_class(header))
    doubled = [names for row, names in classes.items() if row and len(names) > 1]
    assert not doubled, "name the row in `schemas/sql/rows.txt`"


def test_a_query_takes_its_parameters_by_keyword() -> None:
    for _ in range(2):  # the first query of a class makes its `__init__`
        query = LockItems(shard_key=KEY, keys=["k"], paths=["p"])
        assert query.values == (["p"], ["k"], KEY)
        assert query.params == {"paths": ["p"], "keys": ["k"], "shard_key": KEY}
        for wrong in ({}, {**query.params, "more": 1}):
            with pytest.raises(TypeError):
                LockItems(**wrong)
    assert ServingGenerations().values == ()


def test_every_file_of_statements_has_its_classes() -> None:
    files = {file for files in ROOMS.values() for file in files}
    assert files == {path.stem for path in (QUERIES.parent / "sql").glob("*.sql")}


def test_no_column_comes_as_a_value_without_a_type() -> None:
    """JSON would be read into whatever it holds: it is asked for as text."""
    loose = [
        f"{name}.{field.name}"
        for name, header in HEADERS.items()
        for field in header.row
        if field.type[:4] == "json"
    ]
    assert not loose
    assert not [kind for kind, python in TYPES.items() if python in {"Any", "object"}]


def positional(path: Path) -> list[str]:
    """Where a module reads a column by its place: ``row[2]``, ``rows[0][2]``."""
    places = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Subscript) and is_number(node.slice):
            of_row = isinstance(node.value, ast.Name) and node.value.id == "row"
            of_rows = isinstance(node.value, ast.Subscript) and is_number(node.value.slice)
            if of_row or of_rows:
                places.append(f"{name_of(path)}:{node.lineno}")
    return places


def is_number(index: ast.expr) -> bool:
    return isinstance(index, ast.Constant) and isinstance(index.value, int)


ASKING = [path for path in ALL if "strandline.schemas.queries" in path.read_text(encoding="utf-8")]


def test_no_column_is_read_by_its_place() -> None:
    assert len(ASKING) > 40
    assert [place for path in ASKING for place in positional(path)] == []


def test_the_drivers_know_no_statement_by_name() -> None:
    """But what a migration asks about the server, and about tables which are there already."""
    drivers = [path for path in ALL if name_of(path).startswith("schemas/postgres/")]
    texts = {
        node.value for path in drivers for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant)
    }
    assert texts & set(HEADERS) == {
        "describe_server",
        "divided_tables",
        "schema_revision",
        "set_revision",
        "stored_columns",
        "stored_functions",
        "table_sizes",
    }


HEADER = """-- name: some
-- Some rows.
-- params: keys uuid[], texts text?[],
--     until timestamptz?
-- row: id uuid, batch_id uuid?, tokens integer!
-- repeatable
SELECT %(keys)s, %(texts)s, %(until)s
"""
PARAMS = re.compile(r"^-- params: (.*(?:\n--    .*)*)", re.MULTILINE)


def test_the_type_that_a_name_gives_is_not_said_again() -> None:
    said = {
        " ".join(param.split())
        for path in (QUERIES.parent / "sql").glob("*.sql")
        for params in PARAMS.findall(path.read_text(encoding="utf-8"))
        for param in params.replace("\n--", " ").split(",")
    }
    assert len(said) > 100
    assert said & {spelt_in_header(field) for field in named_types().values()} == set()


def spelt_in_header(field: Field) -> str:
    items = f"{'?' * field.items_may_be_null}[]" if field.is_array else ""
    return f"{field.name} {field.type}{items}{'?' * field.may_be_null}"


def test_a_header_is_read(tmp_path: Path) -> None:
    (tmp_path / "some.sql").write_text(HEADER, encoding="utf-8")
    (header,) = read_headers(tmp_path / "some.sql")
    assert (header.name, header.meaning, header.is_repeatable) == ("some", "Some rows.", True)
    assert [(f.name, f.type, f.is_array, f.items_may_be_null, f.may_be_null) for f in header.params] == [
        ("keys", "uuid", True, False, False),
        ("texts", "text", True, True, False),
        ("until", "timestamptz", False, False, True),
    ]
    (named,) = read_headers_of(tmp_path, "SELECT %(shard_key)s, %(user_id)s, 1 AS id")
    assert [spelt_in_header(field) for field in named.params] == ["shard_key uuid", "user_id text?"]
    assert class_name("claim_session") == "ClaimSession"
    assert wrong_columns(header, (1, 2, 3)) == wrong_columns(header, (1, None, None)) == []
    assert wrong_columns(header, (None, 2, None)) == ["some.id", "some.tokens"]


def read_headers_of(folder: Path, sql: str) -> list[Header]:
    (folder / "other.sql").write_text(f"-- name: other\n-- Some rows.\n-- row: id uuid\n{sql}\n")
    return read_headers(folder / "other.sql")


@pytest.mark.parametrize(
    ("sql", "is_repeatable"),
    [
        ("SELECT f.id FROM strandline.fact f", True),
        ("WITH f AS (SELECT 1 AS id) SELECT id FROM f", True),
        ("SELECT f.id FROM strandline.fact f FOR UPDATE", False),
        ("WITH f AS (DELETE FROM strandline.fact f RETURNING f.id) SELECT id FROM f", False),
        ("UPDATE strandline.fact SET id = 1 RETURNING id", False),
        ("SELECT strandline.pop_v1() AS id", False),
        ("SELECT pg_advisory_xact_lock(1) AS id", False),
    ],
)
def test_a_statement_that_only_reads_is_repeatable(tmp_path: Path, sql: str, is_repeatable: bool) -> None:
    (header,) = read_headers_of(tmp_path, sql)
    assert header.is_repeatable == is_repeatable


@pytest.mark.parametrize("wrong", ["keys uuid()", "keys", "keys uuid[]; texts text"])
def test_a_header_that_cannot_be_read_is_refused(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "some.sql").write_text(HEADER.replace("keys uuid[]", wrong), encoding="utf-8")
    with pytest.raises(ValueError, match="some"):
        read_headers(tmp_path / "some.sql")


# The statements: every one is valid SQL for the tables there are, in whatever schema they live.
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


# A session's marks, counters and policy fit together, which Postgres holds without a cost for puts.
TRIGGER_COLUMNS = """
SELECT a.attname::text FROM pg_trigger t
JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = ANY (t.tgattr)
WHERE t.tgrelid = 'strandline.session'::regclass AND NOT t.tgisinternal
"""


@pytest.mark.parametrize(
    "change",
    [
        "log_start_seq = 0",
        "pinned_through = log_start_seq - 2",
        "window_from = pinned_through",
        "flushed_through = pinned_through - 1",
        "window_from = flushed_through + 2",
        "flushed_through = next_seq",
        "pinned_tokens = -1",
        "window_from = window_from, window_tokens = -1",
        "window_from = window_from, window_messages = -1",
        "window_from = window_from, window_bytes = -1",
        "shared_scope = 'family'",
        "shared_key = gen_random_uuid()",
        "deliver = 'never'",
    ],
)
def test_a_session_that_contradicts_itself_is_refused(database_url: str, change: str) -> None:
    Memory.from_defaults("s", database_url=database_url, memory_blocks=[]).put(
        {"role": "user", "content": "x"}
    )
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.errors.CheckViolation) as refused:
        connection.execute(f"UPDATE strandline.session SET {change}")
    assert refused.value.diag.constraint_name == "session_check"


@pytest.mark.parametrize("name", ["put_one", "put_many", "put_one_recorded", "put_many_recorded"])
def test_a_put_in_the_simple_case_sets_no_column_that_is_checked(database_url: str, name: str) -> None:
    (assignments,) = re.findall(
        r"UPDATE strandline\.session t SET(.*?)\bWHERE", statements("strandline")[name], re.DOTALL
    )
    assigned = set(re.findall(r"(\w+) = (?:t\.|CASE|statement)", assignments))
    checked = {column for (column,) in rows_of(database_url, TRIGGER_COLUMNS)}
    assert "next_seq" in assigned and "window_from" in checked
    assert not assigned & checked


def test_the_session_has_no_check_that_each_statement_reads_again(database_url: str) -> None:
    checks = "SELECT FROM pg_constraint WHERE contype = 'c' AND conrelid = 'strandline.session'::regclass"
    assert rows_of(database_url, checks) == []
