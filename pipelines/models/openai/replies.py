"""Reads OpenAI's response bodies as servers send them, strictly enough to notice a broken one.

The text of an answer may stand in parts, next to thoughts, in the arguments of a call or in a stream; the
rest of a body is ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, FailFast, ValidationError

from strandline.pipelines.models.openai.errors import RejectedError, error_within
from strandline.schemas.errors import TransientModelError


def read_vector(value: object) -> object:
    """The numbers of an embedding; a value of another form as it is, for its reader to refuse."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, str):
        return value
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value
    return list(struct.unpack(f"<{len(raw) // 4}f", raw)) if raw and len(raw) % 4 == 0 else value


def in_order(indexes: Sequence[int | None], expected: int) -> list[int] | None:
    """For each text the place of its vector; None if that cannot be told.

    A number that is left out is 0, as some encoders leave out zeros, and the first may be 1; where all
    are the same, or none is there, the order counts.
    """
    if len(indexes) != expected:
        return None
    if len(set(indexes)) <= 1:
        return list(range(expected))
    known = [index or 0 for index in indexes]
    first = min(known)
    if first not in (0, 1) or sorted(known) != list(range(first, first + expected)):
        return None
    places = [0] * expected
    for place, index in enumerate(known):
        places[index - first] = place
    return places


_Reply = TypeVar("_Reply", bound=BaseModel)

# More than any call takes; sums over many calls stay within the database's range.
MAX_TOKENS_OF_CALL = 2**31 - 1

_CUT_OFF = frozenset({"length", "max_tokens", "max_length", "model_length", "token_limit"})
_FILTERED = frozenset(
    {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "refusal"}
)
_TEXT_PARTS = frozenset({"text", "output_text"})


