"""The newest messages of a log that fit a number of tokens, behind the pinned head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.pipelines.flush.plan import UNBOUNDED
from strandline.producers.reading.history.call_pairs import settled
from strandline.producers.reading.history.unchanged import read_unchanged
from strandline.producers.sessions import check_unowned
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.messages import HeadMessages, NewestWithin
from strandline.schemas.queries.rows import MeasuredMessageRow
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message, read_rows

DEFAULT_CONTEXT_TOKENS = 4_000
PAGE_MESSAGES = 500
_AFTER_ALL = 2**63 - 1


def newest_that_fit(
    identity: SessionIdentity, max_tokens: int, max_bytes: int = UNBOUNDED
) -> Operation[list[Message]]:
    """The pinned head, and the newest messages that fit beside it, flushed ones included, in order.

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
    """None if there may be more than one page."""
    head, room = yield from _head_that_fits(identity, max_tokens)
    page = yield from _page(identity, _AFTER_ALL, room, max_bytes)
    return _in_order(head, read_rows(page[::-1])) if len(page) < PAGE_MESSAGES else None


def _all_that_fit(identity: SessionIdentity, max_tokens: int, max_bytes: int) -> Operation[list[Message]]:
    head, room = yield from _head_that_fits(identity, max_tokens)
    newest: list[Message] = []
    while True:
        before_seq = (newest[-1].seq or 0) if newest else _AFTER_ALL
        page = yield from _page(identity, before_seq, room, max_bytes)
        newest += read_rows(page)
        if len(page) < PAGE_MESSAGES:
            return _in_order(head, newest[::-1])
        room -= sum(row.tokens for row in page)
        max_bytes -= page[-1].bytes_taken


def _head_that_fits(identity: SessionIdentity, max_tokens: int) -> Operation[tuple[list[Message], int]]:
    """The pinned head, empty if it does not fit by itself, and the tokens that it leaves."""
    head = read_rows((yield from fetch(HeadMessages(**identity.keys))))
    room = max_tokens - _tokens(head)
    return ([], max_tokens) if room < 0 else (head, room)


def _page(
    identity: SessionIdentity, before_seq: int, tokens: int, max_bytes: int
) -> Operation[list[MeasuredMessageRow]]:
    """The newest messages before a number that fit so many tokens, the newest first."""
    bounds = {"page_size": PAGE_MESSAGES, "tokens": tokens, "max_bytes": max_bytes}
    return fetch(NewestWithin(**identity.keys, before_seq=before_seq, **bounds))


def _in_order(head: Sequence[Message], newest: Sequence[Message]) -> list[Message]:
    # Without notes: these would have no room.
    return [*settled((*head, *newest), with_notes=False)]


def _tokens(messages: Sequence[Message]) -> int:
    return sum(message.tokens or 0 for message in messages)
