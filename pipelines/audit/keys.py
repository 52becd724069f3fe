"""The keys of the seals: one seals, and the others verify their earlier seals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings

MIN_SECRET_BYTES = 16
MAX_NAME_CHARACTERS = 64
UNKEYED = "none"
"""The name of no key: seals that anyone can make who may write to the tables."""


@dataclass(frozen=True, slots=True)
class SealKeys:
    """All keys by name, and the name of the key that seals; ``none`` without one."""

    current: str
    secrets: Mapping[str, bytes] = field(repr=False)

    def secret_of(self, name: str) -> bytes | None:
        """The secret of a key, which is empty for ``none``; None if the keyring has no such key."""
        return b"" if name == UNKEYED else self.secrets.get(name)

    @property
    def how_to_add(self) -> str:
        """Which keys there are, and how another one is added; for people."""
        if not self.secrets:
            return "no key is set here: set STRANDLINE_AUDIT_KEY or STRANDLINE_AUDIT_KEY_FILE as for workers"
        names = ", ".join(map(repr, sorted(self.secrets)))
        return (
            f"the keys here are {names}: add the other one to the file that STRANDLINE_AUDIT_KEY_FILE names"
        )


NO_KEYS = SealKeys(UNKEYED, MappingProxyType({}))


def one_key(secret: str) -> SealKeys:
    """A keyring of one key, whose name follows from it; raises ConfigurationError if it is too short."""
    checked = _check_secret(secret, "STRANDLINE_AUDIT_KEY")
    name = sha256(b"strandline audit key name" + checked).hexdigest()[:12]
    return SealKeys(name, MappingProxyType({name: checked}))


def keys_of(settings: Settings) -> SealKeys:
    """The keyring that the settings name; an empty one if they name none.

    Raises:
        ConfigurationError: two are named, or the key or the file cannot be used.
    """
    if settings.audit_key is not None and settings.audit_key_file is not None:
        raise ConfigurationError(
            "STRANDLINE_AUDIT_KEY and STRANDLINE_AUDIT_KEY_FILE are both set; set one of them."
        )
    if settings.audit_key is not None:
        return one_key(settings.audit_key.get_secret_value())
    if settings.audit_key_file is None:
        return NO_KEYS
    try:
        text = settings.audit_key_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The file that STRANDLINE_AUDIT_KEY_FILE names cannot be read: {type(error).__name__}."
        ) from None
    return read_keyring(text, str(settings.audit_key_file))


def read_keyring(text: str, place: str) -> SealKeys:
    """A keyring from the text of a file: a name and a secret a line; the last line is the key that seals.

    Raises:
        ConfigurationError: a line cannot be used, a name occurs twice, or there is none.
    """
    secrets: dict[str, bytes] = {}
    name = UNKEYED
    for name, secret, where in _lines(text, place):
        if name in secrets:
            raise ConfigurationError(f"{where}: there is a key {name} above; each name is given once.")
        secrets[name] = _check_secret(secret, where)
    if not secrets:
        raise ConfigurationError(f"{place} has no key; write a name and a secret in a line.")
    return SealKeys(name, MappingProxyType(secrets))


def _lines(text: str, place: str) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{place}, line {number}"
        words = line.split()
        is_named = len(words) == 2 and words[0].isprintable() and len(words[0]) <= MAX_NAME_CHARACTERS
        if not is_named or words[0] == UNKEYED:
            raise ConfigurationError(f"{where}: must be a name, a space and a secret; 'none' is not a name.")
        yield words[0], words[1], where


def _check_secret(secret: str, where: str) -> bytes:
    encoded = secret.encode()
    if len(encoded) < MIN_SECRET_BYTES:
        # Not quoted, and not how long it is.
        raise ConfigurationError(
            f"{where}: the secret has fewer than {MIN_SECRET_BYTES} bytes; take a random one:"
            " python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return encoded
