"""A session's memory: the operations on a session, sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self, Unpack, overload
from uuid import UUID, uuid4

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.arguments import check_flag, listed_messages
from strandline.producers.blocks.base import BaseMemoryBlock, InsertMethod
from strandline.producers.blocks.render import Renderer, render_memory
from strandline.producers.execution import Closing, OperationRunner, Resources, methods, shown_as
from strandline.producers.operations import agent_tools, corrections, policy, reading, runs, writing
from strandline.producers.operations.session import Session
from strandline.producers.owner_facts import OwnerFacts
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.hits import HitKind
from strandline.producers.search.message_filter import SearchOptions
from strandline.producers.search.search import FoundMessage
from strandline.producers.sessions import HISTORY_PAGE
from strandline.producers.tokens import Tokenizer, part_estimates, text_counter
from strandline.producers.tools.definitions import ToolForm, openai_tools
from strandline.producers.writing.bulk_import import MAX_MESSAGES_PER_IMPORT, Imported, import_messages
from strandline.producers.writing.put import PutResult, put_quickly
from strandline.producers.writing.validate import PutLimits, PutRules
from strandline.schemas.values.identity import SessionIdentity, check_name, identify_session, scope_session_id
from strandline.schemas.values.message import NOTHING, Message
from strandline.schemas.values.policy import Policy
from strandline.schemas.values.same_named import make_from


class SessionMemory(Closing):
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
        token_limit: of its reads; default: the session's stored one.
        redaction: applied to puts; default: the hooks that the settings name.
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
        part_tokens: Mapping[str, int] | None = None,
        render: Renderer = render_memory,
        shared_key: UUID | None = None,
        redaction: Redaction | None = None,
        token_limit: int | None = None,
    ) -> None:
        self._resources = resources
        self._runner = OperationRunner(resources)
        self._subject = Session(
            resources=resources,
            identity=identity,
            policy=policy,
            blocks=tuple(blocks),
            insert_method=insert_method,
            rules=PutRules(
                make_from(PutLimits, resources.settings),
                resources.redaction if redaction is None else redaction,
                tuple(blocks),
                text_counter(tokenizer),
                part_estimates(part_tokens),
            ),
            render=render,
            shared_key=shared_key,
            own_token_limit=token_limit,
            named=NOTHING,
        )

    @property
    def session_id(self) -> str:
        return self._subject.identity.session_id

    @property
    def user_id(self) -> str | None:
        return self._subject.identity.user_id

    @property
    def namespace(self) -> str:
        return self._subject.identity.namespace

    @property
    def put_limits(self) -> PutLimits:
        """How large a message may be that is put."""
        return self._subject.rules.limits

    @property
    def token_limit(self) -> int:
        return self._subject.token_limit

    @property
    def memory_blocks(self) -> tuple[BaseMemoryBlock, ...]:
        return self._subject.blocks

    @property
    def facts(self) -> OwnerFacts:
        """The facts of this session's owner."""
        return OwnerFacts(self._resources, self._subject.identity.owner, self._subject.redaction)

    def get_scope(self, name: str) -> Self:
        """The memory of a session of its own, with everything else as here: limits, blocks, user, namespace.

        Messages of one scope appear in no other, and not here.  Facts belong to the user, as in all of a
        user's sessions; without a user each scope has its own. ``reset`` clears one scope and leaves the
        others. Its ``session_id`` is this one's and ``name``, as in ``team/drafts``; does no I/O.

        Raises:
            InvalidMessageError: ``name`` is not a valid name, or too long together with the session's.
        """
        session_id = scope_session_id(self.session_id, check_name("name", name))
        scoped = copy(self)
        identity = identify_session(self.namespace, session_id, self.user_id)
        scoped._subject = replace(self._subject, identity=identity)
        return scoped

    def put(self, message: object, *, replace_prompt: bool = False, connection: object | None = None) -> int:
        """Accept one message (a ``Message`` or an OpenAI dict) and return its ``seq``.

        One round trip, and four for the first message of a session; returns once it is committed.  Putting a
        message with the same ``id`` again returns the same ``seq`` and adds nothing.

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
        return self._put([message], replace_prompt, connection)[0]

    async def aput(
        self, message: object, *, replace_prompt: bool = False, connection: object | None = None
    ) -> int:
        """Async twin of ``put``."""
        return (await self._aput([message], replace_prompt, connection))[0]

    def put_messages(
        self, messages: Sequence[object], *, replace_prompt: bool = False, connection: object | None = None
    ) -> list[int]:
        """Accept several messages in one round trip, all or none; an empty list does nothing.

        With ``replace_prompt`` the first replaces the prompt.  Raises: as ``put``.
        """
        messages = listed_messages(messages)
        return self._put(messages, replace_prompt, connection) if messages else []

    async def aput_messages(
        self, messages: Sequence[object], *, replace_prompt: bool = False, connection: object | None = None
    ) -> list[int]:
        """Async twin of ``put_messages``."""
        messages = listed_messages(messages)
        return await self._aput(messages, replace_prompt, connection) if messages else []

    def _put(self, messages: Sequence[object], replace_prompt: bool, connection: object | None) -> list[int]:
        accept = put_quickly if connection is None else None
        put = writing.put(self._subject, messages, replace_prompt, accept)
        return self._notify(self._runner.run(put, connection, "put", self._subject), connection)

    async def _aput(
        self, messages: Sequence[object], replace_prompt: bool, connection: object | None
    ) -> list[int]:
        if connection is not None:
            put = writing.put(self._subject, messages, replace_prompt, None)
            seqs = await self._runner.arun(put, connection, "put", self._subject)
            return self._notify(seqs, connection)
        commit = await self._resources.group_commit()
        put = writing.put(self._subject, messages, replace_prompt, commit.accept)
        return self._notify(await self._runner.ameasure("put", self._subject, commit.run(put)), connection)

    def import_messages(self, messages: Sequence[object]) -> Imported:
        """Accept many messages at once, by COPY, and flush messages beyond the window, as ``import``.

        Give each message its own ``id``, so that repeating the import adds nothing.

        Raises: as ``put``; then nothing of this call was stored.
        """
        messages = listed_messages(messages)
        if not messages:
            return Imported(0, 0)
        session = self._subject
        most = max(MAX_MESSAGES_PER_IMPORT, session.resources.settings.max_messages_per_put)
        request = writing.check_put(session, messages, max_messages=most)
        if not request.messages:
            return Imported(0, 0)
        request.act = "import"
        database = self._resources.database()
        imported = import_messages(database, database.run(writing.check_act(session, request)))
        session.notify(imported.flushed, connection=None)
        return imported

    get, aget = methods(reading.get)
    get_all, aget_all = methods(reading.get_all)
    history, ahistory = methods(reading.history)
    context_window, acontext_window = methods(reading.context_window)

    def iterate(self, *, after_seq: int = 0, page_size: int = HISTORY_PAGE) -> Iterator[Message]:
        """The history page by page, for long ones; each page is a separate read."""
        while page := self._runner.run(reading.read_page(self._subject, after_seq, page_size)):
            yield from page
            after_seq = page[-1].seq or after_seq

    async def aiterate(self, *, after_seq: int = 0, page_size: int = HISTORY_PAGE) -> AsyncIterator[Message]:
        """Async twin of ``iterate``."""
        while page := await self._runner.arun(reading.read_page(self._subject, after_seq, page_size)):
            for message in page:
                yield message
            after_seq = page[-1].seq or after_seq

    @overload
    def search(self, query: str, **options: Unpack[SearchOptions]) -> list[FoundMessage]: ...

    @overload
    def search(
        self, query: str, *, kinds: Sequence[HitKind], **options: Unpack[SearchOptions]
    ) -> list[FoundMessage | FoundFact]: ...

    @shown_as(reading.search)
    def search(self, query: str, **options: Any) -> Any:
        return self._runner.run(
            reading.search(self._subject, query, **options), None, "search", self._subject
        )

    @overload
    async def asearch(self, query: str, **options: Unpack[SearchOptions]) -> list[FoundMessage]: ...

    @overload
    async def asearch(
        self, query: str, *, kinds: Sequence[HitKind], **options: Unpack[SearchOptions]
    ) -> list[FoundMessage | FoundFact]: ...

    @shown_as(reading.search)
    async def asearch(self, query: str, **options: Any) -> Any:
        """Async twin of ``search``."""
        return await self._runner.arun(
            reading.search(self._subject, query, **options), None, "search", self._subject
        )

    set, aset = methods(writing.set)
    reset, areset = methods(writing.reset)
    flush, aflush = methods(writing.flush)
    deliver, adeliver = methods(writing.deliver)
    summarize, asummarize = methods(writing.summarize)
    summarize_last, asummarize_last = methods(runs.summarize_last)
    rewind, arewind = methods(corrections.rewind)
    replace, areplace = methods(corrections.replace)
    pop, apop = methods(corrections.pop)
    fork, afork = methods(corrections.fork)
    add_run, aadd_run = methods(runs.add_run)
    run_history, arun_history = methods(runs.run_history)
    set_policy, aset_policy = methods(policy.set_policy)
    get_retention, aget_retention = methods(policy.get_retention)
    set_retention, aset_retention = methods(policy.set_retention)
    retention_acts, aretention_acts = methods(policy.retention_acts)

    def tools(self, *, form: ToolForm = "chat", read_only: bool = False) -> list[dict[str, Any]]:
        """The memory as tools for an agent: dicts for ``tools=`` of OpenAI's API; does no I/O.

        ``search_memories``, ``add_memory``, ``update_memory``, ``delete_memory`` and ``get_context`` take
        fewer than 1,000 tokens in all.  None of them takes a user: they work on this memory's owner.

        Args:
            form: ``"chat"`` for Chat Completions, ``"responses"`` for the Responses API.
            read_only: offer only the tools that change nothing; pass it to ``call_tool`` as well.

        Raises:
            ConfigurationError: an argument is not one of these.
        """
        return openai_tools(form, read_only=check_flag("read_only", read_only))

    call_tool, acall_tool = methods(agent_tools.call_tool)

    def _notify(self, result: PutResult, connection: object | None) -> list[int]:
        if result.flushed is not None:
            self._subject.notify(result.flushed, connection)
        return result.seqs


def new_session_id() -> str:
    """A session id for a memory that was made without one."""
    return uuid4().hex
