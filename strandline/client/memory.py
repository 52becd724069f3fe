"""A session's memory behind the HTTP service, with the methods of ``strandline.Memory``."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID, uuid4

from strandline.client.events import ServiceEvent, follow, follow_async
from strandline.client.facts import AsyncRemoteFacts, RemoteFacts
from strandline.client.operations import (
    NOT_FOUND,
    Awaiting,
    Call,
    Method,
    Operation,
    PageOf,
    Pages,
    Reply,
    Waiting,
    following,
    once,
    path,
    set_fields,
    without_end,
)
from strandline.client.remote import as_in_library, remote
from strandline.client.session import RemoteSession
from strandline.client.values import (
    context_from,
    hit_from,
    message_bodies,
    message_body,
    messages_from,
    namespace_of,
    value_of,
)
from strandline.producers.arguments import check_count, check_flag, check_page_size, check_seq, check_timeout
from strandline.producers.execution import spelled_out
from strandline.producers.operations import policy, writing
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.history import DEFAULT_CONTEXT_TOKENS
from strandline.producers.runs.latest_summary import LatestSummary
from strandline.producers.runs.run import DEFAULT_LAST_RUNS, UNFINISHED, SessionRun
from strandline.producers.search.hits import MESSAGES_ALONE, HitKind, SearchScope, checked_kinds
from strandline.producers.search.message_filter import MessageFilter
from strandline.producers.search.search import SearchResult
from strandline.producers.sessions import HISTORY_PAGE
from strandline.producers.writing.bulk_import import Imported
from strandline.producers.writing.correcting.correct import Correction
from strandline.producers.writing.correcting.fork import Fork
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.labels import Scalar
from strandline.schemas.values.message import Content, Message, Role, RunStatus, plain
from strandline.schemas.values.policy import OF_BLOCKS, Policy, PolicyChange, PolicyChanges, Unchanged
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import MAX_PAGE, Page
from strandline.schemas.wire.contexts import ContextOut, Hits, LatestSummaryOut, SummaryOut
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.schemas.wire.messages import CorrectionOut, FlushEvents, MessageOut, MessagesPut, RunOut
from strandline.schemas.wire.operations import ImportOut
from strandline.schemas.wire.policies import PolicyOut
from strandline.schemas.wire.sessions import ForkOut, PopOut, ResetDone, RetentionOut, RetentionSet

# The default of ``get(wait_for=…)``, in seconds.
DEFAULT_WAIT_SECONDS = 10.0
MAX_IMPORT_BYTES = 512 * 1024


def _retention_fields(sent: dict[str, Any]) -> dict[str, Any]:
    chosen = sent.pop("retention")
    if not isinstance(chosen, Retention):
        raise InvalidMessageError("retention", f"must be a Retention, not {type(chosen).__name__}")
    if chosen.archive is not None:
        raise InvalidMessageError("archive", "is a choice of the namespace, which its operators make")
    chosen.check(of_session=True)
    names = ("ttl_seconds", "max_age_seconds", "max_messages", "forget_facts")
    return sent | set_fields(**{name: getattr(chosen, name) for name in names})


class SessionMethods(RemoteSession):
    """The methods of the two faces; those with ``a`` are awaited on both."""

    @Method
    def put(self, message: object, *, replace_prompt: bool = False) -> Operation[int]:
        """Accept one message (a ``Message`` or an OpenAI dict) and return its ``seq``, once it is committed.

        An answer that is lost costs nothing: the request is sent again under the same key, and adds nothing.
        Raises as ``Memory.put``, and ServiceError and its subclasses.
        """
        return (yield from self._put([message_body(message, "message")], replace_prompt))[0]

    @Method
    def put_messages(
        self, messages: Sequence[object], *, replace_prompt: bool = False
    ) -> Operation[list[int]]:
        """Accept several messages, all or none; an empty list does nothing."""
        bodies = message_bodies(messages)
        if not bodies:
            return []
        return (yield from self._put(bodies, replace_prompt))

    def _put(self, bodies: list[dict[str, Any]], replace_prompt: bool) -> Operation[list[int]]:
        body: dict[str, Any] = {"messages": bodies}
        if check_flag("replace_prompt", replace_prompt):
            body["replace_prompt"] = True
        if self.policy:
            body["policy"] = dict(self.policy)
        reply = yield self._call(acts.PUT_MESSAGES, body=body, headers=once())
        return [place.seq for place in reply.read(MessagesPut).messages]

    @Method
    def import_messages(self, messages: Sequence[object]) -> Operation[Imported]:
        """Accept many messages that were said elsewhere, in requests of a size that the service takes.

        Give each message its own ``id``, so that repeating the import adds nothing.
        """
        known = added = 0
        for bodies in _parts(message_bodies(messages)):
            reply = yield self._call(acts.IMPORT_MESSAGES, body={"messages": bodies})
            done = reply.read(ImportOut)
            known, added = known + done.known, added + done.added
        return Imported(known, added)

    @Method
    def get(
        self,
        input: object | None = None,
        *,
        messages: Sequence[object] | None = None,
        initial_token_count: int = 0,
        wait_for: int | None = None,
        timeout: float | None = None,
        block_arguments: Mapping[str, Any] | None = None,
        generation: int | None = None,
    ) -> Operation[MemoryContext]:
        """The prompt's memory within ``token_limit``; arguments and result are those of ``Memory.get``."""
        body = set_fields(
            input=input if input is None or isinstance(input, str) else message_body(input, "input"),
            messages=None if messages is None else message_bodies(messages),
            token_limit=self.own_token_limit,
            initial_token_count=initial_token_count or None,
            wait_for=wait_for,
            insert_method=self.insert_method,
            block_arguments=None if block_arguments is None else plain(block_arguments),
            generation=generation,
            begun_only=False,
        )
        wait = None
        if wait_for is not None:
            wait = max(0.0, DEFAULT_WAIT_SECONDS if timeout is None else check_timeout(timeout))
        reply = yield self._call(acts.READ_CONTEXT, body=body, wait_seconds=wait)
        return context_from(reply.read(ContextOut))

    @Method
    def get_all(self) -> Operation[list[Message]]:
        """The whole history in order, flushed messages included."""
        messages: list[Message] = []
        cursor: str | None = None
        while True:
            page = yield from self._log_page(cursor, MAX_PAGE)
            messages += page.items
            cursor = following(page.next_cursor, cursor)
            if cursor is None:
                return messages

    @Pages
    def iterate(
        self, cursor: str | None, *, after_seq: int = 0, page_size: int = HISTORY_PAGE
    ) -> Operation[PageOf[Message]]:
        """The history page by page, for long ones; each page is a separate request."""
        after, size = check_seq("after_seq", after_seq), check_page_size(page_size)
        return (yield from self._log_page(cursor, min(size, MAX_PAGE), after or None))

    def _log_page(
        self, cursor: str | None, size: int, after_seq: int | None = None
    ) -> Operation[PageOf[Message]]:
        query = {"limit": size, "cursor": cursor, "after_seq": after_seq}
        page = _page_of((yield self._call(acts.LIST_MESSAGES, query=query, accepts=NOT_FOUND)))
        return PageOf(messages_from(page.items), page.next_cursor)

    @Method
    def history(
        self,
        limit: int | None = None,
        offset: int = 0,
        roles: Sequence[str] | None = None,
        metadata: Mapping[str, Scalar] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Operation[list[Message]]:
        """The newest messages that pass all filters, in order; arguments as for ``Memory.history``.

        More than 1,000 are read in several requests.
        """
        filters = _filter_fields(roles, metadata, since, until)
        left = None if limit is None else check_count("limit", limit)
        offset = check_count("offset", offset)
        by_seq: dict[int, Message] = {}
        while True:
            number = MAX_PAGE if left is None else min(left, MAX_PAGE)
            body = {**filters, "limit": number, "offset": offset}
            page = messages_from(
                _page_of((yield self._call(acts.HISTORY, body=body, accepts=NOT_FOUND))).items
            )
            # Concurrent puts move the pages: a message may come twice.
            known = len(by_seq)
            by_seq |= {message.seq or 0: message for message in page if (message.seq or 0) not in by_seq}
            if page and len(by_seq) == known:
                raise without_end()
            offset += len(page)
            left = None if left is None else left - len(page)
            if len(page) < number or left == 0:
                return [by_seq[seq] for seq in sorted(by_seq)]

    @remote(acts.CONTEXT_WINDOW, Page[MessageOut], missing=[])
    def context_window(self, max_tokens: int = DEFAULT_CONTEXT_TOKENS) -> list[Message]:
        """The newest messages that fit ``max_tokens`` together, in order, without any derived memory."""

    @Method
    def search(
        self,
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
        """Search messages, and facts if asked for, that match ``query``, best first."""
        body = {
            "query": query,
            "limit": limit,
            "scope": scope,
            "exclude_current": exclude_current,
            "include_window": include_window,
            "kinds": [*checked_kinds(kinds)],
            "begun_only": False,
            **_filter_fields(roles, metadata, since, until),
        }
        reply = yield self._call(acts.SEARCH, body=body)
        hits = reply.read(Hits).items
        namespace = (yield from namespace_of(self.service)) if "fact" in kinds else ""
        # A hit without both is of a kind that this release does not know.
        return [hit_from(hit, namespace) for hit in hits if hit.message is not None or hit.fact is not None]

    summarize, asummarize = as_in_library(acts.SUMMARIZE, writing.summarize, SummaryOut)

    @remote(acts.SUMMARIZE_LAST, LatestSummaryOut, repeat="if_not_done")
    def summarize_last(
        self, messages: int | None = None, *, runs: int | None = None, instructions: str | None = None
    ) -> LatestSummary | None:
        """Have a model summarize the last messages, or those of the last runs; None if nothing was said."""

    @Method
    def explain(self, message_id: str) -> Operation[MessageExplanation]:
        """The fate of a message of this session: its place, and the pieces that each stage made of it.

        Raises:
            NotFoundError: the session has no such message.
        """
        call = Call(
            "GET",
            path("explain", "messages", message_id),
            query={"session_id": self.session_id},
            user_id=self.user_id,
        )
        return (yield call).read(MessageExplanation)

    @remote(acts.PUT_RUN, RunOut)
    def add_run(
        self,
        run_id: str,
        messages: Sequence[object],
        *,
        status: RunStatus = "completed",
        agent_id: str | None = None,
        team_id: str | None = None,
    ) -> SessionRun:
        """Put the messages of an agent's run, and keep which they are; the same id again replaces the run."""

    @remote(acts.RUN_HISTORY, Page[MessageOut], missing=[])
    def run_history(
        self,
        last_n: int | None = DEFAULT_LAST_RUNS,
        *,
        skip_roles: Sequence[Role] = (),
        skip_statuses: Sequence[RunStatus] = UNFINISHED,
        agent_id: str | None = None,
        team_id: str | None = None,
    ) -> list[Message]:
        """The messages of the last runs, in the order of the runs."""

    @remote(acts.RESET_SESSION, ResetDone)
    def reset(self, *, derived: bool = False) -> None:
        """Start the history over; with ``derived``, also forget the memory derived from this session."""

    @remote(acts.FLUSH_SESSION, FlushEvents)
    def flush(self, *, all: bool = False) -> list[UUID]:
        """Flush now: all but the last turn, or with ``all`` everything; returns the events recorded."""

    @remote(acts.FLUSH_SESSION, FlushEvents, check=lambda sent: sent | {"keep": True})
    def deliver(self) -> list[UUID]:
        """Deliver all that was not delivered yet, and keep it in the window; return the events recorded."""

    @remote(acts.POP_MESSAGE, PopOut)
    def pop(self) -> Message | None:
        """Remove the newest message and return it; None if none is left."""

    @remote(acts.REWIND_SESSION, CorrectionOut)
    def rewind(
        self, from_seq: int, *, actor: str | None = None, idempotency_key: str | None = None
    ) -> Correction:
        """Take back every message from ``from_seq`` on, with everything derived from them."""

    @remote(acts.REPLACE_CONTENT, CorrectionOut)
    def replace(
        self, seq: int, content: Content, *, actor: str | None = None, idempotency_key: str | None = None
    ) -> Correction:
        """Give a message other content at the same place: for moderation, or to redact it."""

    @remote(acts.FORK_SESSION, ForkOut)
    def fork(self, session_id: str | None = None, *, through_seq: int | None = None) -> Fork:
        """Begin another session of this user with this one's messages, and everything derived from them."""

    @Method
    @spelled_out(PolicyChange, without=(*OF_BLOCKS, "on_overflow"))
    def set_policy(
        self,
        *,
        memory_blocks: Sequence[str] | None = None,
        actor: str | None = None,
        **values: Unpack[PolicyChanges],
    ) -> Operation[Policy]:
        """Change the stored policy of the session, from the next put and flush on; return the new one.

        ``memory_blocks`` are names of pipelines.  This memory reads with the new ``token_limit`` at once.
        """
        for name in values.keys() - PolicyChanges.__annotations__:
            raise TypeError(f"set_policy() got an unexpected keyword argument {name!r}")
        idle_seconds = values.pop("idle_seconds", Unchanged.UNCHANGED)
        blocks = None if memory_blocks is None else [*memory_blocks]
        body = set_fields(**values, blocks=blocks, actor=actor)
        if not isinstance(idle_seconds, Unchanged):
            body["idle_seconds"] = idle_seconds
        reply = yield self._call(acts.CHANGE_POLICY, body=body)
        policy: Policy = value_of(Policy, reply.read(PolicyOut))
        if values.get("token_limit") is not None:
            self.read_within(policy.token_limit)
        return policy

    get_retention, aget_retention = as_in_library(acts.GET_RETENTION, policy.get_retention, RetentionOut)
    set_retention, aset_retention = as_in_library(
        acts.PUT_RETENTION, policy.set_retention, RetentionSet, check=_retention_fields
    )

    def _call(self, act: acts.WireAct, **parts: Any) -> Call:
        session = path("sessions", self.session_id)
        where = act.path.replace("/v1/sessions/{session_id}", session)
        return Call(act.method, where, user_id=self.user_id, is_read=act.repeats == "reads", **parts)

    aput = put.asynchronous
    aput_messages = put_messages.asynchronous
    aimport_messages = import_messages.asynchronous
    aget = get.asynchronous
    aget_all = get_all.asynchronous
    aiterate = iterate.asynchronous
    ahistory = history.asynchronous
    acontext_window = context_window.asynchronous
    asearch = search.asynchronous
    asummarize_last = summarize_last.asynchronous
    aexplain = explain.asynchronous
    aadd_run = add_run.asynchronous
    arun_history = run_history.asynchronous
    areset = reset.asynchronous
    aflush = flush.asynchronous
    adeliver = deliver.asynchronous
    apop = pop.asynchronous
    arewind = rewind.asynchronous
    areplace = replace.asynchronous
    afork = fork.asynchronous
    aset_policy = set_policy.asynchronous

    def aevents(self, *, last_event_id: str | None = None) -> AsyncGenerator[ServiceEvent, None]:
        """The events of this session, from now on or since an event; resumes by itself when it is cut."""
        return follow_async(self._service, self._events_path, self._user_id, last_event_id)

    async def aclose(self) -> None:
        """Close the service's connections of the running event loop; the next call makes new ones."""
        await self._service.aclose()

    @property
    def _events_path(self) -> str:
        return f"{path('sessions', self._session_id)}/events"


class RemoteMemory(SessionMethods, Waiting):
    """The memory of one chat session behind the service, made by ``from_defaults``.

    Methods, arguments and results are those of ``Memory``; docs/client.md lists what differs.  A
    change is sent with a key of its own, which is kept over retries: a lost answer loses nothing, and doubles
    nothing.
    """

    @property
    def facts(self) -> RemoteFacts:
        """The facts of this session's user.

        Raises:
            ConfigurationError: the memory was made without ``user_id``.
        """
        return RemoteFacts(self._service, self._user_id)

    def events(self, *, last_event_id: str | None = None) -> Generator[ServiceEvent, None, None]:
        """The events of this session, from now on or since an event; resumes by itself when it is cut."""
        return follow(self._service, self._events_path, self._user_id, last_event_id)

    def close(self) -> None:
        """Close the service's connections of threads; the next call makes new ones."""
        self._service.close()


class AsyncRemoteMemory(SessionMethods, Awaiting):
    """The same for asyncio alone: ``await memory.put(…)``; the names with ``a`` are there too."""

    events = SessionMethods.aevents
    close = SessionMethods.aclose

    @property
    def facts(self) -> AsyncRemoteFacts:
        """The facts of this session's user; raises ConfigurationError if there is no ``user_id``."""
        return AsyncRemoteFacts(self._service, self._user_id)


def _page_of(reply: Reply) -> Page[MessageOut]:
    return Page[MessageOut](items=[]) if reply.is_missing else reply.read(Page[MessageOut])


def _parts(bodies: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    part: list[dict[str, Any]] = []
    size = 0
    for body in bodies:
        body.setdefault("id", uuid4().hex)
        length = len(json.dumps(body, default=str))
        if part and (size + length > MAX_IMPORT_BYTES or len(part) == MAX_PAGE):
            yield part
            part, size = [], 0
        part.append(body)
        size += length
    if part:
        yield part


def _filter_fields(
    roles: Sequence[str] | None,
    metadata: Mapping[str, Scalar] | None,
    since: datetime | None,
    until: datetime | None,
) -> dict[str, Any]:
    MessageFilter.check(roles, metadata, since, until)
    return set_fields(
        roles=None if roles is None else [*roles],
        metadata=None if metadata is None else dict(metadata),
        since=None if since is None else since.isoformat(),
        until=None if until is None else until.isoformat(),
    )
