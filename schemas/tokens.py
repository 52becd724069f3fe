"""Token counting: how large a message is for a model.

By default ``o200k_base`` over content, name and tool calls, without per-message overhead.  The
vocabulary ships with the package, so that nothing is fetched and a firewall is no obstacle.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import tiktoken

from strandline.schemas.messages import Message

Tokenizer = Callable[[str], Sequence[Any] | int]

DEFAULT_ENCODING = "o200k_base"

# tiktoken's regex engine overflows its stack on very long runs (a million spaces), and long runs cost
# more than linear time; in slices neither happens, at the price of one token or so per slice.
SLICE_CHARACTERS = 20_000

# What a part that is not text costs where the provider's own count is unknown (LlamaIndex's figures).
PART_TOKENS: Mapping[str, int] = {
    "image": 256,
    "image_url": 256,
    "input_image": 256,
    "audio": 256,
    "input_audio": 256,
    "video": 256,
    "video_url": 256,
    "document": 2048,
    "file": 2048,
    "input_file": 2048,
}

_cache_dir_lock = threading.Lock()


def count_message(message: Message, count_text: Callable[[str], int]) -> int:
    """Tokens of one message: its texts by ``count_text``, other parts by ``PART_TOKENS``."""
    return sum(count_text(text) for text in _texts(message) if text) + _estimates(message)


def text_counter(tokenizer: Tokenizer | None = None) -> Callable[[str], int]:
    """A function from text to its number of tokens; ``tokenizer`` may return a list or a count."""
    if tokenizer is None:
        return count_default
    given = tokenizer

    def count(text: str) -> int:
        result = given(text)
        return result if isinstance(result, int) else len(result)

    return count


def count_default(text: str) -> int:
    """Tokens of ``text`` in ``o200k_base``; text that looks like a special token is counted as text."""
    encoding = load_encoding(DEFAULT_ENCODING)
    if len(text) <= SLICE_CHARACTERS:
        return len(encoding.encode_ordinary(text))
    slices = (text[at : at + SLICE_CHARACTERS] for at in range(0, len(text), SLICE_CHARACTERS))
    return sum(len(encoding.encode_ordinary(piece)) for piece in slices)


@lru_cache(maxsize=4)
def load_encoding(name: str) -> tiktoken.Encoding:
    """Load a vocabulary from the package (about 0.5 s the first time, 60 MB; then kept).

    tiktoken looks only where ``TIKTOKEN_CACHE_DIR`` points, so that is set for the time of loading.
    """
    folder = resources.files("strandline.schemas") / "vocabularies"
    with _cache_dir_lock, resources.as_file(folder) as path:
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
    return load_encoding.cache_info().currsize > 0


def _texts(message: Message) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
    for part in _parts(message):
        for key in ("text", "thinking"):
            if isinstance(part.get(key), str):
                yield part[key]
    if message.name:
        yield message.name
    for call in message.tool_calls or ():
        function = call.get("function")
        if isinstance(function, Mapping):
            yield str(function.get("name") or "")
            arguments = function.get("arguments") or ""
            yield arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _estimates(message: Message) -> int:
    return sum(PART_TOKENS.get(part["type"], 0) for part in _parts(message))


def _parts(message: Message) -> Sequence[Mapping[str, Any]]:
    return () if message.content is None or isinstance(message.content, str) else message.content
