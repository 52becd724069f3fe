"""The least that speaks HTTP: what is measured is the service, and not a client's parsing."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status, its headers as they came, its body."""

    status: int
    head: bytes
    body: bytes


class HttpConnection:
    """One connection that is kept, for one request at a time."""

    def __init__(self, port: int, key: str, user: str) -> None:
        self._key, self._user = key, user
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: Any) -> Answer:
        self._socket.sendall(request_bytes(path, body, self._key, self._user))
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, rest = received.partition(b"\r\n\r\n")
        length = body_length(head)
        parts, have = [rest], len(rest)
        while have < length:
            parts.append(self._receive())
            have += len(parts[-1])
        return Answer(int(head[9:12]), head, b"".join(parts))

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        received = self._socket.recv(1_000_000)
        if not received:
            raise ConnectionError("the service closed the connection")
        return received


class AsyncHttpConnection:
    """The same for an event loop."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, user: str
    ) -> None:
        self._reader, self._writer = reader, writer
        self._key, self._user = key, user

    @classmethod
    async def open(cls, port: int, key: str, user: str) -> AsyncHttpConnection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        return cls(reader, writer, key, user)

    async def post(self, path: str, body: Any) -> Answer:
        self._writer.write(request_bytes(path, body, self._key, self._user))
        head = await self._reader.readuntil(b"\r\n\r\n")
        return Answer(int(head[9:12]), head, await self._reader.readexactly(body_length(head)))

    def close(self) -> None:
        self._writer.close()


def request_bytes(path: str, body: Any, key: str, user: str) -> bytes:
    """A POST of JSON."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Strandline-User: {user}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def body_length(head: bytes) -> int:
    """What the header says of the body's length."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0
