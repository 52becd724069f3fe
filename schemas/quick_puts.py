"""The short ways to put one message: parameters and rows of the statements that stand in for ``put``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring as quoted
from typing import Any
from uuid import UUID

from strandline.schemas.operations import Row


def group_params(group: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters of ``put_many``, from those of ``put_one`` for each message."""
    return {"messages": f"[{','.join(map(_record, group))}]"}


def _record(one: Mapping[str, Any]) -> str:
    """One message as a JSON object; what is JSON in it already goes in as it is."""
    created_at, answers = one["created_at"], one["answers"]
    return (
        f'{{"shard_key":"{key_text(one["shard_key"])}","session_key":"{key_text(one["session_key"])}",'
        f'"id":{quoted(one["id"])},'
        f'"role":"{one["role"]}","tokens":{one["tokens"]},"digest":"\\\\x{one["digest"].hex()}",'
        f'"envelope":{one["envelope"]},"metadata":{one["metadata"] or "null"},'
        f'"created_at":{"null" if created_at is None else quoted(created_at.isoformat())},'
        f'"calls":{one["calls"] or "null"},"answers":{"null" if answers is None else quoted(answers)}}}'
    )


@lru_cache(maxsize=4096)
def key_text(key: UUID) -> str:
    """A key as text, kept: a session's keys come with each of its messages."""
    return str(key)


def quick_rows(taken: Sequence[Row]) -> list[Row]:
    """The rows that ``put`` would have given for a message that was taken; none if it was not."""
    return [("ok", None, [seq], None) for (seq,) in taken]
