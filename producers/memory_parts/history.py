"""The history methods of a session's memory, sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime

from strandline.producers.arguments import check_count, check_token_count
from strandline.producers.execution import async_method, sync_method
from strandline.producers.memory_parts.search import MemorySearch
from strandline.producers.reading.history.context_window import DEFAULT_CONTEXT_TOKENS, newest_that_fit
from strandline.producers.reading.history.filters import HistoryFilter
from strandline.producers.reading.history.newest import HistoryRequest, newest_history
from strandline.producers.sessions import HISTORY_PAGE, history_page, whole_history
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.labels import Scalar
from strandline.schemas.values.message import Message


class MemoryHistory(MemorySearch):
    """The history methods of ``SessionMemory``."""

    @sync_method
    def get_all(self, *, connection: object | None = None) -> Operation[list[Message]]:
        """The whole history in order, flushed messages included."""
        return self._record_read("history", whole_history(self._identity), connection)

    aget_all = async_method(get_all)

    def iterate(self, *, after_seq: int = 0, page_size: int = HISTORY_PAGE) -> Iterator[Message]:
        """The history page by page, for long ones; each page is a separate read."""
        while page := self._runner.run(self._page(after_seq, page_size), None):
            yield from page
            after_seq = page[-1].seq or after_seq

    async def aiterate(self, *, after_seq: int = 0, page_size: int = HISTORY_PAGE) -> AsyncIterator[Message]:
        """Async twin of ``iterate``."""
        while page := await self._runner.arun(self._page(after_seq, page_size), None):
            for message in page:
                yield message
            after_seq = page[-1].seq or after_seq

    @sync_method
    def history(
        self,
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
            self._identity,
            HistoryFilter.check(roles, metadata, since, until),
            None if limit is None else check_count("limit", limit),
            check_count("offset", offset),
        )
        return self._record_read("history", newest_history(request), connection)

    ahistory = async_method(history)

    @sync_method
    def context_window(
        self, max_tokens: int = DEFAULT_CONTEXT_TOKENS, *, connection: object | None = None
    ) -> Operation[list[Message]]:
        """The newest messages that fit ``max_tokens`` together, in order, without any derived memory.

        Tokens count as in a read.  The pinned head comes first and takes its room first, unless it does not
        fit by itself.  Flushed messages are included.  Tool calls and results are in the order that
        providers take, and a result is never without its call, so fewer messages may be given than would fit.

        Raises:
            ConfigurationError: ``max_tokens`` is not a number of tokens.
            OwnerError, DatabaseUnavailableError: as ``get``.
        """
        window = newest_that_fit(self._identity, check_token_count("max_tokens", max_tokens))
        return self._record_read("history", window, connection)

    acontext_window = async_method(context_window)

    def _page(self, after_seq: int, page_size: int) -> Operation[list[Message]]:
        return self._record_read("history", history_page(self._identity, after_seq, page_size))
