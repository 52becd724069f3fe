"""Rows as tests look at them where the suite runs encrypted: opened with any key that fits."""

from __future__ import annotations

from typing import Any

import psycopg

from strandline.schemas.errors import SealedContentError
from strandline.schemas.queries.application.sealing import FindDataKeysRow
from strandline.schemas.sealed.content import unwrap_keys
from strandline.schemas.sealing.keyrings import LocalKeyring, read_keys
from strandline.schemas.sealing.owner_keys import OwnerKeys

KINDS = ("fact", "input", "feedback", "state", "answer", "topic", "said_by", "trace")


def open_rows(url: str, rows: list[tuple[Any, ...]], keys: str) -> list[tuple[Any, ...]]:
    """The rows with every token in them opened that is not bound to a message's id."""
    if "sealed:" not in repr(rows):
        return rows
    owners = _owners(url, LocalKeyring(read_keys(keys, "the test"), "the test"))
    return [tuple(_opened(value, owners) for value in row) for row in rows]


def _owners(url: str, keyring: LocalKeyring) -> list[OwnerKeys]:
    with psycopg.connect(url, autocommit=True) as connection:
        stored = connection.execute(
            "SELECT shard_key, number, namespace, kek_id, wrapped FROM strandline.data_key"
        ).fetchall()
    return [
        unwrap_keys(
            keyring, shard_key, [FindDataKeysRow(True, number, namespace, kek_id, wrapped, True, True)]
        )
        for shard_key, number, namespace, kek_id, wrapped in stored
    ]


def _opened(value: Any, owners: list[OwnerKeys]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_opened(item, owners) for item in value)
    if isinstance(value, dict):
        return {key: _opened(item, owners) for key, item in value.items()}
    if isinstance(value, bytes) and value.startswith(b"sealed:"):
        return _first(owners, lambda keys, kind: keys.open_bytes(value, kind), value)
    if not isinstance(value, str) or not value.startswith(("sealed:", '"sealed:')):
        return value
    if value.startswith("sealed:2:"):
        return _first(owners, lambda keys, kind: keys.open_name(value, kind), value)
    return _first(owners, lambda keys, kind: keys.open(value, kind), value)


def _first(owners: list[OwnerKeys], attempt: Any, value: Any) -> Any:
    for keys in owners:
        for kind in KINDS:
            try:
                return attempt(keys, kind)
            except SealedContentError:
                continue
    return value
