"""Messages: one chat turn in OpenAI chat format, as a value, and how it is stored.

A ``Message`` is what callers give and get.  ``prepare`` checks one and turns it into a
``PreparedMessage``, the form that a put sends to Postgres: everything that can be refused has been
refused by then, so that a put never fails half-way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, get_args
from uuid import uuid4

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.identity import check_name
from strandline.schemas.text import check_texts_within

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)
HEAD_ROLES = ("system", "developer")

Content = str | Sequence[Mapping[str, Any]] | None

# What Postgres and Python both can hold, in whatever time zone it is shown.
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)

_OWN_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata", "created_at", "seq", "tokens"}
)


@dataclass(frozen=True, slots=True, eq=True)
class Message:
    """One chat turn.

    Attributes:
        role: ``system``, ``developer``, ``user``, ``assistant`` or ``tool``.
        content: text, or OpenAI content parts (mappings with a ``type``); None beside tool calls.
        id: unique in its session; made by the library where absent.  Makes a put repeatable.
        name: who speaks, beyond the role.
        tool_calls: an assistant's calls, as OpenAI spells them.
        tool_call_id: for ``tool`` messages, the call that this answers.
        metadata: any JSON object; never sent to a model.
        created_at: when it was said, with a time zone; default: when it is accepted.
        seq: its number in the session, set once stored (1, 2, …; never used twice).
        tokens: its size as stored, in tokens of the session's tokenizer.
        extra: further OpenAI fields (``refusal``, ``reasoning_content``, …), kept and given back.
    """

    role: Role
    content: Content = None
    id: str | None = None
    name: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] | None = None
    tool_call_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    seq: int | None = None
    tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.role}: {self.text}"

    @property
    def text(self) -> str:
        """The plain text: the content, or its text parts joined by line breaks."""
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part["text"]) for part in self.content if isinstance(part.get("text"), str))

    def to_openai(self) -> dict[str, Any]:
        """The message as OpenAI's chat API takes it: no id, metadata, seq or time."""
        message: dict[str, Any] = {"role": self.role, "content": plain(self.content)}
        for key in ("name", "tool_call_id"):
            if (value := getattr(self, key)) is not None:
                message[key] = value
        if self.tool_calls:
            message["tool_calls"] = plain(self.tool_calls)
        message.update(self.extra)
        return message

    @classmethod
    def from_openai(cls, source: object, *, where: str = "message") -> Message:
        """Read an OpenAI chat message: a dict, or an object of OpenAI's SDK (with ``model_dump``).

        ``id``, ``metadata`` and ``created_at`` (aware datetime or ISO 8601) are read where present.

        Raises:
            InvalidMessageError: not such a thing, or ``created_at`` cannot be read.
        """
        if isinstance(source, cls):
            return source
        given = _mapping(source, where)
        if "role" not in given:
            raise InvalidMessageError(f"{where}.role", f"is missing; use one of {', '.join(ROLES)}")
        return cls(
            role=given["role"],
            content=given.get("content"),
            id=given.get("id"),
            name=given.get("name"),
            tool_calls=given.get("tool_calls") or None,
            tool_call_id=given.get("tool_call_id"),
            metadata={} if given.get("metadata") is None else given["metadata"],
            created_at=_read_time(f"{where}.created_at", given.get("created_at")),
            extra={
                key: value
                for key, value in given.items()
                if key not in _OWN_KEYS and value not in (None, [], {})
            },
        )


