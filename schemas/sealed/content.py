"""Seals the parameters of queries and opens their rows, with the keys of the owner that each query names.

An owner's content is sealed if it has data keys.  Its first ones are made where its first session is claimed,
or by the command that seals a namespace.  Unwrapped keys are kept for a while, so a put or a read that
follows another asks for none.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import KeyUnavailableError, SealedContentError
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.application.sealing import (
    AddDataKey,
    FindDataKeys,
    FindDataKeysRow,
    FindEncryption,
    FindEncryptionRow,
    FirstDataKey,
)
from strandline.schemas.sealed.values import open_column, seal_values
from strandline.schemas.sealing.codec import ContentCodec, Unknown
from strandline.schemas.sealing.keyrings import MAX_WRAPPED_BYTES, Keyring
from strandline.schemas.sealing.marks import Mark, Marks
from strandline.schemas.sealing.owner_keys import KEY_BYTES, OwnerKeys, make_owner_keys, make_secret

MAX_OWNERS = 10_000
# How long it counts that an owner, or a database, has no keys: soon after a namespace was sealed, every
# process seals.  The pass that settles an owner waits for longer than this.
UNSEALED_SECONDS = 5.0


class KeyCache:
    """Keys by owner, each for ``seconds``; the least recently used ones go first."""

    def __init__(
        self, seconds: float, max_owners: int = MAX_OWNERS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._max_owners = max_owners
        self._clock = clock
        self._keys: OrderedDict[UUID, tuple[float, OwnerKeys | None]] = OrderedDict()
        self._clear: OrderedDict[str, float] = OrderedDict()
        self._unused_until = -1.0
        self._changing = threading.Lock()

    def keys_of(self, shard_key: UUID) -> OwnerKeys | None:
        """The keys, if they are here."""
        if not self._keys:
            return None
        known = self._find(shard_key)
        return None if known is None else known[1]

    def is_known(self, shard_key: UUID) -> bool:
        """Whether it is known which keys the owner has, or that it has none."""
        return self._find(shard_key) is not None or self.is_unused

    @property
    def is_unused(self) -> bool:
        """Whether nothing was sealed in the whole database a short time ago."""
        return self._clock() < self._unused_until

    def keep(self, shard_key: UUID, keys: OwnerKeys | None) -> None:
        """Keep keys, or for a short time that there are none."""
        until = self._clock() + (self._seconds if keys is not None else min(self._seconds, UNSEALED_SECONDS))
        with self._changing:
            self._keys[shard_key] = (until, keys)
            self._keys.move_to_end(shard_key)
            while len(self._keys) > self._max_owners:
                self._keys.popitem(last=False)

    def note_unused(self) -> None:
        """The whole database is unsealed: for a short time, ask no more."""
        self._unused_until = self._clock() + UNSEALED_SECONDS

    def is_clear(self, namespace: str) -> bool:
        """Whether a namespace was unsealed lately; a put that is refused for it is repeated sealed."""
        until = self._clear.get(namespace)
        return until is not None and self._clock() < until

    def note_clear(self, namespace: str) -> None:
        """A namespace is not sealed."""
        with self._changing:
            self._clear[namespace] = self._clock() + self._seconds
            self._clear.move_to_end(namespace)
            while len(self._clear) > self._max_owners:
                self._clear.popitem(last=False)

    def forget(self, shard_key: UUID | None = None) -> None:
        """Drop the keys of an owner, or all of them."""
        with self._changing:
            self._unused_until = -1.0
            self._clear.clear()
            if shard_key is None:
                self._keys.clear()
            else:
                self._keys.pop(shard_key, None)

    def forget_owners(self, shard_keys: Collection[UUID]) -> None:
        """Drop the keys of erased owners; with no argument, all keys."""
        for shard_key in shard_keys or (None,):
            self.forget(shard_key)

    def _find(self, shard_key: UUID) -> tuple[float, OwnerKeys | None] | None:
        with self._changing:
            known = self._keys.get(shard_key)
            if known is None:
                return None
            if known[0] <= self._clock():
                del self._keys[shard_key]
                return None
            self._keys.move_to_end(shard_key)
            return known


R = TypeVar("R")
# In whose name a key is probed.
_NOBODY = UUID(int=0)

# More than this is opened off the event loop.
INLINE_CHARACTERS = 500_000


class SealedContent(ContentCodec):
    """The codec with keys; safe to share between threads and event loops.

    Args:
        can_seal: whether this process has a keyring; without one it asks for no keys before it puts.
    """

    def __init__(self, keyring: Keyring, cache: KeyCache, *, can_seal: bool = True) -> None:
        self.keyring = keyring
        self.cache = cache
        self._can_seal = can_seal
        self._checked: set[bytes] = set()

    def known_keys(self, namespace: str, shard_key: UUID) -> OwnerKeys | Unknown | None:
        keys = self.cache.keys_of(shard_key)
        if keys is None and self._can_seal and not self.cache.is_clear(namespace):
            return Unknown.UNKNOWN
        return keys

    def note_unused(self) -> None:
        self.cache.note_unused()

    def look_up_keys(self, namespace: str, shard_key: UUID) -> Operation[tuple[bool, OwnerKeys | None]]:
        if not (yield from fetch(FindEncryption(namespace=namespace))):
            self.cache.note_clear(namespace)
            return False, None
        return True, (yield from self.find_keys(shard_key))

    def find_keys(self, shard_key: UUID) -> Operation[OwnerKeys | None]:
        if self.cache.is_known(shard_key):
            return self.cache.keys_of(shard_key)
        return (yield from self.renew_keys(shard_key))

    def renew_keys(self, shard_key: UUID) -> Operation[OwnerKeys | None]:
        """The keys as the database has them now."""
        rows = yield from fetch(FindDataKeys(shard_key=shard_key))
        wrapped = [row for row in rows if row.number is not None]
        if not wrapped:
            if not rows[0].is_in_use:
                self.cache.note_unused()
            self.cache.keep(shard_key, None)
            return None
        keys: OwnerKeys = yield Run(partial(unwrap_keys, self.keyring, shard_key, wrapped))
        self.cache.keep(shard_key, keys)
        return keys

    def claim_keys(
        self, namespace: str, shard_key: UUID, *, anew: bool = False, first_number: int | None = None
    ) -> Operation[OwnerKeys | None]:
        keys = self.cache.keys_of(shard_key)
        if anew or (keys is None and first_number is not None):
            keys = yield from self.renew_keys(shard_key)
        elif keys is None:
            keys = yield from self.find_keys(shard_key)
            if keys is None and self.cache.is_unused:
                return None
        elif keys.number < (first_number or (yield from self._first_number(shard_key))):
            keys = yield from self.renew_keys(shard_key)
        if keys is not None:
            return keys
        for row in (yield from fetch(FindEncryption(namespace=namespace))):
            yield from self.make_keys(namespace, shard_key, row)
            return (yield from self.renew_keys(shard_key))
        return None

    def check_keys(self, shard_key: UUID, first_number: int) -> Operation[None]:
        keys = self.cache.keys_of(shard_key)
        if keys is not None and keys.number < first_number:
            yield from self.renew_keys(shard_key)

    def _first_number(self, shard_key: UUID) -> Operation[int]:
        (row,) = yield from fetch(FirstDataKey(shard_key=shard_key))
        return row.number

    def probe_key(self, kek_id: str) -> bytes:
        """Something that the keyring has wrapped, and can unwrap again.

        Raises:
            KeyUnavailableError: that cannot be done with this key.
        """
        secret = make_secret()
        wrapped = wrap_secret(self.keyring, "", _NOBODY, kek_id, secret)
        if unwrap_secret(self.keyring, "", _NOBODY, kek_id, wrapped) != secret:
            raise KeyUnavailableError(f"The keyring cannot unwrap its keys wrapped by {quote(kek_id)}.")
        return wrapped

    def check_key(self, namespace: str, row: FindEncryptionRow) -> None:
        """See that the keyring's key is the namespace's, before it wraps anything (KeyUnavailableError)."""
        if row.probe not in self._checked:
            with _name_namespace(namespace):
                unwrap_secret(self.keyring, "", _NOBODY, row.kek_id, row.probe)
            self._checked.add(row.probe)

    def make_keys(
        self,
        namespace: str,
        shard_key: UUID,
        row: FindEncryptionRow,
        *,
        secret: bytes | None = None,
        number: int | None = None,
    ) -> Operation[None]:
        """Give an owner its first keys; concurrent processes end up with the same ones.

        Args:
            row: how the namespace was encrypted a moment ago; if the key changed since, the new one wraps.
            secret, number: of a further data key; default: the first keys, at random.

        Raises:
            KeyUnavailableError: the keyring cannot wrap them with the namespace's key.
        """
        secret = secret or make_secret()
        while True:
            wrapped: bytes = yield Run(partial(self._wrap, namespace, shard_key, row, secret))
            add = AddDataKey(
                shard_key=shard_key, number=number, namespace=namespace, kek_id=row.kek_id, wrapped=wrapped
            )
            (added,) = yield from fetch(add)
            if added.is_current:
                return
            (row,) = yield from fetch(FindEncryption(namespace=namespace))

    def _wrap(self, namespace: str, shard_key: UUID, row: FindEncryptionRow, secret: bytes) -> bytes:
        self.check_key(namespace, row)
        return wrap_secret(self.keyring, namespace, shard_key, row.kek_id, secret)

    def seal_query(self, query: Query[R]) -> Operation[Query[R]]:
        marks = _marks_of(query)
        keys = None
        if any(query.values[mark.place] is not None for mark in marks.seals):
            keys = yield from self.find_keys(_owner_given(query, marks))
        values = list(query.values)
        for mark in marks.seals:
            values[mark.place] = seal_values(mark, query.values, keys)
        return query.with_values(tuple(values))

    def open_rows(self, query: Query[R], rows: Sequence[R]) -> Operation[list[R]]:
        marks = _marks_of(query)
        if marks.owner is None:
            return (yield from self._open_of_each(query, marks, rows))
        return (yield from self._open_of(query, _owner_given(query, marks), rows))

    def _open_of_each(self, query: Query[R], marks: Marks, rows: Sequence[Any]) -> Operation[list[R]]:
        opened = list(rows)
        for owner in {row[marks.owner_column] for row in rows}:
            places = [place for place, row in enumerate(rows) if row[marks.owner_column] == owner]
            own = [rows[place] for place in places]
            for place, row in zip(places, (yield from self._open_of(query, owner, own)), strict=True):
                opened[place] = row
        return opened

    def _open_of(self, query: Query[R], owner: UUID, rows: Sequence[R]) -> Operation[list[R]]:
        keys = yield from self.find_keys(owner)
        if keys is not None:
            try:
                return (yield from _open_with(keys, query, rows))
            except SealedContentError:
                pass
        keys = yield from self.renew_keys(owner)
        return (yield from _open_with(keys or OwnerKeys(owner, 0, True, {}, b""), query, rows))


def wrap_secret(keyring: Keyring, namespace: str, shard_key: UUID, kek_id: str, secret: bytes) -> bytes:
    """An owner's secret, wrapped.

    Raises:
        KeyUnavailableError: naming the namespace and the key.
    """
    with _name_namespace(namespace):
        wrapped = keyring.wrap(kek_id, secret, _context(namespace, shard_key))
    if not isinstance(wrapped, bytes) or not 0 < len(wrapped) <= MAX_WRAPPED_BYTES:
        raise KeyUnavailableError(
            f"The keyring gave no bytes, or more than {MAX_WRAPPED_BYTES:,}, for the key {quote(kek_id)}."
        )
    return wrapped


def unwrap_secret(keyring: Keyring, namespace: str, shard_key: UUID, kek_id: str, wrapped: bytes) -> bytes:
    """An owner's secret.

    Raises:
        KeyUnavailableError: naming the namespace and the key.
    """
    with _name_namespace(namespace):
        secret = keyring.unwrap(kek_id, wrapped, _context(namespace, shard_key))
    if not isinstance(secret, bytes) or len(secret) != 2 * KEY_BYTES:
        raise KeyUnavailableError(
            f"{names_encrypted(namespace)} The keyring unwrapped something else than keys with"
            f" {quote(kek_id)}; put the key there that wrapped them."
        )
    return secret


def unwrap_keys(keyring: Keyring, shard_key: UUID, rows: Sequence[FindDataKeysRow]) -> OwnerKeys:
    """The keys of an owner from its rows.

    Raises:
        KeyUnavailableError: naming the namespace and the key.
    """
    secrets = {
        row.number: unwrap_secret(
            keyring, row.namespace or "", shard_key, row.kek_id or "", row.wrapped or b""
        )
        for row in rows
        if row.number is not None
    }
    # Once all was sealed under one of them, nothing is in clear any more.
    keys = make_owner_keys(shard_key, secrets, is_settled=any(row.is_settled for row in rows))
    keys.has_vectors = rows[0].has_vectors is not False
    return keys


def names_encrypted(namespace: str) -> str:
    """How each error of a key of a namespace begins."""
    return f"Namespace {quote(namespace)} is encrypted."


@contextmanager
def _name_namespace(namespace: str) -> Iterator[None]:
    try:
        yield
    except KeyUnavailableError as error:
        if not namespace:
            raise
        raise KeyUnavailableError(f"{names_encrypted(namespace)} {error}") from error


def _context(namespace: str, shard_key: UUID) -> bytes:
    """Whose keys they are, so that those of one owner cannot be put in the place of another's."""
    return b"strandline keys 1\x00" + shard_key.bytes + namespace.encode()


