"""A session's memory: put, get and what belongs to them, each written once and offered sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg

from strandline.pipelines.blocks import BaseMemoryBlock, InsertMethod
from strandline.pipelines.rendering import Renderer, render_memory
from strandline.producers.appending import Append, Appended, append
from strandline.producers.context import MemoryContext
from strandline.producers.facts import Facts
from strandline.producers.reading import ReadRequest, history_page, read
from strandline.producers.resources import Resources
from strandline.schemas.async_database import AsyncTransaction
from strandline.schemas.database import Transaction
from strandline.schemas.flushing import Flushed, flush_by_hand
from strandline.schemas.identity import SessionIdentity
from strandline.schemas.joining import driver_connection
from strandline.schemas.messages import Message, PutLimits
from strandline.schemas.operations import Fetch, Operation, Row
from strandline.schemas.policy import Policy
from strandline.schemas.tokens import Tokenizer, text_counter

T = TypeVar("T")

HISTORY_PAGE = 1_000


class SessionMemory:
    """The memory of one session.

    Light: it holds names and limits, and takes connections from ``resources`` per call.  Safe to share
    between threads and tasks.  ``connection=`` joins a transaction of the caller's: what was put is there
    if, and only if, the caller commits; workers are told by the sweep then, within seconds.

    Args:
        identity: the session and its owner.
        policy: stored with the session at its first put; later puts use what is stored.
        blocks: what long-term memory contributes to a read.
        insert_method: whether it goes into the system message or the latest user message.
        tokenizer: counts tokens; default: ``o200k_base``.
        render: lays the blocks' sections out; default: the built-in template.
    """

    def __init__(
        self,
        resources: Resources,
        identity: SessionIdentity,
        policy: Policy,
        *,
        blocks: Sequence[BaseMemoryBlock],
        insert_method: InsertMethod,
        tokenizer: Tokenizer | None = None,
        render: Renderer = render_memory,
    ) -> None:
        self._resources = resources
        self._identity = identity
        self._policy = policy
        self._blocks = tuple(blocks)
        self._insert_method = insert_method
        self._count_text = text_counter(tokenizer)
        self._render = render

    @property
    def session_id(self) -> str:
        return self._identity.session_id

    @property
    def user_id(self) -> str | None:
        return self._identity.user_id

    @property
    def namespace(self) -> str:
        return self._identity.namespace

    @property
    def token_limit(self) -> int:
        return self._policy.token_limit

    @property
    def memory_blocks(self) -> tuple[BaseMemoryBlock, ...]:
        return self._blocks

    @property
    def facts(self) -> Facts:
        """What is known of this session's owner."""
        return Facts(self._resources, self._identity.shard_key)

    def put(self, message: object, *, connection: object | None = None) -> int:
        """Accept one message (a ``Message`` or an OpenAI dict) and return its ``seq``.

        One round trip; returns once it is committed.  A message with an ``id`` can be put again: it gets
        the same ``seq`` and adds nothing.

        Raises:
            InvalidMessageError: it cannot be stored as given.
            ConflictError: its id was used with other content.
            OwnerError: the session belongs to somebody else.
            UnknownPipelineError: a memory block needs a pipeline that nobody has registered.
            DatabaseUnavailableError: Postgres cannot be reached; safe to put again.
        """
        return self.put_messages([message], connection=connection)[0]

    async def aput(self, message: object, *, connection: object | None = None) -> int:
        """Async twin of ``put``."""
        return (await self.aput_messages([message], connection=connection))[0]

    def put_messages(self, messages: Sequence[object], *, connection: object | None = None) -> list[int]:
        """Accept several messages in one round trip, all or none; an empty list does nothing.

        Raises: as ``put``.
        """
        if not messages:
            return []
        appended = self._run(self._appending(messages, joined=connection is not None), connection)
        return self._announce(appended, joined=connection is not None)

    async def aput_messages(
        self, messages: Sequence[object], *, connection: object | None = None
    ) -> list[int]:
        """Async twin of ``put_messages``."""
        if not messages:
            return []
        appended = await self._arun(self._appending(messages, joined=connection is not None), connection)
        return self._announce(appended, joined=connection is not None)

    def get(
        self,
        input: str | Message | None = None,
        *,
        messages: Sequence[Message] | None = None,
        wait_for: int | None = None,
        timeout: float | None = None,
        connection: object | None = None,
    ) -> MemoryContext:
        """The prompt's memory: pinned head, blocks, tail and window, within ``token_limit``.

        Args:
            input: what retrieval searches for; default: the latest messages.
            messages: the same as a list of messages.
            wait_for: wait until derived memory covers this ``seq``, as far as it was delivered.
            timeout: for how many seconds at most; default 10.

        Raises:
            OwnerError: the session belongs to somebody else.
            DatabaseUnavailableError: Postgres cannot be reached.
        """
        return self._run(
            read(self._reading(input, messages, wait_for, timeout, joined=connection is not None)), connection
        )

    async def aget(
        self,
        input: str | Message | None = None,
        *,
        messages: Sequence[Message] | None = None,
        wait_for: int | None = None,
        timeout: float | None = None,
        connection: object | None = None,
    ) -> MemoryContext:
        """Async twin of ``get``."""
        return await self._arun(
            read(self._reading(input, messages, wait_for, timeout, joined=connection is not None)), connection
        )

    def get_all(self, *, connection: object | None = None) -> list[Message]:
        """The whole history in order, what was flushed included."""
        return self._run(self._whole_history(), connection)

    async def aget_all(self, *, connection: object | None = None) -> list[Message]:
        """Async twin of ``get_all``."""
        return await self._arun(self._whole_history(), connection)

    def iterate(self, *, after_seq: int = 0, page_size: int = HISTORY_PAGE) -> Iterator[Message]:
        """The history page by page, for long ones; each page is a read of its own."""
        while page := self._run(history_page(self._identity, after_seq, page_size), None):
            yield from page
            after_seq = page[-1].seq or after_seq

    async def aiterate(self, *, after_seq: int = 0, page_size: int = HISTORY_PAGE) -> AsyncIterator[Message]:
        """Async twin of ``iterate``."""
        while page := await self._arun(history_page(self._identity, after_seq, page_size), None):
            for message in page:
                yield message
            after_seq = page[-1].seq or after_seq

    def set(self, messages: Sequence[object], *, connection: object | None = None) -> list[int]:
        """Replace the history by ``messages``, atomically; what was derived before stays."""
        appended = self._run(self._replacing(messages), connection, atomic=True)
        return self._announce(appended, joined=connection is not None)

    async def aset(self, messages: Sequence[object], *, connection: object | None = None) -> list[int]:
        """Async twin of ``set``."""
        appended = await self._arun(self._replacing(messages), connection, atomic=True)
        return self._announce(appended, joined=connection is not None)

    def reset(self, *, derived: bool = False, connection: object | None = None) -> None:
        """Begin the history anew; with ``derived``, forget what was derived from this session as well.

        Without ``derived`` the old messages leave every read but stay in the log, and what is still to be
        derived from them is void.  With it they are deleted.
        """
        self._run(self._resetting(derived), connection)

    async def areset(self, *, derived: bool = False, connection: object | None = None) -> None:
        """Async twin of ``reset``."""
        await self._arun(self._resetting(derived), connection)

    def flush(self, *, all: bool = False, connection: object | None = None) -> list[UUID]:
        """Flush now: all but the last turn, or with ``all`` everything; returns the events recorded."""
        flushed = self._run(self._flushing(everything=all), connection)
        return self._announce_flush(flushed, joined=connection is not None)

    async def aflush(self, *, all: bool = False, connection: object | None = None) -> list[UUID]:
        """Async twin of ``flush``."""
        flushed = await self._arun(self._flushing(everything=all), connection)
        return self._announce_flush(flushed, joined=connection is not None)

    def close(self) -> None:
        """End what this process shares: pools, threads, the embedded servers; all memories of it are done."""
        self._resources.close()

    async def aclose(self) -> None:
        """Async twin of ``close``; to be called on the event loop that used the memory."""
        await self._resources.aclose()

    def _appending(self, messages: Sequence[object], *, joined: bool) -> Operation[Appended]:
        settings = self._resources.settings
        request = Append.check(
            messages,
            identity=self._identity,
            policy=self._policy,
            count_text=self._count_text,
            limits=PutLimits(settings.max_content_bytes, settings.max_metadata_bytes),
            max_messages=settings.max_messages_per_put,
        )
        return append(request, in_callers_transaction=joined)

    def _replacing(self, messages: Sequence[object]) -> Operation[Appended]:
        appending = self._appending(messages, joined=True) if messages else None
        yield from self._resetting(derived=False)
        return (yield from appending) if appending is not None else Appended([], None)

    def _resetting(self, derived: bool) -> Operation[None]:
        rows: list[Row] = yield Fetch("reset", self._keys() | {"derived": derived})
        if not rows:
            # No such session, or somebody else's: reading it tells which.
            yield from history_page(self._identity, 0, 1)

    def _flushing(self, *, everything: bool) -> Operation[Flushed | None]:
        flushed = yield from flush_by_hand(
            self._identity.shard_key, self._identity.session_key, everything=everything
        )
        if flushed is None:
            yield from history_page(self._identity, 0, 1)
        return flushed

    def _whole_history(self) -> Operation[list[Message]]:
        found: list[Message] = []
        while page := (
            yield from history_page(self._identity, (found[-1].seq or 0) if found else 0, HISTORY_PAGE)
        ):
            found.extend(page)
            if len(page) < HISTORY_PAGE:
                break
        return found

    def _reading(
        self,
        input: str | Message | None,
        messages: Sequence[Message] | None,
        wait_for: int | None,
        timeout: float | None,
        *,
        joined: bool,
    ) -> ReadRequest:
        return ReadRequest(
            identity=self._identity,
            blocks=self._blocks,
            token_limit=self._policy.token_limit,
            insert_method=self._insert_method,
            count_text=self._count_text,
            query=input,
            messages=messages,
            wait_for=wait_for,
            timeout_seconds=timeout,
            embed_query=self._resources.embed_query,
            render=self._render,
            in_callers_transaction=joined,
        )

    def _keys(self) -> dict[str, Any]:
        return {"shard_key": self._identity.shard_key, "session_key": self._identity.session_key}

    def _run(self, operation: Operation[T], connection: object | None, *, atomic: bool = False) -> T:
        schema = self._resources.settings.database_schema
        if connection is not None:
            return Transaction(driver_connection(connection, psycopg.Connection), schema).run(operation)
        if not atomic:
            return self._resources.database().run(operation)
        with self._resources.database().transaction() as transaction:
            return transaction.run(operation)

    async def _arun(self, operation: Operation[T], connection: object | None, *, atomic: bool = False) -> T:
        schema = self._resources.settings.database_schema
        if connection is not None:
            joined = driver_connection(connection, psycopg.AsyncConnection)
            return await AsyncTransaction(joined, schema).run(operation)
        database = await self._resources.async_database()
        if not atomic:
            return await database.run(operation)
        async with database.transaction() as transaction:
            return await transaction.run(operation)

    def _announce(self, appended: Appended, *, joined: bool) -> list[int]:
        self._announce_flush(appended.flushed, joined=joined)
        return appended.seqs

    def _announce_flush(self, flushed: Flushed | None, *, joined: bool) -> list[UUID]:
        if flushed is None:
            return []
        if not joined:  # a hint before the caller's commit would find nothing; the sweep rings after it
            self._resources.ring(flushed.lanes)
        return list(flushed.event_ids)


def new_session_id() -> str:
    """A session id for a memory that was made without one."""
    return uuid4().hex
