"""The texts in JSON values: found for a hook, and put back as it returns them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from strandline.schemas.values.nesting import check_nesting

# Encodes what people did not write: a hook would only damage it.
_BINARY_KEYS = frozenset({"data", "file_data", "signature", "encrypted_content", "bytes"})
# Names and kinds that other parts of a message refer to.
_STRUCTURAL_KEYS = frozenset({"id", "type", "format", "detail", "media_type", "mime_type", "cache_control"})
# With fewer digits it is no number that a hook looks for as text.
_MIN_NUMBER = 10**6
# A number above is not written out: Python takes time in the square of its length.
_MAX_NUMBER = 10**40

# Takes a text and returns one; called in an order that the value alone decides.
Visit = Callable[[str], str]


def visit_message(body: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
    """A message's envelope with its texts visited: name, content, calls and further fields.

    Ids, types, names of functions, and data in base64 are left as they are.
    """
    visited = dict(body)
    for key in ("name", "content", "tool_calls", "extra"):
        if body.get(key) is not None:
            visited[key] = (
                [_visit_call(call, visit) for call in body[key]]
                if key == "tool_calls"
                else _visit_part(body[key], visit)
            )
    return visited


def visit_object(value: Any, visit: Visit) -> Any:
    """Free JSON, such as metadata or arguments, with its texts, its keys and its long numbers visited.

    A number is visited as text, and stays a number if the text is not changed.
    """
    if isinstance(value, str):
        return visit(value)
    if isinstance(value, Mapping):
        visited: dict[str, Any] = {}
        for key, item in value.items():
            visited[_unused(visit(key), visited)] = visit_object(item, visit)
        return visited
    if isinstance(value, list):
        return [visit_object(item, visit) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and _is_long(value):
        digits = str(value)
        return value if (text := visit(digits)) == digits else text
    return value


def _is_long(number: int) -> bool:
    return _MIN_NUMBER <= abs(number) < _MAX_NUMBER


def _unused(key: str, visited: Mapping[str, Any]) -> str:
    """The key, with a number if another one has become the same."""
    number, free = 2, key
    while free in visited:
        free, number = f"{key} {number}", number + 1
    return free


def _visit_part(value: Any, visit: Visit) -> Any:
    """Content, a part of it, or a further field: the keys are the format's."""
    if isinstance(value, str):
        return value if value.startswith("data:") else visit(value)
    if isinstance(value, Mapping):
        return {key: item if _is_left(key) else _visit_part(item, visit) for key, item in value.items()}
    if isinstance(value, list):
        return [_visit_part(item, visit) for item in value]
    return value


def _is_left(key: str) -> bool:
    return key in _BINARY_KEYS or key in _STRUCTURAL_KEYS or key.endswith("_id")


def _visit_call(call: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
    """A tool call: the arguments of a function are JSON text, those of another type are fields."""
    visited = {
        key: item if _is_left(key) else _visit_part(item, visit)
        for key, item in call.items()
        if key != "function"
    }
    function = call.get("function")
    if isinstance(function, Mapping):
        visited["function"] = {
            key: _visit_arguments(item, visit) if key == "arguments" else item
            for key, item in function.items()
        }
    elif "function" in call:
        visited["function"] = function
    return {key: visited[key] for key in call}


def _visit_arguments(arguments: Any, visit: Visit) -> Any:
    """JSON text stays as it is written unless a text in it is changed; what is no JSON is a text."""
    if not isinstance(arguments, str):
        return visit_object(arguments, visit)
    try:
        value = json.loads(arguments)
        check_nesting("arguments", value)
    except (ValueError, RecursionError):  # also what is nested too deep to be visited
        return visit(arguments)
    visited = visit_object(value, visit)
    return arguments if visited == value else json.dumps(visited, ensure_ascii=False)
