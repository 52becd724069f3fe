"""A session's memory behind the HTTP service, with the methods of ``strandline.Memory``."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Sequence
from copy import copy
from difflib import get_close_matches
from typing import Any, Self

from strandline.client import session_changes as changes
from strandline.client import session_operations as operations
from strandline.client.events import ServiceEvent, follow, follow_async
from strandline.client.facts import AsyncRemoteFacts, RemoteFacts
from strandline.client.operations import (
    async_iterator,
    async_method,
    check_user,
    path,
    set_fields,
    sync_iterator,
    sync_method,
)
from strandline.client.service import RemoteService
from strandline.producers.blocks.base import InsertMethod
from strandline.producers.memory import new_session_id
from strandline.producers.tools.definitions import ToolForm, openai_tools
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import check_name, scope_session_id
from strandline.schemas.values.policy import (
    DEFAULT_FLUSH_SIZE,
    DEFAULT_HISTORY_RATIO,
    DEFAULT_IDLE_SECONDS,
    DEFAULT_TOKEN_LIMIT,
    DEFAULT_WINDOW_BYTES,
    DEFAULT_WINDOW_MESSAGES,
    Deliver,
    make_policy,
)

# Arguments of `Memory.from_defaults` that a client has not, and why.
_OF_THE_SERVICE = {
    "namespace": "the key opens one namespace",
    "tokenizer_fn": "the service counts with its own",
    "part_tokens": "the service counts with its own",
    "memory_template": "the service lays memory out",
    "redact": "the service has its redaction hooks",
    "on_overflow": "the service has its overflow handlers",
    **dict.fromkeys(
        ("database_url", "pool", "schema", "broker_url", "consume"), "the service has its own servers"
    ),
}


class RemoteSession:
    """Shared by the two faces of a session, which ``from_defaults`` makes."""

    def __init__(
        self,
        service: RemoteService,
        session_id: str,
        user_id: str | None,
        *,
        token_limit: int | None,
        insert_method: str,
        policy: dict[str, Any],
    ) -> None:
        if not isinstance(service, RemoteService):
            raise TypeError(f"{type(self).__name__} is made by from_defaults(…, service=RemoteService(…)).")
        self._service = service
        self._session_id = session_id
        self._user_id = user_id
        self._token_limit = token_limit
        self.insert_method = insert_method
        self.policy = policy

    @classmethod
    def from_defaults(
        cls,
        session_id: str | None = None,
        *,
        service: RemoteService,
        user_id: str | None = None,
        token_limit: int | None = None,
        chat_history_token_ratio: float = DEFAULT_HISTORY_RATIO,
        token_flush_size: int = DEFAULT_FLUSH_SIZE,
        max_window_messages: int = DEFAULT_WINDOW_MESSAGES,
        max_window_bytes: int = DEFAULT_WINDOW_BYTES,
        message_flush_size: int | None = None,
        deliver: Deliver = "window",
        time_zone: str | None = None,
        memory_blocks: Sequence[str] | None = None,
        insert_method: str = InsertMethod.SYSTEM,
        shared_scope: str | None = None,
        idle_seconds: int | None = DEFAULT_IDLE_SECONDS,
        **elsewhere: Any,
    ) -> Self:
        """Make a memory; does no I/O, so a backend can make one per request.

        Args:
            session_id: the conversation; default: a new random one.
            service: where it is kept; its key says in which namespace.
            user_id: the owner of facts; default: that of the key, or without one the session itself.
            memory_blocks: names of pipelines; None: facts, summary and vectors; []: none.
            token_limit, chat_history_token_ratio, token_flush_size, max_window_messages, max_window_bytes,
                message_flush_size, deliver, time_zone, insert_method, shared_scope, idle_seconds: as for
                ``Memory.from_defaults``.  They are stored with the session at its first put.

        Raises:
            ConfigurationError, InvalidMessageError: an argument cannot be used; it is named.
        """
        for name in elsewhere:
            raise ConfigurationError(_unknown(cls, name))
        if insert_method not in tuple(InsertMethod):
            raise ConfigurationError(
                f"insert_method is {quote(insert_method)}; it must be 'system' or 'user'"
            )
        limits = {
            "token_limit": token_limit,
            "chat_history_token_ratio": chat_history_token_ratio,
            "token_flush_size": token_flush_size,
            "max_window_messages": max_window_messages,
            "max_window_bytes": max_window_bytes,
            "message_flush_size": message_flush_size,
            "deliver": deliver,
            "time_zone": time_zone,
            "idle_seconds": idle_seconds,
            "shared_scope": shared_scope,
        }
        names = None if memory_blocks is None else [check_name("memory_blocks", one) for one in memory_blocks]
        policy = {name: value for name, value in limits.items() if value != _DEFAULTS[name]}
        make_policy(tokenizer="", pipelines=tuple(names or ()), **policy)  # type: ignore[arg-type]
        return cls(
            service,
            new_session_id() if session_id is None else check_name("session_id", session_id),
            None if user_id is None else check_user(user_id),
            token_limit=token_limit,
            insert_method=str(insert_method),
            policy={**policy, **set_fields(blocks=names)},
        )

    @property
    def service(self) -> RemoteService:
        return self._service

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def user_id(self) -> str | None:
        """As it was given; None: that of the key."""
        return self._user_id

    @property
    def token_limit(self) -> int:
        """Of a read; ``set_policy`` changes it.  Unless it was given, that of a new session."""
        return self._token_limit or DEFAULT_TOKEN_LIMIT

    @property
    def own_token_limit(self) -> int | None:
        """The same as it was given; None: a read takes the session's."""
        return self._token_limit

    def read_within(self, token_limit: int) -> None:
        """Read with another limit from now on."""
        self._token_limit = token_limit

    def get_scope(self, name: str) -> Self:
        """The memory of a session of its own, with everything else as here; does no I/O."""
        scoped = copy(self)
        scoped._session_id = scope_session_id(self._session_id, check_name("name", name))
        return scoped

    def tools(self, *, form: ToolForm = "chat", read_only: bool = False) -> list[dict[str, Any]]:
        """The definitions of the tools, for ``tools=`` of OpenAI's API; calls go to ``/mcp``."""
        return openai_tools(form, read_only=read_only)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_id!r}, user_id={self._user_id!r}, {self._service!r})"


