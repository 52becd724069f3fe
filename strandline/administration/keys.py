"""Keys: ``sl_<id>_<secret>``, of which only a digest of the secret is stored.

Each is bound to a namespace, perhaps to one user, and has scopes.  A key without a namespace is an operator's
of the whole installation: it opens no memory.  The operations are written once, for commands and for routes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_act
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, ConflictError, InvalidMessageError, NotFoundError
from strandline.schemas.postgres.operations import Operation, atomic, fetch
from strandline.schemas.queries.application.service import (
    AddServiceKey,
    EndServiceKey,
    FindRequestedServiceKey,
    HasServiceKey,
    ListServiceKeys,
    LockServiceKey,
    LockServiceKeyRow,
    RevokeServiceKey,
)
from strandline.schemas.values.identity import ALL_NAMESPACES, check_name, check_tenant, check_user_id
from strandline.schemas.values.same_named import make_from
from strandline.schemas.values.stored_text import check_text
from strandline.schemas.wire.keys import DEFAULT_OVERLAP_SECONDS, SCOPES, KeyInfo, NewKey, RevokedKey

_KEY = re.compile(r"sl_([0-9a-f]{16})_([0-9a-f]{64})")
MAX_KEY_CHARACTERS = 100
MAX_LABEL_CHARACTERS = 200
MAKER_ENDED = "The key of this request has ended, so it makes no other."


@dataclass(slots=True)
class KeySpec:
    """A checked key to make.

    Attributes:
        namespace: the one it opens; None: only the routes of operators, for all namespaces.
        scopes: its rights.
        user_id: the one user it opens; None: all users of the namespace.
        shared_scopes: the scopes in which a key of one user may begin sessions; a key of all users names any.
        label: for people.
        expires_in_seconds: None: it has no end.

    Raises:
        ConfigurationError: a scope is unknown, or does not go with the rest.
        InvalidMessageError: a name cannot be used.
    """

    namespace: str | None
    scopes: Sequence[str]
    _: KW_ONLY
    user_id: str | None = None
    label: str = ""
    expires_in_seconds: float | None = None
    shared_scopes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if unknown := [scope for scope in self.scopes if scope not in SCOPES]:
            raise ConfigurationError(
                f"{quote(unknown[0])} is not a scope; the scopes are {', '.join(SCOPES)}."
            )
        self.scopes = [scope for scope in SCOPES if scope in self.scopes]
        if not self.scopes:
            raise ConfigurationError(f"Give a key at least one scope: {', '.join(SCOPES)}.")
        if self.namespace is None and (self.user_id is not None or self.scopes != ["operate"]):
            sentence = (
                "A key of all namespaces opens no memory: its only scope is operate, and it has no user."
            )
            raise ConfigurationError(sentence, for_clients=f"{sentence} For any other, give `namespace`.")
        if self.shared_scopes and self.user_id is None:
            raise ConfigurationError(
                "Shared scopes are named for the key of one user; a key of all users may use any."
                " Name the user, or leave the shared scopes out."
            )
        check_text("label", self.label)
        if len(self.label) > MAX_LABEL_CHARACTERS:
            raise InvalidMessageError("label", f"is longer than {MAX_LABEL_CHARACTERS} characters")
        if self.namespace is not None:
            self.namespace = check_tenant(self.namespace)
        if self.user_id is not None:
            self.user_id = check_user_id(self.user_id)
        names = [check_name("shared_scopes", scope) for scope in self.shared_scopes]
        self.shared_scopes = list(dict.fromkeys(names))


def parse_key(text: str) -> tuple[str, bytes] | None:
    """The id of a key, and the digest of its secret; None if it cannot be a key."""
    match = _KEY.fullmatch(text) if len(text) <= MAX_KEY_CHARACTERS else None
    return None if match is None else (match[1], digest_of(match[2]))


def digest_of(secret: str) -> bytes:
    """The stored digest of a secret: with 256 random bits, a plain digest cannot be guessed."""
    return sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class KeyMaker:
    """The request that makes a key: its own key, which the new one does not outlive, and its name."""

    made_by: str | None = None
    request_key: UUID | None = None


_COMMAND = KeyMaker()


@atomic
def create_key(spec: KeySpec, maker: KeyMaker = _COMMAND) -> Operation[NewKey]:
    """Make a key, whose text is in the result alone; ConflictError: made before, or its maker ended."""
    return (yield from _create(spec, maker, {"scopes": list(spec.scopes)}))


def _create(
    spec: KeySpec, maker: KeyMaker, detail: dict[str, Any], rotated_from: str | None = None
) -> Operation[NewKey]:
    if maker.made_by is not None:
        # Locked: a maker revoked concurrently makes no key that its revocation misses.
        makers = yield from fetch(LockServiceKey(key_id=maker.made_by))
        if not makers or makers[0].is_over:
            raise ConflictError("The key of this request has ended.", for_clients=MAKER_ENDED)
    key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    rows = yield from fetch(
        AddServiceKey.of(
            spec,
            key_id=key_id,
            secret_digest=digest_of(secret),
            scopes=[*spec.scopes],
            shared_scopes=[*spec.shared_scopes],
            rotated_from=rotated_from,
            made_by=maker.made_by,
            request_key=maker.request_key,
        )
    )
    if maker.request_key is not None and not rows:
        yield from _refuse_repetition(maker.request_key)
    act = Act.here("key.create", detail={**detail, "key": key_id})
    yield from append_act(spec.namespace or ALL_NAMESPACES, act)
    return NewKey(**rows[0]._asdict(), key=f"sl_{key_id}_{secret}")


def _refuse_repetition(request_key: UUID) -> Operation[None]:
    """Raise ConflictError if a request made a key: its text is not stored, so it cannot be given again."""
    for row in (yield from fetch(FindRequestedServiceKey(request_key=request_key))):
        sentence = (
            f"This request has made the key {row.key_id}; its text was shown then, and is not stored."
            " If that was lost, revoke the key, and make another under a new Idempotency-Key."
        )
        raise ConflictError(sentence, for_clients=sentence)


def list_keys(namespace: str | None, *, after: str = "", limit: int = 100) -> Operation[list[KeyInfo]]:
    """The next keys by id, of a namespace or of all; ended ones are among them."""
    rows = yield from fetch(ListServiceKeys(namespace=namespace, after=after, limit=limit))
    return [KeyInfo(**row._asdict()) for row in rows]


@atomic
def rotate_key(
    key_id: str,
    *,
    namespace: str | None = None,
    overlap_seconds: float = DEFAULT_OVERLAP_SECONDS,
    expires_in_seconds: float | None = None,
    maker: KeyMaker = _COMMAND,
) -> Operation[NewKey]:
    """Make a key with the same scopes; the old one stays valid for ``overlap_seconds``, or until its own end.

    Args:
        expires_in_seconds: when the new key ends; None: after the old one's lifetime, from now on.

    Raises:
        NotFoundError: there is no such key (in the namespace, if one is given).
        ConflictError: the key or that of the request has ended, or the request made one before.
    """
    rows = yield from fetch(LockServiceKey(key_id=key_id))
    if not rows or (namespace is not None and rows[0].namespace != namespace):
        raise _unknown(key_id)
    old = rows[0]
    if maker.request_key is not None:
        yield from _refuse_repetition(maker.request_key)
    if old.is_over:
        raise ConflictError(
            f"Key {quote(key_id)} has ended; make a new one with `strandline keys create`.",
            for_clients="This key has ended, so it cannot be rotated; make a new one.",
        )
    seconds = _life_seconds(old) if expires_in_seconds is None else expires_in_seconds
    spec = make_from(KeySpec, old, expires_in_seconds=seconds)
    new_key = yield from _create(spec, maker, {"rotated_from": key_id}, rotated_from=key_id)
    yield from fetch(EndServiceKey(key_id=key_id, in_seconds=overlap_seconds))
    return new_key


@atomic
def revoke_key(
    key_id: str, *, namespace: str | None = None, with_made: bool = False
) -> Operation[RevokedKey]:
    """End a key; every process of the service refuses it within five seconds.

    Args:
        with_made: also end the keys that it was rotated from, and all keys that any of them made or was
            rotated to.

    Raises:
        NotFoundError: there is no such key (in the namespace, if one is given).
    """
    yield from fetch(LockServiceKey(key_id=key_id))  # it makes no other from now on
    query = RevokeServiceKey(key_id=key_id, namespace=namespace, with_made=with_made)
    seen, rows = -1, (yield from fetch(query))
    while len(rows) > seen:  # a key found now may have made another before it was locked
        seen, rows = len(rows), (yield from fetch(query))
    ended = {row.key_id: row for row in rows}
    if key_id not in ended:
        raise _unknown(key_id)
    for row in rows:
        act = Act.here("key.revoke", detail={"key": row.key_id})
        yield from append_act(row.namespace or ALL_NAMESPACES, act)
    return RevokedKey(**ended.pop(key_id)._asdict(), with_made=sorted(ended))


def any_key() -> Operation[bool]:
    """Whether any key opens the service now."""
    (row,) = yield from fetch(HasServiceKey())
    return row.has_key


def _life_seconds(key: LockServiceKeyRow) -> float | None:
    """How long a key was to live when it was made; None: it has no end."""
    return None if key.expires_at is None else (key.expires_at - key.created_at).total_seconds()


def _unknown(key_id: str) -> NotFoundError:
    return NotFoundError(f"Key {quote(key_id)} does not exist; `strandline keys list` shows them.")
