"""Group commit: puts of one message that wait at the same time are accepted by one statement and one commit.

No put waits for a timer: a put that finds a slot free is sent at once; while statements are under way, later
puts gather and go with the next one. Each caller returns after the commit of its own message, and has its own
result or error: a put that the common statement leaves out or cannot do is put alone. Puts of one session
keep their order, because the later one waits for the earlier.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted
from typing import Any

from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.postgres.connections import is_ended_by_server
from strandline.schemas.postgres.operations import Put, Row
from strandline.schemas.values.identity import key_text

# One is being carried out by Postgres while the process prepares the next; more only makes groups smaller.
STATEMENTS_AT_ONCE = 2
MAX_PUTS_PER_GROUP = 64

SendPut = Callable[[str, Mapping[str, Any]], Awaitable[list[Row]]]


@dataclass(slots=True)
class _Waiting:
    """A put of a session, and whoever awaits it."""

    session: str
    put: Put
    done: asyncio.Future[list[Row]]


class GroupedPuts:
    """The puts of one event loop on one database.

    Args:
        send: runs a named statement (``put_one``, ``put_many``, ``put``) in its own transaction.
    """

    def __init__(self, send: SendPut) -> None:
        self._send = send
        self._queues: dict[str, deque[_Waiting]] = {}
        self._ready: deque[str] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._statements = 0
        self._in_flight = 0
        self._is_called_soon = False
        self._last_size = 1
        self._loop: asyncio.AbstractEventLoop | None = None

    async def put(self, put: Put) -> list[Row]:
        """The rows that the statement ``put`` gives for it, once it is committed."""
        session = key_text(put.one["session_key"])
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
        """Whether no other put is under way, nor was recently; then a separate task would only take time."""
        return self._last_size == 1 and not (self._statements or self._is_called_soon)

    async def _put_here(self, waiting: _Waiting) -> None:
        self._take_turn(1)
        try:
            await self._put_together([waiting])
        except BaseException:
            waiting.done.cancel()
            self._end(waiting, [])  # its caller gave up; those of the same session go on
            raise

    def _call_soon(self) -> None:
        """Start once everything that is ready now has had its turn to put."""
        if not self._is_called_soon and self._statements < STATEMENTS_AT_ONCE:
            self._is_called_soon = True
            self._running_loop().call_soon(self._start)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Kept: to ask for it is a system call."""
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
        """An even share of all that are about: a small group beside a large one would stay so for good.

        Callers put again when their group is done, so what comes together once comes together again.
        """
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
                    self._end(waiting, [quick_row(seq)])
                else:
                    self._spawn(self._put_alone(waiting))
        finally:
            # Last, so that what these callers put next goes with those that wait already: else those go
            # without, and there are three small groups for good where two large ones would do.
            self._free_turn(len(group))

    async def _short_way(self, group: Sequence[_Waiting]) -> dict[str, int] | DatabaseUnavailableError:
        """The seqs of what was taken, by session; or why nothing can be taken now."""
        try:
            if len(group) == 1:
                rows = await self._send("put_one", group[0].put.one)
                return {group[0].session: rows[0][0]} if rows else {}
            return dict(await self._send("put_many", group_params([waiting.put.one for waiting in group])))
        except DatabaseUnavailableError as error:
            if len(group) > 1 and is_ended_by_server(error):
                return {}  # perhaps one of them waited for a lock
            return error  # it took as long as a put may take, and alone none would fare better
        except Exception:  # noqa: BLE001
            # One of them is to blame: alone each learns its own.
            return {}

    async def _put_alone(self, waiting: _Waiting) -> None:
        rows: list[Row] | BaseException
        try:
            rows = await self._send("put", waiting.put.whole())
        except BaseException as error:  # noqa: BLE001
            rows = error  # whatever it is, it is the caller's
        self._end(waiting, rows)

    def _take_turn(self, size: int) -> None:
        self._statements += 1
        self._in_flight += size
        self._last_size = size

    def _free_turn(self, size: int) -> None:
        self._statements -= 1
        self._in_flight -= size
        if self._ready:
            self._call_soon()

    def _end(self, waiting: _Waiting, rows: list[Row] | BaseException) -> None:
        if not waiting.done.done():
            if isinstance(rows, BaseException):
                waiting.done.set_exception(rows)
            else:
                waiting.done.set_result(rows)
        queue = self._queues[waiting.session]
        queue.popleft()
        if queue:
            self._ready.append(waiting.session)
            self._call_soon()
        else:
            del self._queues[waiting.session]


def group_params(group: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters of ``put_many``, from those of ``put_one`` for each message."""
    return {"messages": f"[{','.join(map(_record, group))}]"}


def _record(one: Mapping[str, Any]) -> str:
    """One message as a JSON object; what is JSON in it already goes in as it is, what is NULL is left out."""
    return (
        f'{{"shard_key":"{key_text(one["shard_key"])}","session_key":"{key_text(one["session_key"])}",'
        f'"id":{quoted(one["id"])},"role":"{one["role"]}","tokens":{one["tokens"]},'
        f'"bytes":{one["bytes"]},'
        f'"digest":"\\\\x{one["digest"].hex()}","envelope":{one["envelope"]}{"".join(_rarer(one))}}}'
    )


def _rarer(one: Mapping[str, Any]) -> Iterator[str]:
    """What most messages do not have."""
    if one["metadata"] is not None:
        yield f',"metadata":{one["metadata"]}'
    if one["created_at"] is not None:
        yield f',"created_at":{quoted(one["created_at"].isoformat())}'
    if one["calls"] is not None:
        yield f',"calls":{one["calls"]}'
    if one["answers"] is not None:
        yield f',"answers":{quoted(one["answers"])}'


def quick_row(seq: int) -> Row:
    """The row that ``put`` would have given for a message that was taken."""
    return "ok", None, [seq], None
