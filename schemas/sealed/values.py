"""Single values sealed and opened, as the marks of their statement say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, TypeVar
from uuid import UUID

from strandline.schemas.sealing.marks import Mark
from strandline.schemas.sealing.owner_keys import DIGEST_BYTES, OwnerKeys
from strandline.schemas.sealing.tokens import escape, escape_bytes, escape_json
from strandline.schemas.values.normal_form import fingerprint

Q = TypeVar("Q", str, bytes)
# A tombstone's traces, by which it recognises a wording.
TRACE = "trace"
_WORDS = ("lexemes", "names", "numbers", "denied")


def seal_values(mark: Mark, values: Sequence[Any], keys: OwnerKeys | None) -> Any:
    """The value of a marked parameter as it is sent; ``keys`` is None where nothing is sealed."""
    value = values[mark.place]
    if value is None:
        return None
    if mark.form == "transition":
        return value if keys is not None and not keys.is_settled else None
    if mark.form == "query":
        return query_words(value, keys)
    if mark.form == "hex":
        return query_hex(value, keys)
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
        case "bytes":
            return keys.seal_bytes(value, mark.kind)
        case "word":
            return keys.word(value)
        case "tsvector":
            return keyed_tsvector(keys, value)
        case "array":
            return keyed_array(keys, value)
        case "digest":
            return keys.digest(value)
        case "label":
            return keyed_label(keys, bound, value)
        case "traces":
            return seal_traces(keys, value)
        case "within":
            return change_within(value, mark.kind, _sealer(keys))
        case _:
            raise ValueError(f"a parameter cannot be sealed as {mark.form!r}")


def _in_clear(mark: Mark, value: Any) -> Any:
    if mark.form in ("text", "name"):
        return escape(value)
    if mark.form == "json":
        return escape_json(value)
    if mark.form == "bytes":
        return escape_bytes(value)
    if mark.form == "within":
        return change_within(value, mark.kind, _escape_within)
    return value


def query_words(words: Sequence[Q], keys: OwnerKeys | None) -> list[Q]:
    """Words or digests to look for among an owner's: keyed, and in clear as well while some rows may be."""
    if keys is None:
        return list(words)
    keyed: list[Any] = [keys.digest(one) if isinstance(one, bytes) else keys.word(one) for one in words]
    return keyed if keys.is_settled else keyed + list(words)


def query_hex(digests: Sequence[str], keys: OwnerKeys | None) -> list[str]:
    """The same of digests as hexadecimal digits."""
    return [digest.hex() for digest in query_words([bytes.fromhex(one) for one in digests], keys)]


def keyed_hex(keys: OwnerKeys, digest: str) -> str:
    """The keyed form of a digest, both as hexadecimal digits."""
    return keys.digest(bytes.fromhex(digest)).hex()


def seal_traces(keys: OwnerKeys, text: str) -> str:
    """A tombstone's traces as stored: SQL compares the keyed fingerprint.

    The source and the words are sealed; sealed ones are sealed again.
    """
    traces = json.loads(open_traces(keys, text))
    return json.dumps([_seal_trace(keys, trace) for trace in traces])


def _seal_trace(keys: OwnerKeys, trace: dict[str, Any]) -> dict[str, Any]:
    sealed = {
        **trace,
        "fingerprint": keyed_hex(keys, trace["fingerprint"]),
        "of": keys.seal(trace["fingerprint"], TRACE),
    }
    sealed |= {name: keys.seal(json.dumps(trace[name]), TRACE) for name in _WORDS if name in trace}
    # By which SQL finds it.
    return sealed | {"words": [keys.word(word) for word in trace.get("lexemes", ())]}


def open_traces(keys: OwnerKeys, text: str) -> str:
    """Traces as they were before they were sealed; those of wordings come with their texts."""
    return json.dumps([_open_trace(keys, trace) for trace in json.loads(text)])