@dataclass(frozen=True, slots=True)
class PutLimits:
    """Bounds on what one put accepts, in bytes of UTF-8 JSON, from the settings of the same names."""

    max_content_bytes: int
    max_metadata_bytes: int


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A checked message in the form a put sends: texts and digests, ready for Postgres."""

    id: str
    role: Role
    digest: bytes
    envelope: str
    metadata: str | None
    created_at: datetime | None
    calls: str | None
    answers: str | None
    source: Message


def prepare(message: Message, where: str, limits: PutLimits) -> PreparedMessage:
    """Check one message and encode it.

    Raises:
        InvalidMessageError: naming the field under ``where`` and what to do about it.
    """
    _check_role(message, where)
    _check_content(message, where)
    _check_tool_fields(message, where)
    _check_name_and_extra(message, where)
    message_id = uuid4().hex if message.id is None else check_name(f"{where}.id", message.id)
    envelope = _encode(where, "content", _envelope(message), limits.max_content_bytes)
    metadata = _encode_metadata(message, where, limits.max_metadata_bytes)
    _check_time(f"{where}.created_at", message.created_at)
    calls = [call["id"] for call in message.tool_calls or ()]
    return PreparedMessage(
        id=message_id,
        role=message.role,
        digest=_digest(message.role, envelope, metadata),
        envelope=envelope,
        metadata=metadata,
        created_at=message.created_at,
        calls=json.dumps(calls) if calls else None,
        answers=message.tool_call_id,
        source=message,
    )


def read_stored(
    *,
    seq: int,
    id: str,
    role: str,
    tokens: int,
    created_at: datetime,
    envelope: str,
    metadata: str | None,
) -> Message:
    """The message that a stored row holds (the inverse of ``prepare``)."""
    body: dict[str, Any] = json.loads(envelope)
    return Message(
        role=role,  # type: ignore[arg-type]  # the CHECK constraint message_role holds it to Role
        content=body.get("content"),
        id=id,
        name=body.get("name"),
        tool_calls=body.get("tool_calls"),
        tool_call_id=body.get("tool_call_id"),
        metadata={} if metadata is None else json.loads(metadata),
        created_at=created_at,
        seq=seq,
        tokens=tokens,
        extra=body.get("extra", {}),
    )


def _mapping(source: object, where: str) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    dump = getattr(source, "model_dump", None)
    if not callable(dump):
        raise InvalidMessageError(
            where,
            "must be a Message or an OpenAI chat dict with 'role' and 'content',"
            f" not {type(source).__name__}",
        )
    dumped: Mapping[str, Any] = dump(exclude_none=True)
    return dumped


def _check_role(message: Message, where: str) -> None:
    if message.role not in ROLES:
        raise InvalidMessageError(
            f"{where}.role", f"{message.role!r} is unknown; use one of {', '.join(ROLES)}"
        )


def _check_content(message: Message, where: str) -> None:
    content: object = message.content
    path = f"{where}.content"
    if content is None:
        if message.role == "assistant" and (message.tool_calls or message.extra):
            return
        raise InvalidMessageError(path, "is missing; give text or content parts")
    if isinstance(content, str):
        return
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise InvalidMessageError(
            path, f"must be text or a list of content parts, not {type(content).__name__}"
        )
    for index, part in enumerate(content):
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise InvalidMessageError(
                f"{path}[{index}]", "must be an object with a 'type', such as {'type': 'text'}"
            )
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise InvalidMessageError(f"{path}[{index}].text", "must be a string")


def _check_name_and_extra(message: Message, where: str) -> None:
    if message.name is not None and not isinstance(message.name, str):
        raise InvalidMessageError(f"{where}.name", f"must be a string, not {type(message.name).__name__}")
    if not isinstance(message.extra, Mapping):
        raise InvalidMessageError(f"{where}.extra", f"must be an object, not {type(message.extra).__name__}")
    if taken := sorted(_OWN_KEYS.intersection(message.extra)):
        raise InvalidMessageError(
            f"{where}.extra.{taken[0]}", f"is a field of every message; give it as {taken[0]!r} itself"
        )


def _check_tool_fields(message: Message, where: str) -> None:
    calls: object = message.tool_calls
    if calls is not None and (not isinstance(calls, Sequence) or isinstance(calls, (str, bytes, bytearray))):
        raise InvalidMessageError(f"{where}.tool_calls", f"must be a list, not {type(calls).__name__}")
    if calls and message.role != "assistant":
        raise InvalidMessageError(
            f"{where}.tool_calls", f"belong to assistant messages, not to role {message.role!r}"
        )
    for index, call in enumerate(message.tool_calls or ()):
        path = f"{where}.tool_calls[{index}]"
        if not isinstance(call, Mapping):
            raise InvalidMessageError(path, "must be an object with 'id', 'type' and 'function'")
        check_name(f"{path}.id", call.get("id"))
    if message.role == "tool":
        if message.tool_call_id is None:
            raise InvalidMessageError(
                f"{where}.tool_call_id", "is missing; a tool message names the call it answers"
            )
        check_name(f"{where}.tool_call_id", message.tool_call_id)
    elif message.tool_call_id is not None:
        raise InvalidMessageError(
            f"{where}.tool_call_id", f"belongs to tool messages, not to role {message.role!r}"
        )


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
    if not isinstance(message.metadata, Mapping):
        raise InvalidMessageError(
            f"{where}.metadata", f"must be a JSON object, not {type(message.metadata).__name__}"
        )
    if not message.metadata:
        return None
    return _encode(where, "metadata", message.metadata, max_bytes)


def _encode(where: str, name: str, given: Mapping[str, Any], max_bytes: int) -> str:
    """JSON text of ``value``: checked for what Postgres cannot store, and for its size."""
    try:
        value = plain(given)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(f"{where}.{name}", f"cannot be written as JSON: {error}") from None
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = 0
    # "\u0000" may also be six innocent characters, so the fast look only decides whether to look closely.
    if size == 0 or "\\u0000" in text:
        for key, item in value.items():
            check_texts_within(f"{where}.{key}" if name == "content" else f"{where}.{name}.{key}", item)
            check_texts_within(f"{where}.{name} key", key)
    if size > max_bytes:
        raise InvalidMessageError(
            f"{where}.{name}",
            f"is {size:,} bytes as JSON, over the limit of {max_bytes:,};"
            f" shorten it or raise STRANDLINE_MAX_{name.upper()}_BYTES",
        )
    return text


def _digest(role: str, envelope: str, metadata: str | None) -> bytes:
    hasher = blake2b(digest_size=16)
    for part in (role, envelope, metadata or ""):
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(4, "big"))
        hasher.update(encoded)
    return hasher.digest()


def _read_time(path: str, value: object) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    raise InvalidMessageError(path, "must be a datetime or ISO 8601 text, such as 2026-01-31T12:00:00+00:00")


def _check_time(path: str, value: datetime | None) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        raise InvalidMessageError(path, f"must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidMessageError(path, "has no time zone; add one, such as +00:00")
    if not _EARLIEST <= value <= _LATEST:
        raise InvalidMessageError(
            path, f"must lie between {_EARLIEST:%Y-%m-%d} and {_LATEST:%Y-%m-%d}; leave it out if unknown"
        )


def plain(value: Any) -> Any:
    """The same JSON value in plain dicts and lists, whatever mappings and sequences it came in.

    Raises:
        TypeError: a key is not a string, which JSON would quietly make it.
    """
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return [plain(item) for item in value]
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is not a string")
    return key
