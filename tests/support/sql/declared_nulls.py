"""Looks at what a test's own process sends and gets: NULL comes only where the header says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from strandline.schemas.postgres import async_database, database
from strandline.schemas.postgres.query import Query
from tools.queries.headers import Field, Header, read_all

undeclared: list[str] = []

_headers = cache(read_all)


@cache
def _params_of(name: str) -> tuple[Field, ...]:
    return _headers()[name].params


def watch_nulls() -> None:
    """Have both drivers tell of every statement; what is not declared is kept in ``undeclared``."""
    execute, execute_async = database.execute, async_database.execute

    def told(connection: Any, statement: Any, query: Query[Any]) -> list[Any]:
        rows = execute(connection, statement, query)
        _look(query, rows)
        return rows

    async def told_async(connection: Any, statement: Any, query: Query[Any]) -> list[Any]:
        rows = await execute_async(connection, statement, query)
        _look(query, rows)
        return rows

    patch = pytest.MonkeyPatch()
    patch.setattr(database, "execute", told)
    patch.setattr(async_database, "execute", told_async)


def _look(query: Query[Any], rows: Iterable[Any]) -> None:
    header = _headers().get(query.name)
    if header is not None:
        undeclared.extend(_wrong_params(header, query.values))
        undeclared.extend(wrong for row in rows for wrong in wrong_columns(header, row))


def _wrong_params(header: Header, values: Iterable[object]) -> list[str]:
    params = zip(_params_of(header.name), values, strict=True)
    return [f"{header.name}({field.name})" for field, value in params if _is_wrong(field, value, {})]


def wrong_columns(header: Header, row: Iterable[object]) -> list[str]:
    """The columns of a row that are NULL and may not be."""
    columns = dict(zip((field.name for field in header.row), row, strict=True))
    return [
        f"{header.name}.{field.name}"
        for field in header.row
        if _is_wrong(field, columns[field.name], columns)
    ]


def _is_wrong(field: Field, value: object, columns: Mapping[str, object]) -> bool:
    if value is None:
        leads_to_null = field.follows is not None and columns[field.follows] is None
        return not (field.may_be_null or leads_to_null)
    return isinstance(value, list) and None in value and not field.items_may_be_null
