"""Messages: one chat turn in OpenAI chat format, as a value, and how it is stored.

Callers pass and receive a ``Message``; ``producers.writing.validate`` turns one into the form for a put.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NoReturn, Protocol, get_args

from strandline.schemas.display.local_time import at_offset, in_zone
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import InvalidMessageError, StrandlineError
from strandline.schemas.values.content_parts import (
    MIN_PAYLOAD_CHARACTERS,
    part_text,
    spoken_text,
    without_payloads,
)
from strandline.schemas.values.foreign_values import is_empty, unreadable
from strandline.schemas.values.forms.openai import openai_messages
from strandline.schemas.values.forms.tool_calls import ids_in, own_halves, own_ids, tool_parts, update_form
from strandline.schemas.values.normal_form import folded

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)
HEAD_ROLES = ("system", "developer")
# In place of a message that a deleted fact came from: nothing is derived from it.
DELETED_CONTENT = "[deleted]"

# How an agent's run ended, whose messages a session keeps.
RunStatus = Literal["pending", "running", "paused", "completed", "cancelled", "error"]
RUN_STATUSES: tuple[str, ...] = get_args(RunStatus)

Content = str | Sequence[Mapping[str, Any]] | None


class ReadOnlyDict(dict[str, Any]):
    """A dict that cannot be changed, so that several readers can share it.

    It behaves like a dict when read, compared or written as JSON; its copies and pickles are plain dicts.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("This value is shared and cannot be changed; change a copy: dict(…)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


NOTHING = ReadOnlyDict()

_ROLE_NAMES = frozenset({*ROLES, "function"})

OWN_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata", "created_at", "seq", "tokens"}
)


def speaker_name(name: str, role: str) -> str:
    """The name of the speaker, as a prompt shows it: followed by the role if it reads like another role."""
    letters = "".join(filter(str.isalnum, folded(name)))
    return f"{name} ({role})" if letters in _ROLE_NAMES - {role} else name


def speaker_of_line(name: str | None, role: str) -> str:
    """The speaker before the first colon of a line of text, which no name may move or break."""
    speaker = speaker_name(name, role) if name else role
    return " ".join(speaker.split()).replace(":", "\ua789")


