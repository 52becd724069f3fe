"""The pages of an export: each kind of line, by the keys of its table, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import get_annotations
from typing import Any, TypeVar
from uuid import UUID

from strandline.producers.exports.decoding import (
    answer_line,
    candidate_line,
    capture_act_line,
    correction_line,
    edit_line,
    fact_line,
    flush_line,
    message_line,
    policy_change_line,
    revision_line,
    session_line,
    state_line,
)
from strandline.producers.exports.lines import (
    ArchivedLine,
    CallLine,
    DeadLetterLine,
    DirectoryLine,
    Line,
    PseudonymLine,
    RetentionActLine,
    RunLine,
    ServiceKeyLine,
)
from strandline.producers.sessions import HISTORY_PAGE_BYTES
from strandline.schemas.postgres.paging import next_page
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.upkeep.erasures import OwnerDirectory, OwnerDirectoryRow
from strandline.schemas.queries.upkeep.export import (
    ExportAnswers,
    ExportArchived,
    ExportCalls,
    ExportCandidates,
    ExportCaptureActs,
    ExportCorrections,
    ExportDeadLetters,
    ExportEdits,
    ExportFacts,
    ExportFlushes,
    ExportMessages,
    ExportPolicyChanges,
    ExportPseudonym,
    ExportRetentionActs,
    ExportRevisions,
    ExportRuns,
    ExportServiceKeys,
    ExportSessions,
    ExportStates,
)

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
    """One kind of line.

    Attributes:
        page: the statement of the page after a row; None: of the first one.
        line: a row's line.
        limit: rows of a page that another one follows.
    """

    page: Callable[[Any | None], Query[Any]]
    line: Callable[[Any], Line]
    limit: int = ROWS_PER_PAGE


def sections(target: ExportTarget) -> Iterator[Section]:
    """All kinds of lines, in the order of the export."""
    is_whole_owner = target.session_key is None
    is_whole_user = is_whole_owner and target.user_id is not None
    if is_whole_user:
        yield _section(target, OwnerDirectory, _directory_line)
    yield _section(target, ExportSessions, session_line)
    yield _section(target, ExportMessages, message_line)
    yield _section(target, ExportArchived, lambda row: ArchivedLine(**row._asdict()))
    yield _section(target, ExportCorrections, correction_line)
    yield _section(target, ExportPolicyChanges, policy_change_line)
    yield _section(target, ExportRuns, lambda row: RunLine(**row._asdict()))
    yield _section(target, ExportFlushes, flush_line)
    yield _section(target, ExportFacts, fact_line)
    yield _section(target, ExportRevisions, revision_line)
    yield _section(target, ExportCandidates, candidate_line)
    if is_whole_owner:
        yield _section(target, ExportEdits, edit_line)
    yield _section(target, ExportStates, lambda row: state_line(row, target.owner_key))
    yield _section(target, ExportAnswers, answer_line)
    yield _section(target, ExportDeadLetters, lambda row: DeadLetterLine(**row._asdict()))
    yield _section(target, ExportCalls, lambda row: CallLine(**row._asdict()))
    if is_whole_owner:
        yield _section(target, ExportCaptureActs, capture_act_line)
    # Operators' choices, and their view of the user.
    yield _section(target, ExportRetentionActs, lambda row: RetentionActLine(**row._asdict()))
    if is_whole_owner:
        yield _section(target, ExportPseudonym, lambda row: PseudonymLine(**row._asdict()))
    if is_whole_user:
        yield _section(target, ExportServiceKeys, lambda row: ServiceKeyLine(**row._asdict()))


def _section(target: ExportTarget, statement: type[Query[R]], line: Callable[[R], Line]) -> Section:
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
