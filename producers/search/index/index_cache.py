"""Indexes of scopes that this process searches again and again; it decides which are worth their memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from strandline.producers.search.index.scope_index import (
    FIRST_KEY,
    IndexParts,
    PieceKey,
    ScopeIndex,
    ScopeKey,
)

T = TypeVar("T")

# Scopes whose last search is remembered, some 300 bytes each beside what is begun of an index.
MAX_SCOPES_SEEN = 10_000


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of an index, through which piece, and the version of the pieces that it is made of."""

    version: str
    parts: IndexParts
    through: PieceKey = FIRST_KEY


class IndexCache:
    """The most recently searched indexes; safe to share between threads.

    An index costs as much to make as some ten searches, and serves until a piece of its owner changes.
    So one is begun when a scope is searched again and its pieces are those of the search before.

    Args:
        max_bytes: the approximate memory that the indexes may take; 0 keeps none.
        begin: begins an index.
    """

    def __init__(self, max_bytes: int, begin: Callable[[], IndexParts]) -> None:
        self._begin = begin
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._indexes: OrderedDict[ScopeKey, ScopeIndex] = OrderedDict()
        # Of the last search: the version, what is begun of an index, or None before a version was asked for.
        self._seen: OrderedDict[ScopeKey, str | Beginning | None] = OrderedDict()
        self._too_big: OrderedDict[ScopeKey, None] = OrderedDict()

    def find_index(self, scope: ScopeKey) -> ScopeIndex | None:
        with self._lock:
            index = self._indexes.get(scope)
            if index is not None:
                self._indexes.move_to_end(scope)
            return index

    def note_search(self, scope: ScopeKey) -> bool:
        """Whether the scope was searched before, and may have an index."""
        with self._lock:
            if self._max_bytes <= 0 or scope in self._too_big:
                return False
            if scope in self._seen:
                return True
            _note(self._seen, scope, None)
            return False

    def take_beginning(self, scope: ScopeKey, version: str) -> Beginning | None:
        """What to add to, for this thread alone; None if the pieces are not those of the search before."""
        with self._lock:
            seen = self._seen.get(scope)
            _note(self._seen, scope, version)
            if isinstance(seen, Beginning):
                return seen if seen.version == version else None
        return Beginning(version, self._begin()) if seen == version else None

    def keep_beginning(self, scope: ScopeKey, beginning: Beginning) -> None:
        """Keep it for the next search to go on with."""
        with self._lock:
            _note(self._seen, scope, beginning)

    def refuse(self, scope: ScopeKey) -> None:
        """Make no index of a scope that is too big."""
        with self._lock:
            self._seen.pop(scope, None)
            _note(self._too_big, scope, None)

    def keep(self, scope: ScopeKey, index: ScopeIndex) -> None:
        """Keep it for the next search; the least recently searched indexes make room."""
        if index.size > self._max_bytes:
            self.refuse(scope)
            return
        with self._lock:
            self._remove(scope)
            self._indexes[scope] = index
            self._bytes += index.size
            while self._bytes > self._max_bytes:
                self._remove(next(iter(self._indexes)))

    def drop(self, scope: ScopeKey) -> None:
        """Forget the index of a scope whose pieces have changed."""
        with self._lock:
            self._remove(scope)

    def _remove(self, scope: ScopeKey) -> None:
        index = self._indexes.pop(scope, None)
        if index is not None:
            self._bytes -= index.size


def _note(seen: OrderedDict[ScopeKey, T], scope: ScopeKey, what: T) -> None:
    """Note it as the last."""
    seen[scope] = what
    seen.move_to_end(scope)
    while len(seen) > MAX_SCOPES_SEEN:
        seen.popitem(last=False)
