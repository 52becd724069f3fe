"""Tokens: the form in which sealed content stands in a column, and how it is told from content in clear.

A token is ``sealed:1:<number>:<base64>``: the version of the form, the number of the data key among its
owner's, and the nonce with the ciphertext.  In a column of JSON it is a JSON string; applications store
objects or lists there, so the two are never confused.  Text in clear that begins like a token is stored with
``sealed:0:`` before it, so no user's text is taken for a token.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import NamedTuple

from strandline.schemas.errors import SealedContentError

MARK = "sealed:"
_SEALED = "sealed:1:"
_ESCAPE = "sealed:0:"
_NAME = "sealed:2:"
REFERENCE = "sealed:3:"
_JSON_MARK = f'"{MARK}'
TOKEN_MARKS = (MARK, _JSON_MARK)
_JSON_ESCAPE = f'"{_ESCAPE}'
_BYTES_MARK = MARK.encode()
_BYTES_ESCAPE = _ESCAPE.encode()


class Token(NamedTuple):
    """A token that was read: the number of its key, and the nonce with the ciphertext."""

    number: int
    body: bytes


def token_prefix(number: int) -> str:
    """With which each token of a data key begins."""
    return f"{_SEALED}{number}:"


def write_token(number: int, body: bytes) -> str:
    return f"{token_prefix(number)}{b2a_base64(body, newline=False).decode()}"


def write_name(body: bytes) -> str:
    """The token of a name: always the same, for all data keys."""
    return f"{_NAME}{b2a_base64(body, newline=False).decode()}"


def write_bytes(number: int, body: bytes) -> bytes:
    """The token of bytes, which need no base64."""
    return token_prefix(number).encode() + body


def read_bytes(stored: bytes) -> Token | bytes:
    """The token that stored bytes hold, or the bytes in clear.

    Raises:
        SealedContentError: they begin like a token and are none.
    """
    if not stored.startswith(_BYTES_MARK):
        return stored
    if stored.startswith(_BYTES_ESCAPE):
        return stored.removeprefix(_BYTES_ESCAPE)
    number, colon, body = stored.removeprefix(_SEALED.encode()).partition(b":")
    if not stored.startswith(_SEALED.encode()) or not colon or not number.isdigit():
        raise _unreadable()
    return Token(int(number), body)


def escape_bytes(data: bytes) -> bytes:
    """Bytes in clear as they are stored: marked, if they would be taken for a token."""
    return _BYTES_ESCAPE + data if data.startswith(_BYTES_MARK) else data


def is_bytes_token(stored: bytes) -> bool:
    """Whether bytes were stored in a form that has to be opened."""
    return stored.startswith(_BYTES_MARK)


def is_token(text: str) -> bool:
    """Whether a text, or a JSON text, was stored in a form that has to be opened."""
    return text.startswith(TOKEN_MARKS)


def read_token(text: str) -> Token | None:
    """The token that a stored text holds; None for text in clear that only looks like one.

    Raises:
        SealedContentError: it begins like a token and is none.
    """
    text = bare(text)
    if text.startswith(_ESCAPE):
        return None
    number, _, body = text.removeprefix(_SEALED).partition(":")
    if not text.startswith(_SEALED) or not number.isdecimal():
        raise _unreadable()
    return Token(int(number), _decode(body))


def read_name(text: str) -> bytes | None:
    """The body of a name's token; None if the text is in clear, with or without the mark that says so.

    Raises:
        SealedContentError: it begins like a token and is none.
    """
    if text.startswith(_ESCAPE):
        return None
    if not text.startswith(_NAME):
        raise _unreadable()
    return _decode(text.removeprefix(_NAME))


def escape(text: str) -> str:
    """Text in clear as it is stored: marked, if it would be taken for a token."""
    return f"{_ESCAPE}{text}" if is_token(text) else text


def escape_json(text: str) -> str:
    return f'"{_ESCAPE}{text[1:]}' if text.startswith(_JSON_MARK) else text


def unescape(text: str) -> str:
    return text.removeprefix(_ESCAPE)


def unescape_json(text: str) -> str:
    return f'"{text.removeprefix(_JSON_ESCAPE)}' if text.startswith(_JSON_ESCAPE) else text


def bare(text: str) -> str:
    """A token without the quotes that make it JSON."""
    return text[1:-1] if text.startswith('"') else text


def _decode(body: str) -> bytes:
    try:
        return a2b_base64(body.encode(), strict_mode=True)
    except (Base64Error, ValueError):
        raise _unreadable() from None


def _unreadable() -> SealedContentError:
    return SealedContentError(
        "Stored content begins like sealed content, and is not: it was changed outside of Strandline, or a"
        " later release wrote it. Restore the row from a backup, or run that release."
    )
