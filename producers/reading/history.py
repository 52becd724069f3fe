"""A session's history: the messages of its log by filters and number, or the newest that fit some tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from strandline.pipelines.flush.plan import UNBOUNDED
from strandline.producers.reading.call_pairs import Settled, is_settled, settled
from strandline.producers.reading.context import sum_tokens
from strandline.producers.search.message_filter import MessageFilter
from strandline.producers.sessions import check_unowned
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation, fetch, find_owner_keys
from strandline.schemas.queries.conversation.messages import (
    BytesOfMessages,
    HeadMessages,
    LogState,
    MatchesByLabel,
    MatchesByRole,
    MessagesBySeq,
    NewestSeqs,
    NewestWithin,
    RecentMatches,
)
from strandline.schemas.queries.conversation.read import CallsOfResults
from strandline.schemas.queries.rows import MeasuredMessageRow
from strandline.schemas.values.identity import SessionIdentity, call_reference
from strandline.schemas.values.message import Message, read_rows
from strandline.schemas.values.policy import MAX_INTEGER

# A log that is corrected so often while it is read is shown as the last attempt found it.
MAX_ATTEMPTS = 20


def read_unchanged(
    identity: SessionIdentity, read: Callable[[], Operation[list[Message]]]
) -> Operation[list[Message]]:
    """The messages that ``read`` finds, page by page, none of them of another state than the others.

    Puts and pops change only the end of a log, so they do not count.
    """
    messages: list[Message] = []
    for _attempt in range(MAX_ATTEMPTS):
        before = yield from fetch(LogState(**identity.keys))
        messages = yield from read()
        if before == (yield from fetch(LogState(**identity.keys))):
            break
    return messages


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
    filters: MessageFilter
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


DEFAULT_CONTEXT_TOKENS = 4_000
CONTEXT_PAGE_MESSAGES = 500
_AFTER_ALL = 2**63 - 1
# So far back the call of a late result is looked for, in numbers of messages.
RECALLED_WITHIN = 2_000


def newest_that_fit(
    identity: SessionIdentity, max_tokens: int, max_bytes: int = UNBOUNDED
) -> Operation[list[Message]]:
    """The pinned head, and the newest messages that fit with it, flushed ones included, in order.

    A head that does not fit by itself is left out. Tool calls and results are in the order of a read, and
    without results whose call does not fit. Behind the head they end with the message that fills
    ``max_bytes``.

    Raises:
        OwnerError: the session belongs to another owner.
    """
    messages = yield from _one_page_that_fits(identity, max_tokens, max_bytes)
    if messages is None:
        messages = yield from read_unchanged(
            identity, partial(_all_that_fit, identity, max_tokens, max_bytes)
        )
    if not messages:
        yield from check_unowned(identity)
    return messages


def _one_page_that_fits(
    identity: SessionIdentity, max_tokens: int, max_bytes: int
) -> Operation[list[Message] | None]:
    head, room = yield from _head_that_fits(identity, max_tokens)
    page = yield from _page_before(identity, _AFTER_ALL, room, max_bytes)
    if len(page) == CONTEXT_PAGE_MESSAGES:
        return None
    return (yield from _in_order(identity, head, read_rows(page[::-1]), room))


def _all_that_fit(identity: SessionIdentity, max_tokens: int, max_bytes: int) -> Operation[list[Message]]:
    head, room = yield from _head_that_fits(identity, max_tokens)
    newest: list[Message] = []
    left = room
    while True:
        before_seq = (newest[-1].seq or 0) if newest else _AFTER_ALL
        page = yield from _page_before(identity, before_seq, left, max_bytes)
        newest += read_rows(page)
        if len(page) < CONTEXT_PAGE_MESSAGES:
            return (yield from _in_order(identity, head, newest[::-1], room))
        left -= sum(row.tokens for row in page)
        max_bytes -= page[-1].bytes_taken


def _head_that_fits(identity: SessionIdentity, max_tokens: int) -> Operation[tuple[list[Message], int]]:
    head = read_rows((yield from fetch(HeadMessages(**identity.keys))))
    room = max_tokens - sum_tokens(head)
    return ([], max_tokens) if room < 0 else (head, room)


def _page_before(
    identity: SessionIdentity, before_seq: int, tokens: int, max_bytes: int
) -> Operation[list[MeasuredMessageRow]]:
    bounds = {"page_size": CONTEXT_PAGE_MESSAGES, "tokens": tokens, "max_bytes": max_bytes}
    return fetch(NewestWithin(**identity.keys, before_seq=before_seq, **bounds))


def _in_order(
    identity: SessionIdentity, head: Sequence[Message], newest: list[Message], room: int
) -> Operation[list[Message]]:
    """Calls and results in order, and late results with their calls, for which the oldest messages leave.

    Without notes, which would have no room.
    """
    shown = [*head, *newest]
    if is_settled(shown):
        return shown
    # Results in front are cut from their calls.
    first = next((one.seq or 0 for one in newest if not one.answers), _AFTER_ALL)
    lost = Settled(shown, with_notes=False).lost_calls(first)
    recalled = (yield from recall(identity, lost, newest[0].seq or 0)) if lost else []
    left = room - sum_tokens(recalled)
    if recalled and left >= room // 2:
        over, gone = sum_tokens(newest) - left, 0
        while over > 0:
            over -= newest[gone].tokens or 0
            gone += 1
        newest = newest[gone:]
        if newest and max(lost.values()) >= (newest[0].seq or 0):
            shown = [*head, *recalled, *newest]
    return [*settled(shown, with_notes=False)]


def recall(identity: SessionIdentity, lost: Mapping[str, int], before_seq: int) -> Operation[list[Message]]:
    """The messages before a number with these calls, and with other results of their calls.

    Args:
        lost: ids of calls, with the numbers of their first results.
    """
    calls = [call_reference(one) for one in lost]
    if keys := (yield from find_owner_keys(identity.shard_key)):
        calls += [keys.reference(one) for one in calls]
    statement = CallsOfResults(**identity.keys, calls=calls, within=RECALLED_WITHIN, before_seq=before_seq)
    messages = read_rows((yield from fetch(statement)))
    # A second result of a call brings nothing back.
    answered = {(call_id, one.seq or 0) for one in messages for call_id in one.answers}
    waiting = {one for one, at in lost.items() if not any(one == by and seq < at for by, seq in answered)}
    callers = [one for one in messages if not waiting.isdisjoint(one.calls)]
    ids = {call_id for one in callers for call_id in one.calls}
    return [one for one in messages if one in callers or not ids.isdisjoint(one.answers)]