@dataclass(frozen=True, slots=True, eq=True)
class Message:
    """One chat turn.

    Attributes:
        role: ``system``, ``developer``, ``user``, ``assistant`` or ``tool``.
        content: text, or OpenAI content parts (mappings with a ``type``); None with tool calls.
        id: unique in its session; the library makes one if it is absent. It makes a put repeatable.
        name: who speaks, beyond the role.
        tool_calls: an assistant's calls, as OpenAI spells them.
        tool_call_id: for ``tool`` messages, the call that this answers.
        metadata: any JSON object; never sent to a model.
        created_at: time of the message, with a time zone; default: when it is accepted.  Its offset from UTC
            is kept, in minutes: days such as "tomorrow" are those of its speaker.
        seq: its number in the session, set once stored (1, 2, …; never used twice).
        tokens: its size as stored, in tokens of the session's tokenizer.
        extra: further OpenAI fields (``refusal``, ``reasoning_content``, …), kept and given back by reads.
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

    @property
    def shown_text(self) -> str:
        """The text as memory shows and derives from it: a mark such as ``[picture]`` replaces other content.

        A part's name, caption or transcript follows its mark; data in base64 is left out.
        """
        if isinstance(self.content, str) and not self.extra:
            is_short = len(self.content) < MIN_PAYLOAD_CHARACTERS
            return self.content if is_short else without_payloads(self.content)
        parts = [self.content] if isinstance(self.content, str) else map(part_text, self.content or ())
        return without_payloads("\n".join(text for text in (*parts, spoken_text(self.extra)) if text))

    @property
    def calls(self) -> tuple[str, ...]:
        """The ids of the tool calls that it makes, and of questions for approval, in any provider's form."""
        if self.role != "assistant":
            return ()
        listed = [str(call.get("id")) for call in self.tool_calls or ()]
        in_parts = ids_in(self.content, results=False) + own_ids(self.content, results=False)
        return tuple(dict.fromkeys(listed + in_parts))

    @property
    def answers(self) -> tuple[str, ...]:
        """The ids of the tool calls whose results it holds, or of approvals, in any provider's form."""
        named = [] if self.tool_call_id is None else [self.tool_call_id]
        in_parts = ids_in(self.content, results=True) + own_ids(self.content, results=True)
        return tuple(dict.fromkeys(named + in_parts))

    @property
    def is_new_turn(self) -> bool:
        """Whether a person speaks: a user's message may also hold results."""
        return self.role == "user" and not self.answers

    @property
    def is_more_than_results(self) -> bool:
        """Whether it is a user's message that holds results, and more."""
        if self.role != "user" or not self.answers:
            return False
        pairs = zip(tool_parts(self.content), own_halves(self.content), strict=True)
        return any(one is None and half is None for (_, one), (_, half) in pairs)

    def to_openai(self, also: Collection[str] = ()) -> dict[str, Any]:
        """The message as OpenAI's chat API takes it: no field or part that its reference lacks.

        Several results in one message are several messages there: this is the first, and
        ``MemoryContext.to_openai`` gives all.

        Args:
            also: names of further fields and types of parts to give, for another server of the same protocol,
                such as ``reasoning_content`` or ``video_url``.
        """
        return self.openai_forms(also)[0]

    def openai_forms(self, also: Collection[str] = ()) -> list[dict[str, Any]]:
        """All messages of OpenAI's chat API that it is, as ``to_openai``."""
        is_plain = type(self.content) is str and self.role != "tool"
        if is_plain and not (self.name or self.tool_calls or self.extra):
            return [{"role": self.role, "content": self.content}]  # as most are
        return openai_messages(self.to_dict(), also)

    def to_dict(self) -> dict[str, Any]:
        """The message in OpenAI's spelling, for ``from_openai``: all but id, metadata, seq and time."""
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
            InvalidMessageError: it is neither, or ``created_at`` cannot be read.
        """
        if isinstance(source, cls):
            return source
        try:
            return cls._read(_mapping(source, where), where)
        except (StrandlineError, MemoryError):
            raise
        except Exception as error:  # the edge to foreign code: the caller's classes
            raise unreadable(where, error) from error

    @classmethod
    def _read(cls, fields: Mapping[str, Any], where: str) -> Message:
        if "role" not in fields:
            raise InvalidMessageError(f"{where}.role", f"is missing; use one of {', '.join(ROLES)}")
        if len(fields) == 2 and "content" in fields and fields["role"] != "function":  # as most are
            return cls(fields["role"], fields["content"])
        fields = update_form(fields)
        return cls(
            role=fields["role"],
            content=fields.get("content"),
            id=fields.get("id"),
            name=fields.get("name"),
            tool_calls=None if is_empty(fields.get("tool_calls")) else fields["tool_calls"],
            tool_call_id=fields.get("tool_call_id"),
            metadata={} if fields.get("metadata") is None else fields["metadata"],
            created_at=_read_time(f"{where}.created_at", fields.get("created_at")),
            extra={
                key: value
                for key, value in fields.items()
                if key not in OWN_KEYS and (isinstance(value, str) or not is_empty(value))
            },
        )


# In the metadata of a message that a read shows otherwise than it is stored.
SHOWN = "strandline_shown"


def shown_with(message: Message, **fields: Any) -> Message:
    """A message with other fields, which a read shows; put back, it does not conflict with the stored one."""
    return replace(message, metadata={**message.metadata, SHOWN: True}, **fields)


def is_unchangeable(message: Message) -> bool:
    """Whether who gets the message can change nothing in it, so that it may be shared."""
    if not (message.content is None or isinstance(message.content, str)) or message.tool_calls:
        return False
    if message.metadata is NOTHING and message.extra is NOTHING:
        return True  # as with most
    values = (*message.metadata.values(), *message.extra.values())
    return all(isinstance(value, _SCALARS) for value in values)


class StoredMessage(Protocol):
    """A row that holds a message: envelope and metadata as JSON, the role as the put checked it."""

    @property
    def seq(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def envelope(self) -> str: ...
    @property
    def metadata(self) -> str | None: ...


def read_rows(rows: Sequence[StoredMessage]) -> list[Message]:
    """The messages that stored rows hold (the inverse of ``prepare``).

    Their envelopes are decoded together: decoding them one by one takes three times as long.
    """
    bodies: list[dict[str, Any]] = json.loads(f"[{','.join([row.envelope for row in rows])}]")
    messages: list[Message] = []
    for row, body in zip(rows, bodies, strict=True):
        if len(body) > 1 or row.metadata is not None:
            messages.append(_read_whole(row, body))
            continue
        # Content alone, as in most messages. The constructor of a frozen dataclass takes five times as long.
        message: Any = _Unfrozen()
        message.role = row.role
        message.content = body["content"]
        message.id = row.id
        message.name = message.tool_calls = message.tool_call_id = None
        message.metadata = message.extra = NOTHING
        message.created_at = row.created_at
        message.seq = row.seq
        message.tokens = row.tokens
        message.__class__ = Message
        messages.append(message)
    return messages


class _Unfrozen:
    """Becomes a ``Message`` once its fields are set."""

    __slots__ = Message.__slots__


def by_local_clock(message: Message, time_zone: str | None) -> Message:
    """The message with its time by its speaker's clock: at its own offset, else in the zone (None: UTC)."""
    at = message.created_at
    local = at if at is None else in_zone(at, time_zone)
    return message if local is at else replace(message, created_at=local)


