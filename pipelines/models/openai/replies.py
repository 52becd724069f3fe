"""The parts of OpenAI's response bodies that are used, read strictly enough to notice a broken one."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, FailFast, Field, ValidationError

from strandline.schemas.errors import TransientModelError

_Reply = TypeVar("_Reply", bound=BaseModel)

# More than any call takes; what is counted of many calls stays within what the database holds.
MAX_TOKENS_OF_CALL = 2**31 - 1


def _tokens(value: object) -> int:
    """A count as it can be right: the answer beside it is paid for, and good, however it is counted."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(min(max(0, value), MAX_TOKENS_OF_CALL))  # in this order, what is not a number becomes 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: object) -> object:
    return value if isinstance(value, dict) else None


def _first(value: Any) -> Any:
    return value[:1] if isinstance(value, list) else value


_Tokens = Annotated[int, BeforeValidator(_tokens)]
# Fields beside an answer never make it unusable.
_TextBeside = Annotated[str | None, BeforeValidator(_text)]
_UsageBeside = Annotated["Usage | None", BeforeValidator(_object)]


class Reply(BaseModel):
    """The message of a choice; ``refusal`` is set instead of ``content`` when the model declines."""

    content: str | None = None
    refusal: _TextBeside = None


class Choice(BaseModel):
    """One answer with the reason why it ended: ``stop``, ``length``, ``content_filter``, …"""

    message: Reply
    finish_reason: _TextBeside = None


class Usage(BaseModel):
    """Tokens spent, 0 where the server does not count them; never below 0, nor above what a call can take."""

    prompt_tokens: _Tokens = 0
    completion_tokens: _Tokens = 0

    def plus(self, more: Usage | None) -> Usage:
        """The sum of both."""
        if more is None:
            return self
        return Usage(
            prompt_tokens=self.prompt_tokens + more.prompt_tokens,
            completion_tokens=self.completion_tokens + more.completion_tokens,
        )


class Completion(BaseModel):
    """The body of ``/chat/completions``, with at least one choice; the first is read."""

    choices: Annotated[list[Choice], Field(min_length=1), BeforeValidator(_first)]
    usage: _UsageBeside = None


class Vector(BaseModel):
    """One embedding and the number of its text in the request, from 0."""

    index: int
    # One wrong item is told of: an error for each of millions takes gigabytes.
    embedding: Annotated[list[float], FailFast()]


class Embeddings(BaseModel):
    """The body of ``/embeddings``."""

    data: Annotated[list[Vector], FailFast()]
    usage: _UsageBeside = None


def read_reply(form: type[_Reply], body: bytes) -> _Reply:
    """Read a response body as ``form``.

    Raises:
        TransientModelError: cut off on its way, or not of this form; the input is not to blame.
    """
    try:
        return form.model_validate_json(body)
    except ValidationError:
        problem = "The model server's response is not of OpenAI's form, or incomplete; check OPENAI_BASE_URL."
    raise TransientModelError(problem)
