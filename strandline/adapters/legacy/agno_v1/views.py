"""Attributes of a memory that agents and teams read, as mappings that ask Strandline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class LiveView(Mapping[str, T], Generic[T]):
    """A mapping whose values are read when they are asked for.

    Args:
        read: the value of a key; None if there is none.
        keys: the keys to go through.
        is_present: whether a value counts as there when the keys are gone through.
    """

    def __init__(
        self,
        read: Callable[[str], T | None],
        keys: Callable[[], Iterable[str]],
        is_present: Callable[[T], bool] = lambda _value: True,
    ) -> None:
        self._read = read
        self._keys = keys
        self._is_present = is_present

    def __getitem__(self, key: str) -> T:
        value = self._read(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        for key in self._keys():
            value = self._read(key)
            if value is not None and self._is_present(value):
                yield key

    def __len__(self) -> int:
        return sum(1 for _key in self)

    def __bool__(self) -> bool:
        """True, so that whoever asks for one key does not have all of them read."""
        return True
