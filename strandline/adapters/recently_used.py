"""A bounded mapping that threads share: the least recently used leaves first."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Up to ``size`` values by their keys.

    Every method may be called from any thread.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def put(self, key: K, value: V) -> None:
        """Keep a value as the most recently used."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def get(self, key: K) -> V | None:
        """The value of a key, which counts as used now; None: no value is kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def remove(self, key: K) -> None:
        """Forget a key, if it is there."""
        with self._lock:
            self._values.pop(key, None)

    def clear(self) -> None:
        """Forget all keys."""
        with self._lock:
            self._values.clear()

    def items(self) -> list[tuple[K, V]]:
        """All keys with their values, the one used last at the end."""
        with self._lock:
            return list(self._values.items())
