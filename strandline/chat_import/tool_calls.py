"""Tool calls of other systems in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strandline.adapters import converter


def tool_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """A call; arguments that are not text are written as JSON."""
    text = arguments if isinstance(arguments, str) else _as_json({} if arguments is None else arguments)
    return converter.tool_call(call_id, name, text)


def openai_call(call: object) -> dict[str, Any] | None:
    """A call that a library stored as its model's provider gave it; None if it is none."""
    if not isinstance(call, Mapping):
        return None
    function = call.get("function")
    if isinstance(function, Mapping):
        return tool_call(call.get("id"), function.get("name"), function.get("arguments"))
    return tool_call(call.get("id"), call.get("name"), call.get("input", call.get("arguments")))


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (ValueError, RecursionError):
        return "{}"
