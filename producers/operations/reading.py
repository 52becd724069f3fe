"""Operations that read a session: its memory for a prompt, its history, and searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from strandline.producers.arguments import (
    check_count,
    check_seq,
    check_timeout,
    check_token_count,
    read_messages,
    read_query,
)
from strandline.producers.blocks.base import check_block_arguments
from strandline.producers.operations.session import Session
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.history import (
    DEFAULT_CONTEXT_TOKENS,
    HistoryRequest,
    newest_history,
    newest_that_fit,
)
from strandline.producers.reading.read import read
from strandline.producers.reading.request import ReadRequest
from strandline.producers.search.hits import MESSAGES_ALONE, HitKind, SearchScope, checked_kinds
from strandline.producers.search.message_filter import MessageFilter
from strandline.producers.search.search import SearchRequest, SearchResult, search_history
from strandline.producers.sessions import history_page, whole_history
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.foreign_values import plain_scalar
from strandline.schemas.values.labels import Scalar
from strandline.schemas.values.message import Message


def get(
    session: Session,
    input: object | None = None,
    *,
    messages: Sequence[object] | None = None,
    initial_token_count: int = 0,
    wait_for: int | None = None,
    timeout: float | None = None,
    block_arguments: Mapping[str, Any] | None = None,
    generation: int | None = None,
    connection: object | None = None,
) -> Operation[MemoryContext]:
    """The prompt's memory: pinned head, blocks, tail and window, within ``token_limit``.

    Args:
        input: the text or message to search memory for; default: the latest messages.
        messages: the same as a list of messages.
        initial_token_count: tokens of the caller's own prompt; the result leaves room for them within the
            limit. If they leave too little room, the oldest messages of the window are left out of this
            read, and ``.omitted`` names them; the last turn stays.
        wait_for: wait until this ``seq`` has been put and, if it was flushed, derived memory covers it.
            ``.caught_up`` says whether it does.
        timeout: the longest wait, in seconds; default 10.
        block_arguments: what your own blocks are told of this read, by name (``BlockReading``).
        generation: read as if this one served its pipeline, to compare derivations, without ``wait_for``;
            default: what serves.

    Raises:
        ConfigurationError: ``initial_token_count`` is not a number of tokens; no block takes arguments;
            ``wait_for`` with ``generation``.
        InvalidMessageError: ``input`` or one of ``messages`` is not a message.
        OwnerError: the session belongs to another owner.
        UnknownReplayError: no block reads this generation, or it is still being filled.
        DatabaseUnavailableError: Postgres cannot be reached.
    """
    request = make_read(
        session,
        input,
        messages=messages,
        initial_token_count=initial_token_count,
        wait_for=wait_for,
        timeout=timeout,
        block_arguments=block_arguments,
        generation=generation,
        connection=connection,
    )
    return session.record_read("read", read(request), connection)


def make_read(
    session: Session,
    input: object | None = None,
    *,
    messages: Sequence[object] | None = None,
    initial_token_count: int = 0,
    wait_for: int | None = None,
    timeout: float | None = None,
    block_arguments: Mapping[str, Any] | None = None,
    generation: int | None = None,
    connection: object | None = None,
) -> ReadRequest:
    """The read that ``get`` makes of its arguments; raises as ``get``."""
    if generation is not None and wait_for is not None:
        raise ConfigurationError("A read waits for what serves alone: leave out wait_for, or generation.")
    resources = session.resources
    return ReadRequest(
        identity=session.identity,
        blocks=session.blocks,
        token_limit=session.token_limit,
        within_own=session.own_token_limit is None,
        named=session.named,
        insert_method=session.insert_method,
        count_text=session.rules.count_text,
        query=read_query(input),
        messages=read_messages(messages),
        wait_for=None if wait_for is None else check_seq("wait_for", wait_for),
        timeout_seconds=None if timeout is None else check_timeout(timeout),
        embed_query=resources.embed_query,
        windows=resources.windows if connection is None else None,
        indexes=resources.indexes if connection is None else None,
        render=session.render,
        in_callers_transaction=connection is not None,
        part_tokens=session.rules.part_tokens,
        initial_token_count=check_token_count("initial_token_count", initial_token_count),
        shared_key=session.shared_key,
        block_arguments=check_block_arguments(session.blocks, block_arguments),
        generation=None if generation is None else check_count("generation", generation, least=1),
        indexed_characters=resources.settings.max_indexed_characters,
        ring=resources.ring if connection is None else None,
    )


def get_all(session: Session, *, connection: object | None = None) -> Operation[list[Message]]:
    """The whole history in order, flushed messages included."""
    return session.record_read("history", whole_history(session.identity), connection)


def read_page(session: Session, after_seq: int, page_size: int) -> Operation[list[Message]]:
    """A page of the history behind ``after_seq``."""
    return session.record_read("history", history_page(session.identity, after_seq, page_size))


def history(
    session: Session,
    limit: int | None = None,
    offset: int = 0,
    roles: Sequence[str] | None = None,
    metadata: Mapping[str, Scalar] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    connection: object | None = None,
) -> Operation[list[Message]]:
    """The newest messages that pass all filters, in order; flushed messages included.

    Args:
        limit: maximum number of messages; 0: none; None: all.
        offset: how many of the newest that pass to leave out.
        roles: only messages of these roles; an empty list lets none pass.
        metadata: only messages whose metadata has each of these keys with this value: a text, a number,
            True, False or None. ``1`` and ``1.0`` are equal, ``1`` and ``True`` are not; what metadata
            has inside of lists and objects cannot be filtered by.
        since, until: only messages whose ``created_at`` is not before and not after; with a time zone.

    Raises:
        ConfigurationError: an argument is not one of these; the error names it.
        OwnerError, DatabaseUnavailableError: as ``get``.
    """
    request = HistoryRequest(
        session.identity,
        MessageFilter.check(roles, metadata, since, until),
        None if limit is None else check_count("limit", limit),
        check_count("offset", offset),
    )
    return session.record_read("history", newest_history(request), connection)


def context_window(
    session: Session, max_tokens: int = DEFAULT_CONTEXT_TOKENS, *, connection: object | None = None
) -> Operation[list[Message]]:
    """The newest messages that fit ``max_tokens`` together, in order, without any derived memory.

    Tokens count as in a read.  The pinned head comes first and takes its room first, unless it does not
    fit by itself.  Flushed messages are included.  Tool calls and results are in the order that
    providers take, and a result is never without its call, so fewer messages may be given than would fit.

    Raises:
        ConfigurationError: ``max_tokens`` is not a number of tokens.
        OwnerError, DatabaseUnavailableError: as ``get``.
    """
    window = newest_that_fit(session.identity, check_token_count("max_tokens", max_tokens))
    return session.record_read("history", window, connection)


def search(
    session: Session,
    query: str,
    *,
    limit: int = 10,
    scope: SearchScope = "session",
    exclude_current: bool = False,
    include_window: bool = True,
    kinds: Sequence[HitKind] = MESSAGES_ALONE,
    roles: Sequence[str] | None = None,
    metadata: Mapping[str, Scalar] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Operation[Sequence[SearchResult]]:
    """Search messages, and facts if asked for, that match ``query``, best first.

    Args:
        query: words or a question; of a long text, only the end is used.
        limit: maximum number of hits, 0 to 1,000.
        scope: this ``session``, all sessions of its ``owner``, or the messages ``shared`` in the
            memory's scope (``shared_scope=``).
        exclude_current: leave out this session, and facts that come only from it.
        include_window: also search messages that are not flushed or have no vectors yet, by their words:
            the newest 1,000 of them; for an owner, those of the 20 sessions last put to. A message whose
            text is exactly ``query`` is then left out. Shared scopes hold only flushed messages.
        kinds: ``"message"``, ``"fact"`` or both.  By default only messages: ``memory.facts`` has its own
            search. A fact's hit has ``.fact``, with the messages that it comes from, and no ``.message``;
            each has ``.kind``, ``.text``, ``.score`` and ``.similarity``.
        roles, metadata, since, until: only messages that pass them, as for ``history``; of delivered ones
            the newest 10,000 that do are compared. Facts and shared messages cannot be searched so.

    Raises:
        ConfigurationError: an argument is not one of these; facts are asked for in the shared scope,
            which has none, or with filters; or the memory names no shared scope.
        InvalidMessageError: ``query`` holds NUL or half of a surrogate pair, as no stored text does.
        OwnerError, DatabaseUnavailableError: as ``get``.
    """
    request = SearchRequest(
        identity=session.identity,
        query=query,
        limit=plain_scalar(limit),
        scope=plain_scalar(scope),
        embed_query=session.resources.embed_query,
        kinds=checked_kinds(kinds),
        exclude_current=exclude_current,
        shared_key=session.shared_key,
        include_window=include_window,
        indexes=session.resources.indexes,
        filters=MessageFilter.check(roles, metadata, since, until),
    )
    return session.record_read("search", search_history(request))