class AsyncMethods(RemoteSession):
    """The methods that asyncio awaits, by the names that ``Memory`` has for them."""

    aput = async_method(operations.put)
    aput_messages = async_method(operations.put_messages)
    aimport_messages = async_method(operations.import_messages)
    aget = async_method(operations.get)
    aget_all = async_method(operations.get_all)
    aiterate = async_iterator(operations.iterate)
    ahistory = async_method(operations.history)
    acontext_window = async_method(operations.context_window)
    asearch = async_method(operations.search)
    asummarize = async_method(operations.summarize)
    asummarize_last = async_method(operations.summarize_last)
    aexplain = async_method(operations.explain)
    aadd_run = async_method(operations.add_run)
    arun_history = async_method(operations.run_history)
    areset = async_method(changes.reset)
    aflush = async_method(changes.flush)
    adeliver = async_method(changes.deliver)
    apop = async_method(changes.pop)
    arewind = async_method(changes.rewind)
    areplace = async_method(changes.replace)
    afork = async_method(changes.fork)
    aset_policy = async_method(changes.set_policy)
    aget_retention = async_method(changes.get_retention)
    aset_retention = async_method(changes.set_retention)

    def aevents(self, *, last_event_id: str | None = None) -> AsyncGenerator[ServiceEvent, None]:
        """What happens to this session, from now on or since an event; resumes by itself when it is cut."""
        return follow_async(self._service, self._events_path, self._user_id, last_event_id)

    async def aclose(self) -> None:
        """Close the service's connections of the running event loop; the next call makes new ones."""
        await self._service.aclose()

    @property
    def _events_path(self) -> str:
        return f"{path('sessions', self._session_id)}/events"


