"""The short ways to put one message: parameters and rows of the statements that stand in for ``put``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from json.encoder import encode_basestring as quoted
from typing import Any

from strandline.schemas.postgres.operations import Row
from strandline.schemas.values.identity import key_text


def group_params(group: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters of ``put_many``, from those of ``put_one`` for each message."""
    return {"messages": f"[{','.join(map(_record, group))}]"}


def _record(one: Mapping[str, Any]) -> str:
    """One message as a JSON object; what is JSON in it already goes in as it is, what is NULL is left out."""
    return (
        f'{{"shard_key":"{key_text(one["shard_key"])}","session_key":"{key_text(one["session_key"])}",'
        f'"id":{quoted(one["id"])},"role":"{one["role"]}","tokens":{one["tokens"]},'
        f'"bytes":{one["bytes"]},'
        f'"digest":"\\\\x{one["digest"].hex()}","envelope":{one["envelope"]}{"".join(_rarer(one))}}}'
    )


def _rarer(one: Mapping[str, Any]) -> Iterator[str]:
    """What most messages do not have."""
    if one["metadata"] is not None:
        yield f',"metadata":{one["metadata"]}'
    if one["created_at"] is not None:
        yield f',"created_at":{quoted(one["created_at"].isoformat())}'
    if one["calls"] is not None:
        yield f',"calls":{one["calls"]}'
    if one["answers"] is not None:
        yield f',"answers":{quoted(one["answers"])}'


def quick_row(seq: int) -> Row:
    """The row that ``put`` would have given for a message that was taken."""
    return "ok", None, [seq], None
