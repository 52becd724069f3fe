"""The operations of a session, by the names of ``Memory``'s methods; each describes its requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from strandline.client.operations import (
    NOT_FOUND,
    Call,
    Driver,
    Operation,
    PageOf,
    Reply,
    SessionFace,
    following,
    once,
    path,
    set_fields,
    without_end,
)
from strandline.client.retrying import Repeat
from strandline.client.values import (
    context_from,
    hit_from,
    latest_summary_from,
    message_bodies,
    message_body,
    messages_from,
    run_from,
    summary_from,
)
from strandline.producers.arguments import check_count, check_flag, check_page_size, check_seq, check_timeout
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.history import DEFAULT_CONTEXT_TOKENS, HistoryFilter
from strandline.producers.reading.summary import Summary
from strandline.producers.runs.latest_summary import LatestSummary
from strandline.producers.runs.run import DEFAULT_LAST_RUNS, UNFINISHED, SessionRun
from strandline.producers.search.hits import MESSAGES_ALONE, HitKind, SearchScope, checked_kinds
from strandline.producers.search.search import SearchResult
from strandline.producers.sessions import HISTORY_PAGE
from strandline.producers.writing.bulk_import import Imported
from strandline.schemas.values.labels import Scalar
from strandline.schemas.values.message import Message, Role, RunStatus, plain
from strandline.schemas.wire.base import MAX_PAGE, Page
from strandline.schemas.wire.contexts import ContextOut, Hits, LatestSummaryOut, SummaryOut
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.schemas.wire.keys import Identity
from strandline.schemas.wire.messages import MessageOut, MessagesPut, RunOut
from strandline.schemas.wire.operations import ImportOut

# The default of ``get(wait_for=…)``, in seconds.
DEFAULT_WAIT_SECONDS = 10.0
MAX_IMPORT_BYTES = 512 * 1024


def put(memory: SessionFace, message: object, *, replace_prompt: bool = False) -> Operation[int]:
    """Accept one message (a ``Message`` or an OpenAI dict) and return its ``seq``, once it is committed.

    An answer that is lost costs nothing: the request is sent again under the same key, and adds nothing.
    Raises as ``Memory.put``, and ServiceError and its subclasses.
    """
    return (yield from _put(memory, [message_body(message, "message")], replace_prompt))[0]


def put_messages(
    memory: SessionFace, messages: Sequence[object], *, replace_prompt: bool = False
) -> Operation[list[int]]:
    """Accept several messages, all or none; an empty list does nothing."""
    bodies = message_bodies(messages)
    if not bodies:
        return []
    return (yield from _put(memory, bodies, replace_prompt))


def _put(memory: SessionFace, bodies: list[dict[str, Any]], replace_prompt: bool) -> Operation[list[int]]:
    body: dict[str, Any] = {"messages": bodies}
    if check_flag("replace_prompt", replace_prompt):
        body["replace_prompt"] = True
    if memory.policy:
        body["policy"] = dict(memory.policy)
    reply = yield session_call(memory, "POST", "messages", body=body, headers=once())
    return [place.seq for place in reply.read(MessagesPut).messages]


def import_messages(memory: SessionFace, messages: Sequence[object]) -> Operation[Imported]:
    """Accept many messages that were said elsewhere, in requests of a size that the service takes.

    Give each message its own ``id``, so that repeating the import adds nothing.
    """
    known = added = 0
    for bodies in _parts(message_bodies(messages)):
        reply = yield session_call(memory, "POST", "import", body={"messages": bodies})
        done = reply.read(ImportOut)
        known, added = known + done.known, added + done.added
    return Imported(known, added)


def get(
    memory: SessionFace,
    input: object | None = None,
    *,
    messages: Sequence[object] | None = None,
    initial_token_count: int = 0,
    wait_for: int | None = None,
    timeout: float | None = None,
    block_arguments: Mapping[str, Any] | None = None,
) -> Operation[MemoryContext]:
    """The prompt's memory within ``token_limit``; arguments and result are those of ``Memory.get``."""
    body = set_fields(
        input=input if input is None or isinstance(input, str) else message_body(input, "input"),
        messages=None if messages is None else message_bodies(messages),
        token_limit=memory.own_token_limit,
        initial_token_count=initial_token_count or None,
        wait_for=wait_for,
        insert_method=memory.insert_method,
        block_arguments=None if block_arguments is None else plain(block_arguments),
        begun_only=False,
    )
    wait = None
    if wait_for is not None:
        wait = max(0.0, DEFAULT_WAIT_SECONDS if timeout is None else check_timeout(timeout))
    reply = yield read_call(memory, "context", body, wait_seconds=wait)
    return context_from(reply.read(ContextOut))


