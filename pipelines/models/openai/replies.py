"""Reads OpenAI's response bodies as servers send them, strictly enough to notice a broken one.

A body is one JSON value, or a stream of them.  The text of an answer may stand in parts, next to thoughts, or
in the arguments of a call; the rest of a body is ignored.
"""

from __future__ import annotations

import base64
import codecs
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from strandline.pipelines.models.loose_json import find_values
from strandline.pipelines.models.openai.errors import RejectedError, error_within
from strandline.pipelines.models.openai.repetition import NO_END
from strandline.schemas.errors import TransientModelError

# More than any call takes; sums over many calls stay within the database's range.
MAX_TOKENS_OF_CALL = 2**31 - 1
_MAX_LEVELS = 8
# More than a stream has of any answer: an event is at least a token.
MAX_VALUES = 200_000

_CUT_OFF = re.compile(rf"length|max_|limit|truncat|{NO_END}")
_FILTERED = re.compile(r"filter|safety|recit|block|prohibit|spii|refus|guardrail|moderat|sensitive|policy")
_REASONS = ("finish_reason", "finishReason", "stop_reason")
_CALLS = "answer in a call"
# Where servers put an answer, thoughts, the arguments of a call, and a refusal.
_PLACES = {
    "answer": "content text output_text value parts parsed json output candidates generated_text completion"
    " response result results predictions generation outputText completions",
    "thoughts": "reasoning_content reasoning_text reasoning reasoning_details thinking",
    _CALLS: "tool_calls function_call function arguments input",
    "refusal": "refusal",
}
_KINDS = {place: kind for kind, places in _PLACES.items() for place in places.split()}
_THOUGHTS = re.compile(r"think|reason", re.IGNORECASE)
# Around the body of OpenAI's form, and around its list of vectors.
_AROUND = tuple(
    "body data d payload embeddings result response completion float float_ base64 output results vectors"
    " predictions values dense_vecs".split()
)
# What a body of OpenAI's form has and no answer of a model, which may be JSON itself.
_OF_BODIES = frozenset({"choices", "data", "embeddings", "embedding"})
_VECTORS = ("embedding", "vector", "embeddings", "values", "float", "base64", "dense_embedding")

_DECODER = json.JSONDecoder(strict=False)
_EVENTS = re.compile(r"^data:", re.MULTILINE)
# Characters that may stand before a value: also the marks that keep a browser from running a list.
_BEFORE_FIRST = re.compile(r"[^\w{\[<\"]{0,16}")
_BEFORE_NEXT = re.compile(r"[\s\0,;]*")
_END = "[DONE]"


class MiscountedError(Exception):
    """There are fewer or more vectors than texts, or their numbers say not whose they are."""


# The length of vectors: numbers read in the wrong order of bytes have any.
_LENGTHS = (1e-9, 1e9)


