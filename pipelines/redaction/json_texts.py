"""The texts in JSON values: found for a hook, and put back as it returns them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from strandline.schemas.foreign_json import read_json
from strandline.schemas.values.nesting import check_nesting

# Encodes what people did not write: a hook would only damage it.  By the part's type, or the key above it.
_BINARY = {
    "input_audio": "data",
    "audio": "data",
    "source": "data",
    "inline_data": "data",
    "redacted_thinking": "data",
    "file": "file_data",
    "input_file": "file_data",
    "thinking": "signature",
    "reasoning": "encrypted_content",
}
# Shorter values are visited: a number or a name may have the letters of base64.
_BASE64 = r"(?:[A-Za-z0-9+/_-]{60,76}\r?\n)*[A-Za-z0-9+/_-]{32,}={0,2}\s?"
_is_base64 = re.compile(_BASE64).fullmatch
_is_data_url = re.compile(
    r"data:[a-z]+/[\w.+-]{1,100}(?:;[a-z]+=[a-z][\w.+,-]{0,30})?;base64," + _BASE64
).fullmatch
# Names and kinds that other parts of a message refer to, or a provider knows.
_STRUCTURAL_KEYS = frozenset({"id", "type", "format", "detail", "media_type", "mime_type"})
# Their form: no sentence, no address, no number.
_is_name = re.compile(r"[A-Za-z][\w.+/-]{0,127}", re.ASCII).fullmatch
# With fewer digits, a hook finds no number in the text.
_MIN_NUMBER = 10**6
# A number above is not written out: Python takes time in the square of its length.
_MAX_NUMBER = 10**40

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.DOTALL)

# Takes a text and returns one; called in an order that the value alone decides.
Visit = Callable[[str], str]


def visit_message(body: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
    """A message's envelope with its texts visited: name, content, calls and further fields.

    Ids, types, names of functions, and data in base64 where a format has it, are left as they are.
    """
    visited = dict(body)
    for key, visit_value in _VISITS.items():
        if body.get(key) is not None:
            visited[key] = visit_value(body[key], visit)
    return visited


def visit_object(value: Any, visit: Visit) -> Any:
    """Free JSON, such as metadata or arguments, with its texts, its keys and its long numbers visited.

    A number is visited as text, and stays a number if the text is not changed.  A text that is wholly a data
    URL in base64 stays.
    """
    if isinstance(value, str):
        return _visit_text(value, visit)
    if isinstance(value, Mapping):
        visited: dict[str, Any] = {}
        for key, item in value.items():
            visited[_unused(visit(key), visited)] = visit_object(item, visit)
        return visited
    if isinstance(value, list):
        return [visit_object(item, visit) for item in value]
    return _visit_number(value, visit)


def _visit_text(text: str, visit: Visit) -> str:
    return text if _is_data_url(text) else visit(text)


def _visit_number(value: Any, visit: Visit) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and _MIN_NUMBER <= abs(value) < _MAX_NUMBER and value % 1 == 0:
        digits = str(int(value))
        return value if (text := visit(digits)) == digits else text
    return value


def _unused(key: str, visited: Mapping[str, Any]) -> str:
    """The key, with a number if another one has become the same."""
    number, free = 2, key
    while free in visited:
        free, number = f"{key} {number}", number + 1
    return free


def _visit_part(value: Any, visit: Visit, above: str = "") -> Any:
    if isinstance(value, str):
        return _visit_text(value, visit)
    if isinstance(value, Mapping):
        kind = value.get("type")
        places = (above, kind if isinstance(kind, str) else "")
        visited: dict[str, Any] = {}
        for key, item in value.items():
            shown = key if _is_name(key) else _unused(visit(key), visited)
            visited[shown] = item if _is_left(places, key, item) else _visit_part(item, visit, key)
        return visited
    if isinstance(value, list):
        return [_visit_part(item, visit) for item in value]
    return _visit_number(value, visit)


def _is_left(places: tuple[str, str], key: str, item: Any) -> bool:
    if not isinstance(item, str):
        return False
    if key in _STRUCTURAL_KEYS or key.endswith("_id"):
        return _is_name(item) is not None
    return any(_BINARY.get(place) == key for place in places) and _is_base64(item) is not None


def _visit_extra(extra: Any, visit: Visit) -> Any:
    """Further fields: free JSON, but for the sound of an answer, which has the form of a part."""
    visited = visit_object({key: item for key, item in extra.items() if key != "audio"}, visit)
    if "audio" in extra:
        visited["audio"] = _visit_part(extra["audio"], visit, "audio")
    return visited


def _visit_call(call: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
    """A tool call with its JSON arguments or fields visited; its id stays, since the answer names it."""
    function = call.get("function")
    visited: dict[str, Any] = _visit_part(
        {key: item for key, item in call.items() if key not in {"id", "function"}}, visit
    )
    if "id" in call:
        visited = {"id": call["id"], **visited}
    if "function" in call:
        if isinstance(function, Mapping):
            visited["function"] = _visit_function(function, visit)
        else:
            visited["function"] = _visit_part(function, visit)
    return visited


def _visit_function(function: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
    visited: dict[str, Any] = {}
    for key, item in function.items():
        if key == "name" and isinstance(item, str) and _is_name(item):
            visited[key] = item
        elif key == "arguments":
            visited[key] = _visit_arguments(item, visit)
        else:
            visited.update(_visit_part({key: item}, visit))
    return visited


def _visit_arguments(arguments: Any, visit: Visit) -> Any:
    """JSON text, as written unless a text in it is changed; invalid, or with repeated keys, it is text."""
    if not isinstance(arguments, str):
        return visit_object(arguments, visit)
    try:
        value = read_json(arguments)
        check_nesting("arguments", value)
    except (ValueError, RecursionError):  # also for JSON nested too deep
        plain = _ESCAPE.sub(_character, arguments)
        return arguments if (text := visit(plain)) == plain else text
    visited = visit_object(value, visit)
    return arguments if visited == value else json.dumps(visited, ensure_ascii=False)


def _character(escape: re.Match[str]) -> str:
    """The character of a JSON escape, unless it would end a string or a line; a hook reads no escapes."""
    code = int(escape[1] or "0", 16)
    is_plain = code >= ord(" ") and chr(code) not in '"\\' and not 0xD800 <= code < 0xE000
    return chr(code) if is_plain else escape[0]


_VISITS: Mapping[str, Callable[[Any, Visit], Any]] = {
    "name": _visit_part,
    "content": _visit_part,
    "tool_calls": lambda calls, visit: [_visit_call(call, visit) for call in calls],
    "extra": _visit_extra,
}
