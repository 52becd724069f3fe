"""The newest messages of a log that pass a filter, by number and offset.

Their numbers come first, from an index, and the messages after, by their numbers.  Whatever passes often is
found among the newest messages, so these are looked at first; what is rare is found by the index over roles
and times, or by the one over labels of metadata, so a long log is not read for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from strandline.producers.reading.history.filters import HistoryFilter
from strandline.producers.reading.history.unchanged import read_unchanged
from strandline.producers.sessions import check_unowned
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.messages import (
    BytesOfMessages,
    MatchesByLabel,
    MatchesByRole,
    MessagesBySeq,
    NewestSeqs,
    RecentMatches,
)
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message, read_rows
from strandline.schemas.values.policy import MAX_INTEGER

# So many of the newest messages are looked at before an index is asked.
RECENT_MESSAGES = 1_000
MAX_RECENT_MESSAGES = 10_000
PAGE_MESSAGES = 1_000


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """A part of a log: of what passes the filter, the newest ``limit`` (None: all) behind ``offset``.

    Attributes:
        max_bytes: of all its messages together; None for no bound.
    """

    identity: SessionIdentity
    filters: HistoryFilter
    limit: int | None
    offset: int
    max_bytes: int | None = None


def newest_history(request: HistoryRequest) -> Operation[list[Message]]:
    """The messages of the request, in the order of the log.

    Raises:
        ConfigurationError: they have more than ``max_bytes``.
        OwnerError: the session belongs to another owner.
    """
    seqs = yield from newest_seqs(request)
    if request.max_bytes is not None:
        (row,) = yield from fetch(BytesOfMessages(**request.identity.keys, seqs=seqs))
        check_bytes(row.bytes, request.max_bytes)
    if len(seqs) > PAGE_MESSAGES:
        return (yield from read_unchanged(request.identity, partial(_read_all, request)))
    return (yield from _read_pages(request, seqs))


def check_bytes(size: int, max_bytes: int) -> None:
    """Raise ConfigurationError if messages have more than ``max_bytes`` together."""
    if size > max_bytes:
        problem = f"These messages have more than {max_bytes:,} bytes together; ask for fewer at once."
        raise ConfigurationError(problem, for_clients=problem)


def _read_all(request: HistoryRequest) -> Operation[list[Message]]:
    return (yield from _read_pages(request, (yield from newest_seqs(request))))


def _read_pages(request: HistoryRequest, seqs: list[int]) -> Operation[list[Message]]:
    messages: list[Message] = []
    for first in range(0, len(seqs), PAGE_MESSAGES):
        page = seqs[first : first + PAGE_MESSAGES]
        rows = yield from fetch(MessagesBySeq(**request.identity.keys, seqs=page))
        messages += filter(request.filters.passes, read_rows(rows))
    return messages


def newest_seqs(request: HistoryRequest) -> Operation[list[int]]:
    """The numbers of the messages, the smallest first; raises OwnerError as ``newest_history`` does."""
    seqs = yield from _newest_first(request)
    if not seqs:
        yield from check_unowned(request.identity)
    return seqs[::-1]


def _newest_first(request: HistoryRequest) -> Operation[list[int]]:
    limit = MAX_INTEGER if request.limit is None else request.limit
    if limit == 0:
        return []
    if request.filters.is_open:
        rows = yield from fetch(NewestSeqs(**request.identity.keys, limit=limit, offset=request.offset))
        return [row.seq for row in rows]
    recent = yield from _recent_seqs(request, limit)
    return (yield from _matching_seqs(request, limit)) if recent is None else recent


def _recent_seqs(request: HistoryRequest, limit: int) -> Operation[list[int] | None]:
    """The numbers, if all of them are among the newest messages; else None."""
    depth = request.offset if request.limit is None else request.offset + limit
    labels = request.filters.labels(request.identity.session_key)
    scan = min(max(RECENT_MESSAGES, 4 * depth), MAX_RECENT_MESSAGES)
    rows = yield from fetch(
        RecentMatches(
            **request.identity.keys,
            scan=scan,
            roles=request.filters.stored_roles,
            since=request.filters.since,
            until=request.filters.until,
            labels=labels,
            clear_labels=labels,
            limit=limit,
            offset=request.offset,
        )
    )
    seqs = [row.seq for row in rows if row.seq is not None]
    return seqs if len(seqs) == limit or rows[0].scanned < scan else None


def _matching_seqs(request: HistoryRequest, limit: int) -> Operation[list[int]]:
    """The numbers as the index gives them that fits the filter."""
    identity, filters = request.identity, request.filters
    labels = filters.labels(identity.session_key)
    if labels is None:
        by_role = yield from fetch(
            MatchesByRole(
                **identity.keys,
                roles=filters.stored_roles,
                since=filters.since,
                until=filters.until,
                limit=limit,
                offset=request.offset,
            )
        )
        return [row.seq for row in by_role]
    by_label = yield from fetch(
        MatchesByLabel(
            **identity.keys,
            labels=labels,
            clear_labels=labels,
            roles=filters.stored_roles,
            since=filters.since,
            until=filters.until,
            limit=limit,
            offset=request.offset,
        )
    )
    return [row.seq for row in by_label]
