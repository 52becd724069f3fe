"""The line to Postgres: a TCP proxy that stops forwarding for a while without a word, as a cut cable does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any
from urllib.parse import parse_qs, urlsplit


class PostgresLine:
    """Forwards from a port on loopback to the embedded server's socket, in a separate thread.

    Attributes:
        url: the server's URL by way of this line.
    """

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        query = parse_qs(parts.query)
        self._socket = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="postgres-line", daemon=True)
        self._thread.start()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0)).result(10)
        port = self._server.sockets[0].getsockname()[1]
        user = parts.netloc.rpartition("@")[0] or "postgres"
        self.url = f"postgresql://{user}@127.0.0.1:{port}{parts.path}"

    def cut(self) -> None:
        """From now on nothing passes, on no connection; new ones are accepted, and hear nothing."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def mend(self) -> None:
        """End every connection that there is, and forward again."""
        self._loop.call_soon_threadsafe(self._mend)

    def stop(self) -> None:
        """End all of it."""
        self._call(self._end()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _mend(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._flowing.set()

    async def _end(self) -> None:
        self._server.close()
        self._mend()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        self._writers.add(answer)
        writers = [answer]
        try:
            await self._flowing.wait()
            far, ask = await asyncio.open_unix_connection(self._socket)
            self._writers.add(ask)
            writers.append(ask)
            await asyncio.gather(self._pump(near, ask), self._pump(far, answer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for writer in writers:
                self._writers.discard(writer)
                writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            await self._flowing.wait()
            target.write(data)
            await target.drain()
        raise ConnectionResetError
