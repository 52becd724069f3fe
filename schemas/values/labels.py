"""Labels: a message's metadata as numbers, by which an index finds the message.

A label is a digest of key and value, combined with a number of the session.  Filters by metadata compare
labels and never the metadata, so they work in the same way when the metadata is stored as ciphertext, and the
digest is made with a secret.  They differ from session to session, so the index leads to messages of one
session alone; and a fork makes those of its messages from them (``fork_v1``), without reading the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from uuid import UUID

from strandline.schemas.values.foreign_values import plain_int

IMPORTANT = "important"

Scalar = str | int | float | bool | None
"""A value of metadata that can be filtered by: text, a number, true, false or null."""


def labels_of(session_key: UUID, metadata: str | None, *, may_be_important: bool = True) -> list[int] | None:
    """The labels of a message by its metadata as JSON text; None if there is nothing to filter by.

    Lists and objects have none.
    """
    if metadata is None:
        return None
    fields: dict[str, Any] = json.loads(metadata)
    scalars = {key: value for key, value in fields.items() if not isinstance(value, (list, dict))}
    labels = {label_of(session_key, key, value) for key, value in scalars.items()}
    if may_be_important and is_important(fields):
        labels.add(_session_number(session_key))
    return sorted(labels) or None


def is_important(metadata: Mapping[str, Any]) -> bool:
    """Whether a message says of itself that retention is to keep it: ``{"important": True}``.

    Such a message has the session's number itself as a label, without a digest: so statements find it, also
    where the metadata is ciphertext.
    """
    return metadata.get(IMPORTANT) is True


def as_array(labels: list[int] | None) -> str | None:
    """Labels in the form that Postgres reads as an array."""
    return None if labels is None else f"{{{','.join(map(str, labels))}}}"


def label_of(session_key: UUID, key: str, value: Scalar) -> int:
    """The label of one value of metadata, a signed number of 64 bits."""
    text = f"{json.dumps(key)}:{json.dumps(comparable(value))}"
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) ^ _session_number(session_key)


def _session_number(session_key: UUID) -> int:
    return int.from_bytes(session_key.bytes[8:], "big", signed=True)


def comparable(value: Scalar) -> Scalar:
    """The form in which two values are equal as JSON: ``1.0`` is the number 1, and ``true`` is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool) or not isinstance(value, int) else plain_int(value)
