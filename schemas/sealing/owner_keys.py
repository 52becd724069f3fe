"""The keys of one owner: what seals and opens its content, and what makes its words and digests comparable.

An owner has data keys, numbered, of which the newest seals, and one search key, which is never rotated:
from it come the keyed forms of what SQL compares by value.  They are made of the unkeyed form, so what was
stored before a namespace was sealed becomes the same as what is stored after.
"""

from __future__ import annotations

import os
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final
from uuid import UUID

from strandline.schemas.errors import SealedContentError
from strandline.schemas.sealing.ciphers import Cipher, NameCipher, NotAuthenticError, make_cipher, open_sealed
from strandline.schemas.sealing.tokens import (
    REFERENCE,
    is_token,
    read_name,
    read_token,
    token_prefix,
    unescape,
    unescape_json,
    write_name,
    write_token,
)

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
# The first byte of a keyed digest, which makes it longer than any unkeyed one, so the two are told apart.
DIGEST_BYTES: Final = 16
KEYED: Final = b"\x01"
_CONTEXT: Final = b"strandline content 1\x00"


@dataclass(slots=True)
class OwnerKeys:
    """The unwrapped keys of an owner.

    Attributes:
        shard_key: the owner's key, or that of a shared scope or a store of items.
        number: of the data key that seals.
        is_settled: whether all of the owner's rows are sealed; if not, some may still be in clear.
        ciphers: by number, all data keys that rows may be sealed with.
    """

    shard_key: UUID
    number: int
    is_settled: bool
    ciphers: Mapping[int, Cipher]
    search_key: bytes = field(repr=False)
    _names: NameCipher | None = field(default=None, repr=False)

    def seal(self, text: str, kind: str, bound: str = "") -> str:
        """The token of a text.

        Args:
            kind: what it is; a token of one kind cannot be put in the place of another.
            bound: what else it belongs to, such as the id of its message.
        """
        nonce = os.urandom(NONCE_BYTES)
        sealed = self.ciphers[self.number].encrypt(nonce, text.encode(), self._context(kind, bound))
        return write_token(self.number, nonce + sealed)

    def seal_json(self, text: str, kind: str, bound: str = "") -> str:
        """The token of a JSON text, as a JSON string."""
        return f'"{self.seal(text, kind, bound)}"'

    def reseal_json(self, text: str, kind: str, bound: str = "") -> str:
        """A JSON text that is stored, in clear or sealed with any data key, as a token of the newest one."""
        return (
            text
            if text.startswith(self.json_prefix)
            else self.seal_json(self.open(text, kind, bound), kind, bound)
        )

    def reseal(self, text: str, kind: str, bound: str = "") -> str:
        """The same of a text."""
        return text if text.startswith(self.prefix) else self.seal(self.open(text, kind, bound), kind, bound)

    @property
    def prefix(self) -> str:
        """With which the tokens of the newest data key begin."""
        return token_prefix(self.number)

    @property
    def json_prefix(self) -> str:
        """The same in a column of JSON."""
        return f'"{self.prefix}'

    def open(self, text: str, kind: str, bound: str = "") -> str:
        """The text that a column holds, in clear or as a token.

        Raises:
            SealedContentError: it was changed, belongs elsewhere, or is sealed with a key that is not there.
        """
        if not is_token(text):
            return text
        token = read_token(text)
        if token is None:
            return unescape_json(text) if text.startswith('"') else unescape(text)
        cipher = self.ciphers.get(token.number)
        if cipher is None:
            raise SealedContentError(
                f"Content of owner {self.shard_key} is sealed with its data key {token.number}, which is not"
                " in this database. Restore the table data_key from the backup that the content is from."
            )
        nonce, sealed = token.body[:NONCE_BYTES], token.body[NONCE_BYTES:]
        try:
            return open_sealed(cipher, nonce, sealed, self._context(kind, bound)).decode()
        except NotAuthenticError as error:
            raise SealedContentError(
                f"Content of owner {self.shard_key} does not open with data key {token.number}: it was"
                " changed, or moved from another place, outside of Strandline. Restore the row from a backup."
            ) from error

    def seal_name(self, text: str, kind: str) -> str:
        """The token of a name that SQL compares: the same for the same name, so equality can be seen."""
        sealed = self._name_cipher().encrypt(text.encode(), self._context(kind, ""))
        return write_name(sealed)

    def open_name(self, text: str, kind: str) -> str:
        """The name that a column holds, in clear or as a token; raises as ``open`` does."""
        if not is_token(text):
            return text
        body = read_name(text)
        if body is None:
            return unescape(text)
        try:
            return self._name_cipher().decrypt(body, self._context(kind, "")).decode()
        except NotAuthenticError as error:
            raise SealedContentError(
                f"A name that belongs to owner {self.shard_key} does not open: it was changed, or moved from"
                " another place, outside of Strandline. Restore the row from a backup."
            ) from error

    def word(self, word: str) -> str:
        """The keyed form of a word: thirteen capital letters and digits, which no stem holds."""
        return b32encode(self._mac(b"word", word.encode(), 8))[:13].decode()

    def reference(self, name: str) -> str:
        """The keyed form of an id that others refer to, such as a tool call's; of such a form, itself."""
        return name if name.startswith(REFERENCE) else REFERENCE + self.word(name)

    def digest(self, digest: bytes) -> bytes:
        """The keyed form of a digest, one byte longer; of such a form, itself."""
        if len(digest) == 1 + DIGEST_BYTES and digest.startswith(KEYED):
            return digest
        return KEYED + self._mac(b"digest", digest, DIGEST_BYTES)

    def number_of(self, number: int) -> int:
        """The keyed form of a signed number of 64 bits."""
        mac = self._mac(b"number", number.to_bytes(8, "big", signed=True), 8)
        return int.from_bytes(mac, "big", signed=True)

    def _mac(self, purpose: bytes, value: bytes, size: int) -> bytes:
        return blake2b(value, digest_size=size, key=self.search_key, person=purpose).digest()

    def _context(self, kind: str, bound: str) -> bytes:
        return b"".join((_CONTEXT, self.shard_key.bytes, kind.encode(), b"\x00", bound.encode()))

    def _name_cipher(self) -> NameCipher:
        if self._names is None:
            self._names = NameCipher(blake2b(b"names", digest_size=64, key=self.search_key).digest())
        return self._names


def make_secret() -> bytes:
    """A data key and a search key, at random, as one secret to be wrapped."""
    return os.urandom(2 * KEY_BYTES)


def renew_data_key(secret: bytes) -> bytes:
    """The same secret with another data key: the search key stays."""
    return os.urandom(KEY_BYTES) + secret[KEY_BYTES:]


def make_owner_keys(shard_key: UUID, secrets: Mapping[int, bytes], *, is_settled: bool) -> OwnerKeys:
    """The keys of an owner from its unwrapped secrets by number.

    Raises:
        ConfigurationError: the extra ``encryption`` is not installed.
    """
    newest = max(secrets)
    ciphers = {number: make_cipher(secret[:KEY_BYTES]) for number, secret in secrets.items()}
    return OwnerKeys(shard_key, newest, is_settled, ciphers, secrets[newest][KEY_BYTES:])
