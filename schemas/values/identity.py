"""Keys: the owners of rows, as 128-bit digests that every table starts with.

``shard_key`` names the owner (a user, or a session that has no user) inside a namespace, so that all
rows of one owner lie together and any sharding can distribute by it.  ``session_key`` names a session
inside a namespace.  Both are BLAKE2b-128 over length-prefixed parts: no two different inputs join to
the same bytes, and no key can be steered into another owner's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TypedDict
from unicodedata import category
from uuid import UUID

from strandline.schemas.display.shown_text import is_hidden
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.foreign_values import plain_text
from strandline.schemas.values.stored_text import check_text

MAX_NAME_BYTES = 512
DEFAULT_NAMESPACE = "default"
ALL_NAMESPACES = "*"
"""In whose trail stands what concerns all namespaces, as a derivation that begins to serve."""
# Stands over HTTP for a session without a user, which owns its memory alone.
NO_USER = "-"
KEY_ACTOR_PREFIX = "key:"
COMMAND_ACTOR_PREFIX = "cli:"

# Emoji end with these; a name does not begin with them.
_ENDS_OF_EMOJI = "\ufe0e\ufe0f\U000e007f"
_BLANK_EDGE = "must not begin or end with white space or an invisible character; remove it where it comes in"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of long-term memory: a user of a namespace, or a session without a user."""

    namespace: str
    user_id: str | None
    shard_key: UUID


class SessionKeys(TypedDict):
    """The keys of a session's rows, as parameters of statements."""

    shard_key: UUID
    session_key: UUID


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """One session and its owner, with every key that its rows carry."""

    namespace: str
    session_id: str
    user_id: str | None
    shard_key: UUID
    session_key: UUID
    directory_key: UUID

    @property
    def owner(self) -> Owner:
        return Owner(self.namespace, self.user_id, self.shard_key)

    @property
    def keys(self) -> SessionKeys:
        return {"shard_key": self.shard_key, "session_key": self.session_key}


def identify_session(namespace: str, session_id: str, user_id: str | None) -> SessionIdentity:
    """Check the three names and derive the keys of a session.

    Raises:
        InvalidMessageError: one of them is not a name (``check_name``), or is a reserved one.
    """
    return _session(
        check_tenant(namespace),
        check_name("session_id", session_id),
        None if user_id is None else check_user_id(user_id),
    )


def identify_user(namespace: str, user_id: str) -> Owner:
    """Check both names and derive a user's owner key; raises as ``identify_session``."""
    return _user(check_name("namespace", namespace), check_user_id(user_id))


def scope_session_id(session_id: str, scope: str) -> str:
    """The id of the session that is a scope of another one: both names, with a slash between them.

    A slash inside of a name is written ``%2F``, so no two pairs of names make the same id.
    """
    names = (name.replace("%", "%25").replace("/", "%2F") for name in (session_id, scope))
    return "/".join(names)


@lru_cache(maxsize=8_192)
def _session(namespace: str, session_id: str, user_id: str | None) -> SessionIdentity:
    as_owner = _digest("session-owner", namespace, session_id)
    return SessionIdentity(
        namespace=namespace,
        session_id=session_id,
        user_id=user_id,
        shard_key=as_owner if user_id is None else _user(namespace, user_id).shard_key,
        session_key=_digest("session", namespace, session_id),
        directory_key=as_owner,
    )


@lru_cache(maxsize=8_192)
def _user(namespace: str, user_id: str) -> Owner:
    return Owner(namespace, user_id, _digest("user-owner", namespace, user_id))


@lru_cache(maxsize=4_096)
def shared_scope_key(namespace: str, shared_scope: str) -> UUID:
    """The ``shard_key`` of a shared scope's rows in a namespace; both names must have been checked."""
    return _digest("shared-scope", namespace, shared_scope)


@lru_cache(maxsize=4_096)
def item_store_key(namespace: str) -> UUID:
    """The ``shard_key`` of a namespace's items; raises InvalidMessageError if its name is not valid."""
    return _digest("item-store", check_name("namespace", namespace))


@lru_cache(maxsize=4_096)
def adapter_items_key(namespace: str, adapter: str) -> UUID:
    """The ``shard_key`` of an adapter's own data in a namespace; raises as ``item_store_key``."""
    return _digest("adapter-items", adapter, check_name("namespace", namespace))


