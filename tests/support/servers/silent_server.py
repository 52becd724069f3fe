"""A server that takes connections and what is sent, and never says a word: a host behind a cut line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType


class SilentServer:
    """Listens on loopback, as a context manager; ``heard`` counts the bytes that it was sent."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.heard = 0

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> SilentServer:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone would not wake a thread that waits in accept or recv.
        for one in (self._listener, *self._taken):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self._taken.append(taken)
            self._begin(partial(self._listen, taken))

    def _listen(self, taken: socket.socket) -> None:
        try:
            while said := taken.recv(65_536):
                self.heard += len(said)
        except OSError:
            return

    def _begin(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
