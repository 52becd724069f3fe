"""The forms of answers: the JSON that a model may return for each task, and how text is read as such.

Form is checked strictly, since it can be repaired; ``answers`` interprets the content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from strandline.pipelines.models.contract import TaskName
from strandline.schemas.errors import PermanentModelError
from strandline.schemas.foreign_json import refuse_constant, refuse_repeated

OperationName = Literal["add", "update", "invalidate", "duplicate"]
InstructedOperation = Literal["add", "update", "delete"]

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_FENCE = "```"

# Of a longer list the beginning is read: no task has so many facts, lines or topics.
MAX_LIST_ITEMS = 10_000
# How deep the forms below go: an object, its list, an object in it, its list, a number.
_MAX_FORM_LEVELS = 5
# No line and no fact has a number of more digits, and Python refuses to read one of some thousands.
_MAX_DIGITS = 20

_Answer = TypeVar("_Answer", bound=BaseModel)
_Item = TypeVar("_Item")


class _FirstError(FailFast):
    """Reports only one wrong item: reporting each in a list of thousands takes seconds and much memory."""

    def __hash__(self) -> int:  # which a union of types asks for
        return hash(type(self))


_Listed = Annotated[list[_Item], _FirstError()]


class FactAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str
    messages: _Listed[int]
    topics: _Listed[str] | None = None
    said_by: str | None = None
    about_date: str | None = None


class ExtractAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    facts: list[FactAnswer]


class OperationAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    op: OperationName
    candidate: int
    fact: int | None = None
    text: str | None = None


class MergeAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    operations: list[OperationAnswer]


class MergedFactAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    text: Annotated[str, Field(pattern=r"\S")]
    merged: _Listed[int]
    topics: _Listed[str] | None = None


class CondenseAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    facts: list[MergedFactAnswer]
    kept: _Listed[int]


class InstructedAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    op: InstructedOperation
    fact: int | None = None
    text: str | None = None


class InstructAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    operations: list[InstructedAnswer]


class SummaryAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    summary: Annotated[str, Field(pattern=r"\S")]
    topics: _Listed[str] | None = None


class ChooseAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    facts: _Listed[int]


FORMS: dict[TaskName, type[BaseModel]] = {
    "extract": ExtractAnswer,
    "merge": MergeAnswer,
    "condense": CondenseAnswer,
    "instruct": InstructAnswer,
    "summary": SummaryAnswer,
    "choose": ChooseAnswer,
}


def answer_schema(name: TaskName) -> dict[str, Any]:
    """The JSON schema of a task's answer, in the subset that strict structured output takes."""
    return json.loads(_schema_text(name))  # type: ignore[no-any-return]


def read_form(form: type[_Answer], value: dict[str, Any]) -> _Answer:
    """``found`` as an answer of this form.

    Raises:
        PermanentModelError: it is not; the sentence names the fields, never their content.
    """
    try:
        return form.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)[:5]
        listed = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'answer'}: {item['msg']}" for item in problems
        )
        raise PermanentModelError(f"The answer does not have the form asked for: {listed}.") from None


def object_in(text: str) -> dict[str, Any]:
    """The JSON object in ``text``: all of it, or within a code fence, or between its outermost braces.

    A model's thoughts before it (``<think>…</think>``) may hold other braces. Lists keep their first
    ``MAX_LIST_ITEMS`` items; values nested deeper than any form become None.

    Raises:
        PermanentModelError: the text holds no JSON object.
    """
    answer = text.rpartition("</think>")[2]
    inner = answer[answer.find("{") : answer.rfind("}") + 1]
    for piece in (text, *_fenced_texts(text), inner):
        try:
            value = json.loads(
                piece,
                object_pairs_hook=refuse_repeated,
                parse_constant=refuse_constant,
                parse_int=_bounded_int,
            )
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return _readable_object(value, _MAX_FORM_LEVELS)
    raise PermanentModelError("The answer is not one complete JSON object.")


def storable(text: str) -> str:
    """``text`` without NUL and lone surrogates, which Postgres cannot store and UTF-8 cannot encode."""
    return _UNSTORABLE.sub("", text)


def _bounded_int(digits: str) -> int:
    return int(digits[:_MAX_DIGITS])


def _fenced_texts(text: str) -> Iterator[str]:
    """The text between code fences: after the first one's line, up to the next.

    (A regular expression would scan the whole rest again for each blank line after an unclosed fence.)
    """
    opening = text.find(_FENCE)
    while opening >= 0:
        while text.startswith(_FENCE, opening + 1):  # of a row of backticks, the last three
            opening += 1
        closing = text.find(_FENCE, opening + len(_FENCE))
        if closing < 0:
            return
        language, line_end, inside = text[opening + len(_FENCE) : closing].partition("\n")
        if line_end and (not language.strip() or language.strip().isalnum()):
            yield inside
            closing += len(_FENCE)
        opening = text.find(_FENCE, closing)


def _readable(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_readable(item, levels - 1) for item in value[:MAX_LIST_ITEMS]] if levels > 1 else None
    if isinstance(value, dict):
        return _readable_object(value, levels) if levels > 1 else None
    return value


def _readable_object(value: dict[str, Any], levels: int) -> dict[str, Any]:
    return {storable(key): _readable(item, levels - 1) for key, item in value.items()}


@cache
def _schema_text(name: TaskName) -> str:
    schema = FORMS[name].model_json_schema()
    return json.dumps(_strict(schema, schema.get("$defs", {})))


def _strict(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Keep only what every server's strict mode knows; references are written out, all fields required."""
    if "$ref" in node:
        return _strict(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in node:
        return {"anyOf": [_strict(option, definitions) for option in node["anyOf"]]}
    kept: dict[str, Any] = {key: node[key] for key in ("type", "enum") if key in node}
    if "items" in node:
        kept["items"] = _strict(node["items"], definitions)
    if "properties" in node:
        kept["properties"] = {key: _strict(item, definitions) for key, item in node["properties"].items()}
        kept["required"] = list(node["properties"])
        kept["additionalProperties"] = False
    return kept
