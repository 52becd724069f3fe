"""``python -m tests.soak.measuring.flood PORT CONNECTIONS FILE``: send a request until it is ended.

Each connection sends the request of the file as soon as the one before is answered, or refused, and waits for
nothing that the service asks it to.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


async def main(port: int, connections: int, request: bytes) -> None:
    await asyncio.gather(*(_repeat(port, request) for _ in range(connections)))


async def _repeat(port: int, request: bytes) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    writer.write(request)
                    if not await _is_kept(reader):
                        break
            finally:
                writer.close()
        except (OSError, asyncio.IncompleteReadError, ValueError):
            await asyncio.sleep(0.01)


async def _is_kept(reader: asyncio.StreamReader) -> bool:
    """Read a response; whether the connection may be used again."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
    return b"connection: close" not in head


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).read_bytes()))
