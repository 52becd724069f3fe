"""The arguments of a model's call, read and checked before the call runs.

Every fault is an InvalidMessageError, whose sentence goes back to the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strandline.producers.tools.definitions import (
    Argument,
    NumberArgument,
    TextArgument,
    TextsArgument,
    ToolDefinition,
)
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.values.foreign_values import plain_list, plain_number, plain_text, unreadable
from strandline.schemas.values.stored_text import check_text

# Ten times the longest arguments, with every character escaped.
MAX_JSON_CHARACTERS = 200_000
# So many of the unknown arguments are named.
_MAX_NAMED = 3


def read_arguments(tool: ToolDefinition, arguments: object) -> dict[str, Any]:
    """The arguments by name, checked; a missing or null one has its default, or None.

    Args:
        arguments: a mapping, or the JSON of an object as models send it; None and "" hold none.

    Raises:
        InvalidMessageError: naming the argument and its form.
    """
    values = _as_object(arguments)
    known = {argument.name for argument in tool.arguments}
    unknown = [quote(name) for name in values if name not in known]
    if unknown:
        named = ", ".join(unknown[:_MAX_NAMED]) + (" …" if len(unknown) > _MAX_NAMED else "")
        raise InvalidMessageError(
            "arguments",
            f"{tool.name} has no argument {named}; it takes {', '.join(sorted(known))}",
            for_clients=InvalidMessageError.UNTOLD,
        )
    return {argument.name: _checked_value(argument, values.get(argument.name)) for argument in tool.arguments}


def _as_object(arguments: object) -> dict[str, Any]:
    if isinstance(arguments, str):
        arguments = _from_json(plain_text(arguments))
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise InvalidMessageError(
            "arguments", f"must be a JSON object of arguments by name, not {type(arguments).__name__}"
        )
    try:
        return {name if type(name) is str else quote(name): value for name, value in arguments.items()}
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("arguments", error) from error


def _from_json(text: str) -> object:
    if not text.strip():
        return None
    if len(text) > MAX_JSON_CHARACTERS:
        raise InvalidMessageError(
            "arguments", f"have more than {MAX_JSON_CHARACTERS:,} characters; make them shorter"
        )
    try:
        value: object = read_json(text)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidMessageError(
            "arguments", f"cannot be read as JSON{where}; send an object such as {{}}"
        ) from None
    return value


def _checked_value(argument: Argument, value: object) -> Any:
    if isinstance(value, str) and not isinstance(argument, TextArgument):
        value = _from_text(argument, plain_text(value).strip())
    if value is None and not argument.is_required:
        return argument.default if isinstance(argument, NumberArgument) else None
    if value is None:
        raise InvalidMessageError(argument.name, "is missing")
    if isinstance(argument, TextArgument):
        return _checked_text(argument.name, value, argument.max_characters)
    if isinstance(argument, NumberArgument):
        return _checked_number(argument, value)
    return _checked_texts(argument, value)


def _from_text(argument: Argument, text: str) -> object:
    """The number or list that a client wrote as text, as many do; one text alone is a list of it."""
    if not text:
        return None
    try:
        value: object = read_json(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(argument, NumberArgument) or value is None or isinstance(value, list):
        return value
    return [value if isinstance(value, str) else text]


def _checked_text(name: str, value: object, max_characters: int) -> str:
    check_text(name, value)
    assert isinstance(value, str), "check_text refuses others"  # noqa: S101
    text = plain_text(value).strip()
    if not text:
        raise InvalidMessageError(name, "is empty")
    if len(text) > max_characters:
        raise InvalidMessageError(
            name, f"has {len(text):,} characters; at most {max_characters:,} are possible"
        )
    return text


def _checked_number(argument: NumberArgument, value: object) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = plain_number(value)
        # 5.0 is an integer in JSON Schema; a comparison with NaN is false.
        if argument.least <= number <= argument.most and number == int(number):
            return int(number)
    raise InvalidMessageError(
        argument.name,
        f"is {quote(value)}; it must be a whole number from {argument.least:,} to {argument.most:,}",
        for_clients=InvalidMessageError.UNTOLD,
    )


def _checked_texts(argument: TextsArgument, value: object) -> list[str]:
    items = plain_list(value) if isinstance(value, (list, tuple)) else None
    if items is None or len(items) > argument.max_items:
        raise InvalidMessageError(argument.name, f"must be a list of at most {argument.max_items} texts")
    return [_checked_text(argument.name, item, argument.max_characters) for item in items]
