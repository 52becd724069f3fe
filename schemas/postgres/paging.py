"""Pages of rows by key: a parameter ``after_<column>`` is of the row after which a page begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import get_annotations
from typing import Any, TypeVar
from uuid import UUID

from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.postgres.query import Query

R = TypeVar("R")
# Comes before every key.  Numbers in keys are not negative.
_FIRST: dict[str, Any] = {"UUID": UUID(int=0), "int": -1, "str": ""}


def query_with(statement: type[Query[R]], values: Mapping[str, object]) -> Query[R]:
    """A query with its parameters among these values."""
    return statement(**{name: values[name] for name in get_annotations(statement)})


def next_page(statement: type[Query[R]], last: R | None, **values: object) -> Query[R]:
    """The query of the page after a row (None: the first page); the statement gets its own of ``values``."""
    for name, kind in get_annotations(statement).items():
        if name.startswith("after_"):
            values[name] = _FIRST[kind] if last is None else getattr(last, name.removeprefix("after_"))
    return query_with(statement, values)


def pages(fetcher: Fetcher, statement: type[Query[R]], **values: object) -> Iterator[list[R]]:
    """Pages of rows, each after the last row of the page before, until there are no more rows."""
    last: R | None = None
    while rows := fetcher.fetch(next_page(statement, last, **values)):
        last = rows[-1]
        yield rows
