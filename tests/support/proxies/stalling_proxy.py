"""A TCP proxy before Postgres that stops forwarding without a word, as a firewall does that drops packets."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

from tests.support.servers.databases import connect_to

Direction = Literal["asked", "answered"]


class StallingProxy:
    """Forwards to the Postgres of ``url``, until it swallows what goes one way.

    Attributes:
        url: the same database by way of the proxy.
        swallowed: set once something was.
    """

    def __init__(self, url: str, *, port: int = 0) -> None:
        parts = urlsplit(url)
        self._target = url
        self._listener = socket.create_server(("127.0.0.1", port))
        user = parts.netloc.rpartition("@")[0] or "postgres"
        self.url = f"postgresql://{user}@127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self.swallowed = threading.Event()
        self._links: list[_Link] = []
        self._stalled: Direction | None = None

    @property
    def connections(self) -> int:
        """How many were made so far."""
        return len(self._links)

    def stall(self, direction: Direction, *, newer: bool = False) -> None:
        """Swallow from now on what is ``asked``, or ``answered``, on the connections that are.

        ``newer=True``: on those that are made later as well, which thus never come about.
        """
        for link in list(self._links):
            link.stalled = direction
        if newer:
            self._stalled = direction

    def __enter__(self) -> StallingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone would not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections, so that whoever still waits on one learns of it."""
        for link in list(self._links):
            link.end()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _address = self._listener.accept()
                far = connect_to(self._target)
                self._links.append(_Link(near, far, self._stalled, self.swallowed))


class _Link:
    """One connection, and the two threads that forward on it."""

    def __init__(
        self, near: socket.socket, far: socket.socket, stalled: Direction | None, swallowed: threading.Event
    ) -> None:
        self._sockets = (near, far)
        self.stalled = stalled
        self._swallowed = swallowed
        threading.Thread(target=self._pump, args=(near, far, "asked"), daemon=True).start()
        threading.Thread(target=self._pump, args=(far, near, "answered"), daemon=True).start()

    def end(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _pump(self, one: socket.socket, other: socket.socket, direction: Direction) -> None:
        with one, contextlib.suppress(OSError):
            while data := one.recv(65_536):
                if self.stalled == direction:
                    self._swallowed.set()
                else:
                    other.sendall(data)
        self.end()
