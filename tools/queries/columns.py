"""Columns of ``schemas/tables`` as statements write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Any

from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql

WIDTH = 119
_SHORT = {"timestamp with time zone": "timestamptz", "double precision": "float8"}


def column_type(column: Column[Any]) -> str:
    """The type as headers write it."""
    written: str = column.type.compile(dialect=postgresql.dialect())  # type: ignore[no-untyped-call]
    name = written.partition(" COLLATE")[0].lower()
    return _SHORT.get(name, name)


def type_read(column: Column[Any]) -> str:
    """JSON and search vectors are read as text."""
    return "text" if column_type(column) in ("json", "jsonb", "tsvector") else column_type(column)


def read(column: Column[Any]) -> str:
    """The column of a table ``t`` as it is selected."""
    return f"t.{column.name}" + ("::text" if type_read(column) != column_type(column) else "")


def key_without(table: Table, names: Iterable[str]) -> list[Column[Any]]:
    """The primary key but for the columns that a statement is given by value."""
    return [column for column in table.primary_key.columns if column.name not in names]


def listed(columns: Iterable[Column[Any]], form: str) -> str:
    return ", ".join(form.format(column.name) for column in columns)


def written(lines: Iterable[str]) -> str:
    """The text of a file of statements, its lines wrapped."""
    return "\n".join(piece for line in lines for piece in _wrapped(line))


def _wrapped(line: str) -> Iterator[str]:
    further = "--     " if line.startswith("-- ") else "    "
    yield from wrap(
        line, WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    ) or [""]
