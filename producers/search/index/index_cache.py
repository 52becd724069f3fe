"""Indexes of scopes that this process searches again and again; it decides which are worth their memory."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from strandline.producers.search.index.scope_index import (
    FIRST_KEY,
    IndexParts,
    PieceKey,
    ScopeIndex,
    ScopeKey,
)

T = TypeVar("T")

# Scopes whose last search is remembered, some 300 bytes each.
MAX_SCOPES_SEEN = 10_000
# An index that was not searched for so long makes room for others.
QUIET_SECONDS = 120.0
REFUSED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of an index, through which piece, and the version of the pieces that it is made of."""

    version: str
    parts: IndexParts
    through: PieceKey = FIRST_KEY


class IndexCache:
    """The most recently searched indexes; safe to share between threads.

    An index costs as much to make as some ten searches, and serves until a piece of its owner changes.
    So the first search of a scope is noted, the second notes the version of the owner's pieces, and from the
    third on, if they are the same, each search adds a part to the index until it is whole.

    Args:
        max_bytes: the approximate memory of whole indexes; those that are begun take up to twice as much.
            0 keeps none.
        begin: begins an index.
    """

    def __init__(self, max_bytes: int, begin: Callable[[], IndexParts]) -> None:
        self.begin = begin
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._indexes: OrderedDict[ScopeKey, ScopeIndex] = OrderedDict()
        self._begun: OrderedDict[ScopeKey, Beginning] = OrderedDict()
        # The version at the last search; None before one was asked for.
        self._versions: OrderedDict[ScopeKey, str | None] = OrderedDict()
        # Until when no index is to be made, and when each was searched last, by the clock that only goes on.
        self._refused: OrderedDict[ScopeKey, float] = OrderedDict()
        self._searched_at: dict[ScopeKey, float] = {}
        self._in_the_making: set[ScopeKey] = set()

    def find_index(self, scope: ScopeKey) -> ScopeIndex | None:
        with self._lock:
            index = self._indexes.get(scope)
            if index is not None:
                self._indexes.move_to_end(scope)
                self._searched_at[scope] = time.monotonic()
            return index

    @contextmanager
    def make_alone(self, scope: ScopeKey) -> Iterator[bool]:
        """Whether this search may add a part to the index: False while another thread does."""
        with self._lock:
            is_free = scope not in self._in_the_making
            self._in_the_making.add(scope)
        try:
            yield is_free
        finally:
            if is_free:
                with self._lock:
                    self._in_the_making.discard(scope)

    def note_search(self, scope: ScopeKey) -> bool:
        """Note a search of a scope without an index; whether it was searched before, and may get one."""
        with self._lock:
            if self._max_bytes <= 0 or time.monotonic() < self._refused.get(scope, 0):
                return False
            if scope in self._versions:
                return True
            _note(self._versions, scope, None)
            return False

    def note_version(self, scope: ScopeKey, version: str) -> bool:
        """Note the version of the owner's pieces; whether it is that of the search before."""
        with self._lock:
            is_settled = self._versions.get(scope) == version
            _note(self._versions, scope, version)
            return is_settled

    def take_beginning(self, scope: ScopeKey, version: str) -> Beginning | None:
        """What is begun of the index at this version, if it is."""
        with self._lock:
            begun = self._begun.pop(scope, None)
            return begun if begun is not None and begun.version == version else None

    def keep_beginning(self, scope: ScopeKey, beginning: Beginning) -> None:
        """Keep it for the next search to go on with; the least recently searched scopes make room."""
        with self._lock:
            self._begun[scope] = beginning
            self._begun.move_to_end(scope)
            while sum(one.parts.size for one in self._begun.values()) > self._max_begun_bytes:
                dropped, _ = self._begun.popitem(last=False)
                if not self._begun:
                    self._refuse(dropped)  # alone it takes all of the room

    @property
    def _max_begun_bytes(self) -> int:
        # The vectors of large indexes are made smaller only when they are whole.
        return 2 * self._max_bytes

    def refuse(self, scope: ScopeKey) -> None:
        """Make no index of a scope for some minutes: it is too big, or something failed."""
        with self._lock:
            self._refuse(scope)

    def keep(self, scope: ScopeKey, index: ScopeIndex) -> None:
        """Keep it for the next search; indexes that were not searched for some minutes make room.

        Where there is too little of it the new one is not kept: otherwise scopes that are searched in turns
        would have each an index made for each search.
        """
        with self._lock:
            self._remove(scope)
            latest = time.monotonic() - QUIET_SECONDS
            while self._bytes + index.size > self._max_bytes:
                oldest = next(iter(self._indexes), None)
                if oldest is None or self._searched_at[oldest] > latest:
                    self._refuse(scope)
                    return
                self._remove(oldest)
            self._indexes[scope] = index
            self._searched_at[scope] = time.monotonic()
            self._bytes += index.size

    def drop(self, scope: ScopeKey, index: ScopeIndex) -> None:
        """Forget an index of pieces or messages that have changed."""
        with self._lock:
            if self._indexes.get(scope) is index:
                self._remove(scope)

    def forget_owners(self, owners: Collection[UUID]) -> None:
        """Drop what is of these owners, who were erased."""
        with self._lock:
            for index in [scope for scope in self._indexes if scope.shard_key in owners]:
                self._remove(index)
            for seen in (self._begun, self._versions, self._refused):
                for scope in [one for one in seen if one.shard_key in owners]:
                    seen.pop(scope)

    def _refuse(self, scope: ScopeKey) -> None:
        self._versions.pop(scope, None)
        _note(self._refused, scope, time.monotonic() + REFUSED_SECONDS)

    def _remove(self, scope: ScopeKey) -> None:
        index = self._indexes.pop(scope, None)
        if index is not None:
            self._bytes -= index.size
            del self._searched_at[scope]


def _note(seen: OrderedDict[ScopeKey, T], scope: ScopeKey, what: T) -> None:
    """Note the scope as the latest; the oldest makes room."""
    seen[scope] = what
    seen.move_to_end(scope)
    while len(seen) > MAX_SCOPES_SEEN:
        seen.popitem(last=False)
