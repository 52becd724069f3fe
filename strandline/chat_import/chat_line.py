"""One line of chat JSONL, as an object."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Any

from strandline.schemas.foreign_json import read_json


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