def _read_whole(row: StoredMessage, body: dict[str, Any]) -> Message:
    return Message(
        role=row.role,  # type: ignore[arg-type]
        content=body.get("content"),
        id=row.id,
        name=body.get("name"),
        tool_calls=body.get("tool_calls"),
        tool_call_id=body.get("tool_call_id"),
        metadata=NOTHING if row.metadata is None else ReadOnlyDict(json.loads(row.metadata)),
        created_at=at_offset(row.created_at, body["offset"]) if "offset" in body else row.created_at,
        seq=row.seq,
        tokens=row.tokens,
        extra=ReadOnlyDict(body["extra"]) if "extra" in body else NOTHING,
    )


def _mapping(source: object, where: str) -> Mapping[str, Any]:
    if isinstance(source, (dict, Mapping)):  # the abstract class takes longer to ask
        return source
    dump = getattr(source, "model_dump", None)
    if not callable(dump):
        raise InvalidMessageError(
            where,
            "must be a Message or an OpenAI chat dict with 'role' and 'content',"
            f" not {type(source).__name__}",
        )
    dumped = dump(exclude_none=True)
    if not isinstance(dumped, Mapping):
        raise InvalidMessageError(where, f"gave {type(dumped).__name__} as its model_dump(), not a mapping")
    return dumped


def _read_time(path: str, value: object) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    raise InvalidMessageError(path, "must be a datetime or ISO 8601 text, such as 2026-01-31T12:00:00+00:00")


_SCALARS = (str, int, float, bool, type(None))
_LEAVES = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """The same JSON value in plain dicts and lists, whatever mappings and sequences it came in.

    Raises:
        TypeError: a key is not a string, which JSON would quietly make it.
    """
    kind = type(value)
    if kind in _LEAVES or isinstance(value, str):  # most are, and the abstract classes below take long to ask
        return value
    if kind is dict or isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if kind is list or (isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray))):
        return [plain(item) for item in value]
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {quote(key)} is not a string")
    return key
