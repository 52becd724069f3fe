"""What explanations read alike: messages as sources, model calls, and rows as parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel

from strandline.pipelines.inspect.explanation import ModelCall, Source
from strandline.pipelines.transcript import plain_text, speaker
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.postgres.operations import Row
from strandline.schemas.values.message import Message, read_rows

MAX_EXCERPT_CHARACTERS = 160

P = TypeVar("P", bound=BaseModel)


def model_calls(fetcher: Fetcher, shard_key: UUID, batch_ids: Iterable[UUID | None]) -> list[ModelCall]:
    """The ledger of some batches."""
    wanted = sorted({batch_id for batch_id in batch_ids if batch_id is not None})
    rows = fetcher.fetch("explain_calls", {"shard_key": shard_key, "batch_ids": wanted}) if wanted else []
    return [part(ModelCall, list(ModelCall.model_fields), row) for row in rows]


def message_of(row: Row) -> Message:
    """A message from the columns of one."""
    (message,) = read_rows([row])
    return message


def source_of(message: Message) -> Source:
    """A message as it is shown."""
    return Source(
        id=message.id or "",
        seq=message.seq or 0,
        role=message.role,
        said_by=speaker(message),
        at=message.created_at,  # type: ignore[arg-type]  # a stored message has its time
        excerpt=excerpt(plain_text(message)),
    )


def excerpt(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_EXCERPT_CHARACTERS else line[: MAX_EXCERPT_CHARACTERS - 1].rstrip() + "…"


def part(kind: type[P], names: Iterable[str], row: Row, **more: Any) -> P:
    """A part from a row whose columns have these names."""
    return kind(**dict(zip(names, row, strict=True)), **more)
