"""A server that refuses connections is understood by its code, whatever language it speaks."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psycopg
import pytest

from strandline import DatabaseUnavailableError
from strandline.schemas.postgres.pools.reaching import Refusals
from tests.conftest import Rig
from tests.support.servers.databases import connect_to, database_in

SSL_REQUEST = 80877103
# As a German, a Japanese and a Russian server say it.
TOO_MANY = ("53300", "tut mir leid, schon zu viele Verbindungen")
STARTING = ("57P03", "データベースシステムは起動処理中です")
WRONG_PASSWORD = ("28P01", "пользователь не прошёл проверку подлинности")


class RefusingServer:
    """Stands before a Postgres; refuses so many connections as it says, and passes the others on."""

    def __init__(self, url: str, code: str, words: str, *, times: int) -> None:
        self._url, self._times, self.refused = url, times, 0
        fields = {"S": "FATAL", "V": "FATAL", "C": code, "M": words}
        body = b"".join(f"{name}{text}\0".encode() for name, text in fields.items()) + b"\0"
        self._error = b"E" + struct.pack("!I", len(body) + 4) + body
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _address = self._socket.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError, struct.error):
            (length,) = struct.unpack("!I", client.recv(4, socket.MSG_WAITALL))
            start = client.recv(length - 4, socket.MSG_WAITALL)
            if struct.unpack("!I", start[:4]) == (SSL_REQUEST,):
                client.sendall(b"N")
                (length,) = struct.unpack("!I", client.recv(4, socket.MSG_WAITALL))
                start = client.recv(length - 4, socket.MSG_WAITALL)
            self.refused += 1
            if self.refused <= self._times:
                client.sendall(self._error)
                return
            with connect_to(self._url) as server:
                server.sendall(struct.pack("!I", length) + start)
                threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
                _pass_on(server, client)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def refusing(url: str, refusal: tuple[str, str], *, times: int) -> Iterator[tuple[RefusingServer, str]]:
    with closing(RefusingServer(url, *refusal, times=times)) as server:
        name = url.partition("?")[0].rpartition("/")[2]
        yield server, database_in(f"postgresql://postgres@127.0.0.1:{server.port}/", name)


@pytest.mark.parametrize("refusal", [TOO_MANY, STARTING], ids=["too many", "starting"])
def test_a_put_waits_for_a_server_that_will_take_more(rig: Rig, refusal: tuple[str, str]) -> None:
    with refusing(rig.url, refusal, times=6) as (server, url):
        memory = rig.memory("s", database_url=url)
        assert memory.put({"role": "user", "content": "hello"}) == 1
        assert server.refused > 6

    async def main(url: str) -> None:
        memory = rig.memory("s", database_url=url)
        assert await memory.aput({"role": "user", "content": "hello"}) == 2
        await memory.aclose()

    with refusing(rig.url, refusal, times=6) as (server, url):
        asyncio.run(main(url))
        assert server.refused > 6


def test_a_refusal_is_looked_up_once() -> None:
    refusals = Refusals()
    with closing(RefusingServer("", *TOO_MANY, times=10_000)) as server:
        url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        for attempt in range(5):
            with pytest.raises(psycopg.OperationalError) as refused:
                psycopg.connect(url)
            assert refusals.code(refused.value, url, {}) == "53300"
            assert server.refused == attempt + 2


def test_another_refusal_is_told_at_once_in_the_servers_words(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_POOL_TIMEOUT_SECONDS", "10000")
    with (
        refusing(rig.url, WRONG_PASSWORD, times=10_000) as (_server, url),
        pytest.raises(DatabaseUnavailableError, match="пользователь"),
    ):
        rig.memory("s", database_url=url).put({"role": "user", "content": "hello"})
