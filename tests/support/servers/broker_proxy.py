"""A broker that goes away and comes back at the same address: a TCP proxy in front of the real one."""

from __future__ import annotations

import contextlib
import socket
import threading
from itertools import count
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit


class BrokerProxy:
    """Forwards to the broker of ``url`` while it is up; as a context manager it ends down."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        userinfo = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{userinfo}@127.0.0.1:{self._port}"))

    @property
    def connections(self) -> int:
        """How many sockets it forwards between; a connection has two."""
        return len(self._sockets)

    def up(self, connections: int | None = None) -> None:
        """Listen, and forward what connects; ``connections``: go down by itself once so many have come."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(self._listener, connections), daemon=True).start()

    def down(self) -> None:
        """Refuse connections, and cut those that are."""
        if self._listener is not None:
            # Closing alone would not wake the thread that accepts, and it would take one more.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> BrokerProxy:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def _accept(self, listener: socket.socket, connections: int | None) -> None:
        with contextlib.suppress(OSError), listener:
            for _number in count() if connections is None else range(connections):
                near, _address = listener.accept()
                far = socket.create_connection(self._target)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        self._sockets.add(one)
        with one, contextlib.suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
        self._sockets.discard(one)
