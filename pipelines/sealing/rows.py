"""Seals the rows of a table that are there already, as ``schemas/tables`` says of its columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.postgres.paging import pages, query_with
from strandline.schemas.sealed.values import (
    keyed_label,
    keyed_tsvector,
    keyed_word,
    reseal_within,
    seal_traces,
)
from strandline.schemas.sealing.marks import Resealed, SealedColumn
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.sealing.tokens import is_token
from strandline.schemas.values.labels import as_array


def reseal_rows(fetcher: Fetcher, keys: OwnerKeys, table: Resealed, page: int) -> Iterator[int]:
    """Seal an owner's rows of a table; yields how many were found, page by page.

    A row that is changed between the two statements stays as it is, and the next pass finds it again.

    Raises:
        SealedContentError: one does not open.
    """
    values = {"shard_key": keys.shard_key, "prefix": keys.prefix, "has_vectors": keys.has_vectors}
    for rows in pages(fetcher, table.read, **values, limit=page):
        stored: dict[str, object] = {
            name: [getattr(row, name) for row in rows] for name in (*table.key, "version")
        }
        for column in table.columns:
            stored[column.name] = [_reseal_value(keys, column, row) for row in rows]
        fetcher.fetch(query_with(table.store, values | stored))
        yield len(rows)


def _reseal_value(keys: OwnerKeys, column: SealedColumn, row: Any) -> Any:
    value = getattr(row, column.name)
    if value is None:
        return None
    if column.form == "label":
        return as_array(_labels(keys, row))
    bound = getattr(row, column.bound) if column.bound else ""
    if isinstance(value, list):
        return _literal(_reseal_item(keys, column, item, bound) for item in value)
    return _reseal_item(keys, column, value, bound)


def _reseal_item(keys: OwnerKeys, column: SealedColumn, value: Any, bound: str) -> Any:
    match column.form:
        case "text":
            return keys.reseal(value, column.kind, bound)
        case "json":
            return keys.reseal_json(value, column.kind, bound)
        case "bytes":
            return keys.reseal_bytes(value, column.kind)
        case "name":
            return keys.reseal_name(value, column.kind)
        case "word":
            return keyed_word(keys, value)
        case "tsvector":
            return keyed_tsvector(keys, value)
        case "digest":
            return keys.digest(value)
        case "references":
            return json.dumps([keys.reference(name) for name in json.loads(value)])
        case "within":
            return reseal_within(keys, value, column.kind)
        case "traces":
            return seal_traces(keys, value)
        case _:
            raise ValueError(f"a column cannot be sealed as {column.form!r}")


def _labels(keys: OwnerKeys, row: Any) -> list[int]:
    labels: list[int] = row.labels
    if row.metadata is None or is_token(row.metadata):
        return labels
    return [keyed_label(keys, row.session_key, label) for label in labels]


def _literal(items: Iterable[str | bytes]) -> str:
    texts = (f"\\x{item.hex()}" if isinstance(item, bytes) else item for item in items)
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"
