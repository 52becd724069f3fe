"""The form in which texts are compared: one spelling of each character, made in linear time.

``unicodedata.normalize`` orders the marks that follow a letter in a time that grows with the square of their
number, and holds the GIL: a few hundred thousand marks would block a process for hours.  So each row of marks
is first divided, as Unicode's Stream-Safe Text Format (UAX #15) prescribes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from unicodedata import combining, normalize  # noqa: TID251 - here it is safe

MAX_MARKS = 30
# Combining Grapheme Joiner: it joins what stands around it, but nothing is ordered across it.
_DIVIDER = "\u034f"
_WORD = re.compile(r"[^\W_]+")


def normal_form(text: str) -> str:
    """``text`` in Unicode's form NFKC, which unifies width, ligatures and the order of marks."""
    return text if text.isascii() else normalize("NFKC", stream_safe(text))


def folded(text: str) -> str:
    """``text`` in the form for comparison without regard to case and width."""
    return normal_form(text).casefold()


def stream_safe(text: str) -> str:
    """``text`` with a divider after each ``MAX_MARKS`` marks in a row; most texts stay as they are."""
    edges = {character: _edges(character) for character in set(text)}
    if not any(leading for leading, _trailing, _all in edges.values()):
        return text
    return "".join(_divide(text, edges))


def _divide(text: str, edges: dict[str, tuple[int, int, bool]]) -> Iterator[str]:
    start = marks = 0
    for place, character in enumerate(text):
        leading, trailing, is_all_marks = edges[character]
        if marks + leading > MAX_MARKS:
            yield text[start:place]
            yield _DIVIDER
            start, marks = place, 0
        marks = marks + leading if is_all_marks else trailing
    yield text[start:]


@lru_cache(maxsize=4_096)
def _edges(character: str) -> tuple[int, int, bool]:
    """How many marks a character begins and ends with when decomposed, and whether it is all marks."""
    if character.isascii():
        return 0, 0, False
    parts = [combining(part) != 0 for part in normalize("NFKD", character)]
    leading = parts.index(False) if False in parts else len(parts)
    trailing = parts[::-1].index(False) if False in parts else len(parts)
    return leading, trailing, leading == len(parts)


def fingerprint(text: str) -> bytes:
    """A digest that is equal for the same words: case, width, punctuation and spacing do not count."""
    return blake2b(" ".join(_WORD.findall(folded(text))).encode(), digest_size=16).digest()
