"""The forms of answers: what JSON a model may hand back for each task, and how text is read as one.

Form is checked strictly, since it can be repaired; ``answers`` says what is made of the content.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from strandline.pipelines.models.contract import TaskName
from strandline.schemas.errors import PermanentModelError

OperationName = Literal["add", "update", "invalidate", "duplicate"]

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_FENCED = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)

_Answer = TypeVar("_Answer", bound=BaseModel)


class FactAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str
    messages: list[int]
    topics: list[str] | None = None
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
    merged: list[int]
    topics: list[str] | None = None


class CondenseAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    facts: list[MergedFactAnswer]
    kept: list[int]


class SummaryAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    summary: Annotated[str, Field(pattern=r"\S")]
    topics: list[str] | None = None


FORMS: dict[TaskName, type[BaseModel]] = {
    "extract": ExtractAnswer,
    "merge": MergeAnswer,
    "condense": CondenseAnswer,
    "summary": SummaryAnswer,
}


def answer_schema(name: TaskName) -> dict[str, Any]:
    """The JSON schema of a task's answer, in the subset that strict structured output takes."""
    return json.loads(_schema_text(name))  # type: ignore[no-any-return]


def read_form(form: type[_Answer], found: dict[str, Any]) -> _Answer:
    """``found`` as an answer of this form.

    Raises:
        PermanentModelError: it is not; the sentence names the fields, never their content.
    """
    try:
        return form.model_validate(found)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)[:5]
        listed = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'answer'}: {item['msg']}" for item in problems
        )
        raise PermanentModelError(f"The answer does not have the form asked for: {listed}.") from None


def object_in(text: str) -> dict[str, Any]:
    """The JSON object in ``text``: all of it, or within a code fence, or between its outermost braces.

    What a model thought aloud before (``<think>…</think>``) may hold braces of its own.

    Raises:
        PermanentModelError: there is none.
    """
    said = text.rpartition("</think>")[2]
    inner = said[said.find("{") : said.rfind("}") + 1]
    for piece in (text, *_FENCED.findall(text), inner):
        try:
            found = json.loads(piece, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return {storable(key): _storable_within(value) for key, value in found.items()}
    raise PermanentModelError("The answer is not one complete JSON object.")


def storable(text: str) -> str:
    """``text`` without what Postgres cannot store and UTF-8 cannot encode: NUL and lone surrogates."""
    return _UNSTORABLE.sub("", text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _storable_within(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable_within(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): _storable_within(item) for key, item in value.items()}
    return value


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