def _tokens(value: object) -> int:
    """A plausible count: the answer is paid for, and good, however it is counted."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(min(max(0, value), MAX_TOKENS_OF_CALL))  # in this order, NaN becomes 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens spent, from 0 to ``MAX_TOKENS_OF_CALL``; 0 where the server does not count them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def plus(self, more: Usage) -> Usage:
        """The sum of both."""
        prompt = _tokens(self.prompt_tokens + more.prompt_tokens)
        return Usage(prompt, _tokens(self.completion_tokens + more.completion_tokens))


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a response with a status of success, and its headers."""

    content: bytes
    headers: Mapping[str, str]

    def values(self) -> Iterator[Any]:
        """At most ``MAX_VALUES`` JSON values of the body, or of its events; None for the end of a stream.

        Raises:
            TransientModelError: the first of them is not JSON, or not whole; the others end before one.
        """
        text = self._text()
        if _EVENTS.search(text) and text[:1] not in "{[":
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            text = "\n".join(line[5:].strip() for line in lines if line.startswith("data:"))
        before, at = _BEFORE_FIRST, 0
        for _ in range(MAX_VALUES):
            if (begin := _end_of(before, text, at)) == len(text):
                return
            if text[begin : begin + len(_END)].upper() == _END:
                value, at = None, begin + len(_END)
            else:
                try:
                    value, at = _DECODER.raw_decode(text, begin)
                except (ValueError, RecursionError):
                    if before is _BEFORE_NEXT:
                        return  # a page's end, or an event that was cut
                    values = [one for one in find_values(text[begin:]) if one.is_outermost and not one.is_cut]
                    if not values:
                        raise not_of_form() from None
                    yield from (one.value for one in values)  # amid a gateway's words, or with slips
                    return
            yield value
            before = _BEFORE_NEXT

    def _text(self) -> str:
        _, _, named = self.headers.get("content-type", "").partition("charset=")
        # Gateways name sets of their own for JSON, which is in UTF-8; a body may end within a character.
        detected = codecs.getincrementaldecoder(json.detect_encoding(self.content))()
        decoders: list[Callable[[bytes], str]] = [detected.decode]
        decoders.append(partial(str, encoding=named.split(";")[0].strip(" \"'")))
        for decode in decoders:
            with suppress(LookupError, UnicodeError):
                text = decode(self.content)
                break
        else:
            text = self.content.decode("utf-8", "replace")
        return text.lstrip("\ufeff \t\r\n")  # some servers keep a connection alive by empty lines


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    skipped = pattern.match(text, at)
    return skipped.end() if skipped else at


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer.

    Attributes:
        text: empty if there is none.
        is_cut_off: it ended at the limit of tokens, or was read no further.
        has_no_end: it was read no further, so that more room would not help.
        is_broken: its stream stopped without an end; it may be whole all the same.
        is_refused: the model declined, or a filter took the answer away.
        usage: None if the server does not count.
    """

    text: str
    is_cut_off: bool = False
    has_no_end: bool = False
    is_broken: bool = False
    is_refused: bool = False
    usage: Usage | None = None


@dataclass(slots=True)
class _Choice:
    reason: str = ""
    parts: dict[str, list[str]] = field(default_factory=dict)

    def texts(self, kind: str) -> list[str]:
        """The texts of its answer, one for each call, or of its thoughts."""
        texts = ("".join(parts) for name, parts in self.parts.items() if name.startswith(kind))
        return [text for text in texts if text.strip()]

    def add(self, choice: Mapping[str, Any]) -> None:
        """Take in a choice of a body, or its part in a chunk of a stream."""
        message = choice.get("message") or choice.get("delta")
        holders = [one for one in (choice, message) if isinstance(one, dict)]
        reason = next((one[key] for one in holders for key in _REASONS if one.get(key)), None)
        self.reason = reason.lower() if isinstance(reason, str) and reason else self.reason
        if choice.get("message") and "done" not in choice:
            self.parts = {}  # a stream that ends with all of it
        self._collect(choice if message is None else message, "answer", _MAX_LEVELS)

    def _collect(self, value: object, kind: str, levels: int) -> None:
        if isinstance(value, str):
            self.parts.setdefault(kind, []).append(value)
        elif levels and isinstance(value, list):
            for item in value:
                self._collect(item, kind, levels - 1)
        elif levels and isinstance(value, dict):
            if _THOUGHTS.search(str(value.get("type", ""))):
                kind = "thoughts"
            if kind == _CALLS and isinstance(value.get("index"), int):
                kind = f"{_CALLS} {value['index']}"
            places = [place for place in value if place in _KINDS]
            if not places and levels < _MAX_LEVELS and "type" not in value:  # JSON that is no text
                self._collect(json.dumps(value), kind, levels)
            for place in places:
                inner = _KINDS[place]
                self._collect(value[place], inner if kind == "answer" else kind, levels - 1)


def read_completion(body: Body) -> Completion:
    """Read the body of ``/chat/completions``, streamed or not; an answer without choices is empty.

    Raises:
        RejectedError: it holds an error in place of an answer.
        TransientModelError: cut off on its way, or not of this form; the input is not to blame.
    """
    choices: dict[int, _Choice] = {}
    usage, is_of_form, is_whole, is_streamed = None, False, False, False
    for value in body.values():
        is_whole = is_whole or value is None
        whole = _opened(value, body.headers)
        for one in whole[:MAX_VALUES] if isinstance(whole, list) else [whole]:
            chunk = _opened(one, body.headers)
            offered = _choices(chunk)
            is_of_form = is_of_form or offered is not None
            usage = _usage(chunk) or usage
            for place, choice in enumerate(offered or ()):
                index = choice.get("index")
                choices.setdefault(index if isinstance(index, int) else place, _Choice()).add(choice)
                is_streamed = is_streamed or not {"delta", "done"}.isdisjoint(choice)
                is_whole = is_whole or choice.get("done") is True
    is_broken = is_streamed and not is_whole and not any(choice.reason for choice in choices.values())
    ordered = [choices[index] for index in sorted(choices)]
    kind = "answer" if any(choice.texts("answer") for choice in ordered) else "thoughts"
    best = next((one for one in ordered if one.texts(kind)), ordered[0] if ordered else _Choice())
    if not is_of_form or (is_broken and not best.texts("answer")):
        raise not_of_form()
    return Completion(
        "\n".join(text for choice in ordered for text in choice.texts(kind)),
        is_cut_off=is_broken or _CUT_OFF.search(best.reason) is not None,
        has_no_end=best.reason == NO_END,
        is_broken=is_broken,
        is_refused=_FILTERED.search(best.reason) is not None
        or any(map(str.strip, best.parts.get("refusal", ()))),
        usage=usage,
    )


def _opened(value: object, headers: Mapping[str, str], levels: int = _MAX_LEVELS) -> object:
    """The body that a gateway has put into another one, or a text; else the value.  Raises RejectedError."""
    if levels and isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        with suppress(ValueError, RecursionError):
            held = json.loads(value)
            is_body = not isinstance(held, dict) or not _OF_BODIES.isdisjoint(held)
            return _opened(held, headers, levels - 1) if is_body else value
    if rejection := error_within(value, headers):
        raise RejectedError(rejection)
    if levels and isinstance(value, dict) and not value.get("choices"):
        inner = (_opened(value[key], headers, levels - 1) for key in _AROUND if key in value)
        bodies = (one for one in inner if isinstance(one, dict))
        return next((one for one in bodies if _choices(one) or not _OF_BODIES.isdisjoint(one)), value)
    return value


def _choices(chunk: object) -> list[dict[str, Any]] | None:
    """The choices of a body or chunk; None if it is none."""
    if not isinstance(chunk, dict):
        return None
    offered = chunk.get("choices")
    if isinstance(offered, dict):
        offered = [offered] if {"message", "delta", "text"}.intersection(offered) else list(offered.values())
    if isinstance(offered, list):
        return [choice for choice in offered if isinstance(choice, dict)]
    is_choice = "choices" not in chunk and (
        isinstance(chunk.get("message") or chunk.get("delta"), dict)
        or any(
            _KINDS.get(key) == "answer" and isinstance(one, (list, str, dict)) for key, one in chunk.items()
        )
    )
    return [chunk] if is_choice else [] if "choices" in chunk else None


def read_embeddings(body: Body, expected: int) -> tuple[list[Sequence[float]], Usage | None]:
    """Read ``/embeddings``, or a bare list: for each text a vector, which is empty if it cannot be read.

    Raises:
        RejectedError: as for ``read_completion``.
        MiscountedError: fewer or more vectors than expected.
        TransientModelError: as for ``read_completion``.
    """
    value = _opened(next(body.values(), None), body.headers)
    vectors, numbers = [], []
    for row in _rows(value, _MAX_LEVELS):
        vector = _held(row)
        if not isinstance(row, (dict, list, str)) or isinstance(vector, dict):
            raise not_of_form()
        vectors.append(vector)
        numbers.append(_number(row.get("index", row.get("text_index"))) if isinstance(row, dict) else None)
    places = _in_order(numbers, expected)
    if places is None:
        raise MiscountedError
    return [_vector(vectors[place]) for place in places], _usage(value)


def _held(row: Any) -> Any:
    """The vector in a row, which may be an object in an object."""
    for _ in range(_MAX_LEVELS):
        name = next((name for name in _VECTORS if isinstance(row, dict) and name in row), None)
        row = row if name is None else row[name]
    return row


def _rows(value: object, levels: int) -> list[Any]:
    with suppress(ValueError, RecursionError):
        value = json.loads(value) if isinstance(value, str) else value
    if isinstance(value, dict) and "embedding" in value:
        return [value]
    if isinstance(value, dict) and value and all(map(str.isdecimal, value)):
        return list(value.values())
    if isinstance(value, dict) and levels:
        return _rows(next((value[key] for key in _AROUND if key in value), None), levels - 1)
    if not isinstance(value, list):
        raise not_of_form()
    is_around = len(value) == 1 and isinstance(value[0], dict) and isinstance(value[0].get("data"), list)
    return _rows(value[0], levels - 1) if is_around and levels else value


def _number(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, (int, float, str)) else None
    except (ValueError, OverflowError):
        return None


def _vector(value: object) -> Sequence[float]:
    """The numbers of a vector, also of one in a list or in base64; none if they cannot be read."""
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], (list, str)):
        value = value[0]
    try:
        is_list = isinstance(value, str) and "," in value
        numbers: Any = json.loads(f"[{str(value).strip(' []')}]") if is_list else value
        return _floats(numbers) if isinstance(numbers, str) else [float(item) for item in numbers]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ()


def _floats(text: str) -> Sequence[float]:
    """Float32 in base64, of either order of bytes; other numbers have another length."""
    plain = text.translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    raw = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    little, big = (struct.unpack_from(f"{order}{len(raw) // 4}f", raw) for order in "<>")
    least, most = _LENGTHS
    return big if not least < math.hypot(*little) < most and least < math.hypot(*big) < most else little


def _in_order(numbers: Sequence[int | None], expected: int) -> list[int] | None:
    """For each text the place of its vector; None if that cannot be told.

    A number that is left out is 0, as some encoders leave out zeros, and the first may be 1; where all
    are the same, or none is there, the order counts.
    """
    if len(numbers) != expected:
        return None
    if len(set(numbers)) <= 1:
        return list(range(expected))
    known = [number or 0 for number in numbers]
    first = min(known)
    if first not in (0, 1) or sorted(known) != list(range(first, first + expected)):
        return None
    places = [0] * expected
    for place, number in enumerate(known):
        places[number - first] = place
    return places


def _usage(value: object) -> Usage | None:
    counts = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(counts, dict):
        return None
    usage = Usage(_tokens(counts.get("prompt_tokens")), _tokens(counts.get("completion_tokens")))
    return usage if usage.prompt_tokens or usage.completion_tokens else None


def not_of_form() -> TransientModelError:
    """The error of a response that cannot be read."""
    return TransientModelError(
        "The model server's response is not of OpenAI's form, or incomplete; check its base URL."
    )
