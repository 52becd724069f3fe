"""Makes the messages of other libraries storable, so that no turn is lost.

The log refuses values that Postgres or JSON cannot hold, since its caller can mend them.  An adapter's tool
has run, and the model has answered: here such values are replaced or cut, named in the message's metadata
under ``MARK``, and logged once.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from hashlib import blake2b
from math import isfinite
from typing import Any, TypeVar

from strandline.producers.writing.validate import PutLimits
from strandline.schemas.values.content_parts import is_part, is_payload, kind_of, part_text
from strandline.schemas.values.foreign_values import plain_number, plain_text
from strandline.schemas.values.identity import MAX_NAME_BYTES
from strandline.schemas.values.message import Content, Message
from strandline.schemas.values.nesting import MAX_NESTING_LEVELS

T = TypeVar("T")

logger = logging.getLogger("strandline.adapters")

# The field of metadata that lists changes: "characters" that cannot be stored, a "value" that JSON lacks, a
# "name" or an id that is too long, "nesting" that is too deep, and "size".
MARK = "strandline_changed"

MAX_VALUES = 100_000
MAX_CALL_ID_BYTES = 65_536
# Readers of JSON refuse numbers of thousands of digits.
_MAX_INTEGER_BITS = 1_024
_MIN_CUT_CHARACTERS = 64
# A put takes up to a thousand messages.
MESSAGES_PER_PUT = 500
_WHOLE = ("id", "name", "tool_call_id")

_logged_kinds: set[str] = set()


class Encoder:
    """Encodes the values of one message; ``changed`` has the kinds of changes that this took."""

    def __init__(self, *changed: str) -> None:
        self.changed = set(changed)
        self._values_left = MAX_VALUES

    def value(self, value: object, level: int = 0) -> Any:
        """A value as JSON that can be stored; ``level`` is how deep it is to stand."""
        try:
            return self._value(value, level)
        except Exception:  # noqa: BLE001  # the edge to foreign code: the classes of a library or a tool
            return self._note("value", f"[{type(value).__name__}]")

    def text(self, text: object) -> str:
        """A text without NUL and lone surrogates."""
        plain = plain_text(text if isinstance(text, str) else str(text))
        stored = plain.replace("\0", "\ufffd")
        if not stored.isascii():
            stored = stored.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return stored if stored == plain else self._note("characters", stored)

    def json(self, value: object) -> str:
        """A value as the text of its JSON, the same for objects that differ in the order of their keys."""
        return json.dumps(self.value(value), ensure_ascii=False, sort_keys=True)

    def message(self, message: Message) -> Message:
        """The message with each of its fields in a form that can be stored."""
        calls = [self._call(call) for call in message.tool_calls or ()]
        return replace(
            message,
            content=self._content(message.content),
            id=None if message.id is None else self._name(message.id, MAX_NAME_BYTES),
            name=None if message.name is None else self._name(message.name, MAX_NAME_BYTES),
            tool_calls=calls or None,
            tool_call_id=self._name(message.tool_call_id, MAX_CALL_ID_BYTES)
            if message.role == "tool"
            else None,
            metadata=self.value(message.metadata, 1),
            extra=self.value(message.extra, 1),
        )

    def marked(self, message: Message) -> Message:
        """The message with a mark of its changes, if any."""
        changed = sorted(self.changed.union(message.metadata.get(MARK, ())))
        return replace(message, metadata={**message.metadata, MARK: changed}) if changed else message

    def _note(self, kind: str, value: Any) -> Any:
        self.changed.add(kind)
        return value

    def _value(self, value: object, level: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Enum):
            return self._value(value.value, level)
        if isinstance(value, (int, float)):
            is_json = isfinite(value) if isinstance(value, float) else value.bit_length() <= _MAX_INTEGER_BITS
            return plain_number(value) if is_json else self._note("value", None)
        if isinstance(value, (bytes, bytearray)):
            return self._note("value", b64encode(value).decode())
        inner = _values_in(value)
        if inner is None:
            iso = getattr(value, "isoformat", None)
            return self._note("value", self.text(iso() if callable(iso) else value))
        if level >= MAX_NESTING_LEVELS or self._values_left < 0:
            return self._note("nesting", f"[{type(value).__name__}]")
        self._values_left -= len(inner)
        if isinstance(inner, Mapping):
            if not all(isinstance(key, str) for key in inner):
                self._note("value", None)
            return {self.text(key): self.value(item, level + 1) for key, item in inner.items()}
        return [self.value(item, level + 1) for item in inner]

    def _content(self, content: object) -> Content:
        if content is None or isinstance(content, str):
            return None if content is None else self.text(content)
        parts = self.value(content, 1)
        return parts if isinstance(parts, list) and all(map(is_part, parts)) else self.json(content)

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        named = call.get("function")
        function: Mapping[str, Any] = named if isinstance(named, Mapping) else {}
        arguments = function.get("arguments", "")
        text = arguments if isinstance(arguments, str) else self.json(arguments)
        own = self.value({**call, "function": {**function, "arguments": text}}, 1)
        own["function"]["name"] = str(own["function"].get("name") or "")
        return {**own, "id": self._name(call.get("id"), MAX_CALL_ID_BYTES)}

    def _name(self, name: object, max_bytes: int) -> str:
        """A name or an id, a long one cut and ended with a digest, so that equal ones stay equal."""
        text = self.text(name)
        if len(whole := text.encode()) <= max_bytes:
            return text
        digest = blake2b(whole, digest_size=16).hexdigest()
        self.changed.add("name")
        return f"{whole[: max_bytes // 2].decode(errors='ignore')}…{digest}"


def parts_of(messages: Sequence[T]) -> Iterator[Sequence[T]]:
    """The messages, as many at once as are put."""
    for start in range(0, len(messages), MESSAGES_PER_PUT):
        yield messages[start : start + MESSAGES_PER_PUT]


def storable(messages: Iterable[Message], limits: PutLimits) -> list[Message]:
    """Messages of a library as a put takes them: oversized parts are cut, head and tail kept."""
    fitting = [_fit(message, limits) for message in messages]
    for kind in {kind for message in fitting for kind in message.metadata.get(MARK, ())} - _logged_kinds:
        _logged_kinds.add(kind)
        logger.warning(
            "messages of a library were changed to be stored; their metadata says which",
            extra={"action": "messages_changed", "kind": kind, "field": MARK},
        )
    return fitting


def _fit(message: Message, limits: PutLimits) -> Message:
    if _size(_body(message)) > limits.max_content_bytes:
        message = Encoder("size").marked(_shrink_message(message, limits.max_content_bytes))
    if _size(message.metadata) > limits.max_metadata_bytes:
        mark = {MARK: message.metadata.get(MARK, ["size"])}
        message = replace(message, metadata=mark if _size(mark) <= limits.max_metadata_bytes else {})
    return message


def _shrink_message(message: Message, max_bytes: int) -> Message:
    most = max_bytes // 2
    body = shrunk = _body(message)
    while _size(shrunk) > max_bytes and most >= _MIN_CUT_CHARACTERS:
        shrunk, most = _shrink(body, most), most // 2
    if _size(shrunk) > max_bytes:
        text = json.dumps(body["content"], ensure_ascii=False)
        shrunk = {**shrunk, "content": _cut(text, max_bytes // 8), "extra": {}}
    return replace(message, **shrunk)


def _shrink(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _cut(value, most)
    if isinstance(value, list):
        return [_shrink(item, most) for item in value]
    if not isinstance(value, Mapping):
        return value
    if is_part(value) and kind_of(value) and _size(value) > most:
        return {"type": "text", "text": f"{part_text(value)}\n[too large to be stored]"}
    shrunk = {key: item if key in _WHOLE else _shrink(item, most) for key, item in value.items()}
    if "arguments" in value and shrunk["arguments"] != value["arguments"]:
        # They stay JSON, since providers read them.
        shrunk["arguments"] = json.dumps(
            {"cut": _cut(str(value["arguments"]), most // 2)}, ensure_ascii=False
        )
    return shrunk


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head, tail = ("", "") if is_payload(text) else (text[: most * 2 // 3], text[-(most // 3) :])
    return f"{head}\n[… {len(text) - len(head) - len(tail):,} characters left out …]\n{tail}"


def _body(message: Message) -> dict[str, Any]:
    body = {name: getattr(message, name) for name in ("name", "tool_calls", "tool_call_id", "extra")}
    return {"content": message.content, **{name: value for name, value in body.items() if value}}


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _values_in(value: object) -> Mapping[Any, Any] | list[Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    if callable(dump):
        dumped = dump()
        return dumped if isinstance(dumped, Mapping) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return None
