"""The short ways to put one message: parameters and rows of the statements that stand in for ``put``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.schemas.operations import Row

# What ``put`` calls it, with one element each, and what ``put_one`` calls it.
_COLUMNS = {
    "ids": "id",
    "roles": "role",
    "tokens": "tokens",
    "digests": "digest",
    "envelopes": "envelope",
    "metadata": "metadata",
    "created_at": "created_at",
    "calls": "calls",
    "answers": "answers",
}


def quick_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of ``put_one``, from those of a ``put`` of one message."""
    quick = {one: params[name][0] for name, one in _COLUMNS.items()}
    quick["shard_key"] = params["shard_key"]
    quick["session_key"] = params["session_key"]
    return quick


def group_params(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters of ``put_many``, from those of puts of one message each."""
    together = {name: [params[name][0] for params in group] for name in _COLUMNS}
    together["shard_keys"] = [params["shard_key"] for params in group]
    together["session_keys"] = [params["session_key"] for params in group]
    return together


def quick_rows(taken: Sequence[Row]) -> list[Row]:
    """The rows that ``put`` would have given for a message that was taken; none if it was not."""
    return [("ok", None, [seq], None) for (seq,) in taken]
