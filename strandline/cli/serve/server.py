"""The server that carries the application: one process, one port, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from strandline.cli.serve.heads import bounded_by
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.service.gate.turns import SWITCH_SECONDS

if TYPE_CHECKING:
    from fastapi import FastAPI

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


def make_server(app: FastAPI, settings: Settings) -> DrainingServer:
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
