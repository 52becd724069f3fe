"""The elements of a JSON array in a file, one by one, so that only one is in memory."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import BinaryIO

PIECE_BYTES = 1_000_000
# The longest conversation that is read; a longer one is left out.
MAX_ELEMENT_BYTES = 32_000_000
# The values of such a conversation: a small one takes twenty times its bytes when it is read.
MAX_ELEMENT_VALUES = 500_000

_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')
_OPENING, _CLOSING = frozenset(b"[{"), frozenset(b"]}")


class ElementScanner:
    """Cuts the bytes of a JSON document into the elements of its outermost array.

    A document that is an object is its only element.  An element that is too long is None.  None of them is
    checked here; each is when it is parsed.
    """

    def __init__(self, max_element_bytes: int) -> None:
        self._max_element_bytes = max_element_bytes
        self._element = bytearray()
        self._is_too_long = False
        self._values = 0
        self._depth = 0
        self._base: int | None = None
        self._in_string = False
        self._is_escaped = False

    @property
    def is_within(self) -> bool:
        """Whether the document is not at its end."""
        return self._base is None or self._depth > 0

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """The elements that end in this piece."""
        at = kept = 0
        if self._is_escaped and piece:
            self._is_escaped, at = False, 1
        while match := (_INSIDE if self._in_string else _OUTSIDE).search(piece, at):
            token, at = piece[match.start()], match.end()
            if self._in_string:
                if token == 0x5C:  # a backslash: what follows is not the end
                    self._is_escaped, at = at >= len(piece), at + 1
                else:
                    self._in_string = False
            elif token == 0x22:
                self._in_string = True
            elif token in _OPENING:
                self._count()
                kept = self._open(token, match.start(), kept)
            elif token == 0x2C:
                self._count()
                if self._is_between:
                    yield from self._take_plain(piece[kept : match.start()])
                    kept = at
            elif token in _CLOSING:
                if self._is_between:
                    yield from self._take_plain(piece[kept : match.start()])
                self._depth -= 1
                if self._depth == self._base:
                    self._keep(piece[kept:at])
                    kept = at
                    yield self._take()
        if self._base is not None and self.is_within:
            self._keep(piece[kept:])

    @property
    def _is_between(self) -> bool:
        """Whether this is in the outermost array, in no object and no array of it."""
        return self._base == self._depth == 1

    def _open(self, token: int, start: int, kept: int) -> int:
        self._depth += 1
        if self._base is not None:
            return kept
        self._base = 1 if token == 0x5B else 0
        return start + self._base

    def _keep(self, part: bytes) -> None:
        if len(self._element) + len(part) > self._max_element_bytes:
            self._is_too_long = True
            self._element.clear()
        elif not self._is_too_long:
            self._element += part

    def _count(self) -> None:
        self._values += 1
        if self._values > MAX_ELEMENT_VALUES:
            self._is_too_long = True
            self._element.clear()

    def _take_plain(self, part: bytes) -> Iterator[bytes | None]:
        self._keep(part)
        element = self._take()
        if element is None or element:
            yield element

    def _take(self) -> bytes | None:
        element = None if self._is_too_long else bytes(self._element).strip()
        self._is_too_long = False
        self._values = 0
        self._element.clear()
        return element


def read_elements(
    file: BinaryIO, count: Callable[[int], None], max_element_bytes: int
) -> Iterator[bytes | None]:
    """The elements of a file; ``count`` gets the number of bytes of each piece whose elements were taken.

    Raises:
        ValueError: the file ends within the array; the text is worded to follow the file's name.
    """
    scanner = ElementScanner(max_element_bytes)
    is_first = True
    while piece := file.read(PIECE_BYTES):
        yield from scanner.feed(piece.removeprefix(BOM_UTF8) if is_first else piece)
        count(len(piece))
        is_first = False
    if scanner.is_within:
        raise ValueError("ends before its JSON does" if not is_first else "is empty")
