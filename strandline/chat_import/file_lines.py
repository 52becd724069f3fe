"""The lines of a file, of bounded length, read in pieces with a look for signals between them."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.settings import Settings

PIECE_BYTES = 65_536

# JSON may spell one byte of text as six, such as \u0041; a few names come on top.
_BYTES_PER_BYTE = 6
_NAMES_BYTES = 65_536


def longest_line(settings: Settings) -> int:
    """Most bytes of a message's line, by the bounds of a put."""
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
    """The next line, read only far enough to recognise a line that is too long."""
    line = bytearray()
    while len(line) <= max_bytes and not line.endswith(b"\n"):
        check()
        piece = file.readline(min(PIECE_BYTES, max_bytes + 1 - len(line)))
        if not piece:
            break
        line += piece
    return bytes(line)


def object_in(line: str | bytes) -> dict[str, Any]:
    """The JSON object that a line holds.

    Raises:
        ValueError: the line does not hold an object; the text says why, worded to follow the line's name.
    """
    text = _decode(line) if isinstance(line, bytes) else line
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError('must be a JSON object with "role" and "content"')
    return value


def _decode(line: bytes) -> str:
    """A line as text: UTF-8, in which JSON has no NUL; UTF-16 and UTF-32 are full of them."""
    if b"\0" in line:
        raise ValueError("is not UTF-8 text")
    try:
        # Lone surrogates are left to the put, which names their field.
        return line.removeprefix(BOM_UTF8).decode(errors="surrogatepass")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
