"""Filters of messages by role, metadata and time, for histories and searches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from strandline.producers.arguments import check_moment
from strandline.producers.search.hits import SearchScope
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, StrandlineError
from strandline.schemas.values.foreign_values import (
    plain_int,
    plain_list,
    plain_number,
    plain_text,
    unreadable,
)
from strandline.schemas.values.labels import Scalar, comparable, label_of
from strandline.schemas.values.message import ROLES, Message
from strandline.schemas.values.stored_text import check_text

MAX_METADATA_FILTERS = 32
_MAX_DIGITS = 4_000  # more than Python writes out by default are refused by a put as well


class SearchOptions(TypedDict, total=False):
    """The arguments of a search: where it looks, and as of ``history`` which messages pass."""

    limit: int
    scope: SearchScope
    exclude_current: bool
    include_window: bool
    roles: Sequence[str] | None
    metadata: Mapping[str, Scalar] | None
    since: datetime | None
    until: datetime | None


class FilterParams(TypedDict):
    """The parameters of a statement that searches messages."""

    roles: list[str] | None
    since: datetime | None
    until: datetime | None
    labels: list[int] | None
    clear_labels: list[int] | None


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Conditions on messages, all of which must hold.

    Attributes:
        roles: the roles that pass; None: all.
        metadata: values that the message's metadata must have under the same keys.
        since, until: the first and the last time that pass, both inclusive.
    """

    roles: tuple[str, ...] | None = None
    metadata: tuple[tuple[str, Scalar], ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def check(
        cls,
        roles: Sequence[str] | None,
        metadata: Mapping[str, Scalar] | None,
        since: datetime | None,
        until: datetime | None,
    ) -> MessageFilter:
        """Check the arguments of a caller.

        Raises:
            ConfigurationError: naming the argument.
            InvalidMessageError: a key or text of ``metadata`` cannot occur in a message.
        """
        return cls(
            roles=None if roles is None else _roles(roles),
            metadata=() if metadata is None else _metadata(metadata),
            since=None if since is None else check_moment("since", since),
            until=None if until is None else check_moment("until", until),
        )

    @property
    def is_open(self) -> bool:
        """Whether every message passes."""
        return self.roles is None and not self.metadata and self.since is None and self.until is None

    @property
    def stored_roles(self) -> list[str]:
        return list(ROLES if self.roles is None else self.roles)

    def labels(self, session_key: UUID) -> list[int] | None:
        """The labels that a message must have; None if its metadata does not matter."""
        return [label_of(session_key, key, value) for key, value in self.metadata] or None

    def params(self, session_key: UUID) -> FilterParams:
        """As search statements take it, with the labels of a session."""
        labels = self.labels(session_key)
        roles = None if self.roles is None else list(self.roles)
        return {
            "roles": roles,
            "since": self.since,
            "until": self.until,
            "labels": labels,
            "clear_labels": labels,
        }

    def passes(self, message: Message) -> bool:
        """Whether the metadata itself passes: two values may, by a wide chance, have one label."""
        absent = object()
        return all(_is_equal(message.metadata.get(key, absent), value) for key, value in self.metadata)


def _is_equal(stored: object, value: Scalar) -> bool:
    if not isinstance(stored, (str, int, float, bool, type(None))):
        return False
    one, other = comparable(stored), comparable(value)
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _roles(roles: object) -> tuple[str, ...]:
    if not isinstance(roles, (list, tuple)):
        raise ConfigurationError(f"roles is {quote(roles)}; it must be a list of roles, such as ['user']")
    for role in plain_list(roles):
        if not isinstance(role, str) or plain_text(role) not in ROLES:
            raise ConfigurationError(f"roles has {quote(role)}; a role is one of {', '.join(ROLES)}")
    return tuple(dict.fromkeys(plain_text(role) for role in plain_list(roles)))


def _metadata(metadata: object) -> tuple[tuple[str, Scalar], ...]:
    if not isinstance(metadata, Mapping):
        raise ConfigurationError(
            f"metadata is {quote(metadata)}; it must be an object of keys and the values that they must have"
        )
    try:
        pairs = [(key, metadata[key]) for key in metadata]
    except (StrandlineError, MemoryError):
        raise
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("metadata", error) from error
    if len(pairs) > MAX_METADATA_FILTERS:
        raise ConfigurationError(
            f"metadata has {len(pairs):,} keys; messages are filtered by at most {MAX_METADATA_FILTERS}"
        )
    return tuple((_key(key), _scalar(key, value)) for key, value in pairs)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ConfigurationError(f"metadata has the key {quote(key)}; a key is a text")
    check_text("metadata key", key)
    return plain_text(key)


def _scalar(key: str, value: Any) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        check_text(f"metadata.{plain_text(key)}", value)
        return plain_text(value)
    if isinstance(value, int) and abs(plain_int(value)) < 10**_MAX_DIGITS:
        return plain_int(value)
    if isinstance(value, float) and math.isfinite(plain_number(value)):
        return plain_number(value)
    raise ConfigurationError(
        f"metadata.{plain_text(key)} is {quote(value)}; messages are filtered by text, numbers, true, false"
        " and null, not by lists and objects"
    )


ALL_MESSAGES = MessageFilter()