def kept_request_key(namespace: str, route: str, idempotency_key: str) -> UUID:
    """Names a request whose response is kept, among those of its owner."""
    return _digest("kept-request", namespace, route, idempotency_key)


@lru_cache(maxsize=4_096)
def audit_chain_key(namespace: str) -> UUID:
    """The ``shard_key`` of a namespace's audit trail; raises as ``item_store_key``."""
    return _digest("audit-chain", check_name("namespace", namespace))


@lru_cache(maxsize=4096)
def key_text(key: UUID) -> str:
    """A key as text, cached: a session's keys come with each of its messages."""
    return str(key)


def forget_names() -> None:
    """Empty the caches of names: some may be of erased users."""
    for cached in (_session, _user, shared_scope_key):
        cached.cache_clear()


def check_name(field: str, value: object) -> str:
    """Return ``value`` if it is a valid name; else raise InvalidMessageError naming ``field``.

    A name is 1 to 512 bytes in UTF-8.  It holds no control character, and neither begins nor ends with a
    blank: headers, forms and command lines drop these, so that one user would have two names.  Two names are
    the same if their bytes are; Unicode's ways to write one letter are not taken for one another.
    """
    if (
        type(value) is str
        and 0 < len(value) <= MAX_NAME_BYTES
        and value.isascii()
        and value.isprintable()
        and value.strip() == value
    ):
        return value
    name = check_id(field, value)
    _check_characters(field, name)
    return name


def check_id(field: str, value: object, *, is_of_call: bool = False) -> str:
    """Return ``value`` if it can be the id of a message or a call, which models and frameworks choose.

    It is of any characters that Postgres stores, and has 1 to 512 bytes in UTF-8; that of a call may be
    longer, since some models write their thoughts into it.

    Raises:
        InvalidMessageError: it is not; the error names ``field``.
    """
    if not isinstance(value, str):
        raise InvalidMessageError(field, f"must be a string, not {type(value).__name__}")
    value = plain_text(value)
    if not value:
        raise InvalidMessageError(field, "is empty; give a name that never changes for the same thing")
    check_text(field, value)
    if not is_of_call and len(value.encode()) > MAX_NAME_BYTES:
        raise InvalidMessageError(field, f"is longer than {MAX_NAME_BYTES} bytes; use a shorter name")
    return value


def call_reference(call_id: str) -> str:
    """The key that matches calls and results: the call's id, or a long id's digest."""
    whole = call_id.encode()
    return (
        call_id if len(whole) <= MAX_NAME_BYTES else f"blake2b:{blake2b(whole, digest_size=32).hexdigest()}"
    )


def _check_characters(field: str, name: str) -> None:
    if any(category(character) == "Cc" for character in name):
        raise InvalidMessageError(field, "must not hold control characters, such as line breaks; remove them")
    if _is_blank(name[0]) or (_is_blank(name[-1]) and name[-1] not in _ENDS_OF_EMOJI):
        raise InvalidMessageError(field, _BLANK_EDGE)


def _is_blank(character: str) -> bool:
    return character.isspace() or is_hidden(character) or character == "\u2800"  # of Braille


def check_user_id(user_id: object) -> str:
    """Return the id of a user; raise InvalidMessageError for an invalid name or another thing's."""
    name = check_name("user_id", user_id)
    if name == NO_USER or name.lower().startswith((KEY_ACTOR_PREFIX, COMMAND_ACTOR_PREFIX)):
        raise InvalidMessageError(
            "user_id",
            f"must name a user; {NO_USER} says that a session has none, and {KEY_ACTOR_PREFIX} and"
            f" {COMMAND_ACTOR_PREFIX} begin the names of keys and commands in the audit trail",
        )
    return name


def check_tenant(namespace: object) -> str:
    """Return the namespace of a tenant; raise InvalidMessageError for an invalid name or that for all
    tenants.
    """
    name = check_name("namespace", namespace)
    if name == ALL_NAMESPACES:
        raise InvalidMessageError("namespace", f"must name one; {ALL_NAMESPACES} stands for all of them")
    return name


def _digest(*parts: str) -> UUID:
    hasher = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(4, "big"))
        hasher.update(encoded)
    return UUID(bytes=hasher.digest())
