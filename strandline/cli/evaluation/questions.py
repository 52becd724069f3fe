"""Questions of one's own about stored conversations, from a file with a JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from strandline.schemas.display.refused_values import describe_refusal
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.values.stored_text import check_text
from strandline.schemas.wire.report import Report


class LineProblem(Report):
    """Why a line of the file was not measured; ``field`` null: it is of no one field."""

    line: int
    field: str | None
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field + ': ' if self.field else ''}{self.reason}"


def _check(text: str) -> str:
    try:
        check_text("", text)
    except InvalidMessageError as error:
        raise ValueError(error.problem) from None
    if not text.strip():
        raise ValueError("is empty")
    return text


Text = Annotated[str, AfterValidator(_check)]
Texts = Annotated[list[Text], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Line(BaseModel):
    """The base of a line in a file of questions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    question: Text


L = TypeVar("L", bound=Line)


class Question(Line):
    """A question, whose it is, and what answers it: messages by id, or words that a read has to give."""

    evidence: Texts = []
    expected: Texts = []
    session_id: Text | None = None
    user_id: Text | None = None
    namespace: Text | None = None

    @model_validator(mode="after")
    def _has_an_answer(self) -> Self:
        if not (self.evidence or self.expected):
            raise ValueError("evidence, ids of messages, or expected, words, must say what answers it")
        return self


def read_lines(path: Path, kind: type[L]) -> Iterator[tuple[int, L | list[LineProblem]]]:
    """Each line that is not blank, by its number: its JSON object, or its fault.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _read(number, line, kind)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None


def _read(number: int, line: bytes, kind: type[L]) -> L | list[LineProblem]:
    try:
        value = read_json(line.decode("utf-8-sig"))
        if not isinstance(value, dict):
            raise ValueError("it is of another type")
        return kind.model_validate(value)
    except ValidationError as error:
        problems = [
            (".".join(map(str, item["loc"])), describe_refusal({**item, "loc": item["loc"][-1:]}))
            for item in error.errors(include_input=False, include_url=False)
        ]
    except (ValueError, RecursionError) as error:
        problems = [("", f"is not a JSON object in UTF-8: {error}")]
    return [LineProblem(line=number, field=field or None, reason=reason) for field, reason in problems]