class RemoteMemory(AsyncMethods):
    """The memory of one chat session behind the service, made by ``from_defaults``.

    Methods, arguments and results are those of ``Memory``; docs/client.md lists what differs.  A
    change is sent with a key of its own, which is kept over retries: a lost answer loses nothing, and doubles
    nothing.
    """

    put = sync_method(operations.put)
    put_messages = sync_method(operations.put_messages)
    import_messages = sync_method(operations.import_messages)
    get = sync_method(operations.get)
    get_all = sync_method(operations.get_all)
    iterate = sync_iterator(operations.iterate)
    history = sync_method(operations.history)
    context_window = sync_method(operations.context_window)
    search = sync_method(operations.search)
    summarize = sync_method(operations.summarize)
    summarize_last = sync_method(operations.summarize_last)
    explain = sync_method(operations.explain)
    add_run = sync_method(operations.add_run)
    run_history = sync_method(operations.run_history)
    reset = sync_method(changes.reset)
    flush = sync_method(changes.flush)
    deliver = sync_method(changes.deliver)
    pop = sync_method(changes.pop)
    rewind = sync_method(changes.rewind)
    replace = sync_method(changes.replace)
    fork = sync_method(changes.fork)
    set_policy = sync_method(changes.set_policy)
    get_retention = sync_method(changes.get_retention)
    set_retention = sync_method(changes.set_retention)

    @property
    def facts(self) -> RemoteFacts:
        """The facts of this session's user.

        Raises:
            ConfigurationError: the memory was made without ``user_id``.
        """
        return RemoteFacts(self._service, self._user_id)

    def events(self, *, last_event_id: str | None = None) -> Generator[ServiceEvent, None, None]:
        """What happens to this session, from now on or since an event; resumes by itself when it is cut."""
        return follow(self._service, self._events_path, self._user_id, last_event_id)

    def close(self) -> None:
        """Close the service's connections of threads; the next call makes new ones."""
        self._service.close()


class AsyncRemoteMemory(AsyncMethods):
    """The same for asyncio alone: ``await memory.put(…)``; the names with ``a`` are there too."""

    put = AsyncMethods.aput
    put_messages = AsyncMethods.aput_messages
    import_messages = AsyncMethods.aimport_messages
    get = AsyncMethods.aget
    get_all = AsyncMethods.aget_all
    iterate = AsyncMethods.aiterate
    history = AsyncMethods.ahistory
    context_window = AsyncMethods.acontext_window
    search = AsyncMethods.asearch
    summarize = AsyncMethods.asummarize
    summarize_last = AsyncMethods.asummarize_last
    explain = AsyncMethods.aexplain
    add_run = AsyncMethods.aadd_run
    run_history = AsyncMethods.arun_history
    reset = AsyncMethods.areset
    flush = AsyncMethods.aflush
    deliver = AsyncMethods.adeliver
    pop = AsyncMethods.apop
    rewind = AsyncMethods.arewind
    replace = AsyncMethods.areplace
    fork = AsyncMethods.afork
    set_policy = AsyncMethods.aset_policy
    get_retention = AsyncMethods.aget_retention
    set_retention = AsyncMethods.aset_retention
    events = AsyncMethods.aevents
    close = AsyncMethods.aclose

    @property
    def facts(self) -> AsyncRemoteFacts:
        """The facts of this session's user; raises ConfigurationError if there is no ``user_id``."""
        return AsyncRemoteFacts(self._service, self._user_id)


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(RemoteSession.from_defaults).parameters.items()
}


def _unknown(face: type, name: str) -> str:
    near = get_close_matches(name, _DEFAULTS, n=1)
    guess = f"did you mean {quote(near[0])}?" if near else f"help({face.__name__}.from_defaults) lists them"
    return f"{face.__name__}.from_defaults has no argument {quote(name)}: {_OF_THE_SERVICE.get(name, guess)}"
