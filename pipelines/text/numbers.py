"""The numbers that a text says, in digits of any script or in words, and the months that it names."""

from __future__ import annotations

import re

from strandline.pipelines.text.common_words import month_names, number_words
from strandline.schemas.values.normal_form import folded, normal_form

_NUMBER = re.compile(r"\d+")
_THOUSANDS = re.compile(r"(?<=\d)[.,'\u00a0\u202f](?=\d{3}(?!\d))")
_WORD = re.compile(r"[^\W\d_]+")
# Vowel signs are no letters to ``re``.
_NAME = re.compile(r"[^\s\d.,;:!?()]+")
_COUNTED = re.compile("([两兩二三四五六七八九十])(?=[个個只歳岁年月日匹本台人つ名])")
_COUNTS = dict(zip("两兩二三四五六七八九十", (2, 2, *range(2, 11)), strict=True))


def numbers_in(text: str) -> set[int]:
    """The numbers of a text; a month that is named next to a number counts as its number."""
    plain = folded(text)
    values = {int(digits) for digits in _NUMBER.findall(_THOUSANDS.sub("", plain)) if len(digits) < 1_000}
    words, spoken = _WORD.findall(plain), number_words()
    values.update(spoken[word] for word in words if word in spoken)
    values.update(_COUNTS[character] for character in _COUNTED.findall(plain))
    return values | months_in(text) if values else values


def months_in(text: str) -> set[int]:
    """The months that a text names; "may" only with a capital."""
    plain = normal_form(text)
    words = {*_NAME.findall(plain.casefold()), *(word for word in _NAME.findall(plain) if word == "May")}
    known = month_names()
    return {known[word] for word in words if word in known}
