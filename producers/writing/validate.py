"""Checks a message and turns it into the form that a put sends to Postgres.

Everything that can be refused is refused here, so that a put never fails half-way.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain
from json.encoder import encode_basestring as quoted
from math import isfinite
from typing import Any
from uuid import UUID

from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.blocks.render import ADDED, BEGIN, without_memory
from strandline.producers.redacting import redact_stored
from strandline.producers.tokens import PART_TOKENS, count_default, count_message
from strandline.schemas.display.field_paths import rename, values_in
from strandline.schemas.display.local_time import offset_of
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import InvalidMessageError, StrandlineError
from strandline.schemas.misspelt import name_misspelt
from strandline.schemas.sealed.values import keyed_label
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.values.acts.acting import current_acting
from strandline.schemas.values.content_parts import check_parts
from strandline.schemas.values.foreign_values import is_empty, plain_text, unreadable
from strandline.schemas.values.identity import MAX_NAME_BYTES, call_reference, check_id
from strandline.schemas.values.labels import labels_of
from strandline.schemas.values.message import (
    HEAD_ROLES,
    OWN_KEYS,
    ROLES,
    SHOWN,
    Content,
    Message,
    Role,
    plain,
)
from strandline.schemas.values.nesting import check_nesting
from strandline.schemas.values.stored_text import check_texts_within

# Asking the system takes as long as all else about an id, so it is asked for many at once.
_MANY = 128
_BYTES = 16

_ready: deque[str] = deque()
if hasattr(os, "register_at_fork"):
    # A forked child must not give out its parent's ids.
    os.register_at_fork(after_in_child=_ready.clear)


def random_id() -> str:
    """A new random id; safe for all threads."""
    try:
        return _ready.popleft()
    except IndexError:
        digits = os.urandom(_BYTES * _MANY).hex()
        ids = [digits[at : at + 2 * _BYTES] for at in range(0, len(digits), 2 * _BYTES)]
        _ready.extend(ids[1:])
        return ids[0]


_HOLDING_ADDITIONS = frozenset((*HEAD_ROLES, "tool", "user"))


def without_own_memory(message: Message, blocks: Sequence[BaseMemoryBlock] = ()) -> Message | None:
    """A message without the additions of a read; None if nothing else is left.  Memory is derived already.

    A user's message may begin with memory, and a note may stand for a result or for a first question.  A
    memory that a template of the application's own lays out is not recognised.
    """
    # An application's value of any type, checked below.
    role: object = message.role
    content: Any = message.content
    if type(role) is not str:
        role = plain_text(role) if isinstance(role, str) else None
    if message.id is None and type(message.metadata) is dict and SHOWN in message.metadata:
        return None
    if role not in _HOLDING_ADDITIONS or type(content) not in (str, list):
        return message
    if role not in HEAD_ROLES:
        first = content if type(content) is str else _first_text(content)
        if first in ADDED:
            return None
        if role != "user" or not first.startswith(BEGIN):
            return message
    names = [block.name for block in blocks]
    if type(content) is str:
        kept: Any = without_memory(content, names)
    else:
        stripped = [(part, _without_memory(part, names)) for part in content]
        kept = [new for part, new in stripped if new is part or new["text"]]
    if kept == content:
        return message
    if not kept:
        return message if role == "user" else None
    return replace(message, content=kept)


def _first_text(parts: Sequence[Any]) -> str:
    part = parts[0] if parts else None
    text = part.get("text") if type(part) is dict else None
    return text if type(text) is str else ""


def _without_memory(part: Any, names: Sequence[str]) -> Any:
    if type(part) is not dict or type(part.get("text")) is not str:
        return part
    text = without_memory(part["text"], names)
    return part if text == part["text"] else {**part, "text": text}


# The range that Postgres and Python both hold, whatever time zone shows it.
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)

# One for all: to make it takes as long as to encode a message.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


# Of which kind envelopes and metadata are, where they are sealed.
ENVELOPE, METADATA = "message", "metadata"


@dataclass(frozen=True, slots=True)
class PutLimits:
    """Bounds of one put, in bytes of UTF-8 JSON, from the settings of the same names."""

    max_content_bytes: int
    max_metadata_bytes: int


@dataclass(slots=True)
class PreparedMessage:
    """A checked message in the form a put sends: texts and digests, ready for Postgres.

    ``size`` is that of the stored JSON in clear, metadata included, in bytes. ``labels`` are of sealed
    metadata; clear metadata gives its own.

    Not frozen: with so many fields that takes a microsecond of each put.
    """

    id: str
    role: Role
    digest: bytes
    size: int
    envelope: str
    metadata: str | None
    created_at: datetime | None
    calls: str | None
    answers: str | None
    source: Message
    data_key: int = 0
    labels: list[int] | None = None
    may_be_important: bool = True

    @property
    def is_shown(self) -> bool:
        """Whether it is as a read showed it, and not as it is stored."""
        return SHOWN in self.source.metadata

    def labels_in(self, session_key: UUID) -> list[int] | None:
        if self.data_key or self.metadata is None:
            return self.labels
        return labels_of(session_key, self.metadata, may_be_important=self.may_be_important)


def prepare(message: Message, where: str, limits: PutLimits) -> PreparedMessage:
    """Check one message and encode it.

    Raises:
        InvalidMessageError: naming the field under ``where`` and what to do about it.
    """
    try:
        return _prepare(message, where, limits)
    except (StrandlineError, MemoryError):
        raise
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable(where, error) from error


@dataclass(frozen=True, slots=True)
class PutRules:
    """How a session bounds, changes and counts its messages before they are stored.

    Attributes:
        redaction: applied to each message; None: no hook.
        blocks: memory that a read with them gave is left out.
        count_text, part_tokens: as for ``count_message``.
    """

    limits: PutLimits
    redaction: Redaction | None = None
    blocks: Sequence[BaseMemoryBlock] = ()
    count_text: Callable[[str], int] = count_default
    part_tokens: Mapping[str, int] = field(default_factory=lambda: PART_TOKENS)

    def read(self, source: object, where: str) -> Message | None:
        """A message as it may be stored; None if it is memory of a read alone."""
        message = without_own_memory(Message.from_openai(source, where=where), self.blocks)
        return message if message is None or self.redaction is None else self.redact(message, where)

    def prepare(self, source: object, where: str) -> PreparedMessage | None:
        """A message as it is put; None if it is memory of a read alone."""
        message = self.read(source, where)
        return None if message is None else prepare(message, where, self.limits)

    def redact(self, message: Message, where: str) -> Message:
        """The message as redaction hooks leave it: role, id, ids of calls and time stay.

        The message is checked first, so that a hook sees only what could be stored, in plain values.

        Raises:
            InvalidMessageError: the message cannot be stored as given, or a hook refuses it.
            RedactionError: a hook failed, was late, or returned no text.
        """
        if self.redaction is None:
            return message
        prepared = prepare(message, where, self.limits)
        result = redact_stored(self.redaction, prepared.envelope, prepared.metadata, where)
        if result is None:
            return message
        body, metadata = result
        return replace(
            message,
            content=body.get("content"),
            name=body.get("name"),
            tool_calls=body.get("tool_calls"),
            metadata={**metadata, SHOWN: True} if prepared.is_shown else metadata,
            extra=body.get("extra", {}),
        )

    def redact_content(self, content: Content) -> Content:
        """Content that is to take the place of a message's; raises as ``redact``."""
        return None if content is None else self.redact(Message("user", content), "content").content

    def count(self, message: Message) -> int:
        """The tokens of a message."""
        return count_message(message, self.count_text, self.part_tokens)


