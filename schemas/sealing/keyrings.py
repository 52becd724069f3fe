"""Keyrings hold the keys that wrap owners' keys: in a file, a variable, or an application's own code.

A keyring wraps and unwraps, and never gives its keys away, so a key management service can be one;
``docs/recipes.md`` shows two.
"""

from __future__ import annotations

import os
import threading
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, KeyUnavailableError
from strandline.schemas.sealing.ciphers import Cipher, NotAuthenticError, make_cipher, open_sealed
from strandline.schemas.sealing.owner_keys import KEY_BYTES, NONCE_BYTES

MAX_KEY_ID_CHARACTERS: Final = 200
MAX_WRAPPED_BYTES: Final = 8_192
# A file that lacks a key is read again no sooner than this after the time before.
REREAD_SECONDS: Final = 2.0
_MAX_FILE_BYTES: Final = 1_000_000


class Keyring(Protocol):
    """Wraps and unwraps owners' keys; called from several threads at once, and may take as long as a request.

    ``context`` names whose keys they are; a key wrapped with one must not unwrap with another.
    """

    def key_ids(self) -> Sequence[str]:
        """The ids of the keys that can wrap, the one to be taken by default first."""
        ...

    def wrap(self, key_id: str, secret: bytes, context: bytes) -> bytes:
        """The secret (64 bytes) as ciphertext of at most 8,192 bytes; raises KeyUnavailableError."""
        ...

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """The secret again; KeyUnavailableError: the key is missing, out of reach, or did not wrap it."""
        ...


class LocalKeyring:
    """Keys that this process knows, by their ids."""

    def __init__(self, keys: Mapping[str, bytes], place: str) -> None:
        self._ids = tuple(keys)
        self._ciphers = {key_id: make_cipher(key) for key_id, key in keys.items()}
        self._place = place

    def __repr__(self) -> str:
        return f"<LocalKeyring of {self._place}>"

    def key_ids(self) -> Sequence[str]:
        return self._ids

    def wrap(self, key_id: str, secret: bytes, context: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher(key_id).encrypt(nonce, secret, context)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        cipher = self._cipher(key_id)
        try:
            return open_sealed(cipher, wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], context)
        except NotAuthenticError as error:
            raise KeyUnavailableError(
                f"The key {quote(key_id)} of {self._place} is not the one that wrapped these keys, which has"
                " the same id; put the right one there."
            ) from error

    def _cipher(self, key_id: str) -> Cipher:
        try:
            return self._ciphers[key_id]
        except KeyError:
            held = ", ".join(map(quote, self._ids)) or "none"
            raise KeyUnavailableError(
                f"The key {quote(key_id)} is not in {self._place}, which holds {held}; add it there."
            ) from None


class FileKeyring:
    """The keyring in a file, read again when a key is missing or differs from the one of the same id.

    Running processes so take up added keys.  The file is read at most once in ``REREAD_SECONDS``; while it is
    unreadable or malformed, the earlier keys stay.

    Args:
        clock: counts seconds, and never goes back.

    Raises:
        ConfigurationError: the file cannot be read, or a line is not a key.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._reading = threading.Lock()
        self._keyring = read_keyring_file(path)
        self._read_at = clock()

    def __repr__(self) -> str:
        return repr(self._keyring)

    def key_ids(self) -> Sequence[str]:
        return self._keyring.key_ids()

    def wrap(self, key_id: str, secret: bytes, context: bytes) -> bytes:
        return self._try_twice(lambda keyring: keyring.wrap(key_id, secret, context))

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        return self._try_twice(lambda keyring: keyring.unwrap(key_id, wrapped, context))

    def _try_twice(self, call: Callable[[LocalKeyring], bytes]) -> bytes:
        tried = self._keyring
        try:
            return call(tried)
        except KeyUnavailableError:
            present = self._read_again(tried)
            if present is tried:
                raise
            return call(present)

    def _read_again(self, tried: LocalKeyring) -> LocalKeyring:
        """The keys as the file has them now; ``tried`` if it is too early to read again."""
        with self._reading:
            now = self._clock()
            if self._keyring is tried and now >= self._read_at + REREAD_SECONDS:
                self._read_at = now
                with suppress(ConfigurationError):
                    self._keyring = read_keyring_file(self._path)
            return self._keyring


class NoKeyring:
    """Stands for a keyring where none is configured."""

    def key_ids(self) -> Sequence[str]:
        return ()

    def wrap(self, key_id: str, secret: bytes, context: bytes) -> bytes:
        raise self._missing_key(key_id)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        raise self._missing_key(key_id)

    def _missing_key(self, key_id: str) -> KeyUnavailableError:
        return KeyUnavailableError(
            f"The key {quote(key_id)} is needed, and this process has no keyring: set"
            " STRANDLINE_KEYRING_FILE, STRANDLINE_KEYRING_KEYS or STRANDLINE_KEYRING."
        )


def read_keyring_file(path: Path) -> LocalKeyring:
    """The keyring in a file: a line for each key, with its id and 32 bytes in base64.

    Raises:
        ConfigurationError: the file cannot be read, or a line is not a key.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        # Not quoted: who mistakes the variable sets a key there.
        raise ConfigurationError(
            f"The file that STRANDLINE_KEYRING_FILE names cannot be read: {type(error).__name__}."
        ) from None
    return LocalKeyring(read_keys(text, f"the keyring {quote(str(path))}"), f"the keyring {quote(str(path))}")


def read_keys(text: str, place: str) -> dict[str, bytes]:
    """The keys in a text, by their ids; empty lines and lines beginning with ``#`` are skipped.

    Raises:
        ConfigurationError: naming the line, and never quoting it.
    """
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.replace(";", "\n").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key_id, key = _read_line(line, number, place)
        if key_id in keys:
            raise ConfigurationError(f"Line {number} of {place} gives a key id a second time.")
        keys[key_id] = key
    if not keys:
        raise ConfigurationError(
            f"{place[0].upper()}{place[1:]} has no key; write a line with an id and a key in base64."
        )
    return keys


def _read_line(line: str, number: int, place: str) -> tuple[str, bytes]:
    key_id, _, encoded = line.strip().partition(" ")
    if not check_key_id(key_id):
        raise ConfigurationError(
            f"Line {number} of {place} does not begin with the id of a key: letters, digits and . _ - : /"
        )
    try:
        key = b64decode(encoded.strip(), validate=True)
    except (Base64Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"Line {number} of {place} does not hold 32 bytes in base64 after the id; make a key with:"
            " openssl rand -base64 32"
        )
    return key_id, key


def check_key_id(key_id: str) -> bool:
    """Whether a text can be the id of a key."""
    is_short = 0 < len(key_id) <= MAX_KEY_ID_CHARACTERS
    return is_short and key_id.isascii() and all(letter.isalnum() or letter in "._-:/" for letter in key_id)
