"""Makes what seals and opens content from the settings; the keyring is read at its first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TypeVar

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, KeyUnavailableError, StrandlineError
from strandline.schemas.sealed.content import KeyCache, SealedContent
from strandline.schemas.sealing.keyrings import FileKeyring, Keyring, LocalKeyring, NoKeyring, read_keys
from strandline.schemas.settings import Settings

T = TypeVar("T")

ENTRY_POINT_GROUP = "strandline.keyrings"
_VARIABLE = "STRANDLINE_KEYRING_KEYS"
# Of an installed keyring as it is quoted: fewer than any key of 32 bytes takes.
MAX_NAME_CHARACTERS = 30


def sealed_content(settings: Settings) -> SealedContent:
    """Seals and opens content in this process; nothing is read or loaded before something is sealed."""
    named = (settings.keyring_file, settings.keyring_keys, settings.keyring)
    keyring = LazyKeyring(lambda: open_keyring(settings))
    can_seal = any(one is not None for one in named)
    return SealedContent(keyring, KeyCache(settings.key_cache_seconds), can_seal=can_seal)


def open_keyring(settings: Settings) -> Keyring:
    """The keyring of the settings.

    Raises:
        ConfigurationError: they name two, or one of them is unusable.
    """
    if sum(one is not None for one in (settings.keyring_file, settings.keyring_keys, settings.keyring)) > 1:
        raise ConfigurationError(
            "More than one of STRANDLINE_KEYRING_FILE, STRANDLINE_KEYRING_KEYS and STRANDLINE_KEYRING is set;"
            " set one."
        )
    if settings.keyring_file is not None:
        return FileKeyring(settings.keyring_file)
    if settings.keyring_keys is not None:
        return LocalKeyring(read_keys(settings.keyring_keys.get_secret_value(), _VARIABLE), _VARIABLE)
    return (
        NoKeyring()
        if settings.keyring is None
        else _Guarded(_load_installed(settings.keyring), settings.keyring)
    )


class LazyKeyring:
    """A keyring that is opened at its first use; safe to share between threads."""

    def __init__(self, open_: Callable[[], Keyring]) -> None:
        self._open = open_
        self._opening = threading.Lock()
        self._keyring: Keyring | None = None

    def key_ids(self) -> Sequence[str]:
        return self._open_once().key_ids()

    def wrap(self, key_id: str, secret: bytes, context: bytes) -> bytes:
        return self._open_once().wrap(key_id, secret, context)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        return self._open_once().unwrap(key_id, wrapped, context)

    def _open_once(self) -> Keyring:
        if self._keyring is None:
            with self._opening:
                self._keyring = self._keyring or self._open()
        return self._keyring


class _Guarded:
    def __init__(self, keyring: Keyring, name: str) -> None:
        self._keyring = keyring
        self._name = name

    def key_ids(self) -> Sequence[str]:
        return self._call("key_ids", self._keyring.key_ids)

    def wrap(self, key_id: str, secret: bytes, context: bytes) -> bytes:
        return self._call("wrap", lambda: self._keyring.wrap(key_id, secret, context))

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        return self._call("unwrap", lambda: self._keyring.unwrap(key_id, wrapped, context))

    def _call(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (StrandlineError, MemoryError):
            raise
        except Exception as error:  # the edge to foreign code: an application's keyring
            raise KeyUnavailableError(
                f"The keyring {quote(self._name)} raised {type(error).__name__} in {what}(); its own log may"
                " say why."
            ) from error


def _shown_name(name: str) -> str:
    """A name, quoted unless it may be a key set in its place."""
    return quote(name) if len(name) <= MAX_NAME_CHARACTERS and name.isidentifier() else "that it names"


def _load_installed(name: str) -> Keyring:
    points = {point.value: point for point in entry_points(group=ENTRY_POINT_GROUP, name=name)}
    if len(points) != 1:
        known = sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)})
        which = "installed twice" if points else "not installed"
        raise ConfigurationError(
            f"STRANDLINE_KEYRING: the keyring {_shown_name(name)} is {which}; installed are:"
            f" {', '.join(map(quote, known)) or 'none'}."
        )
    (point,) = points.values()
    try:
        keyring: Keyring = point.load()()
    except StrandlineError:
        raise
    except Exception as error:  # the edge to foreign code: an application's keyring
        raise ConfigurationError(
            f"STRANDLINE_KEYRING: the keyring {quote(name)} cannot be made ({type(error).__name__})."
        ) from error
    return keyring