def _prepare(message: Message, where: str, limits: PutLimits) -> PreparedMessage:
    _check_role(message, where)
    calls: Sequence[str] = ()
    answers: Sequence[str] = ()
    speaks_too = False
    if type(message.content) is str and _is_plain(message):
        envelope = _encode_text(where, message.content, limits.max_content_bytes)
    else:
        _check_content(message, where)
        _check_tool_fields(message, where)
        _check_name_and_extra(message, where)
        calls = [call_reference(call) for call in message.calls]
        answers = [call_reference(call) for call in message.answers]
        speaks_too = message.is_more_than_results
        envelope = _encode(where, "content", _envelope(message), limits.max_content_bytes)
    message_id = random_id() if message.id is None else check_id(f"{where}.id", message.id)
    metadata = _encode_metadata(message, where, limits.max_metadata_bytes)
    _check_time(f"{where}.created_at", message.created_at)
    digest, size = _digest(message.role, envelope, metadata)
    if message.created_at is not None and (minutes := offset_of(message.created_at)):
        # Behind the digest: as the time itself, it does not make another message of the same words.
        offset = f',"offset":{minutes}'
        envelope, size = f"{envelope[:-1]}{offset}}}", size + len(offset)
    return PreparedMessage(
        id=message_id,
        role=message.role,
        digest=digest,
        size=size,
        envelope=envelope,
        metadata=metadata,
        created_at=message.created_at,
        calls=json.dumps(calls) if calls or speaks_too else None,
        answers=json.dumps(answers) if answers else None,
        source=message,
        may_be_important=not current_acting().is_user,
    )