def _tokens(value: object) -> int:
    """A plausible count: the answer is paid for, and good, however it is counted."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(min(max(0, value), MAX_TOKENS_OF_CALL))  # in this order, NaN becomes 0


def _object(value: object) -> object:
    return value if isinstance(value, dict) else None


_Tokens = Annotated[int, BeforeValidator(_tokens)]
# Fields next to an answer never make it unusable.
_UsageBeside = Annotated["Usage | None", BeforeValidator(_object)]


class Usage(BaseModel):
    """Tokens spent, 0 where the server does not count them; never below 0, nor above
    ``MAX_TOKENS_OF_CALL``.
    """

    prompt_tokens: _Tokens = 0
    completion_tokens: _Tokens = 0

    def plus(self, more: Usage) -> Usage:
        """The sum of both."""
        return Usage(
            prompt_tokens=self.prompt_tokens + more.prompt_tokens,
            completion_tokens=self.completion_tokens + more.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a response with a status of success, and its headers."""

    content: bytes
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        """The body in its own character set, without a byte order mark."""
        _, _, charset = self.headers.get("content-type", "").partition("charset=")
        try:
            text = self.content.decode(charset.split(";")[0].strip(" \"'") or "utf-8", "replace")
        except LookupError:
            text = self.content.decode("utf-8", "replace")
        return text.lstrip("\ufeff")


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer.

    Attributes:
        is_cut_off: it ended at the limit of tokens.
        is_refused: the model declined, or a filter took the answer away.
        usage: None if the server does not count.
    """

    text: str
    is_cut_off: bool = False
    is_refused: bool = False
    usage: Usage | None = None


class Vector(BaseModel):
    """One embedding and the number of its text in the request, from 0; servers may leave the number out."""

    index: int | None = None
    # One wrong item is told of: an error for each of millions takes gigabytes.
    embedding: Annotated[list[float], FailFast(), BeforeValidator(read_vector)]


class Embeddings(BaseModel):
    """The body of ``/embeddings``."""

    data: Annotated[list[Vector], FailFast()]
    usage: _UsageBeside = None


def read_completion(body: Body) -> Completion:
    """Read the body of ``/chat/completions``, streamed or not.

    Raises:
        RejectedError: it holds an error in place of an answer.
        TransientModelError: cut off on its way, or not of this form; the input is not to blame.
    """
    text = body.text
    value = _joined_events(text) if _is_stream(text) else _load(text)
    if isinstance(value, list) and value:
        value = value[0]
    if rejection := error_within(value, body.headers):
        raise RejectedError(rejection)
    choices = value.get("choices") if isinstance(value, dict) else None
    choices = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    if not choices or not any(isinstance(_message(choice), dict) for choice in choices):
        raise _not_of_form()
    choice = next((one for one in choices if _text_of(_message(one))), choices[0])
    reason = str(choice.get("finish_reason") or "").lower()
    message = _message(choice) or {}
    refusal = message.get("refusal")
    return Completion(
        _text_of(message),
        is_cut_off=reason in _CUT_OFF,
        is_refused=reason in _FILTERED or (isinstance(refusal, str) and refusal != ""),
        usage=_usage(value),
    )


def read_embeddings(body: Body) -> Embeddings:
    """Read the body of ``/embeddings``.

    Raises:
        RejectedError, TransientModelError: as for ``read_completion``.
    """
    try:
        return Embeddings.model_validate_json(body.content)
    except ValidationError:
        value = _load(body.text)
    if rejection := error_within(value, body.headers):
        raise RejectedError(rejection)
    try:
        return Embeddings.model_validate(value)
    except ValidationError:
        raise _not_of_form() from None


def _usage(value: object) -> Usage | None:
    counts = value.get("usage") if isinstance(value, dict) else None
    usage = Usage.model_validate(counts) if isinstance(counts, dict) else None
    return usage if usage and (usage.prompt_tokens or usage.completion_tokens) else None


def _message(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    message = choice.get("message")
    return message if isinstance(message, dict) else None


def _text_of(message: Mapping[str, Any] | None) -> str:
    if message is None:
        return ""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_part_text(part) for part in content)
    calls = message.get("tool_calls")
    function = calls[0].get("function") if calls and _is_list_of_one_object(calls) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    texts = (content, message.get("reasoning_content"), message.get("reasoning"), arguments)
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    is_text = isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS
    text = part.get("text") if is_text and isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def _is_list_of_one_object(value: object) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)


def _is_stream(text: str) -> bool:
    return text.lstrip()[:6].startswith(("data:", "event:", ": ", ":\n"))


def _joined_events(text: str) -> dict[str, Any]:
    parts: dict[str, list[str]] = {}
    beside: dict[str, Any] = {}
    is_whole = False
    for chunk in _chunks(text):
        if chunk is None:
            is_whole = True
            continue
        if chunk.get("error"):
            return chunk
        if isinstance(chunk.get("usage"), dict):
            beside["usage"] = chunk["usage"]
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index"):
            continue
        is_whole = is_whole or choice.get("finish_reason") is not None
        beside["finish_reason"] = choice.get("finish_reason") or beside.get("finish_reason")
        _collect(choice.get("delta") or choice.get("message"), parts)
    if not is_whole:
        raise _not_of_form()
    message: dict[str, Any] = {name: "".join(pieces) for name, pieces in parts.items()}
    if "arguments" in message:
        message["tool_calls"] = [{"function": {"arguments": message.pop("arguments")}}]
    choice = {"message": message, "finish_reason": beside.get("finish_reason")}
    return {"choices": [choice], "usage": beside.get("usage")}


def _collect(delta: object, parts: dict[str, list[str]]) -> None:
    if not isinstance(delta, dict):
        return
    for name in ("content", "reasoning_content", "reasoning", "refusal"):
        value = delta.get(name)
        text = "".join(map(_part_text, value)) if isinstance(value, list) else value
        if isinstance(text, str) and text:
            parts.setdefault(name, []).append(text)
    for call in delta.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) and not call.get("index") else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str):
            parts.setdefault("arguments", []).append(arguments)


def _chunks(text: str) -> Iterator[dict[str, Any] | None]:
    for line in text.replace("\r", "\n").split("\n"):
        name, _, data = line.partition(":")
        if name != "data":
            continue
        if data.strip() == "[DONE]":
            yield None
            continue
        value = _load(data)
        if isinstance(value, dict):
            yield value


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _not_of_form() from None


def _not_of_form() -> TransientModelError:
    return TransientModelError(
        "The model server's response is not of OpenAI's form, or incomplete; check its base URL."
    )
