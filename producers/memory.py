"""A session's memory: put, get and the related methods, each written once and offered sync and async."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self
from uuid import UUID, uuid4

from strandline.pipelines.flush.flush import flush_by_hand
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.arguments import (
    check_flag,
    check_seq,
    check_timeout,
    check_token_count,
    listed_messages,
    read_messages,
    read_query,
)
from strandline.producers.blocks.base import BaseMemoryBlock, InsertMethod
from strandline.producers.blocks.custom import check_block_arguments
from strandline.producers.blocks.render import Renderer, render_memory
from strandline.producers.execution import Closing, Resources, async_method, sync_method
from strandline.producers.memory_parts.history import MemoryHistory
from strandline.producers.memory_parts.retention import MemoryRetention
from strandline.producers.memory_parts.runs import MemoryRuns
from strandline.producers.memory_parts.summaries import MemorySummaries
from strandline.producers.memory_parts.tools import MemoryTools
from strandline.producers.owner_facts import OwnerFacts
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.read import read
from strandline.producers.reading.request import ReadRequest
from strandline.producers.tokens import Tokenizer, part_estimates, text_counter
from strandline.producers.writing.accepting import put_quickly, put_whole
from strandline.producers.writing.bulk_import import MAX_MESSAGES_PER_IMPORT, Imported, import_messages
from strandline.producers.writing.put import PutResult
from strandline.producers.writing.set_policy import PolicySet
from strandline.producers.writing.validate import PutLimits
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import (
    SessionIdentity,
    check_name,
    identify_session,
    scope_session_id,
)
from strandline.schemas.values.message import NOTHING
from strandline.schemas.values.policy import Policy


class SessionMemory(MemoryTools, MemoryRuns, MemorySummaries, MemoryHistory, MemoryRetention, Closing):
    """The memory of one session.

    It is cheap: it holds names and limits, and takes connections from ``resources`` per call.  Safe to share
    between threads and tasks.  ``connection=`` joins a transaction of the caller's: a put takes effect if,
    and only if, the caller commits; a sweep then finds its work within seconds.

    Args:
        identity: the session and its owner.
        policy: stored with the session at its first put; later puts use the stored one.
        blocks: the memory blocks that contribute to a read.
        insert_method: whether memory goes into the system message or the latest user message.
        tokenizer: counts tokens; default: ``o200k_base``.
        part_tokens: tokens of images and other parts that are not text, by kind; default: 256 for ``image``,
            ``audio`` and ``video``, 2048 for ``document``.
        render: turns the blocks' sections into text; default: the built-in template.
        shared_key: key of the scope that ``scope="shared"`` searches; default: none.
        token_limit: of its reads; default: what the session has stored.
        redaction: applied to what is put; default: the hooks that the settings name.
    """

    # The values of its policy that are told if the session has stored others.
    _named: Mapping[str, object] = NOTHING

    def __init__(
        self,
        resources: Resources,
        identity: SessionIdentity,
        policy: Policy,
        *,
        blocks: Sequence[BaseMemoryBlock],
        insert_method: InsertMethod,
        tokenizer: Tokenizer | None = None,
        part_tokens: Mapping[str, int] | None = None,
        render: Renderer = render_memory,
        shared_key: UUID | None = None,
        redaction: Redaction | None = None,
        token_limit: int | None = None,
    ) -> None:
        super().__init__(resources, identity, shared_key, redaction)
        settings = resources.settings
        self._put_limits = PutLimits(settings.max_content_bytes, settings.max_metadata_bytes)
        self._policy = policy
        self._token_limit = token_limit
        self._blocks = tuple(blocks)
        self._insert_method = insert_method
        self._count_text = text_counter(tokenizer)
        self._part_tokens = part_estimates(part_tokens)
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
    def put_limits(self) -> PutLimits:
        """How large a message may be that is put."""
        return self._put_limits

    @property
    def token_limit(self) -> int:
        return self._token_limit or self._policy.token_limit

    @property
    def memory_blocks(self) -> tuple[BaseMemoryBlock, ...]:
        return self._blocks

    @property
    def facts(self) -> OwnerFacts:
        """The facts of this session's owner."""
        return OwnerFacts(self._resources, self._identity.owner, self._redaction)

    def get_scope(self, name: str) -> Self:
        """The memory of a session of its own, with everything else as here: limits, blocks, user, namespace.

        What is put to one scope is in no other, and not here.  Facts are those of the user, as in all of a
        user's sessions; without a user each scope has its own. ``reset`` clears one scope and leaves the
        others. Its ``session_id`` is this one's and ``name``, as in ``team/drafts``; does no I/O.

        Raises:
            InvalidMessageError: ``name`` is not a valid name, or too long together with the session's.
        """
        session_id = scope_session_id(self.session_id, check_name("name", name))
        scoped = copy(self)
        scoped._identity = identify_session(self.namespace, session_id, self.user_id)
        return scoped

    def put(self, message: object, *, replace_prompt: bool = False, connection: object | None = None) -> int:
        """Accept one message (a ``Message`` or an OpenAI dict) and return its ``seq``.

        One round trip; returns once it is committed.  Putting a message with the same ``id`` again returns
        the same ``seq`` and adds nothing.

        With ``replace_prompt`` the message, a system or developer message, stands in front of later reads in
        place of the system messages that begin the session; these stay in the log.  A system message is
        stored without the memory of a read that ends it; 0 is returned if it is nothing else.

        Raises:
            InvalidMessageError: it cannot be stored as given, or a redaction hook refuses it.
            RedactionError: a redaction hook failed, or took too long; nothing was stored.
            ConflictError: its id was already used with different content.
            OwnerError: the session belongs to another owner.
            UnknownPipelineError: a memory block needs a pipeline that no worker has registered.
            DatabaseUnavailableError: Postgres cannot be reached; safe to put again.
        """
        return self.put_messages([message], replace_prompt=replace_prompt, connection=connection)[0]

    async def aput(
        self, message: object, *, replace_prompt: bool = False, connection: object | None = None
    ) -> int:
        """Async twin of ``put``."""
        put = self.aput_messages([message], replace_prompt=replace_prompt, connection=connection)
        return (await put)[0]

    def put_messages(
        self, messages: Sequence[object], *, replace_prompt: bool = False, connection: object | None = None
    ) -> list[int]:
        """Accept several messages in one round trip, all or none; an empty list does nothing.

        With ``replace_prompt`` the first replaces the prompt.  Raises: as ``put``.
        """
        messages = listed_messages(messages)
        if not messages:
            return []
        in_callers_transaction = connection is not None
        accept = put_whole if in_callers_transaction else put_quickly
        put = self._put_all(messages, replace_prompt, accept, in_callers_transaction=in_callers_transaction)
        result = self._runner.run(put, connection)
        return self._announce(result, connection)

    async def aput_messages(
        self, messages: Sequence[object], *, replace_prompt: bool = False, connection: object | None = None
    ) -> list[int]:
        """Async twin of ``put_messages``."""
        messages = listed_messages(messages)
        if not messages:
            return []
        if connection is not None:
            put = self._put_all(messages, replace_prompt, put_whole, in_callers_transaction=True)
            result = await self._runner.arun(put, connection)
        else:
            commit = await self._resources.group_commit()
            put = self._put_all(messages, replace_prompt, commit.accept, in_callers_transaction=False)
            result = await commit.run(put)
        return self._announce(result, connection)

    def import_messages(self, messages: Sequence[object]) -> Imported:
        """Accept many messages at once, by COPY, and flush what does not fit the window, as ``import``.

        Give each message its own ``id``, so that repeating the import adds nothing.

        Raises: as ``put``; then nothing of this call was stored.
        """
        messages = listed_messages(messages)
        if not messages:
            return Imported(0, 0)
        request = self._check_put(messages, max_messages=MAX_MESSAGES_PER_IMPORT)
        if not request.messages:
            return Imported(0, 0)
        request.act = "import"
        database = self._resources.database()
        imported = import_messages(database, database.run(self._check_act(request)))
        self._announce_flush(imported.flushed, connection=None)
        return imported

    @sync_method
    def get(
        self,
        input: object | None = None,
        *,
        messages: Sequence[object] | None = None,
        initial_token_count: int = 0,
        wait_for: int | None = None,
        timeout: float | None = None,
        block_arguments: Mapping[str, Any] | None = None,
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

        Raises:
            ConfigurationError: ``initial_token_count`` is not a number of tokens; no block takes arguments.
            InvalidMessageError: ``input`` or one of ``messages`` is not a message.
            OwnerError: the session belongs to another owner.
            DatabaseUnavailableError: Postgres cannot be reached.
        """
        request = self._read_request(
            input, messages, initial_token_count, wait_for, timeout, connection, block_arguments
        )
        return self._record_read("read", read(request), connection)

    aget = async_method(get)

    @sync_method
    def set(self, messages: Sequence[object], *, connection: object | None = None) -> Operation[list[int]]:
        """Replace the history by ``messages``, atomically; memory derived earlier stays."""
        result = yield from self._replace_operation(messages)
        return self._announce(result, connection)

    aset = async_method(set)

    @sync_method
    def reset(self, *, derived: bool = False, connection: object | None = None) -> Operation[None]:
        """Start the history over; with ``derived``, also forget the memory derived from this session.

        Without ``derived`` the old messages no longer appear in reads but stay in the log, and pending work
        on them is void. With it they are deleted.  Facts that people added or worded by hand stay.
        """
        return self._reset_operation(check_flag("derived", derived))

    areset = async_method(reset)

    @sync_method
    def flush(self, *, all: bool = False, connection: object | None = None) -> Operation[list[UUID]]:
        """Flush now: all but the last turn, or with ``all`` everything; returns the events recorded."""
        identity, everything = self._identity, check_flag("all", all)
        flushing = flush_by_hand(identity.shard_key, identity.session_key, everything=everything)
        return self._announce_after(flushing, connection)

    aflush = async_method(flush)

    def _take_on(
        self, done: PolicySet, blocks: Sequence[BaseMemoryBlock] | None, limit: int | None
    ) -> Policy:
        """Apply the change to reads of this memory; other memories keep the values they were made with."""
        if blocks is not None:
            self._blocks = tuple(blocks)
        if limit is not None:
            self._policy = replace(self._policy, token_limit=done.policy.token_limit)
            self._token_limit = done.policy.token_limit
        self._named = NOTHING
        return done.policy

    def _read_request(
        self,
        input: object | None,
        messages: Sequence[object] | None,
        initial_token_count: int,
        wait_for: int | None,
        timeout: float | None,
        connection: object | None,
        block_arguments: Mapping[str, Any] | None = None,
    ) -> ReadRequest:
        return ReadRequest(
            identity=self._identity,
            blocks=self._blocks,
            token_limit=self.token_limit,
            within_own=self._token_limit is None,
            named=self._named,
            insert_method=self._insert_method,
            count_text=self._count_text,
            query=read_query(input),
            messages=read_messages(messages),
            wait_for=None if wait_for is None else check_seq("wait_for", wait_for),
            timeout_seconds=None if timeout is None else check_timeout(timeout),
            embed_query=self._resources.embed_query,
            windows=self._resources.windows if connection is None else None,
            indexes=self._resources.indexes if connection is None else None,
            render=self._render,
            in_callers_transaction=connection is not None,
            part_tokens=self._part_tokens,
            initial_token_count=check_token_count("initial_token_count", initial_token_count),
            shared_key=self._shared_key,
            block_arguments=check_block_arguments(self._blocks, block_arguments),
            indexed_characters=self._resources.settings.max_indexed_characters,
            ring=self._resources.ring if connection is None else None,
        )

    def _announce(self, result: PutResult, connection: object | None) -> list[int]:
        self._announce_flush(result.flushed, connection)
        return result.seqs


def new_session_id() -> str:
    """A session id for a memory that was made without one."""
    return uuid4().hex