def _check_role(message: Message, where: str) -> None:
    if not isinstance(message.role, str) or message.role not in ROLES:
        raise InvalidMessageError(
            f"{where}.role",
            f"{quote(message.role)} is unknown; use one of {', '.join(ROLES)}",
            for_clients=InvalidMessageError.UNTOLD,
        )


def _is_plain(message: Message) -> bool:
    """Whether only its content needs checking, as with most messages."""
    return (
        message.role != "tool"
        and message.name is None
        and message.tool_calls is None
        and message.tool_call_id is None
        and isinstance(message.extra, dict)
        and not message.extra
    )


def _check_content(message: Message, where: str) -> None:
    content: object = message.content
    path = f"{where}.content"
    if content is None:
        if message.role == "assistant" and not (is_empty(message.tool_calls) and is_empty(message.extra)):
            return
        raise InvalidMessageError(path, "is missing; give text or content parts")
    if isinstance(content, str):
        return
    check_parts(content, path)


def _check_name_and_extra(message: Message, where: str) -> None:
    if message.name is not None:
        _check_speaker(f"{where}.name", message.name)
    if not isinstance(message.extra, Mapping):
        raise InvalidMessageError(f"{where}.extra", f"must be an object, not {type(message.extra).__name__}")
    if taken := sorted(OWN_KEYS.intersection(message.extra)):
        raise InvalidMessageError(
            f"{where}.extra.{taken[0]}",
            (f"is a field of every message; give it as the message's own {taken[0]!r}"),
        )
    name_misspelt(message.extra)


def _check_speaker(path: str, name: object) -> None:
    if not isinstance(name, str):
        raise InvalidMessageError(path, f"must be a string, not {type(name).__name__}")
    if len(name) > MAX_NAME_BYTES or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        raise InvalidMessageError(path, f"is longer than {MAX_NAME_BYTES} bytes; use a shorter name")


def _check_tool_fields(message: Message, where: str) -> None:
    calls: object = message.tool_calls
    if calls is not None and (not isinstance(calls, Sequence) or isinstance(calls, (str, bytes, bytearray))):
        raise InvalidMessageError(f"{where}.tool_calls", f"must be a list, not {type(calls).__name__}")
    if calls and message.role != "assistant":
        raise InvalidMessageError(
            f"{where}.tool_calls", f"belong to assistant messages, not to role {quote(message.role)}"
        )
    for index, call in enumerate(message.tool_calls or ()):
        path = f"{where}.tool_calls[{index}]"
        if not isinstance(call, Mapping):
            raise InvalidMessageError(path, "must be an object with 'id', 'type' and 'function'")
        check_id(f"{path}.id", call.get("id"), is_of_call=True)
        _check_call(call, path)
    if message.role == "tool":
        if message.tool_call_id is None:
            raise InvalidMessageError(
                f"{where}.tool_call_id", "is missing; a tool message names the call it answers"
            )
        check_id(f"{where}.tool_call_id", message.tool_call_id, is_of_call=True)
    elif message.tool_call_id is not None:
        raise InvalidMessageError(
            f"{where}.tool_call_id", f"belongs to tool messages, not to role {quote(message.role)}"
        )


def _check_call(call: Mapping[str, Any], path: str) -> None:
    kind = call.get("type", "function")
    if not isinstance(kind, str):
        raise InvalidMessageError(f"{path}.type", f"must be a string, not {type(kind).__name__}")
    if kind != "function" and isinstance(call.get(kind), Mapping):
        return
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise InvalidMessageError(
            f"{path}.function", "is missing; give an object with 'name' and 'arguments'"
        )
    if not isinstance(function.get("name"), str):
        raise InvalidMessageError(f"{path}.function.name", "is missing; give the function's name as text")


def _envelope(message: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"content": message.content}
    if message.name is not None:
        body["name"] = message.name
    if message.tool_calls:
        body["tool_calls"] = message.tool_calls
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    if message.extra:
        body["extra"] = message.extra
    return body


def _encode_metadata(message: Message, where: str, max_bytes: int) -> str | None:
    if isinstance(message.metadata, dict) and not message.metadata:
        return None
    if not isinstance(message.metadata, Mapping):
        raise InvalidMessageError(
            f"{where}.metadata", f"must be a JSON object, not {type(message.metadata).__name__}"
        )
    metadata = {key: value for key, value in message.metadata.items() if key != SHOWN}
    return _encode(where, "metadata", metadata, max_bytes) if metadata else None


