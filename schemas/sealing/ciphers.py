"""The ciphers: AES-256-GCM for content and keys, AES-SIV for names; no other module knows cryptography.

GCM takes a sixth of the time of GCM-SIV, and any build of OpenSSL has it.  Nonces are random: an owner's data
key may seal four thousand million texts before two of them could be expected to share one, and can be rotated
long before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.extras import install_command
from strandline.schemas.forking import undivided

if TYPE_CHECKING:
    from types import ModuleType


class NotAuthenticError(Exception):
    """A ciphertext does not belong to this key and context, or was changed."""


class Cipher(Protocol):
    """Seals and opens with one key; each ciphertext belongs to its context."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
        """The plaintext; raises an error that ``open_sealed`` translates."""
        ...


class NameCipher:
    """Seals a name always alike under one key and context, so that equal names can be found."""

    def __init__(self, key: bytes) -> None:
        self._cipher = _aead().AESSIV(key)

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        sealed: bytes = self._cipher.encrypt(data, [context])
        return sealed

    def decrypt(self, data: bytes, context: bytes) -> bytes:
        """The name.

        Raises:
            NotAuthenticError: it belongs to another key or context, or was changed.
        """
        try:
            name: bytes = self._cipher.decrypt(data, [context])
        except _refusals() as error:
            raise NotAuthenticError from error
        return name


def make_cipher(key: bytes) -> Cipher:
    """The cipher of a key of 32 bytes; ConfigurationError: ``cryptography`` is not installed."""
    cipher: Cipher = _aead().AESGCM(key)
    return cipher


def open_sealed(cipher: Cipher, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
    """Open a cipher's text; NotAuthenticError: of another key or context, or changed."""
    try:
        return cipher.decrypt(nonce, sealed, context)
    except _refusals() as error:
        raise NotAuthenticError from error


def open_each(
    cipher: Cipher, nonce_bytes: int, bodies: Sequence[bytes | None], contexts: Sequence[bytes]
) -> list[str | None]:
    """The texts that a cipher has sealed, of nonces with ciphertexts; None stays.

    Raises:
        NotAuthenticError: one of them belongs to another key or context, or was changed.
    """
    decrypt = cipher.decrypt
    try:
        return [
            None if body is None else decrypt(body[:nonce_bytes], body[nonce_bytes:], context).decode()
            for body, context in zip(bodies, contexts, strict=True)
        ]
    except _refusals() as error:
        raise NotAuthenticError from error


def _refusals() -> tuple[type[Exception], ...]:
    from cryptography.exceptions import InvalidTag

    # A nonce that is cut short is a ValueError.
    return InvalidTag, ValueError


def _aead() -> ModuleType:
    try:
        with undivided:
            from cryptography.hazmat.primitives.ciphers import aead
    except ImportError as error:
        raise ConfigurationError(
            f"Encryption needs the package cryptography; install it with: {install_command('encryption')}"
        ) from error
    return aead
