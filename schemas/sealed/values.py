"""Single values sealed and opened, as the marks of their statement say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from strandline.schemas.sealing.marks import Mark
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.sealing.tokens import escape, escape_json


def seal_values(mark: Mark, values: Sequence[Any], keys: OwnerKeys | None) -> Any:
    """The value of a marked parameter as it is sent; ``keys`` is None where nothing is sealed."""
    value = values[mark.place]
    if value is None:
        return None
    if mark.form == "transition":
        return value if keys is not None and not keys.is_settled else None
    bound = "" if mark.bound is None else values[mark.bound]
    if isinstance(value, list):
        bounds = bound if isinstance(bound, list) else [bound] * len(value)
        return [
            None if item is None else _seal(mark, item, beside, keys)
            for item, beside in zip(value, bounds, strict=True)
        ]
    return _seal(mark, value, bound, keys)


def _seal(mark: Mark, value: Any, bound: Any, keys: OwnerKeys | None) -> Any:
    if keys is None:
        return _in_clear(mark, value)
    match mark.form:
        case "text":
            return keys.seal(value, mark.kind, bound)
        case "json":
            return keys.seal_json(value, mark.kind, bound)
        case "name":
            return keys.seal_name(value, mark.kind)
        case "word":
            return keys.word(value)
        case "digest":
            return keys.digest(value)
        case "label":
            return keyed_label(keys, bound, value)
        case "within":
            return change_within(value, mark.kind, _sealer(keys))
        case _:
            raise ValueError(f"a parameter cannot be sealed as {mark.form!r}")


def _in_clear(mark: Mark, value: Any) -> Any:
    if mark.form in ("text", "name"):
        return escape(value)
    if mark.form == "json":
        return escape_json(value)
    if mark.form == "within":
        return change_within(value, mark.kind, _escape_within)
    return value


def keyed_label(keys: OwnerKeys, session_key: UUID, label: int) -> int:
    """The keyed form of a label of metadata, which holds a number of its session (``values/labels.py``)."""
    number = int.from_bytes(session_key.bytes[8:], "big", signed=True)
    if label == number:
        return label  # of an important message: retention's statements compare it, and it says nothing else
    return keys.number_of(label ^ number) ^ number


def open_value(mark: Mark, row: Sequence[Any], keys: OwnerKeys) -> Any:
    """The value of a marked column as it was before it was sealed.

    Raises:
        SealedContentError: it cannot be opened.
    """
    value = row[mark.place]
    if value is None:
        return None
    bound = "" if mark.bound is None else (row[mark.bound] or "")
    if mark.form == "within":
        return change_within(value, mark.kind, _opener(keys)) if '"sealed:' in value else value
    open_one = keys.open_name if mark.form == "name" else keys.open
    if isinstance(value, list):
        return [None if item is None else open_one(item, mark.kind, *_beside(mark, bound)) for item in value]
    return open_one(value, mark.kind, *_beside(mark, bound))


def _beside(mark: Mark, bound: str) -> tuple[str, ...]:
    return () if mark.form == "name" else (bound,)


Change = Callable[[str, str, Any], Any]
"""From the form, the kind and a value within JSON to what it becomes."""


def change_within(text: str, paths: str, change: Change) -> str:
    """A JSON text with some of its values changed.

    ``paths`` is ``facts.*.text=text:fact;states.*=json:state``: keys from the outside in, ``*`` for each
    item, then the form and the kind.
    """
    value = json.loads(text)
    for path in paths.split(";"):
        keys, _, how = path.partition("=")
        form, _, kind = how.partition(":")
        value = _change_at(value, keys.split("."), form, kind, change)
    return json.dumps(value, ensure_ascii=False)


def _change_at(value: Any, path: list[str], form: str, kind: str, change: Change) -> Any:
    if value is None:
        return None
    if not path or path == [""]:
        return change(form, kind, value)
    first, rest = path[0], path[1:]
    if first == "*":
        if isinstance(value, list):
            return [_change_at(item, rest, form, kind, change) for item in value]
        return {key: _change_at(item, rest, form, kind, change) for key, item in value.items()}
    return {**value, first: _change_at(value[first], rest, form, kind, change)} if first in value else value


def _sealer(keys: OwnerKeys) -> Change:
    def seal(form: str, kind: str, value: Any) -> Any:
        if form == "json":
            return keys.seal(json.dumps(value, ensure_ascii=False), kind)
        if form == "hex":
            return keys.digest(bytes.fromhex(value)).hex()
        return _seal(Mark(0, form, kind), value, "", keys)  # type: ignore[arg-type]

    return seal


def _opener(keys: OwnerKeys) -> Change:
    def open_(form: str, kind: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if form == "json":
            return json.loads(keys.open(f'"{value}"', kind)) if value.startswith("sealed:") else value
        return keys.open_name(value, kind) if form == "name" else keys.open(value, kind)

    return open_


def _escape_within(form: str, _kind: str, value: Any) -> Any:
    return escape(value) if form in ("json", "text", "name") and isinstance(value, str) else value