def _encode(where: str, name: str, mapping: Mapping[str, Any], max_bytes: int) -> str:
    try:
        for path, item in _fields(where, name, mapping):
            check_nesting(path, item)
        value = plain(mapping)
        text = _ENCODER.encode(value)
    except (StrandlineError, MemoryError):
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(
            _unwritable(where, name, mapping),
            f"cannot be written as JSON: {error}",
            for_clients=InvalidMessageError.UNTOLD,
        ) from None
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable(f"{where}.{name}", error) from error
    return _checked(where, name, value, text, max_bytes)


def _fields(where: str, name: str, mapping: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields of an envelope, which is named for its content; or a field that is an object itself."""
    if name == "content":
        return [(f"{where}.{key}", item) for key, item in mapping.items()]
    return [(f"{where}.{name}", mapping)]


def _unwritable(where: str, name: str, mapping: Mapping[str, Any]) -> str:
    """The path of the first value that JSON lacks."""
    path = unwritable_path(_fields(where, name, mapping)) or f"{where}.{name}"
    return rename(path, f"{where}.{name}")


def unwritable_path(fields: Iterable[tuple[str, object]]) -> str | None:
    """The path of the first value in some fields that JSON lacks; None: one contains itself."""
    with suppress(RecursionError):
        values = chain.from_iterable(values_in(*field) for field in fields)
        return next((path for path, value in values if not _is_json(value)), None)
    return None


def _is_json(value: object) -> bool:
    """Whether JSON has such values; what is in it is not looked at."""
    is_number = isinstance(value, float) and isfinite(value)
    return is_number or isinstance(value, (str, int, list, tuple, Mapping, type(None)))


def _encode_text(where: str, content: str, max_bytes: int) -> str:
    """The result of ``_encode`` for content that is only text, in a third of the time."""
    return _checked(where, "content", {"content": content}, f'{{"content":{quoted(content)}}}', max_bytes)


def _checked(where: str, name: str, value: Mapping[str, Any], text: str, max_bytes: int) -> str:
    """Return ``text``, which is ``value`` as JSON; raise if Postgres cannot store it or it is too large."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = 0
    # "\u0000" may also be six innocent characters, so the fast look only decides whether to look closely.
    if size == 0 or "\\u0000" in text:
        for path, item in _fields(where, name, value):
            check_texts_within(path, item)
    if size > max_bytes:
        raise InvalidMessageError(
            f"{where}.{name}",
            f"is {size:,} bytes as JSON, over the limit of {max_bytes:,};"
            f" shorten it or raise STRANDLINE_MAX_{name.upper()}_BYTES",
        )
    return text


def _digest(role: str, envelope: str, metadata: str | None) -> tuple[bytes, int]:
    who, what, beside = role.encode(), envelope.encode(), (metadata or "").encode()
    lengths = len(who).to_bytes(4, "big"), len(what).to_bytes(4, "big"), len(beside).to_bytes(4, "big")
    whole = b"".join((lengths[0], who, lengths[1], what, lengths[2], beside))
    return blake2b(whole, digest_size=16).digest(), len(what) + len(beside)


def _check_time(path: str, value: datetime | None) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        raise InvalidMessageError(path, f"must be a datetime, not {type(value).__name__}")
    try:
        has_zone = value.utcoffset() is not None
        is_possible = has_zone and _EARLIEST <= value <= _LATEST
    except Exception as error:  # the edge to foreign code: a time zone of the caller's
        raise unreadable(path, error) from error
    if not has_zone:
        raise InvalidMessageError(path, "has no time zone; add one, such as +00:00")
    if not is_possible:
        raise InvalidMessageError(
            path, f"must lie between {_EARLIEST:%Y-%m-%d} and {_LATEST:%Y-%m-%d}; leave it out if unknown"
        )


def seal_message(message: PreparedMessage, session_key: UUID, keys: OwnerKeys) -> PreparedMessage:
    """A message as it is stored where content is sealed; each token belongs to the message's id."""
    labels = labels_of(session_key, message.metadata, may_be_important=message.may_be_important)
    return replace(
        message,
        digest=keys.digest(message.digest),
        envelope=keys.seal_json(message.envelope, ENVELOPE, message.id),
        metadata=None if message.metadata is None else keys.seal_json(message.metadata, METADATA, message.id),
        calls=_keyed(message.calls, keys),
        answers=_keyed(message.answers, keys),
        data_key=keys.number,
        labels=None if labels is None else [keyed_label(keys, session_key, label) for label in labels],
    )


def _keyed(ids: str | None, keys: OwnerKeys) -> str | None:
    return None if ids is None else json.dumps([keys.reference(one) for one in json.loads(ids)])


def seal_envelope(message: PreparedMessage, keys: OwnerKeys | None) -> str:
    """Its envelope as it is stored under the owner's keys; in clear if there are none."""
    return message.envelope if keys is None else keys.seal_json(message.envelope, ENVELOPE, message.id)