def _marks_of(query: Query[Any]) -> Marks:
    if query.marks is None:
        raise ValueError(f"{query!r} has no marks")
    return query.marks


def _owner_given(query: Query[Any], marks: Marks) -> UUID:
    if marks.owner is None:
        raise ValueError(f"{query!r} does not say whose content it sends")
    owner: UUID = query.values[marks.owner]  # type: ignore[assignment]
    return owner


def _open_with(keys: OwnerKeys, query: Query[R], rows: Sequence[Any]) -> Operation[list[R]]:
    marks = _marks_of(query)
    stored: list[Sequence[Any]] = list(zip(*rows, strict=True))
    open_all = partial(_open_all, query, marks, stored, keys)
    columns = [filter(None, stored[place]) for place in {mark.place for mark in marks.opens}]
    if sum(sum(map(len, column)) for column in columns) <= INLINE_CHARACTERS:
        return open_all()
    opened: list[R] = yield Run(open_all)
    return opened


def _open_all(query: Query[R], marks: Marks, stored: Sequence[Sequence[Any]], keys: OwnerKeys) -> list[R]:
    """The rows opened, column by column, from the ``stored`` columns."""
    columns = list(stored)
    for mark in marks.opens:
        if columns[mark.place] is stored[mark.place]:
            columns[mark.place] = open_column(mark, stored, keys)
        else:
            columns[mark.place] = _open_rest(mark, columns, stored[mark.place], keys)
    return list(map(partial(tuple.__new__, query.row), zip(*columns, strict=True)))  # type: ignore[arg-type]


def _open_rest(
    mark: Mark, columns: Sequence[Sequence[Any]], stored: Sequence[Any], keys: OwnerKeys
) -> list[Any]:
    opened = list(columns[mark.place])
    places = [place for place, (now, before) in enumerate(zip(opened, stored, strict=True)) if now is before]
    rest = [[column[place] for place in places] for column in columns]
    for place, value in zip(places, open_column(mark, rest, keys), strict=True):
        opened[place] = value
    return opened
