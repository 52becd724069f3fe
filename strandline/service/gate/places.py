"""The place and the reason of an unusable request: JSON pointers of our own names, and of keys in a content;
sentences without quotations.

A reason names a bound, a form or a list of our own names; never the value, which may be a user's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from strandline.schemas.display.field_paths import Step
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import MAX_NAME_BYTES
from strandline.schemas.values.stored_text import is_encodable
from strandline.schemas.wire.base import NAME_ERROR, ProblemPlace

MAX_PLACES = 20
# A body of a megabyte can hold a hundred thousand faults; their first are told.
MAX_EXAMINED = 1_000
NAME_EXPECTED = (
    f"It must be a name: 1 to {MAX_NAME_BYTES} bytes in UTF-8, without control characters and without blanks"
    " at its edges, percent-encoded."
)

_FIELD = re.compile(r"([a-z_]+)((?:\[\d+\]|\.[a-z_]+)*)")
_STEP = re.compile(r"\[(\d+)\]|\.([a-z_]+)")


def place_of_invalid(error: InvalidMessageError, body: type[BaseModel] | None = None) -> ProblemPlace | None:
    """The place of the offending field; None: it is not of a request."""
    steps = steps_of_invalid(error, body)
    return None if steps is None else ProblemPlace(pointer=pointer(steps), detail=str(error.for_clients))


def steps_of_invalid(error: InvalidMessageError, body: type[BaseModel] | None) -> list[Step] | None:
    """The steps of its pointer, foreign ones among them."""
    field, steps_below = error.path
    match = _FIELD.match(field)
    if match is None:
        return None
    steps: list[Step] = [match[1]]
    steps += [int(number) if number else name for number, name in _STEP.findall(match[2])]
    if steps[0] == "message":  # a put of one
        steps[:1] = ["messages", 0]
    if body is not None and steps[0] in body.model_fields:
        steps.insert(0, "body")
    elif steps[0] in _OF_QUERIES:
        steps[:1] = ["query", _OF_QUERIES[str(steps[0])]]
    elif steps[0] not in _NOT_OF_BODIES:
        steps.insert(0, "body")
    return [*steps, *steps_below]


# Fields of a request that its body does not hold.
_NOT_OF_BODIES = ("namespace", "path", "session_id", "user_id")
_OF_QUERIES = {"before": "cursor", "contains": "contains"}
# Below these the names are the client's: of a message's parts and calls they are told, to whom gave them.
_TOLD = ("content", "tool_calls")
_CLIENTS_OWN = ("block_arguments", "extra", "metadata", *_TOLD)
MAX_POINTER_CHARACTERS = 500


def pointer(steps: Iterable[object], *, is_told: bool = True) -> str:
    """A JSON pointer (RFC 6901) of the steps that are our own names, or numbers, and of those in a content.

    It ends early, at a place that holds the fault, rather than to be longer than ``MAX_POINTER_CHARACTERS``.

    Args:
        is_told: whether steps in a content are keys; else they name the kinds that a value may have.
    """
    own = ""
    left = iter(steps)
    for step in left:
        if isinstance(step, int) or _is_own(str(step)):
            own += f"/{step}"
            if step in _CLIENTS_OWN:
                break
    for step in left if own.endswith(_TOLD) else ():
        if isinstance(step, int) or is_told:
            longer = f"{own}/{str(step).replace('~', '~0').replace('/', '~1')}"
            if len(longer) > MAX_POINTER_CHARACTERS or not is_encodable(longer):
                break
            own = longer
    return own or "/"


# Types whose sentences name only expected values, never given ones.
_OWN_SENTENCES = frozenset(
    {
        "string_too_short", "string_too_long", "int_type", "int_parsing",
        "float_type", "float_parsing", "bool_type", "bool_parsing",
        "greater_than", "greater_than_equal", "less_than", "less_than_equal",
        "too_long", "too_short", "literal_error", "datetime_type", "datetime_parsing", "datetime_past",
        "timezone_aware",
        "date_type", "date_parsing", "date_from_datetime_parsing", "uuid_type", "uuid_parsing",
        "finite_number", "enum", "int_from_float", "none_required",
    }
)  # fmt: skip
_PLAIN = {
    "missing": "It is missing.",
    "datetime_parsing": "It must be a time in ISO 8601 with a time zone.",
    "datetime_from_date_parsing": "It must be a time in ISO 8601 with a time zone.",
    "date_parsing": "It must be a day in ISO 8601.",
    "date_from_datetime_parsing": "It must be a day in ISO 8601.",
    "uuid_parsing": "It must be a UUID.",
    "string_type": "It must be a text.",
    "dict_type": "It must be an object.",
    "list_type": "It must be a list.",
    "model_type": "It must be an object.",
    "model_attributes_type": "It must be an object.",
    "int_parsing": "It must be a whole number.",
    "bool_parsing": "It must be true or false.",
}


def places_of_validation(
    errors: Iterable[ErrorDetails | Mapping[str, Any]], body: type[BaseModel] | None = None
) -> list[ProblemPlace]:
    """The places of a request with this body that pydantic refused."""
    by_pointer: dict[str, list[str]] = {}
    for error in islice(errors, MAX_EXAMINED):
        place, detail = _place(error, body)
        details = by_pointer.setdefault(place, [])
        if detail not in details:
            details.append(detail)
    # Of a list with a bad part, that it is no text is not the fault.
    places = [
        ProblemPlace(pointer=place, detail=_either(details))
        for place, details in by_pointer.items()
        if not place.endswith(_TOLD) or not any(other.startswith(f"{place}/") for other in by_pointer)
    ]
    return places[:MAX_PLACES]


def _either(details: Sequence[str]) -> str:
    """One sentence of what each kind that a value may have asks for."""
    first, *others = details
    for other in others:
        first = f"{first.rstrip('.')}, or {other[0].lower()}{other[1:]}"
    return first.replace(", or input should be", ", or").replace(", or it must be", ", or")


def _place(error: Mapping[str, Any], body: type[BaseModel] | None) -> tuple[str, str]:
    kind = str(error["type"])
    steps = [*error["loc"]]
    if kind == "extra_forbidden":
        steps.pop()  # an unknown field's name is the client's word
        return pointer(steps, is_told=False), _unknown_field(body, steps[1:])
    sentence = error["msg"] if kind == NAME_ERROR else _PLAIN.get(kind)
    if sentence is None and kind in _OWN_SENTENCES:
        sentence = f"{error['msg']}."
    if sentence is None and steps[:1] == ["path"]:
        sentence = NAME_EXPECTED
    return pointer(steps, is_told=False), sentence or "It cannot be used."


def _unknown_field(body: type[BaseModel] | None, steps: Sequence[object]) -> str:
    model = None if body is None else _model_at(body, steps)
    if model is None:
        return "There is a field here that this release does not know."
    return f"There is a field here that this release does not know; it knows {', '.join(model.model_fields)}."


def _model_at(model: type[BaseModel], steps: Sequence[object]) -> type[BaseModel] | None:
    """The model of the object at a place of a body; None where several may stand, or none is known."""
    for step in steps:
        if isinstance(step, int):
            continue
        field = model.model_fields.get(str(step))
        if field is None:
            continue  # names one of the kinds that a value may have
        inner = list(dict.fromkeys(_models_in(field.annotation)))
        if len(inner) != 1:
            return None
        model = inner[0]
    return model


def declared_steps(body: type[BaseModel], steps: Iterable[Step]) -> list[Step]:
    """The steps of a path in a body that its models declare, and those in a content; others are the client's
    word.
    """
    models: list[type[BaseModel]] = [body]
    declared: list[Step] = []
    left = iter(steps)
    for step in left:
        if isinstance(step, str):
            fields = [model.model_fields[step] for model in models if step in model.model_fields]
            if not fields:
                break
            models = [inner for one in fields for inner in _models_in(one.annotation)]
        declared.append(step)
        if step in _TOLD:
            return [*declared, *left]
    return declared


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _is_own(step: str) -> bool:
    """Whether a step of a path can be the name of one of our fields, parameters or headers."""
    return re.fullmatch(r"[A-Za-z_-]{1,40}", step) is not None
