"""Questions of one's own about stored conversations, from a file with a JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

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


class Question(BaseModel):
    """A question, whose it is, and what answers it: messages by id, or words that a read has to give."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    question: Text
    evidence: Texts = []
    expected: Texts = []
    session_id: Text | None = None
    user_id: Text | None = None
    namespace: Text | None = None


def read_questions(path: Path) -> Iterator[tuple[int, Question | list[LineProblem]]]:
    """Each line that is not blank, by its number: its question, or what is wrong with it.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield from ((number, _read(number, line)) for number, line in enumerate(file, 1) if line.strip())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None


def _read(number: int, line: bytes) -> Question | list[LineProblem]:
    try:
        value = read_json(line.decode("utf-8-sig"))
        if not isinstance(value, dict):
            raise ValueError("it is of another type")
        question = Question.model_validate(value)
        if question.evidence or question.expected:
            return question
        problems = [("evidence", "names no message; name some by their ids, or words as expected")]
    except ValidationError as error:
        problems = [
            (".".join(map(str, item["loc"])), describe_refusal({**item, "loc": item["loc"][-1:]}))
            for item in error.errors(include_input=False, include_url=False)
        ]
    except (ValueError, RecursionError) as error:
        problems = [("", f"is not a JSON object in UTF-8: {error}")]
    return [LineProblem(line=number, field=field or None, reason=reason) for field, reason in problems]
