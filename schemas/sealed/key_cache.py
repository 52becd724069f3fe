"""The unwrapped keys that a process keeps for a while, so that a put or a read need not ask again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from uuid import UUID

from strandline.schemas.sealing.owner_keys import OwnerKeys

MAX_OWNERS = 10_000
# How long it counts that an owner, or a database, has no keys: soon after a namespace was sealed, every
# process seals.  The pass that settles an owner waits for longer than this.
UNSEALED_SECONDS = 5.0


class KeyCache:
    """Keys by owner, each for ``seconds``; the least recently used ones go first.

    ``clock`` counts seconds, and never goes back.
    """

    def __init__(
        self, seconds: float, max_owners: int = MAX_OWNERS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._max_owners = max_owners
        self._clock = clock
        self._keys: OrderedDict[UUID, tuple[float, OwnerKeys | None]] = OrderedDict()
        self._clear: OrderedDict[str, float] = OrderedDict()
        self._unused_until = -1.0
        self._changing = threading.Lock()

    def keys_of(self, shard_key: UUID) -> OwnerKeys | None:
        """The keys, if they are here."""
        if not self._keys:
            return None
        known = self._find(shard_key)
        return None if known is None else known[1]

    def is_known(self, shard_key: UUID) -> bool:
        """Whether it is known which keys the owner has, or that it has none."""
        return self._find(shard_key) is not None or self.is_unused

    @property
    def is_unused(self) -> bool:
        """Whether nothing was sealed in the whole database a short time ago."""
        return self._clock() < self._unused_until

    def keep(self, shard_key: UUID, keys: OwnerKeys | None) -> None:
        """Keep keys, or for a short time that there are none."""
        until = self._clock() + (self._seconds if keys is not None else min(self._seconds, UNSEALED_SECONDS))
        with self._changing:
            self._keys[shard_key] = (until, keys)
            self._keys.move_to_end(shard_key)
            while len(self._keys) > self._max_owners:
                self._keys.popitem(last=False)

    def note_unused(self) -> None:
        """Nothing is sealed in the whole database: for a short time nobody has to ask again."""
        self._unused_until = self._clock() + UNSEALED_SECONDS

    def is_clear(self, namespace: str) -> bool:
        """Whether a namespace was not sealed when this process asked last, at most ``seconds`` ago.

        What is put meanwhile is refused where it was sealed since, and is then sealed.
        """
        until = self._clear.get(namespace)
        return until is not None and self._clock() < until

    def note_clear(self, namespace: str) -> None:
        """A namespace is not sealed."""
        with self._changing:
            self._clear[namespace] = self._clock() + self._seconds
            self._clear.move_to_end(namespace)
            while len(self._clear) > self._max_owners:
                self._clear.popitem(last=False)

    def forget(self, shard_key: UUID | None = None) -> None:
        """Drop the keys of an owner, or all of them."""
        with self._changing:
            self._unused_until = -1.0
            self._clear.clear()
            if shard_key is None:
                self._keys.clear()
            else:
                self._keys.pop(shard_key, None)

    def forget_owners(self, shard_keys: Collection[UUID]) -> None:
        """Drop the keys of owners who were erased; of none in particular, all keys."""
        for shard_key in shard_keys or (None,):
            self.forget(shard_key)

    def _find(self, shard_key: UUID) -> tuple[float, OwnerKeys | None] | None:
        with self._changing:
            known = self._keys.get(shard_key)
            if known is None:
                return None
            if known[0] <= self._clock():
                del self._keys[shard_key]
                return None
            self._keys.move_to_end(shard_key)
            return known
