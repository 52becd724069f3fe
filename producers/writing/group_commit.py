"""Group commit: puts of one message that wait at the same time are accepted by one statement and one commit.

No put waits for a timer: a put that finds a slot free is sent at once; while statements are under way, later
puts gather and go with the next one. Each caller returns after its message is committed, with its own result
or error: a put that the common statement leaves out or cannot do is put alone. Puts of one session keep
their order, because the later one waits for the earlier.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from strandline.producers.writing.put import SinglePut, put_many, taken_row
from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.postgres.operations import Await, Operation
from strandline.schemas.postgres.query import Query
from strandline.schemas.postgres.translation import is_ended_by_server
from strandline.schemas.queries.rows import PutRow
from strandline.schemas.values.identity import key_text

# One is being carried out by Postgres while the process prepares the next; more only makes groups smaller.
STATEMENTS_AT_ONCE = 2
MAX_PUTS_PER_GROUP = 64

R = TypeVar("R")
T = TypeVar("T")


class Sender(Protocol):
    """Runs statements, each in a separate transaction: an ``AsyncDatabase``."""

    async def fetch(self, query: Query[R]) -> list[R]: ...

    def run(self, operation: Operation[T]) -> Awaitable[T]: ...


@dataclass(slots=True)
class _Waiting:
    session: str
    put: SinglePut
    done: asyncio.Future[PutRow]


class GroupCommit:
    """The puts of one event loop on one database."""

    def __init__(self, database: Sender) -> None:
        self._database = database
        self._queues: dict[str, deque[_Waiting]] = {}
        self._ready: deque[str] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._statements = 0
        self._in_flight = 0
        self._is_called_soon = False
        self._last_size = 1
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, operation: Operation[T]) -> Awaitable[T]:
        """Run an operation on the same database, without looking again for the event loop's."""
        return self._database.run(operation)

    def accept(self, put: SinglePut) -> Operation[PutRow]:
        """Accept a put together with others that wait at the same time."""
        row: PutRow = yield Await(partial(self.put, put))
        return row

    async def put(self, put: SinglePut) -> PutRow:
        """The row that the statement ``put`` returns for it, once it is committed."""
        session = key_text(put.identity.session_key)
        waiting = _Waiting(session, put, self._running_loop().create_future())
        queue = self._queues.get(session)
        if queue is not None:
            queue.append(waiting)
            return await waiting.done
        self._queues[session] = deque((waiting,))
        if self._is_alone():
            await self._put_here(waiting)
        else:
            self._ready.append(session)
            self._call_soon()
        return await waiting.done

    def _is_alone(self) -> bool:
        """Whether no other put is under way or recent; then a separate task would only take time."""
        return self._last_size == 1 and not (self._statements or self._is_called_soon)

    async def _put_here(self, waiting: _Waiting) -> None:
        self._take_turn(1)
        try:
            await self._put_together([waiting])
        except BaseException:
            waiting.done.cancel()
            self._end(waiting, None)  # its caller gave up; others of the same session continue
            raise

    def _call_soon(self) -> None:
        if not self._is_called_soon and self._statements < STATEMENTS_AT_ONCE:
            self._is_called_soon = True
            self._running_loop().call_soon(self._start)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, cached: asking for it is a system call."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _start(self) -> None:
        self._is_called_soon = False
        while self._ready and self._statements < STATEMENTS_AT_ONCE:
            group = [self._queues[self._ready.popleft()][0] for _ in range(self._size_of_next())]
            self._take_turn(len(group))
            self._spawn(self._put_together(group))

    def _size_of_next(self) -> int:
        """An even share of all waiting and running puts: puts that came together once come together again."""
        share = -(-(len(self._ready) + self._in_flight) // STATEMENTS_AT_ONCE)
        return min(MAX_PUTS_PER_GROUP, len(self._ready), share)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _put_together(self, group: Sequence[_Waiting]) -> None:
        try:
            taken = await self._short_way(group)
            for waiting in group:
                if isinstance(taken, DatabaseUnavailableError):
                    self._end(waiting, taken)
                    continue
                seq = taken.get(waiting.session)
                if seq is not None:
                    self._end(waiting, taken_row(seq))
                else:
                    self._spawn(self._put_alone(waiting))
        finally:
            # Last, so that these callers' next puts join the waiting ones: else three small groups persist
            # where two large ones would do.
            self._free_turn(len(group))

    async def _short_way(self, group: Sequence[_Waiting]) -> dict[str, int] | DatabaseUnavailableError:
        """The seqs of the accepted messages, by session; or the error that prevents accepting any now."""
        try:
            first = group[0]
            if len(group) == 1:
                rows = await self._database.fetch(first.put.short())
                taken = {first.session: rows[0].seq} if rows else {}
                noted: Sequence[tuple[object, ...]] = rows
            else:
                stored = await self._database.fetch(put_many([waiting.put for waiting in group]))
                taken, noted = {row.session_key: row.seq for row in stored}, stored
            for row in noted[:1]:
                first.put.note(row)
            return taken
        except DatabaseUnavailableError as error:
            if len(group) > 1 and is_ended_by_server(error):
                return {}  # perhaps one of them waited for a lock
            return error  # it took as long as a put may take, and alone none would fare better
        except Exception:  # noqa: BLE001
            # One of them is to blame: alone each learns its own.
            return {}

    async def _put_alone(self, waiting: _Waiting) -> None:
        answer: PutRow | BaseException
        try:
            (row,) = await self._database.fetch(waiting.put.whole())
            waiting.put.note(row)
            answer = row
        except BaseException as error:  # noqa: BLE001
            answer = error  # any error is the caller's
        self._end(waiting, answer)

    def _take_turn(self, size: int) -> None:
        self._statements += 1
        self._in_flight += size
        self._last_size = size

    def _free_turn(self, size: int) -> None:
        self._statements -= 1
        self._in_flight -= size
        if self._ready:
            self._call_soon()

    def _end(self, waiting: _Waiting, answer: PutRow | BaseException | None) -> None:
        if answer is not None and not waiting.done.done():
            if isinstance(answer, BaseException):
                waiting.done.set_exception(answer)
            else:
                waiting.done.set_result(answer)
        queue = self._queues[waiting.session]
        queue.popleft()
        if queue:
            self._ready.append(waiting.session)
            self._call_soon()
        else:
            del self._queues[waiting.session]
