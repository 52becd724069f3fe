"""The lines of a file, of bounded length, read in pieces with a look for signals between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings

PIECE_BYTES = 65_536

# JSON may spell one byte of text as six, such as \u0041; beside content and metadata stand a few names.
_BYTES_PER_BYTE = 6
_NAMES_BYTES = 65_536


def longest_line(settings: Settings) -> int:
    """The bytes that the line of a message can have at most, by the bounds on what a put accepts."""
    return _BYTES_PER_BYTE * (settings.max_content_bytes + settings.max_metadata_bytes) + _NAMES_BYTES


def read_lines(path: Path, max_bytes: int, check: Callable[[], None]) -> Iterator[bytes]:
    """Each line of the file; ``check`` is called between pieces, and raises if the reading is to end.

    Raises:
        ConfigurationError: the file cannot be read, or has a line of more than ``max_bytes``.
    """
    number = 1
    try:
        with path.open("rb") as file:
            while line := _read_line(file, max_bytes, check):
                if len(line) > max_bytes:
                    raise ConfigurationError(
                        f"{path}, line {number} is longer than {max_bytes:,} bytes, and no message that a put"
                        " accepts is; the file must have one message per line."
                    )
                yield line
                number += 1
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None


def _read_line(file: BinaryIO, max_bytes: int, check: Callable[[], None]) -> bytes:
    """The next line; of one that is too long, only so much that it can be seen."""
    line = bytearray()
    while len(line) <= max_bytes and not line.endswith(b"\n"):
        check()
        piece = file.readline(min(PIECE_BYTES, max_bytes + 1 - len(line)))
        if not piece:
            break
        line += piece
    return bytes(line)
