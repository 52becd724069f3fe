"""The pages of an export: each kind of line, by the keys of its table, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
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
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.upkeep.erasures import OwnerDirectory
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
# What has no bound of its own, messages, states and answers: a page ends with the row that fills it.
_UP_TO_BYTES: dict[str, Any] = {"limit": 500, "page_bytes": HISTORY_PAGE_BYTES}

_FIRST = UUID(int=0)


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
    yield from _sessions(target)
    yield from _logs(target)
    yield from _facts(target)
    yield from _rest(target)
    yield from _operators_rows(target)


def _sessions(target: ExportTarget) -> Iterator[Section]:
    own: dict[str, Any] = {"shard_key": target.owner_key, "session_key": target.session_key}
    user = target.user_id
    if user is not None and target.session_key is None:
        yield Section(
            lambda last: OwnerDirectory(
                namespace=target.namespace,
                user_id=user,
                after_session=last.session_id if last else "",
                limit=ROWS_PER_PAGE,
            ),
            lambda row: DirectoryLine(
                session_id=row.session_id, session_kind=row.kind, created_at=row.created_at
            ),
        )
    yield Section(
        lambda last: ExportSessions(**own, after_session=_of(last, "session_key"), limit=ROWS_PER_PAGE),
        session_line,
    )


def _logs(target: ExportTarget) -> Iterator[Section]:
    own: dict[str, Any] = {"shard_key": target.owner_key, "session_key": target.session_key}

    def after(last: Any | None, number: str, first: Any = 0) -> dict[str, Any]:
        return {**own, "after_session": _of(last, "session_key"), number: first}

    yield Section(
        lambda last: ExportMessages(**after(last, "after_seq", _at(last, "seq")), **_UP_TO_BYTES),
        message_line,
        1,
    )
    yield Section(
        lambda last: ExportArchived(**after(last, "after_seq", _at(last, "from_seq")), limit=ROWS_PER_PAGE),
        lambda row: ArchivedLine(**row._asdict()),
    )
    yield Section(
        lambda last: ExportCorrections(
            **after(last, "after_number", _at(last, "number")), limit=ROWS_PER_PAGE
        ),
        correction_line,
    )
    yield Section(
        lambda last: ExportPolicyChanges(
            **after(last, "after_number", _at(last, "number")), limit=ROWS_PER_PAGE
        ),
        policy_change_line,
    )
    yield Section(
        lambda last: ExportRuns(**after(last, "after_run", last.run_id if last else ""), limit=ROWS_PER_PAGE),
        lambda row: RunLine(**row._asdict()),
    )
    yield Section(
        lambda last: ExportFlushes(**after(last, "after_seq", _at(last, "from_seq")), limit=ROWS_PER_PAGE),
        flush_line,
    )


def _facts(target: ExportTarget) -> Iterator[Section]:
    own: dict[str, Any] = {"shard_key": target.owner_key, "session_key": target.session_key}

    def after(last: Any | None) -> dict[str, Any]:
        return {**own, "after_generation": _at(last, "generation_id"), "limit": ROWS_PER_PAGE}

    yield Section(lambda last: ExportFacts(**after(last), after_fact=_of(last, "fact_id")), fact_line)
    yield Section(
        lambda last: ExportRevisions(
            **after(last), after_fact=_of(last, "fact_id"), after_revision=_at(last, "revision")
        ),
        revision_line,
    )
    yield Section(
        lambda last: ExportCandidates(
            **after(last), after_event=_of(last, "event_id"), after_ordinal=_at(last, "ordinal", -1)
        ),
        candidate_line,
    )
    if target.session_key is None:
        yield Section(
            lambda last: ExportEdits(
                shard_key=target.owner_key, after_number=_at(last, "number"), limit=ROWS_PER_PAGE
            ),
            edit_line,
        )


def _rest(target: ExportTarget) -> Iterator[Section]:
    owner, session = target.owner_key, target.session_key
    yield Section(
        lambda last: ExportStates(
            shard_key=owner,
            scope_key=session,
            after_scope=_of(last, "scope_key"),
            after_generation=_at(last, "generation_id"),
            after_ordinal=_at(last, "ordinal", -1),
            **_UP_TO_BYTES,
        ),
        lambda row: state_line(row, owner),
        1,
    )
    yield Section(
        lambda last: ExportAnswers(
            shard_key=owner,
            scope_key=session,
            after_batch=_of(last, "batch_id"),
            after_step=last.step if last else "",
            **_UP_TO_BYTES,
        ),
        answer_line,
        1,
    )
    yield Section(
        lambda last: ExportDeadLetters(
            shard_key=owner,
            session_key=session,
            after_session=_of(last, "session_key"),
            after_generation=_at(last, "generation_id"),
            after_stage=last.stage if last else "",
            after_seq=_at(last, "from_seq"),
            limit=ROWS_PER_PAGE,
        ),
        lambda row: DeadLetterLine(**row._asdict()),
    )
    yield Section(
        lambda last: ExportCalls(
            shard_key=owner, scope_key=session, after_call=_of(last, "call_id"), limit=ROWS_PER_PAGE
        ),
        lambda row: CallLine(**row._asdict()),
    )
    if session is None:
        yield Section(
            lambda last: ExportCaptureActs(
                namespace=target.namespace,
                owner_key=owner,
                after_number=_at(last, "number"),
                limit=ROWS_PER_PAGE,
            ),
            capture_act_line,
        )


def _operators_rows(target: ExportTarget) -> Iterator[Section]:
    """What operators chose, and what they see of the user."""
    yield Section(
        lambda last: ExportRetentionActs(
            shard_key=target.owner_key,
            session_key=target.session_key,
            after_session=_of(last, "session_key"),
            after_number=_at(last, "number"),
            limit=ROWS_PER_PAGE,
        ),
        lambda row: RetentionActLine(**row._asdict()),
    )
    if target.session_key is None:
        yield Section(
            lambda _last: ExportPseudonym(shard_key=target.owner_key, limit=ROWS_PER_PAGE),
            lambda row: PseudonymLine(**row._asdict()),
        )
    user = target.user_id
    if user is not None and target.session_key is None:
        yield Section(
            lambda last: ExportServiceKeys(
                namespace=target.namespace,
                user_id=user,
                after_key=last.key_id if last else "",
                limit=ROWS_PER_PAGE,
            ),
            lambda row: ServiceKeyLine(**row._asdict()),
        )


def _of(last: Any | None, name: str) -> UUID:
    key: UUID = getattr(last, name) if last is not None else _FIRST
    return key


def _at(last: Any | None, name: str, first: int = 0) -> int:
    number: int = getattr(last, name) if last is not None else first
    return number


def is_last(page: Sequence[object], section: Section) -> bool:
    """Whether no page follows this one."""
    return len(page) < section.limit
