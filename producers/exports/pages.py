"""The pages of an export: each kind of line, by the keys of its table, a bounded number of rows at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import get_annotations
from typing import Any, TypeVar
from uuid import UUID

from strandline.producers.exports.lines import (
    AnswerLine,
    DirectoryLine,
    FlushLine,
    MessageLine,
    SessionLine,
    StateLine,
)
from strandline.producers.sessions import HISTORY_PAGE_BYTES
from strandline.schemas.postgres.paging import next_page
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries import exported
from strandline.schemas.queries.exported import ExportedLine
from strandline.schemas.queries.rows import MessageOfSessionRow
from strandline.schemas.queries.upkeep import exporting
from strandline.schemas.queries.upkeep.erasures import OwnerDirectory, OwnerDirectoryRow
from strandline.schemas.queries.upkeep.export import (
    ExportAnswers,
    ExportAnswersRow,
    ExportFlushes,
    ExportFlushesRow,
    ExportMessages,
    ExportSessions,
    ExportSessionsRow,
    ExportStates,
    ExportStatesRow,
)
from strandline.schemas.values.message import read_rows

# Facts, and what people chose, have some tens of kilobytes at most.
ROWS_PER_PAGE = 80
# For messages, states and answers, which have no bound of their own: a page ends with the row that fills it.
FILLED_ROWS = 500

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """Of whom, and of which session alone (None: of all)."""

    namespace: str
    owner_key: UUID
    user_id: str | None
    session_key: UUID | None


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of line: the statements of its first and further pages, and what makes a row's line."""

    page: Callable[[Any | None], Query[Any]]
    line: Callable[[Any], ExportedLine]
    limit: int = ROWS_PER_PAGE


def sections(target: ExportTarget) -> Iterator[Section]:
    """All kinds of lines, in the order of the export."""
    is_whole_owner = target.session_key is None
    is_whole_user = is_whole_owner and target.user_id is not None
    if is_whole_user:
        yield _section(target, OwnerDirectory, _directory_line)
    yield _section(target, ExportSessions, session_line)
    yield _section(target, ExportMessages, message_line)
    yield _columns(target, exporting.ExportRetentionStep, exported.ArchivedLine)
    yield _columns(target, exporting.ExportCorrection, exported.CorrectionLine)
    yield _columns(target, exporting.ExportPolicyChange, exported.PolicyChangeLine)
    yield _columns(target, exporting.ExportSessionRun, exported.RunLine)
    yield _section(target, ExportFlushes, flush_line)
    yield _columns(target, exporting.ExportFact, exported.FactLine)
    yield _columns(target, exporting.ExportFactRevision, exported.RevisionLine)
    yield _columns(target, exporting.ExportFactCandidate, exported.CandidateLine)
    if is_whole_owner:
        yield _columns(target, exporting.ExportFactEvent, exported.EditLine)
    yield _section(target, ExportStates, lambda row: state_line(row, target.owner_key))
    yield _section(target, ExportAnswers, answer_line)
    yield _columns(target, exporting.ExportDeadLetter, exported.DeadLetterLine)
    yield _columns(target, exporting.ExportModelCall, exported.CallLine)
    if is_whole_owner:
        yield _columns(target, exporting.ExportCaptureAct, exported.CaptureActLine)
    # Operators' choices, and their view of the user.
    yield _columns(target, exporting.ExportSessionRetentionAct, exported.RetentionActLine)
    if is_whole_owner:
        yield _columns(target, exporting.ExportAuditSubject, exported.PseudonymLine)
    if is_whole_user:
        yield _columns(target, exporting.ExportServiceKey, exported.ServiceKeyLine)


def _columns(target: ExportTarget, statement: type[Query[Any]], line: type[ExportedLine]) -> Section:
    """A section whose lines have the columns of its rows."""
    return _section(target, statement, lambda row: line(**row._asdict()))


def _section(target: ExportTarget, statement: type[Query[R]], line: Callable[[R], ExportedLine]) -> Section:
    ends_by_size = "page_bytes" in get_annotations(statement)
    page = partial(
        next_page,
        statement,
        namespace=target.namespace,
        user_id=target.user_id,
        owner_key=target.owner_key,
        shard_key=target.owner_key,
        session_key=target.session_key,
        scope_key=target.session_key,
        limit=FILLED_ROWS if ends_by_size else ROWS_PER_PAGE,
        page_bytes=HISTORY_PAGE_BYTES,
    )
    return Section(page, line, 1 if ends_by_size else ROWS_PER_PAGE)


def _directory_line(row: OwnerDirectoryRow) -> DirectoryLine:
    return DirectoryLine(session_id=row.session_id, session_kind=row.kind, created_at=row.created_at)


def is_last(page: Sequence[object], section: Section) -> bool:
    """Whether no page follows this one."""
    return len(page) < section.limit


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
