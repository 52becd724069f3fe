"""From stored rows to lines that are not simply their columns."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from strandline.producers.exports.lines import AnswerLine, FlushLine, MessageLine, SessionLine, StateLine
from strandline.schemas.queries.rows import MessageOfSessionRow
from strandline.schemas.queries.upkeep.export import (
    ExportAnswersRow,
    ExportFlushesRow,
    ExportSessionsRow,
    ExportStatesRow,
)
from strandline.schemas.values.message import read_rows


def session_line(row: ExportSessionsRow) -> SessionLine:
    fields = row._asdict()
    return SessionLine(last_seq=fields.pop("next_seq") - 1, **fields)


def message_line(row: MessageOfSessionRow) -> MessageLine:
    (message,) = read_rows([row])
    at = message.created_at or row.created_at
    whole = message.to_dict() | {"id": row.id, "created_at": at.isoformat()}
    if message.metadata:
        whole["metadata"] = dict(message.metadata)
    return MessageLine(session_key=row.session_key, seq=row.seq, tokens=row.tokens, message=whole)


def flush_line(row: ExportFlushesRow) -> FlushLine:
    fields = row._asdict() | {"receipts": json.loads(row.receipts)}
    return FlushLine(messages=fields.pop("message_count"), **fields)


def state_line(row: ExportStatesRow, owner_key: UUID) -> StateLine:
    fields: dict[str, Any] = row._asdict() | {"state": json.loads(row.state)}
    scope = fields.pop("scope_key")
    return StateLine(session_key=None if scope == owner_key else scope, **fields)


def answer_line(row: ExportAnswersRow) -> AnswerLine:
    fields: dict[str, Any] = row._asdict()
    del fields["scope_key"]
    return AnswerLine(text=_text(fields.pop("body")), **fields)


def _text(body: bytes | None) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None
