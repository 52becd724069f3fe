"""A service and the connections to it: two thin drivers, which carry operations out sync or async."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import weakref
from functools import cache
from math import ceil
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import ValidationError

from strandline.client.operations import LOST, Call, Operation, Reply, check_user
from strandline.client.problems import Refusal, refusal_of, unusable
from strandline.client.retrying import Attempts, Failure, Retries, Timeouts
from strandline.producers.arguments import check_count
from strandline.producers.writing.validate import unwritable_path
from strandline.schemas.errors import (
    ConfigurationError,
    InvalidMessageError,
    OutcomeUnknownError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnavailableError,
    StrandlineError,
)
from strandline.schemas.tracing import current_traceparent
from strandline.schemas.version import VERSION
from strandline.schemas.wire.base import USER_HEADER

T = TypeVar("T")

# Before the service closes an idle connection, which it does after 75 seconds.
KEEP_ALIVE_SECONDS = 60.0
# Of all clients of a process: each event loop has its own, and would stop for 30 ms while the list is read.
trusted_authorities = cache(httpx2.create_ssl_context)
# These failed before a byte of the request left.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class _Key(httpx2.Auth):
    def __init__(self, key: str) -> None:
        self._header = f"Bearer {key}"

    def auth_flow(self, request: httpx2.Request) -> Any:
        request.headers["Authorization"] = self._header
        yield request

    def __repr__(self) -> str:
        return "<key>"


class _Body:
    def __init__(self, call: Call, service: RemoteService) -> None:
        self._call, self._most = call, service.max_answer_bytes
        self._ends_at = time.monotonic() + service.timeouts.answer + (call.wait_seconds or 0.0)
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, part: bytes) -> None:
        """A part of it; raises ServiceError if it is too large, ReadTimeout if it takes too long."""
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._most:
            done = " The change may have taken effect." if _changes(self._call) else ""
            raise ServiceError(
                f"The answer has more than {self._most:,} bytes; ask for less at once, or raise"
                f" max_answer_bytes.{done}"
            )
        if time.monotonic() > self._ends_at:
            raise httpx2.ReadTimeout("the answer takes too long as a whole")

    @property
    def content(self) -> bytes:
        return b"".join(self._parts)


class RemoteService:
    """A Strandline service at a URL, with a key.  Make one per process: it holds the connections.

    Safe to share between threads, tasks, event loops and forked processes; makes no connection yet.

    Args:
        url: such as ``https://memory.example.com``; a path before ``/v1`` is kept.
        key: ``sl_…``, as ``strandline keys create`` prints it; no representation, log or error shows it.
        timeouts: of one attempt.
        retries: how often and how long safe requests are sent again.
        max_connections: of the pool, for each event loop, and for all threads together.
        max_answer_bytes: most bytes of an answer, uncompressed; events and exports are read by parts.

    Raises:
        ConfigurationError: an argument cannot be used.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        max_connections: int = 100,
        max_answer_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self.url = _checked_url(url)
        self._key = _Key(_checked_key(key))
        self.timeouts = timeouts or Timeouts()
        self.retries = retries or Retries()
        self.max_answer_bytes = check_count("max_answer_bytes", max_answer_bytes, least=1)
        self._limits = httpx2.Limits(
            max_connections=max_connections,
            max_keepalive_connections=max_connections,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
        )
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._client: httpx2.Client | None = None
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        # As `whoami` says; a key is bound to it for good.
        self.known_namespace: str | None = None

    @property
    def service(self) -> RemoteService:
        """Itself, as the faces have it."""
        return self

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out.

        Raises:
            StrandlineError: the service refuses it, or does not answer.
        """
        reply: Reply | None = None
        try:
            while True:
                call = next(operation) if reply is None else operation.send(reply)
                reply = self._answer(call)
        except StopIteration as done:
            result: T = done.value
            return result
        except ValidationError as error:  # of the request; `Reply.read` reads answers
            raise unusable(error) from None

    async def arun(self, operation: Operation[T]) -> T:
        """Async twin of ``run``."""
        reply: Reply | None = None
        try:
            while True:
                call = next(operation) if reply is None else operation.send(reply)
                reply = await self._aanswer(call)
        except StopIteration as done:
            result: T = done.value
            return result
        except ValidationError as error:
            raise unusable(error) from None

    def close(self) -> None:
        """Close the connections of threads; the next call makes new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next call makes new ones."""
        with self._lock:
            client = self._of_loops.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def client(self) -> httpx2.Client:
        """The connections of this process's threads."""
        with self._lock:
            self._forget_other_process()
            if self._client is None:
                self._client = httpx2.Client(**self._options())
            return self._client

    def aclient(self) -> httpx2.AsyncClient:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._forget_other_process()
            client = self._of_loops.get(loop)
            if client is None:
                client = self._of_loops[loop] = httpx2.AsyncClient(**self._options())
            return client

    def request_of(self, call: Call) -> dict[str, Any]:
        """The HTTP client's request for a call."""
        # Text in UTF-8, as the service reads it.
        headers: dict[str, Any] = {name: _header(name, value) for name, value in call.headers.items()}
        if call.user_id is not None:
            headers[USER_HEADER] = check_user(call.user_id).encode()
        if call.wait_seconds is not None:
            headers["Prefer"] = f"wait={ceil(call.wait_seconds)}"
        if (traceparent := current_traceparent()) is not None:
            headers["traceparent"] = traceparent
        sent: dict[str, Any] = {"method": call.method, "url": call.path, "headers": headers}
        query = {name: value for name, value in call.query.items() if value is not None}
        if query:
            sent["params"] = query
        if call.body is not None:
            sent["content"] = _json(call.body)
            headers["Content-Type"] = "application/json"
        if call.wait_seconds is not None:
            sent["timeout"] = self._timeout(self.timeouts.read + call.wait_seconds)
        return sent

    def _answer(self, call: Call) -> Reply:
        attempts = Attempts(self.retries, call.repeat)
        sent = self.request_of(call)
        while True:
            try:
                with self.client().stream(**sent) as response:
                    content = self._content(call, response)
            except httpx2.RequestError as error:
                wait = self._after_failure(call, attempts, error)
            else:
                judged = self._judge(call, attempts, response, content)
                if isinstance(judged, Reply):
                    return judged
                wait = judged
            time.sleep(wait)

    async def _aanswer(self, call: Call) -> Reply:
        attempts = Attempts(self.retries, call.repeat)
        sent = self.request_of(call)
        while True:
            try:
                async with self.aclient().stream(**sent) as response:
                    content = await self._acontent(call, response)
            except httpx2.RequestError as error:
                wait = self._after_failure(call, attempts, error)
            else:
                judged = self._judge(call, attempts, response, content)
                if isinstance(judged, Reply):
                    return judged
                wait = judged
            await asyncio.sleep(wait)

    def refusal(self, call: Call, response: httpx2.Response) -> Refusal:
        """Read a response other than success, whose body was not read yet."""
        return refusal_of(response.status_code, response.headers, self._content(call, response))

    async def arefusal(self, call: Call, response: httpx2.Response) -> Refusal:
        """Async twin of ``refusal``."""
        return refusal_of(response.status_code, response.headers, await self._acontent(call, response))

    def _content(self, call: Call, response: httpx2.Response) -> bytes:
        body = _Body(call, self)
        for part in response.iter_bytes():
            body.take(part)
        return body.content

    async def _acontent(self, call: Call, response: httpx2.Response) -> bytes:
        body = _Body(call, self)
        async for part in response.aiter_bytes():
            body.take(part)
        return body.content

    def _after_failure(self, call: Call, attempts: Attempts, error: httpx2.RequestError) -> float:
        """How long to wait before the next attempt; raises an error if no attempt is left."""
        failure: Failure = "not_sent" if isinstance(error, _NOT_SENT) else "unknown"
        wait = attempts.next_wait(failure, None)
        if wait is None:
            raise self._no_answer(call, attempts, error) from None
        return wait

    def _judge(
        self, call: Call, attempts: Attempts, response: httpx2.Response, content: bytes
    ) -> Reply | float:
        """The reply, or how long to wait before the next attempt; raises an error for a refusal."""
        reply = Reply(response.status_code, content, attempts.was_lost)
        if response.is_success:
            return reply
        refusal = refusal_of(response.status_code, response.headers, content, call.body)
        if refusal.kind in call.accepts:
            return reply
        if refusal.failure is not None:
            wait = attempts.next_wait(refusal.failure, refusal.retry_after)
            if wait is not None:
                return wait
        if refusal.failure == "unknown" and _changes(call):
            raise OutcomeUnknownError(LOST)
        raise refusal.error

    def _no_answer(self, call: Call, attempts: Attempts, error: httpx2.RequestError) -> StrandlineError:
        tried = attempts.number - 1
        times = "once" if tried == 1 else f"{tried} times"
        if attempts.was_lost and _changes(call):
            return OutcomeUnknownError(LOST)
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, _NOT_SENT):
            return ServiceTimeoutError(
                f"The service at {self.url} did not answer in time (tried {times}); raise the time-out read,"
                " or look at its load."
            )
        return ServiceUnavailableError(
            f"The service at {self.url} cannot be reached ({type(error).__name__}, tried {times}); check the"
            " URL, and that it runs."
        )

    def _options(self) -> dict[str, Any]:
        return {
            "base_url": self.url,
            "auth": self._key,
            "timeout": self._timeout(self.timeouts.read),
            "limits": self._limits,
            "verify": trusted_authorities(),
            "headers": {"User-Agent": f"strandline-client/{VERSION}", "Accept": "application/json"},
            # A redirect would carry the key to where it does not belong.
            "follow_redirects": False,
        }

    def _timeout(self, read: float) -> httpx2.Timeout:
        times = self.timeouts
        return httpx2.Timeout(connect=times.connect, read=read, write=times.write, pool=times.pool)

    def _forget_other_process(self) -> None:
        """After a fork the parent's connections are the parent's."""
        if self._process != os.getpid():
            self._process, self._client = os.getpid(), None
            self._of_loops = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"RemoteService({self.url!r})"

    def __enter__(self) -> RemoteService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> RemoteService:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _changes(call: Call) -> bool:
    return call.method != "GET" and not call.is_read


def _header(name: str, value: str) -> bytes:
    encoded = value.encode(errors="ignore")
    if encoded.decode() != value.strip(" ") or any(byte < 32 or byte == 127 for byte in encoded):
        raise ConfigurationError(
            f"The value of {name} cannot hold control characters, or begin or end with a space."
        )
    return encoded


def _json(body: Any) -> bytes:
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # As JSON escapes a lone surrogate: the service refuses it, and names the field.
        return text.encode(errors="backslashreplace")
    except (TypeError, ValueError, RecursionError) as error:
        fields = body.items() if isinstance(body, dict) else ()
        raise InvalidMessageError(
            unwritable_path(fields) or "body", f"holds a value that JSON cannot ({type(error).__name__})"
        ) from None


def _checked_url(url: object) -> str:
    if not isinstance(url, str):
        raise ConfigurationError(f"url must be a string, not {type(url).__name__}.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("url is not an http(s) URL, such as https://memory.example.com.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigurationError("url must hold no credentials, query or fragment: the key is an argument.")
    return url.rstrip("/")


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key.startswith("sl_") or not key.isascii() or not key.isprintable():
        raise ConfigurationError(
            "key is not a key of a Strandline service (sl_…); `strandline keys create` makes one."
        )
    return key
