"""The standard streams of JSON-RPC: stdin and stdout carry its lines alone, and can be given up.

A thread that reads a pipe cannot be interrupted, so the end of a process would wait for the other side's next
line.  Here each wait ends as well when ``give_up`` is called.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

# A ready pipe takes so much without blocking (POSIX's least value of PIPE_BUF).
_WRITE_BYTES = 512
_READ_BYTES = 65_536

# After the last line, requests get so long for their answers; some, such as cancelled ones, get none.
ANSWER_SECONDS = 10.0


class ProtocolStreams:
    """Lines of text from one descriptor and to another; each in its own thread, while it is awaited."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._given_up, self._giving_up = os.pipe()
        self._unanswered: set[str] = set()
        self._answered = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def lines(self) -> AsyncIterator[str]:
        """The lines as they come, until the other side closes, or ``give_up``.

        The last one may lack its end.  The lines end only when all requests among them are answered, since
        the SDK then drops unfinished ones.
        """
        self._loop = asyncio.get_running_loop()
        rest = bytearray()
        while piece := await asyncio.to_thread(self._read):
            *ends, last = piece.split(b"\n")
            for end in ends:
                yield self._note_request((rest + end).decode(errors="replace"))
                rest.clear()
            rest += last
        if rest:
            yield self._note_request(rest.decode(errors="replace"))
        if self._unanswered and not self._is_given_up():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), ANSWER_SECONDS)

    async def write(self, text: str) -> None:
        """Write a text; it is dropped after ``give_up``, and if the other side does not read any more."""
        with suppress(BrokenPipeError):
            await asyncio.to_thread(self._write, text.encode())
        self._unanswered.discard(_id_of(text, "result", "error"))
        self._update()

    async def flush(self) -> None:
        """Nothing is held back."""

    def __aiter__(self) -> AsyncIterator[str]:
        return self.lines()

    def give_up(self) -> None:
        """End all that waits to read or to write, and what begins to; from any thread."""
        os.write(self._giving_up, b"\0")
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and nothing waits any more
                self._loop.call_soon_threadsafe(self._answered.set)

    def close(self) -> None:
        os.close(self._given_up)
        os.close(self._giving_up)

    def _note_request(self, line: str) -> str:
        if number := _id_of(line, "method"):
            self._unanswered.add(number)
            self._update()
        return line

    def _update(self) -> None:
        if self._unanswered and not self._is_given_up():
            self._answered.clear()
        else:
            self._answered.set()

    def _is_given_up(self) -> bool:
        poll = select.poll()
        poll.register(self._given_up, select.POLLIN)
        return bool(poll.poll(0))

    def _read(self) -> bytes:
        return os.read(self._source, _READ_BYTES) if self._is_ready(reads=True) else b""

    def _write(self, content: bytes) -> None:
        while content and self._is_ready(reads=False):
            content = content[os.write(self._target, content[:_WRITE_BYTES]) :]

    def _is_ready(self, *, reads: bool) -> bool:
        poll = select.poll()
        poll.register(self._given_up, select.POLLIN)
        poll.register(self._source if reads else self._target, select.POLLIN if reads else select.POLLOUT)
        return all(number != self._given_up for number, _ in poll.poll())


def _id_of(line: str, *members: str) -> str:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(message, dict) or message.get("id") is None:
        return ""
    return json.dumps(message["id"]) if any(member in message for member in members) else ""


@contextmanager
def protocol_streams() -> Iterator[ProtocolStreams]:
    """Stdin and stdout for a protocol alone: other readers get nothing, and what others print goes to stderr.

    Processes that are started within it inherit neither.
    """
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)  # which no child inherits
    streams = ProtocolStreams(source, target)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield streams
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(source)
        os.close(target)
        streams.close()