def get_all(memory: SessionFace) -> Operation[list[Message]]:
    """The whole history in order, flushed messages included."""
    messages: list[Message] = []
    cursor: str | None = None
    while True:
        page = yield from _log_page(memory, cursor, MAX_PAGE)
        messages += page.items
        cursor = following(page.next_cursor, cursor)
        if cursor is None:
            return messages


def iterate(
    memory: SessionFace, cursor: str | None, *, after_seq: int = 0, page_size: int = HISTORY_PAGE
) -> Operation[PageOf[Message]]:
    """The history page by page, for long ones; each page is a separate request."""
    after, size = check_seq("after_seq", after_seq), check_page_size(page_size)
    return (yield from _log_page(memory, cursor, min(size, MAX_PAGE), after or None))


def _log_page(
    memory: SessionFace, cursor: str | None, size: int, after_seq: int | None = None
) -> Operation[PageOf[Message]]:
    query = {"limit": size, "cursor": cursor, "after_seq": after_seq}
    reply = yield session_call(memory, "GET", "messages", query=query, accepts=NOT_FOUND)
    page = _page_of(reply)
    return PageOf(messages_from(page.items), page.next_cursor)


def history(
    memory: SessionFace,
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
    HistoryFilter.check(roles, metadata, since, until)
    left = None if limit is None else check_count("limit", limit)
    offset = check_count("offset", offset)
    filters = set_fields(
        roles=None if roles is None else [*roles],
        metadata=None if metadata is None else dict(metadata),
        since=None if since is None else since.isoformat(),
        until=None if until is None else until.isoformat(),
    )
    by_seq: dict[int, Message] = {}
    while True:
        number = MAX_PAGE if left is None else min(left, MAX_PAGE)
        reply = yield read_call(
            memory, "history", {**filters, "limit": number, "offset": offset}, accepts=NOT_FOUND
        )
        page = messages_from(_page_of(reply).items)
        # Concurrent puts move the pages: a message may come twice.
        known = len(by_seq)
        by_seq |= {message.seq or 0: message for message in page if (message.seq or 0) not in by_seq}
        if page and len(by_seq) == known:
            raise without_end()
        offset += len(page)
        left = None if left is None else left - len(page)
        if len(page) < number or left == 0:
            return [by_seq[seq] for seq in sorted(by_seq)]


def context_window(memory: SessionFace, max_tokens: int = DEFAULT_CONTEXT_TOKENS) -> Operation[list[Message]]:
    """The newest messages that fit ``max_tokens`` together, in order, without any derived memory."""
    reply = yield session_call(
        memory, "GET", "context_window", query={"max_tokens": max_tokens}, accepts=NOT_FOUND
    )
    return messages_from(_page_of(reply).items)


def search(
    memory: SessionFace,
    query: str,
    *,
    limit: int = 10,
    scope: SearchScope = "session",
    exclude_current: bool = False,
    include_window: bool = True,
    kinds: Sequence[HitKind] = MESSAGES_ALONE,
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
    }
    reply = yield read_call(memory, "search", body)
    hits = reply.read(Hits).items
    namespace = (yield from namespace_of(memory.service)) if "fact" in kinds else ""
    # A hit without both is of a kind that this release does not know.
    return [hit_from(hit, namespace) for hit in hits if hit.message is not None or hit.fact is not None]


def summarize(memory: SessionFace, *, wait: float | None = None) -> Operation[Summary | None]:
    """Deliver all undelivered messages, and return the session's summary as workers have it."""
    seconds = None if wait is None else max(0.0, check_timeout(wait))
    reply = yield session_call(memory, "POST", "summary", wait_seconds=seconds)
    return summary_from(reply.read(SummaryOut).summary)


def summarize_last(
    memory: SessionFace,
    messages: int | None = None,
    *,
    runs: int | None = None,
    instructions: str | None = None,
) -> Operation[LatestSummary | None]:
    """Have a model summarize the last messages, or those of the last runs; None if nothing was said."""
    body = set_fields(messages=messages, runs=runs, instructions=instructions)
    reply = yield session_call(memory, "POST", "summary/latest", body=body, repeat="if_not_done")
    return latest_summary_from(reply.read(LatestSummaryOut).summary)


def explain(memory: SessionFace, message_id: str) -> Operation[MessageExplanation]:
    """What became of a message of this session: where it is, and what each stage made of it.

    Raises:
        NotFoundError: the session has no such message.
    """
    call = Call(
        "GET",
        path("explain", "messages", message_id),
        query={"session_id": memory.session_id},
        user_id=memory.user_id,
    )
    return (yield call).read(MessageExplanation)


def add_run(
    memory: SessionFace,
    run_id: str,
    messages: Sequence[object],
    *,
    status: RunStatus = "completed",
    agent_id: str | None = None,
    team_id: str | None = None,
) -> Operation[SessionRun]:
    """Put the messages of an agent's run, and keep which they are; the same id again replaces the run."""
    body = set_fields(messages=message_bodies(messages), status=status, agent_id=agent_id, team_id=team_id)
    reply = yield session_call(memory, "PUT", "runs", run_id, body=body)
    return run_from(reply.read(RunOut))


def run_history(
    memory: SessionFace,
    last_n: int | None = DEFAULT_LAST_RUNS,
    *,
    skip_roles: Sequence[Role] = (),
    skip_statuses: Sequence[RunStatus] = UNFINISHED,
    agent_id: str | None = None,
    team_id: str | None = None,
) -> Operation[list[Message]]:
    """The messages of the last runs, in the order of the runs."""
    body = {
        "last_n": last_n,
        "skip_roles": [*skip_roles],
        "skip_statuses": [*skip_statuses],
        **set_fields(agent_id=agent_id, team_id=team_id),
    }
    reply = yield read_call(memory, "run-history", body, accepts=NOT_FOUND)
    return messages_from(_page_of(reply).items)


def namespace_of(service: Driver) -> Operation[str]:
    """The namespace that the key opens; asked for once."""
    if service.known_namespace is None:
        reply = yield Call("GET", path("whoami"))
        service.known_namespace = reply.read(Identity).namespace or ""
    return service.known_namespace


def session_call(
    memory: SessionFace,
    method: Any,
    *route: str | int,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    repeat: Repeat = "always",
    wait_seconds: float | None = None,
    accepts: frozenset[str] = frozenset(),
) -> Call:
    """A request about the session; the first part of ``route`` is ours, and may have slashes."""
    ours, *names = route
    below = "/".join((f"{path('sessions', memory.session_id)}/{ours}", *(path(n)[4:] for n in names)))
    return Call(
        method,
        below,
        query=query or {},
        body=body,
        user_id=memory.user_id,
        headers=headers or {},
        repeat=repeat,
        wait_seconds=wait_seconds,
        accepts=accepts,
    )


def read_call(
    memory: SessionFace,
    route: str,
    body: Any,
    *,
    wait_seconds: float | None = None,
    accepts: frozenset[str] = frozenset(),
) -> Call:
    """A read whose question is a body."""
    return Call(
        "POST",
        f"{path('sessions', memory.session_id)}/{route}",
        body=body,
        user_id=memory.user_id,
        wait_seconds=wait_seconds,
        accepts=accepts,
        is_read=True,
    )


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