def _open_trace(keys: OwnerKeys, trace: dict[str, Any]) -> dict[str, Any]:
    trace = dict(trace)
    if "of" in trace:
        trace["fingerprint"] = keys.open(trace.pop("of"), TRACE)
    trace.pop("words", None)
    for name in _WORDS:
        if isinstance(trace.get(name), str):
            trace[name] = json.loads(keys.open(trace[name], TRACE))
    for name in ("text", "own_text"):
        if trace.get(name) is not None:
            trace[name] = keys.open(trace[name], "fact")
    if trace.get("said_by") is not None:
        trace["said_by"] = keys.open_name(trace["said_by"], "said_by")
    return trace


# A lexeme as ``to_tsvector_text`` quotes it, and an item of an array as ``Voice.speaker`` does.
_LEXEME = re.compile(r"'((?:[^'\\]|''|\\\\)*)'")
_ESCAPED = re.compile(r"\\(.)")
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"')


def keyed_tsvector(keys: OwnerKeys, text: str) -> str:
    """The literal of a text to search, with its words keyed; a word that is keyed already stays."""
    return _LEXEME.sub(lambda match: f"'{keyed_word(keys, _unquoted(match[1]))}'", text)


def keyed_array(keys: OwnerKeys, text: str) -> str:
    """The literal of an array of words, with these keyed."""

    def key(match: re.Match[str]) -> str:
        word = _ESCAPED.sub(r"\1", match[1])
        return f'"{keyed_word(keys, word)}"'

    return _ITEM.sub(key, text)


def _unquoted(lexeme: str) -> str:
    return lexeme.replace("''", "'").replace("\\\\", "\\")


def keyed_word(keys: OwnerKeys, word: str) -> str:
    """The keyed form of a word that is stored, which may be keyed already."""
    return word if keys.is_word(word) else keys.word(word)


def keyed_label(keys: OwnerKeys, session_key: UUID, label: int) -> int:
    """The keyed form of a label of metadata, which holds a number of its session (``values/labels.py``)."""
    number = int.from_bytes(session_key.bytes[8:], "big", signed=True)
    if label == number:
        return label  # of an important message: retention's statements compare it, and it says nothing else
    return keys.number_of(label ^ number) ^ number


def open_column(mark: Mark, columns: Sequence[Sequence[Any]], keys: OwnerKeys) -> list[Any]:
    """The values of a marked column, in all rows, as they were before they were sealed.

    Raises:
        SealedContentError: one cannot be opened.
    """
    values = columns[mark.place]
    if mark.form in ("text", "json"):
        bounds: Iterable[str] = repeat("") if mark.bound is None else columns[mark.bound]
        if any(type(value) is list for value in values):  # an array, in each row
            return [
                None if value is None else keys.open_all(value, mark.kind, repeat(bound))
                for value, bound in zip(values, bounds, strict=False)
            ]
        return keys.open_all(values, mark.kind, bounds)
    bounds = repeat("") if mark.bound is None else columns[mark.bound]
    return [
        None if value is None else _open_value(mark, value, bound, keys)
        for value, bound in zip(values, bounds, strict=False)
    ]


def _open_value(mark: Mark, value: Any, bound: Any, keys: OwnerKeys) -> Any:
    match mark.form:
        case "within":
            return change_within(value, mark.kind, _opener(keys)) if '"sealed:' in value else value
        case "bytes":
            return keys.open_bytes(value, mark.kind)
        case "traces":
            return open_traces(keys, value)
        case "fingerprint":
            return _open_fingerprint(keys, value, bound)
        case "name":
            names = [value] if isinstance(value, str) else value
            opened = [None if name is None else keys.open_name(name, mark.kind) for name in names]
            return opened[0] if isinstance(value, str) else opened
        case _:
            raise ValueError(f"a column cannot be opened as {mark.form!r}")


def _open_fingerprint(keys: OwnerKeys, stored: bytes, text: str) -> bytes:
    if len(stored) != 1 + DIGEST_BYTES:
        return stored
    unkeyed = fingerprint(keys.open(text, "fact"))
    return unkeyed if keys.digest(unkeyed) == stored else stored


Change = Callable[[str, str, Any], Any]
"""From the form, the kind and a value within JSON to its new value."""


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


def reseal_within(keys: OwnerKeys, text: str, paths: str) -> str:
    """JSON that is stored, in clear or sealed at these paths, sealed with the newest data key."""
    return change_within(change_within(text, paths, _opener(keys)), paths, _sealer(keys))


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
