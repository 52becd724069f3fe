"""The statements and lines of an export that follow from what ``schemas/tables`` says of tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import chain
from typing import Any

from sqlalchemy import Column, Table

from strandline.schemas import tables
from strandline.schemas.tables.base import EXPORT, SEALED, Export
from tools.queries.columns import column_type, key_without, listed, read, type_read, written
from tools.queries.headers import SQL, class_name, params_line, row_named

PATH = SQL / "exporting.sql"
_HEAD = "-- Export (docs/architecture/erasure.md).  Written by `make queries` from schemas/tables.\n"
_TYPES = {
    "bigint": "int",
    "boolean": "bool",
    "date": "date",
    "float8": "float",
    "integer": "int",
    "json": "JsonObject",
    "jsonb": "JsonObject",
    "numeric": "Decimal",
    "text": "str",
    "timestamptz": "datetime",
    "uuid": "UUID",
}
_LINES_HEAD = '''"""Lines of an export, from ``schemas/tables``.  Written by `make queries`."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _parsed(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


JsonObject = Annotated[dict[str, Any], BeforeValidator(_parsed)]
"""A JSON object, which statements read as text."""


class ExportedLine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str


'''


def exported_tables() -> list[Table]:
    """The tables whose rows are lines each, by name."""
    found = (table for table in tables.metadata.tables.values() if table.info[EXPORT])
    return sorted(found, key=lambda table: table.name)


def write_statements() -> str:
    """The text of ``schemas/sql/exporting.sql``."""
    return written([_HEAD, *chain.from_iterable(map(_statement, exported_tables()))])


def write_lines() -> Iterator[str]:
    """The lines of ``schemas/queries/exported.py``."""
    yield _LINES_HEAD
    for table in exported_tables():
        export: Export = table.info[EXPORT]
        yield f"class {export.title or class_name(export.kind)}Line(ExportedLine):"
        yield from _docstring(export.meaning)
        yield ""
        yield f'    kind: Literal["{export.kind}"] = "{export.kind}"'
        for column in _shown(table):
            kind = _TYPES[column_type(column).removesuffix("[]")]
            kind = f"list[{kind}]" if column_type(column).endswith("[]") else kind
            yield f"    {_name(table, column)}: {kind}{' | None' if column.nullable else ''}"
        yield "\n"


def _docstring(meaning: str) -> Iterator[str]:
    lines = textwrap.wrap(meaning, 100)
    yield f'    """{lines[0]}' + ('"""' if len(lines) == 1 else "")
    if len(lines) > 1:
        yield from (f"    {line}" for line in lines[1:])
        yield '    """'


def _statement(table: Table) -> Iterator[str]:
    export: Export = table.info[EXPORT]
    owner = [table.columns[name] for name in export.owned_by]
    key = key_without(table, export.owned_by)
    asked = {column.name: column_type(column) for column in owner}
    conditions = [f"t.{column.name} = %({column.name})s" for column in owner]
    if of_session := _of_session(table):
        name, condition = of_session
        asked[name] = "uuid?"
        conditions.append(f"(%({name})s::uuid IS NULL OR {condition})")
    if key:
        asked |= {f"after_{column.name}": column_type(column) for column in key}
        after = ", ".join(f"%(after_{column.name})s::{column_type(column)}" for column in key)
        conditions.append(f"({listed(key, 't.{}')}) > ({after})")
    shown = _shown(table)
    row = [f"{_name(table, c)} {type_read(c)}{'?' if c.nullable else ''}" for c in shown]
    selected = [read(c) + (f" AS {_name(table, c)}" if c.name in export.named else "") for c in shown]
    opens = [c.name for c in shown if c.info.get(SEALED)]
    yield f"-- name: export_{table.name}"
    yield f"-- The next rows of {table.name} of an owner{', or of one session' if of_session else ''}."
    yield from params_line(asked | {"limit": "bigint"})
    yield f"-- row: {row_named(', '.join(row))}"
    if opens:
        yield f"-- opens: {', '.join(opens)}"
    yield f"SELECT {', '.join(selected)}"
    yield f"FROM strandline.{table.name} t"
    yield f"WHERE {' AND '.join(conditions)}"
    yield (f"ORDER BY {listed(key, 't.{}')} " if key else "") + "LIMIT %(limit)s"
    yield ""


def _of_session(table: Table) -> tuple[str, str] | None:
    """The parameter with a session's key, and the condition by which a row is that session's."""
    export: Export = table.info[EXPORT]
    if export.of_session:
        return "session_key", export.of_session
    if "session_key" in table.columns:
        return "session_key", "t.session_key = %(session_key)s"
    return None


def _shown(table: Table) -> list[Column[Any]]:
    export: Export = table.info[EXPORT]
    if unknown := {*export.hides, *export.named} - {*table.columns.keys()}:
        raise ValueError(f"{table.name} has no column {', '.join(sorted(unknown))}, which its export names")
    hidden = {*export.hides, *export.owned_by}
    return [column for column in table.columns if column.name not in hidden]


def _name(table: Table, column: Column[Any]) -> str:
    return str(table.info[EXPORT].named.get(column.name, column.name))
