"""Keys that sign receipts: Ed25519, in PEM files; with the public one anybody can verify a receipt."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from strandline.schemas.errors import ConfigurationError

_MAX_KEY_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class Ed25519Signer:
    """Signs by a private key."""

    key: Ed25519PrivateKey

    @property
    def key_id(self) -> str:
        return _key_id(self.key.public_key())

    def sign(self, message: bytes) -> str:
        """The signature, as base64."""
        return base64.b64encode(self.key.sign(message)).decode()


@dataclass(frozen=True, slots=True)
class Ed25519Verifier:
    """Verifies by a public key."""

    key: Ed25519PublicKey

    @property
    def key_id(self) -> str:
        return _key_id(self.key)

    def verify(self, message: bytes, signature: str) -> bool:
        try:
            raw = base64.b64decode(signature, validate=True)
            self.key.verify(raw, message)
        except (InvalidSignature, ValueError):
            return False
        return base64.b64encode(raw).decode() == signature  # base64 has other spellings of the same bytes


def make_key(path: Path) -> str:
    """Write a new private key to ``path``, which only its owner can read, and its public key next to it.

    Returns the key's id.

    Raises:
        ConfigurationError: one of the files exists already, or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        _write(path, private, 0o600)
        _write(public_path(path), public, 0o644)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{error.filename} exists already, and receipts may be signed by it; choose another file."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"The key cannot be written to {path}: {error.strerror}.") from None
    return _key_id(key.public_key())


def public_path(path: Path) -> Path:
    """Where the public key of a private one is written to."""
    return path.with_name(path.name + ".pub")


def read_signer(path: Path) -> Ed25519Signer:
    """The key of a file.

    Raises:
        ConfigurationError: the file cannot be read, or holds no private key by Ed25519.
    """
    content = _read(path)
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(
            f"{path} holds no private Ed25519 key in PEM form; `strandline erasures key` makes one."
        )
    return Ed25519Signer(key)


def read_verifier(path: Path) -> Ed25519Verifier:
    """The public key of a file, which may hold the private one as well.

    Raises:
        ConfigurationError: the file cannot be read, or holds no key by Ed25519.
    """
    content = _read(path)
    if b"PRIVATE" in content:
        return Ed25519Verifier(read_signer(path).key.public_key())
    try:
        key = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(f"{path} holds no public Ed25519 key in PEM form.")
    return Ed25519Verifier(key)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_KEY_BYTES)
    except OSError as error:
        # Its name is not quoted: who mistakes the variable sets a key there.
        raise ConfigurationError(
            f"The file of the key of receipts (STRANDLINE_RECEIPT_KEY_FILE, or as given) cannot be read:"
            f" {error.strerror}."
        ) from None


def _write(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _key_id(key: Ed25519PublicKey) -> str:
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return blake2b(raw, digest_size=8).hexdigest()
