"""The statements that seal rows which are there already, from what ``schemas/tables`` says of columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from sqlalchemy import Column, Table

from strandline.schemas import tables
from strandline.schemas.tables.base import SEALED
from tools.queries.columns import column_type, key_without, listed, read, type_read, written
from tools.queries.headers import SQL, class_name, params_line

# A fact's words may have become those of another one, and of chunks what is searched in memory is told.
STORED_BY_HAND = ("chunk", "fact")
PATH = SQL / "resealing.sql"
_HEAD = "-- Resealing (docs/architecture/encryption.md).  Written by `make queries` from schemas/tables.\n"
# Whether a value is not sealed under the newest data key, whose tokens begin with the prefix.
_UNSEALED = {
    "text": "left({}, length(%(prefix)s::text)) <> %(prefix)s::text",
    "json": "left({}::text, length(%(prefix)s::text) + 1) <> '\"' || %(prefix)s::text",
    "bytes": "substring({} for length(%(prefix)s::text)) <> convert_to(%(prefix)s::text, 'UTF8')",
    "name": "left({}, 9) <> 'sealed:2:'",
    "word": "left({}, 1) <> 'K'",
    "digest": "octet_length({}) <> 17",
    "references": "left({}::text, 11) <> '[\"sealed:3:'",
    "traces": "EXISTS (SELECT FROM jsonb_array_elements({}) AS u (item)"
    " WHERE length(u.item ->> 'fingerprint') <> 34"
    " OR left(u.item ->> 'of', length(%(prefix)s::text)) <> %(prefix)s::text)",
    "vector": "NOT %(has_vectors)s AND {} IS NOT NULL",
}


def sealed_tables() -> list[Table]:
    """The tables with content that may be sealed, by name."""
    return sorted(
        (t for t in tables.metadata.tables.values() if any(map(_words, t.columns))), key=lambda t: t.name
    )


def write_statements() -> str:
    """The text of ``schemas/sql/resealing.sql``."""
    return written([_HEAD, *chain.from_iterable(map(_statements, sealed_tables()))])


def write_list() -> Iterator[str]:
    """The lines of ``schemas/queries/resealed.py``."""
    yield '"""What is sealed in each table, from ``schemas/tables``.  Written by `make queries`."""'
    yield "from __future__ import annotations\n"
    yield "from collections.abc import Mapping\n"
    names = [f"{way}{class_name(t.name)}" for t in sealed_tables() for way in ("Reseal", "Unsealed")]
    by_hand = [f"Reseal{class_name(name)}" for name in STORED_BY_HAND]
    room = "strandline.schemas.queries.application"
    yield f"from {room}.resealing import {', '.join(sorted(set(names) - set(by_hand)))}"
    yield f"from {room}.sealing import {', '.join(by_hand)}"
    yield "from strandline.schemas.sealing.marks import Resealed, SealedColumn"
    yield "RESEALED: Mapping[str, Resealed] = {"
    for table in sealed_tables():
        key = tuple(column.name for column in key_without(table, ("shard_key",)))
        columns = ", ".join(
            f"SealedColumn({', '.join(map(repr, (c.name, *_words(c))))})" for c in _resealed(table)
        )
        title = class_name(table.name)
        yield f'"{table.name}": Resealed(Unsealed{title}, Reseal{title},'
        yield f"    {key!r}, ({columns},)),"
    yield "}"


def _statements(table: Table) -> Iterator[str]:
    yield from _reading(table)
    if table.name not in STORED_BY_HAND:
        yield from _storing(table)


def _reading(table: Table) -> Iterator[str]:
    key = key_without(table, ("shard_key",))
    bound = {_words(c)[2]: None for c in _resealed(table) if len(_words(c)) == 3}
    columns = [*key, *(table.columns[name] for name in bound), *_resealed(table)]
    params = {"shard_key": "uuid", **dict(_asked_types(table)), "limit": "bigint"}
    params |= {f"after_{column.name}": column_type(column) for column in key}
    row = [f"{c.name} {type_read(c)}{'?' if c.nullable else ''}" for c in columns]
    names, after = listed(key, "t.{}"), listed(key, "%(after_{0})s")
    unsealed = [condition for c in table.columns for condition in _condition(c)]
    yield f"-- name: unsealed_{table.name}"
    yield f"-- The next rows of {table.name} of which something is not sealed under the newest data key."
    yield from params_line(params)
    yield f"-- row: {', '.join([*row, 'version text'])}"
    yield f"SELECT {', '.join(map(read, columns))}, t.xmin::text AS version"
    yield f"FROM strandline.{table.name} t"
    yield f"WHERE t.shard_key = %(shard_key)s AND ({names}) > ({after})"
    yield f"    AND ({' OR '.join(unsealed)})"
    yield f"ORDER BY {names} LIMIT %(limit)s"
    yield ""


def _storing(table: Table) -> Iterator[str]:
    key, sealed = key_without(table, ("shard_key",)), _resealed(table)
    given = {column.name: column_type(column) for column in key} | {"version": "text"}
    given |= {c.name: _type_stored(c) for c in sealed}
    params = {"shard_key": "uuid", "version": "text[]"} | {c.name: f"{column_type(c)}[]" for c in key}
    params |= {c.name: f"{_type_stored(c)}{'?' if c.nullable else ''}[]" for c in sealed}
    values = [
        f"n.{c.name}::{column_type(c)}" if _type_stored(c) != column_type(c) else f"n.{c.name}"
        for c in sealed
    ]
    yield f"-- name: reseal_{table.name}"
    yield f"-- Store rows of {table.name} in the form that they are to have, unless they were changed."
    yield from params_line(params)
    yield "-- repeatable"
    yield f"UPDATE strandline.{table.name} t"
    yield f"SET {', '.join(f'{c.name} = {value}' for c, value in zip(sealed, values, strict=True))}"
    yield f"FROM unnest({', '.join(f'%({name})s::{kind}[]' for name, kind in given.items())})"
    yield f"    AS n ({', '.join(given)})"
    same = " AND ".join(f"t.{c.name} = n.{c.name}" for c in key)
    yield f"WHERE t.shard_key = %(shard_key)s AND {same} AND t.xmin::text = n.version"
    yield ""


def _condition(column: Column[Any]) -> Iterator[str]:
    form, kind = (*_words(column), "", "")[:2]
    name = f"t.{column.name}"
    if form == "within":
        fields = [path.partition("=")[0] for path in kind.split(";") if "=text:" in path]
        named = ", ".join(f"('{field}')" for field in fields)
        wrong = _UNSEALED["text"].format(f"{name} ->> u.item")
        yield f"EXISTS (SELECT FROM (VALUES {named}) AS u (item) WHERE {wrong})"
    elif form == "tsvector":
        yield _any_item(f"tsvector_to_array({name})", "word")
    elif form in _UNSEALED:  # a label is as its metadata is
        yield _any_item(name, form) if column_type(column).endswith("[]") else _UNSEALED[form].format(name)


def _any_item(array: str, form: str) -> str:
    return f"EXISTS (SELECT FROM unnest({array}) AS u (item) WHERE {_UNSEALED[form].format('u.item')})"


def _words(column: Column[Any]) -> tuple[str, ...]:
    """The form, the kind and the column that it is bound to; empty for a column in clear."""
    return tuple(column.info.get(SEALED, "").split())


def _resealed(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if _words(column) and _words(column)[0] != "vector"]


def _asked_types(table: Table) -> Iterator[tuple[str, str]]:
    conditions = " ".join(condition for column in table.columns for condition in _condition(column))
    for name, kind in (("prefix", "text"), ("has_vectors", "boolean")):
        if f"%({name})s" in conditions:
            yield name, kind


def _type_stored(column: Column[Any]) -> str:
    """As it is given: an array for each row, which cannot be in one array of arrays, as its literal."""
    return column_type(column) if column_type(column) in ("text", "bytea") else "text"
