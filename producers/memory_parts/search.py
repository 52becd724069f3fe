"""The search methods of a session's memory, sync and async."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.audit.carrying_out import Recorder, count_results
from strandline.producers.execution import OperationRunner, Resources
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.hits import MESSAGES_ALONE, HitKind, SearchScope, checked_kinds
from strandline.producers.search.search import FoundMessage, SearchRequest, SearchResult, search_history
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.foreign_values import plain_scalar
from strandline.schemas.values.identity import SessionIdentity

T = TypeVar("T")


class MemorySearch:
    """The search methods of ``SessionMemory``."""

    def __init__(
        self,
        resources: Resources,
        identity: SessionIdentity,
        shared_key: UUID | None,
        redaction: Redaction | None = None,
    ) -> None:
        self._resources = resources
        self._redaction = resources.redaction if redaction is None else redaction
        self._runner = OperationRunner(resources)
        self._identity = identity
        self._shared_key = shared_key

    @property
    def _recorder(self) -> Recorder:
        """Carries out acts that concern this session, with the compliance hook and the audit trail."""
        return Recorder(self._identity, self._resources.compliance, self._resources.audit_levels)

    def _record_read(
        self, kind: str, operation: Operation[T], connection: object | None = None
    ) -> Operation[T]:
        """Carry out a read, and append it to the audit trail where reads are recorded."""
        recorder = self._recorder
        return recorder.read(
            Act.here(kind), operation, count_results, in_callers_transaction=connection is not None
        )

    @overload
    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        scope: SearchScope = "session",
        exclude_current: bool = False,
        include_window: bool = True,
    ) -> list[FoundMessage]: ...

    @overload
    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        scope: SearchScope = "session",
        exclude_current: bool = False,
        include_window: bool = True,
        kinds: Sequence[HitKind],
    ) -> list[FoundMessage | FoundFact]: ...

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        scope: SearchScope = "session",
        exclude_current: bool = False,
        include_window: bool = True,
        kinds: Sequence[HitKind] = MESSAGES_ALONE,
    ) -> Sequence[SearchResult]:
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

        Raises:
            ConfigurationError: an argument is not one of these; facts are asked for in the shared scope,
                which has none; or the memory names no shared scope.
            OwnerError, DatabaseUnavailableError: as ``get``.
        """
        return self._runner.run(
            self._search_operation(query, limit, scope, exclude_current, include_window, kinds), None
        )

    @overload
    async def asearch(
        self,
        query: str,
        *,
        limit: int = 10,
        scope: SearchScope = "session",
        exclude_current: bool = False,
        include_window: bool = True,
    ) -> list[FoundMessage]: ...

    @overload
    async def asearch(
        self,
        query: str,
        *,
        limit: int = 10,
        scope: SearchScope = "session",
        exclude_current: bool = False,
        include_window: bool = True,
        kinds: Sequence[HitKind],
    ) -> list[FoundMessage | FoundFact]: ...

    async def asearch(
        self,
        query: str,
        *,
        limit: int = 10,
        scope: SearchScope = "session",
        exclude_current: bool = False,
        include_window: bool = True,
        kinds: Sequence[HitKind] = MESSAGES_ALONE,
    ) -> Sequence[SearchResult]:
        """Async twin of ``search``."""
        return await self._runner.arun(
            self._search_operation(query, limit, scope, exclude_current, include_window, kinds), None
        )

    def _search_operation(
        self,
        query: str,
        limit: int,
        scope: SearchScope,
        exclude_current: bool,
        include_window: bool,
        kinds: Sequence[HitKind],
    ) -> Operation[list[SearchResult]]:
        hits = search_history(
            SearchRequest(
                identity=self._identity,
                query=query,
                limit=plain_scalar(limit),
                scope=plain_scalar(scope),
                embed_query=self._resources.embed_query,
                kinds=checked_kinds(kinds),
                exclude_current=exclude_current,
                shared_key=self._shared_key,
                include_window=include_window,
                indexes=self._resources.indexes,
            )
        )
        return self._record_read("search", hits)
