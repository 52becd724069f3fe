"""Token counting: how large a message is for a model.

By default ``o200k_base`` counts content, name, tool calls and reasoning, without per-message overhead.  The
vocabulary ships with the package, so that nothing is downloaded and a firewall does not matter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from functools import partial
from importlib import resources
from typing import Any

import tiktoken

from strandline.schemas.display.shown_text import MAX_QUOTED_CHARACTERS, quote, shown
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.forking import undivided
from strandline.schemas.values.content_parts import (
    KEPT,
    MIN_PAYLOAD_CHARACTERS,
    captions,
    kind_of,
    source_text,
    split_payloads,
)
from strandline.schemas.values.foreign_values import is_empty, plain_scalar
from strandline.schemas.values.message import Message, plain
from strandline.schemas.values.policy import MIN_MESSAGE_TOKENS

Tokenizer = Callable[[str], Sequence[Any] | int]

DEFAULT_ENCODING = "o200k_base"

# tiktoken's regex engine overflows its stack on very long runs (a million spaces), and long runs cost
# more than linear time; in slices neither happens, at the price of one token or so per slice.
SLICE_CHARACTERS = 20_000

# The rest of longer JSON is estimated by its length, since it is seldom read as text.
MAX_COUNTED_JSON_CHARACTERS = 20_000

# Tokens of a part by the kind of its data, where the provider's own count is unknown (LlamaIndex's figures).
PART_TOKENS: Mapping[str, int] = {"image": 256, "audio": 256, "video": 256, "document": 2048}

# Counting this much text takes about 0.2 ms; more is moved off the event loop.
INLINE_CHARACTERS = 2_000

_TEXT_KEYS = ("text", "thinking")

_encodings: dict[str, tiktoken.Encoding] = {}


def count_message(
    message: Message, count_text: Callable[[str], int], part_tokens: Mapping[str, int] = PART_TOKENS
) -> int:
    """Tokens of one message, at least ``MIN_MESSAGE_TOKENS``.

    ``count_text`` counts its texts, ``part_tokens`` its images and other parts that are not text; anything
    else (a part of an unknown type, an object that a provider added) counts by its JSON.  Data in base64
    counts as a part of its kind, wherever it is.
    """
    if isinstance(message.content, str) and not (message.name or message.tool_calls or message.extra):
        text = message.content  # as with most messages
        if len(text) < MIN_PAYLOAD_CHARACTERS:
            return max(MIN_MESSAGE_TOKENS, count_text(text) if text else 0)
        return max(MIN_MESSAGE_TOKENS, _count_readable(text, count_text, part_tokens))
    return max(MIN_MESSAGE_TOKENS, _count(message, count_text, part_tokens))


def count_parts(
    parts: Sequence[Mapping[str, Any]],
    count_text: Callable[[str], int],
    part_tokens: Mapping[str, int] = PART_TOKENS,
) -> int:
    """Tokens of content parts that become part of a message."""
    return _count(Message("user", parts), count_text, part_tokens)


def _count(message: Message, count_text: Callable[[str], int], part_tokens: Mapping[str, int]) -> int:
    tokens, texts = 0, [*_texts(message)]
    values: list[object] = [one for one in message.extra.values() if not isinstance(one, (str, type(None)))]
    for part in _parts(message):
        texts += [part[key] for key in _TEXT_KEYS if isinstance(part.get(key), str)]
        source = source_text(part)
        texts.append(source)
        if part["type"] in _TEXT_KEYS or KEPT in part:
            continue
        kind = kind_of(part)
        if kind or source:
            tokens += part_tokens[kind] if kind and not source else 0
            texts += captions(part)
        else:
            values.append(_beside_texts(part))
    tokens += sum(_count_readable(text, count_text, part_tokens) for text in texts if text)
    jsons = map(_to_json, values)
    return tokens + sum(
        _count_readable(one, count_text, part_tokens, MAX_COUNTED_JSON_CHARACTERS) for one in jsons
    )


def part_estimates(estimates: Mapping[str, int] | None) -> Mapping[str, int]:
    """All estimates, by the kind of data (``image``, ``audio``, …): those given, else the defaults.

    Raises:
        ConfigurationError: a kind is unknown, or an estimate is not a whole number, 0 or above.
    """
    if is_empty(estimates):
        return PART_TOKENS
    if not isinstance(estimates, Mapping):
        raise ConfigurationError(f"part_tokens is {quote(estimates)}; it must map kinds of parts to numbers.")
    try:
        pairs = [(plain_scalar(kind), plain_scalar(tokens)) for kind, tokens in estimates.items()]
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise ConfigurationError("part_tokens cannot be read as a mapping.") from error
    for kind, tokens in pairs:
        if not isinstance(kind, str) or kind not in PART_TOKENS:
            raise ConfigurationError(
                f"part_tokens names {quote(kind)}; the kinds of content parts are {', '.join(PART_TOKENS)}."
            )
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
            raise ConfigurationError(
                f"part_tokens[{quote(kind)}] is {quote(tokens)}; it must be a whole number, 0 or above."
            )
    return {**PART_TOKENS, **dict(pairs)}


def text_counter(tokenizer: Tokenizer | None = None) -> Callable[[str], int]:
    """A function from text to its number of tokens; ``tokenizer`` may return a list or a count.

    The function raises ConfigurationError if the tokenizer returns something else.

    Raises:
        ConfigurationError: ``tokenizer`` cannot be called.
    """
    if tokenizer is None:
        return count_default
    if not callable(tokenizer):
        raise ConfigurationError(
            f"tokenizer_fn is {quote(tokenizer)}; it must be a function from text to a list of tokens or"
            " their number. A name is not accepted; give a function, such as"
            " tiktoken.get_encoding('cl100k_base').encode."
        )
    # Not a function in here, which could not be pickled.
    return partial(_count_by, tokenizer)


def _count_by(tokenizer: Tokenizer, text: str) -> int:
    try:
        result = tokenizer(text)
    except Exception as error:  # the edge to foreign code: the caller's function
        kind = shown(type(error).__name__, most=MAX_QUOTED_CHARACTERS)
        raise ConfigurationError(f"tokenizer_fn raised {kind}; it must count any text.") from error
    tokens = len(result) if isinstance(result, Sized) and _is_list(result) else result
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise ConfigurationError(
            f"tokenizer_fn returned {type(result).__name__}; it must return a list of tokens or their"
            " number. (If a tokenizer returns more, pass its ids: lambda text: encode(text).ids)"
        )
    return tokens


def count_default(text: str) -> int:
    """Tokens of ``text`` in ``o200k_base``; text that looks like a special token is counted as text."""
    encoding = load_encoding(DEFAULT_ENCODING)
    if len(text) <= SLICE_CHARACTERS:
        return len(encoding.encode_ordinary(text))
    slices = (text[at : at + SLICE_CHARACTERS] for at in range(0, len(text), SLICE_CHARACTERS))
    return sum(len(encoding.encode_ordinary(piece)) for piece in slices)


def load_encoding(name: str) -> tiktoken.Encoding:
    """A vocabulary of the package; loading it takes about 0.5 s, once, and 60 MB."""
    known = _encodings.get(name)
    if known is None:
        known = _encodings[name] = _read_encoding(name)
    return known


def _read_encoding(name: str) -> tiktoken.Encoding:
    """Load it with ``TIKTOKEN_CACHE_DIR`` set, since tiktoken looks only there."""
    # A child forked during this would find tiktoken locked, modules half imported, and the variable changed.
    with undivided, resources.as_file(resources.files("strandline.producers") / "vocabularies") as path:
        before = os.environ.get("TIKTOKEN_CACHE_DIR")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(path)
        try:
            return tiktoken.get_encoding(name)
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before


def is_loaded() -> bool:
    """Whether the default vocabulary is in memory, so that counting is quick."""
    return DEFAULT_ENCODING in _encodings


def _texts(message: Message) -> Iterator[str]:
    """The texts of a message but for those of its parts."""
    if isinstance(message.content, str):
        yield message.content
    if message.name:
        yield message.name
    for call in message.tool_calls or ():
        function = call.get("function")
        if isinstance(function, Mapping):
            yield str(function.get("name") or "")
            arguments = function.get("arguments") or ""
            yield arguments if isinstance(arguments, str) else _to_json(arguments)
        elif call:
            yield _to_json(call)
    # A provider's own fields (reasoning, a refusal) are sent back to it, so they count as well.
    yield from (text for text in message.extra.values() if isinstance(text, str))


def _beside_texts(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if not (key in _TEXT_KEYS and isinstance(value, str))}


def _count_readable(
    text: str, count_text: Callable[[str], int], part_tokens: Mapping[str, int], most: int | None = None
) -> int:
    readable, kinds = split_payloads(text)
    counted = count_text(readable[:most])
    if most is not None and len(readable) > most:
        counted = -(-counted * len(readable) // most)
    return counted + sum(part_tokens.get(kind, part_tokens["image"]) for kind in kinds)


def _to_json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, default=str)


def _is_list(result: Sized) -> bool:
    """Whether the result's length is the number of tokens; a mapping's (ids, masks, …) is not."""
    return not isinstance(result, (Mapping, str, bytes))


def _parts(message: Message) -> Sequence[Mapping[str, Any]]:
    return () if message.content is None or isinstance(message.content, str) else message.content
