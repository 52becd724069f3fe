"""One session behind the service: its name, its owner, and what its first put stores."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import copy
from difflib import get_close_matches
from typing import Any, Self, Unpack

from strandline.client.operations import check_user, set_fields
from strandline.client.service import RemoteService
from strandline.producers.blocks.base import InsertMethod, check_insert_method
from strandline.producers.execution import spelled_out
from strandline.producers.memory import new_session_id
from strandline.producers.tools.definitions import ToolForm, openai_tools
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import check_name, scope_session_id
from strandline.schemas.values.policy import DEFAULT_TOKEN_LIMIT, OF_BLOCKS, PolicyOptions, make_policy

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
    @spelled_out(make_policy, without=OF_BLOCKS, others="elsewhere")
    def from_defaults(
        cls,
        session_id: str | None = None,
        *,
        service: RemoteService,
        user_id: str | None = None,
        memory_blocks: Sequence[str] | None = None,
        insert_method: str = InsertMethod.SYSTEM,
        **limits: Unpack[PolicyOptions],
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
        for name in limits:
            if name not in PolicyOptions.__annotations__:
                raise ConfigurationError(_unknown(cls, name))
        place = check_insert_method(insert_method)
        names = None if memory_blocks is None else [check_name("memory_blocks", one) for one in memory_blocks]
        policy = {name: value for name, value in limits.items() if value != _DEFAULTS[name]}
        make_policy(tokenizer="", pipelines=tuple(names or ()), **limits)
        return cls(
            service,
            new_session_id() if session_id is None else check_name("session_id", session_id),
            None if user_id is None else check_user(user_id),
            token_limit=limits.get("token_limit"),
            insert_method=str(place),
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


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(RemoteSession.from_defaults).parameters.items()
}


def _unknown(face: type, name: str) -> str:
    near = get_close_matches(name, _DEFAULTS, n=1)
    guess = f"did you mean {quote(near[0])}?" if near else f"help({face.__name__}.from_defaults) lists them"
    return f"{face.__name__}.from_defaults has no argument {quote(name)}: {_OF_THE_SERVICE.get(name, guess)}"
