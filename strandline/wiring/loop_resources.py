"""Resources of each event loop: a pool, and the group commit of its puts.

An application may run a loop for each of its tasks (``asyncio.run``).  An ended loop can close nothing, so
the next user of a pool closes its remains.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from dataclasses import dataclass

from strandline.producers.writing.group_commit import GroupCommit
from strandline.schemas.postgres.async_database import AsyncDatabase


@dataclass(frozen=True, slots=True)
class OfLoop:
    """The database and the group commit of one event loop."""

    database: AsyncDatabase
    commit: GroupCommit


class LoopResources:
    """The resources of all event loops of a process; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, OfLoop] = (
            weakref.WeakKeyDictionary()
        )

    def own(self) -> OfLoop | None:
        """Those of the running loop."""
        return self._of_loops.get(asyncio.get_running_loop())

    def add(self, database: AsyncDatabase) -> OfLoop:
        """Keep a database for the running loop, and drop what ended loops left."""
        self.drop_ended()
        with self._lock:
            own = OfLoop(database, GroupCommit(database))
            return self._of_loops.setdefault(asyncio.get_running_loop(), own)

    def take_out(self) -> OfLoop | None:
        """Those of the running loop, which has none from now on."""
        with self._lock:
            return self._of_loops.pop(asyncio.get_running_loop(), None)

    def drop_ended(self) -> None:
        """Close the remains of ended loops; an unclosed loop may run again, here or in another thread."""
        with self._lock:
            ended = [loop for loop in self._of_loops if loop.is_closed()]
            left = [(loop, self._of_loops.pop(loop)) for loop in ended]
        for loop, own in left:
            own.database.abandon(loop)
