"""Asks the service's own routes within the process, as a client with the session's keys does over HTTP.

So scope, limits, deadlines, audit and another user's ids are decided in one place, for both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import Message, Receive, Scope, Send

from strandline.schemas.queries.application.service import FindServiceKeysRow
from strandline.schemas.values.identity import NO_USER
from strandline.schemas.wire.acts import WireAct
from strandline.schemas.wire.base import USER_HEADER
from strandline.service.gate.authentication import caller_of, check_scope
from strandline.service.gate.bodies import ClientGone
from strandline.service.gate.problems import FORBIDDEN, ProblemError
from strandline.service.pages.operations import OWN_ROUTES
from strandline.service.route import PAGE_KEY
from strandline.service.routes import ROUTES

_BY_ACT = {(route.method, route.path): route for route in (*ROUTES, *OWN_ROUTES)}
PLACES = re.compile(r"\{(\w+)(?::\w+)?\}")
NO_KEY = "No key of this session may do this; log in with another key as well."


class AnswerError(Exception):
    """A route refused; its status, and what its problem says."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(problem.get("title"))
        self.status = status
        self.problem = problem


class Asking:
    """Asks for one visitor; ``keys`` are the rows of the session's keys."""

    def __init__(self, scope: Scope, receive: Receive, keys: Sequence[FindServiceKeysRow]) -> None:
        self._scope = scope
        self._receive = receive
        self.keys = keys

    def may(self, act: WireAct) -> bool:
        """Whether a key of the session has the right to it."""
        return self._key_for(act) is not None

    def check(self, act: WireAct) -> FindServiceKeysRow:
        """The key with the right to an act; raises ProblemError without one."""
        key = self._key_for(act)
        if key is None:
            raise ProblemError(FORBIDDEN, detail=NO_KEY)
        return key

    async def __call__(self, act: WireAct, **asked: Any) -> Any:
        """The answer of a route, as JSON says it; None for an empty one.

        Args:
            act: the route.
            asked: ``of_user`` (the header; empty: no user), ``query``, ``body``, ``headers``, and the path's
                names.

        Raises:
            AnswerError: the route refuses.
            ClientGone: the client closed its connection.
        """
        answer = _Answer()
        await self.pass_on(act, answer, **asked)
        if not answer.status:
            raise ClientGone
        document: Any = json.loads(answer.body) if answer.body else None
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise AnswerError(answer.status, document)
        return document

    async def pass_on(
        self,
        act: WireAct,
        send: Send,
        *,
        of_user: str | None = None,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **places: Any,
    ) -> None:
        """Have a route answer through ``send``; arguments as for a call.

        Raises:
            ProblemError: no key of the session has the right.
        """
        key = self.check(act)
        route = _BY_ACT[act.method, act.path]
        named = {name: quote(str(value), safe="") for name, value in places.items()}
        path = PLACES.sub(lambda match: named[match[1]], route.path)
        more = dict(headers or {})
        if of_user is not None and key.user_id is None:
            more[USER_HEADER] = of_user or NO_USER
        content = b"" if body is None else json.dumps(body).encode()
        sent = [(b"host", b"page"), (b"content-type", b"application/json")]
        sent += [(b"content-length", str(len(content)).encode())]
        sent += [(name.lower().encode(), value.encode()) for name, value in more.items()]
        fields = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        scope = {
            **self._scope,
            "method": route.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(fields, doseq=True).encode(),
            "headers": sent,
            "path_params": named,
            PAGE_KEY: key.key_id,
        }
        is_sent = False

        async def receive() -> Message:
            nonlocal is_sent
            if is_sent:
                return await self._receive()
            is_sent = True
            return {"type": "http.request", "body": content, "more_body": False}

        await route.handle(scope, receive, send)

    def _key_for(self, act: WireAct) -> FindServiceKeysRow | None:
        """The key with the right to an act: the installation's for what operators ask, else a namespace's."""
        rule = _BY_ACT[act.method, act.path].access
        if rule is None:
            return None
        operators = rule.holder != "any"
        for key in sorted(self.keys, key=lambda one: (one.namespace is None) != operators):
            if key.namespace is None and not operators:
                continue
            try:
                check_scope(caller_of(key, None, None), rule.scope, rule.holder)
            except ProblemError:
                continue
            return key
        return None


class _Answer:
    """An ASGI ``send`` that keeps status and body."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")
