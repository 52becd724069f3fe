"""Indexes of scopes that this process searches again and again; it decides which are worth their memory."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast
from uuid import UUID

from strandline.producers.search.index.scope_index import (
    FIRST_KEY,
    IndexParts,
    KeptIndex,
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
# Changes of one kind that a version has at least, however old (the fragment drop_changes).
KEPT_CHANGES = 8


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of an index, through which piece, and the version of the pieces that it is made of.

    Attributes:
        onto: an index that lacks only pieces added since.
        is_small: one statement may return all pieces.
    """

    version: str
    parts: IndexParts | None = None
    through: PieceKey = FIRST_KEY
    onto: ScopeIndex | None = None
    is_small: bool = False

    @property
    def is_extensible(self) -> bool:
        """Whether one statement returns all missing pieces with their messages, as a rule."""
        return self.onto is not None or self.is_small

    @property
    def pieces_since(self) -> int:
        """The transaction from which on pieces are missing; 0: all are."""
        return 0 if self.onto is None or self.onto.is_empty else self.onto.since


class IndexCache:
    """The most recently searched indexes; safe to share between threads.

    An index of many pieces costs as much to make as some ten searches, and serves until a piece of its owner
    changes; the search after new pieces adds them to it.  So the first search of a scope notes the version of
    the owner's pieces, and from the second on, if it is the same, each search adds a part to the index until
    it is whole.  The index of a small scope costs less than a search: the first one makes it.

    Args:
        max_bytes: the approximate memory of whole indexes; unfinished ones take up to twice as much.
            0 keeps none.
        begin: begins an index.
    """

    def __init__(self, max_bytes: int, begin: Callable[[], IndexParts]) -> None:
        self.begin = begin
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._indexes: OrderedDict[ScopeKey, KeptIndex] = OrderedDict()
        self._begun: OrderedDict[ScopeKey, Beginning] = OrderedDict()
        # The version at the last search.
        self._versions: OrderedDict[ScopeKey, str] = OrderedDict()
        # Scopes not to index until a time, and each one's last search, by the monotonic clock.
        self._refused: OrderedDict[ScopeKey, float] = OrderedDict()
        self._searched_at: dict[ScopeKey, float] = {}
        self._in_the_making: set[ScopeKey] = set()

    @property
    def size(self) -> int:
        """The approximate memory of the whole indexes, in bytes."""
        return self._bytes

    def find_index(self, scope: ScopeKey, version: str | None) -> KeptIndex | None:
        """The index of this version; one of another version is dropped, unless it only lacks new pieces."""
        with self._lock:
            index = self._indexes.get(scope)
            if index is None:
                return None
            if index.version != version:
                if not _lacks_only_added(index, version or ""):
                    self._remove(scope)
                return None
            self._indexes.move_to_end(scope)
            self._searched_at[scope] = time.monotonic()
            return index

    @contextmanager
    def next_part(
        self, scope: ScopeKey, version: str, *, is_small: bool = False
    ) -> Iterator[Beginning | None]:
        """The parts that this search may extend.

        None at the first search of a version, if the index is whole, and while another search extends it.

        Args:
            is_small: one statement may return all pieces, so that the first search makes the index.
        """
        with self._lock:
            is_free = scope not in self._in_the_making
            begun = self._take_beginning(scope, version, is_small) if is_free else None
            if begun is not None:
                self._in_the_making.add(scope)
        try:
            yield begun
        finally:
            if begun is not None:
                with self._lock:
                    self._in_the_making.discard(scope)

    def _take_beginning(self, scope: ScopeKey, version: str, is_small: bool) -> Beginning | None:
        if self._max_bytes <= 0 or time.monotonic() < self._refused.get(scope, 0):
            return None
        begun, is_settled = self._begun.pop(scope, None), self._versions.get(scope) == version
        _note(self._versions, scope, version)
        if (kept := self._indexes.get(scope)) is not None and kept.version == version:
            return None
        if kept is not None and _lacks_only_added(kept, version):
            return Beginning(version, onto=cast("ScopeIndex", kept))
        if begun is not None and begun.version == version:
            return begun
        return Beginning(version, is_small=is_small) if is_settled or is_small else None

    def keep_beginning(self, scope: ScopeKey, beginning: Beginning) -> None:
        """Keep it for the next search to continue; the least recently searched scopes make room."""
        with self._lock:
            self._begun[scope] = beginning
            self._begun.move_to_end(scope)
            while sum(one.parts.size for one in self._begun.values() if one.parts) > self._max_begun_bytes:
                dropped, _ = self._begun.popitem(last=False)
                if not self._begun:
                    self._refuse(dropped)  # alone it takes all of the room

    @property
    def _max_begun_bytes(self) -> int:
        # The vectors of large indexes are made smaller only when they are whole.
        return 2 * self._max_bytes

    def is_refused(self, scope: ScopeKey) -> bool:
        """Whether no index of the scope is to be made now."""
        with self._lock:
            return self._max_bytes <= 0 or time.monotonic() < self._refused.get(scope, 0)

    def refuse(self, scope: ScopeKey) -> None:
        """Make no index of a scope for some minutes: it is too big, or something failed."""
        with self._lock:
            self._refuse(scope)

    def keep(self, scope: ScopeKey, index: KeptIndex) -> None:
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

    def drop(self, scope: ScopeKey, index: KeptIndex) -> None:
        """Forget an index of pieces or messages that have changed."""
        with self._lock:
            if self._indexes.get(scope) is index:
                self._remove(scope)

    def forget_owners(self, owners: Collection[UUID]) -> None:
        """Drop data of these erased owners."""
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


def _lacks_only_added(index: KeptIndex, version: str) -> bool:
    """Whether an index lacks only pieces that were added after it was made, and none of its own was removed.

    An empty index has no pieces to lose.
    The changes in ``version`` have to continue those that the index knows: a database that was restored
    lacks some, or numbers its transactions otherwise.
    """
    if index.is_empty:
        return True
    removed, _, known = index.version.partition("|")
    removed_now, _, now = version.partition("|")
    earlier, changes = known.split(","), now.split(",")
    if not index.since or removed != removed_now or changes[0] not in earlier:
        return False
    common = earlier[earlier.index(changes[0]) :]
    return (
        changes[: len(common)] == common
        and (common == earlier or len(changes) > KEPT_CHANGES)
        and all(int(one.partition(".")[0]) >= index.since for one in changes[len(common) :])
    )


def _note(seen: OrderedDict[ScopeKey, T], scope: ScopeKey, what: T) -> None:
    seen[scope] = what
    seen.move_to_end(scope)
    while len(seen) > MAX_SCOPES_SEEN:
        seen.popitem(last=False)
