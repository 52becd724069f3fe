"""The server that carries the application: one process and one port, bounded heads, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.service.app import ServiceApp
from strandline.service.gate.heads import is_loopback
from strandline.service.gate.problems import HEAD_TOO_LARGE, MALFORMED, SLOW_HEAD, Kind, ProblemError
from strandline.service.gate.turns import SWITCH_SECONDS

MAX_HEAD_BYTES = 65_536
# A body that is read has the service's own bound in time; an unread one, of a refused request, has this many
# times a head's.
BODY_TIMES = 3
# Framing bytes for each byte of a chunked body: a chunk of one byte takes five more.
_FRAMING = 8


class BoundedHeads(HttpToolsProtocol):
    """One connection: a head, and what follows a chunked body, has at most ``MAX_HEAD_BYTES``, about.

    uvicorn bounds neither the headers that httptools reads nor the time that they take: any client could have
    this process keep hundreds of megabytes, or thousands of idle connections.

    Attributes:
        head_seconds: how long a head may take from its first byte on.  A silent connection has as long as
            between two requests.
    """

    head_seconds: float

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._is_in_head = True
        self._head_bytes = 0
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        if self._is_in_head and self._head_bytes == len(data):
            self._stop_timer()
            self._timer = self.loop.call_later(self.head_seconds, self._refuse, SLOW_HEAD)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES + _FRAMING * self._body_bytes:
            self._refuse(HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(BODY_TIMES * self.head_seconds, self.transport.abort)
        self._is_in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._is_in_head = True
        self._head_bytes = self._body_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called for input that is not HTTP."""
        self._refuse(MALFORMED)

    def _refuse(self, kind: Kind) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_as_bytes(kind))
            self.transport.close()
        else:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded_by(head_seconds: float) -> type[BoundedHeads]:
    """The protocol, with a bound on the time that a head may take."""
    return type("BoundedHeads", (BoundedHeads,), {"head_seconds": head_seconds})


def _as_bytes(kind: Kind) -> bytes:
    response = ProblemError(kind, headers={"Connection": "close"}).response()
    lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])


KEEP_ALIVE_SECONDS = 75
BACKLOG = 2_048


class DrainingServer(uvicorn.Server):
    """Answers for a while after the first signal, saying that it is not ready; then ends in order.

    In that time load balancers take it out, and clients leave their connections, which it asks them to close.
    A second signal ends the waiting, a third the requests in hand as well.
    """

    def __init__(
        self, config: uvicorn.Config, *, begin_stopping: Callable[[], None], drain_seconds: float
    ) -> None:
        super().__init__(config)
        self._begin_stopping = begin_stopping
        self._drain_seconds = drain_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_draining = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        await super().startup(sockets)
        # A full collection would hold up every request for 0.1 s to look at modules, which stay anyway.
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called with a signal, between two steps of the event loop; the exit code is 0."""
        if self._is_draining or self._loop is None:
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        self._is_draining = True
        self._begin_stopping()
        self._loop.call_soon_threadsafe(self._loop.call_later, self._drain_seconds, self._end)

    def _end(self) -> None:
        self.should_exit = True


def listen(host: str, port: int, *, untaken_seconds: float) -> socket.socket:
    """A socket that listens.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _give_up_untaken(listening, untaken_seconds)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"The service cannot listen on {host}, port {port} ({error.strerror}); set"
            " STRANDLINE_SERVICE_HOST and STRANDLINE_SERVICE_PORT, or --host and --port."
        ) from None
    return listening


def _give_up_untaken(listening: socket.socket, seconds: float) -> None:
    option: Any = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        listening.setsockopt(socket.IPPROTO_TCP, option, int(seconds * 1_000))


def check_address(host: str, *, has_key: bool) -> None:
    """Refuse a public address without a key.

    Raises:
        ConfigurationError: there is no key, and the address is not loopback.
    """
    if not has_key and not is_loopback(host):
        raise ConfigurationError(
            f"No key exists in this database, so the service listens on loopback alone, and not on {host}."
            " Make a key first: `strandline keys create --namespace default --scope read --scope write`."
        )


def make_server(app: ServiceApp, settings: Settings) -> DrainingServer:
    """A server for the application."""

    def begin_stopping() -> None:
        app.state.service.is_stopping = True

    proxies = settings.service_trusted_proxies
    config = uvicorn.Config(
        app,
        http=bounded_by(settings.service_body_seconds),
        access_log=False,
        log_config=None,
        server_header=False,
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.service_shutdown_seconds),
    )
    return DrainingServer(config, begin_stopping=begin_stopping, drain_seconds=settings.service_drain_seconds)
