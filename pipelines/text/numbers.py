"""The numbers that a text says, in digits of any script or in words, and the months that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from strandline.pipelines.text.common_words import month_names, number_words, pattern
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.values.normal_form import folded, normal_form

_NUMBER = re.compile(r"\d+")
_THOUSANDS = re.compile(r"(?<=\d)[.,'\u00a0\u202f](?=\d{3}(?!\d))")
_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_DATE = re.compile(r"\d{1,4}(?:[-/.]\d{1,2}){2}")
_MAX_DIGITS = 1_000
_WORD = re.compile(r"[^\W\d_]+")
# Vowel signs are no letters to ``re``.
_NAME = re.compile(r"[^\s\d.,;:!?()]+")
# Numbers that stand before what they count, and in dates; a single one is an article as well.
_COUNTED = re.compile(
    "(?<![零一二三四五六七八九十百])([二两兩三四五六七八九十][一二三四五六七八九十]{0,3}|一(?=[月日])|두|세|네)"
    " ?(?=[个個只隻歳岁歲年月日匹本台人つ名点點时時次杯条件辆]|마리|명|개|살|번|대|잔|권)"
)
_DIGITS = dict(zip("一二三四五六七八九两兩두세네", (*range(1, 10), 2, 2, 2, 3, 4), strict=True))
_CLOCK = re.compile(r"(?<![\d:.])(1[0-2]|0?[1-9])(?:[:.](\d\d))? ?([ap])\.?m\b")


def numbers_in(text: str) -> set[int]:
    """The numbers of a text; a month that is named next to a number counts as its number."""
    plain = _in_digits(text)
    values = {int(digits) for digits in _NUMBER.findall(plain) if len(digits) < _MAX_DIGITS}
    spoken = number_words()
    values.update(spoken[word] for word in _WORD.findall(plain) if word in spoken)
    return values | months_in(text) if values else values


def _in_digits(text: str) -> str:
    """A text in small letters, with counts and times of day in digits."""
    plain = _COUNTED.sub(_count_in_digits, _THOUSANDS.sub("", folded(text)))
    return _CLOCK.sub(lambda time: f"{int(time[1]) % 12 + 12 * (time[3] == 'p')}:{time[2] or '00'}", plain)


def _count_in_digits(count: re.Match[str]) -> str:
    tens, ten, units = count[1].rpartition("十")
    return str(10 * _DIGITS.get(tens, 1) * bool(ten) + _DIGITS.get(units, 0))


def is_miscounted(text: str, parts: Iterable[str], *, has_dates: bool = True) -> bool:
    """Whether a word has a number in ``text``, or a date an order, and only others in the parts.

    ``has_dates``: days and lengths of time count too; they may have been computed.
    """
    numbers_of: dict[str, set[int]] = {}
    for part in parts:
        for word, number in _counts(part, has_dates):
            numbers_of.setdefault(word, set()).add(number)
    return any(number not in numbers_of.get(word, {number}) for word, number in _counts(text, has_dates))


def _counts(text: str, has_dates: bool) -> Iterator[tuple[str, int]]:
    """The words after a number, and months before one, each with it; dates in digits with their order."""
    plain, spoken, named = _in_digits(text), number_words(), month_names()
    tokens = _TOKEN.findall(plain)
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        number = int(token) if token.isdigit() and len(token) < _MAX_DIGITS else spoken.get(token)
        if number is not None:
            counted = after if before not in named else before
            if has_dates or not (counted in named or pattern("times").fullmatch(counted)):
                yield from ((word, number) for word in query_lexemes(counted) if word.isalpha())
    for date in _DATE.findall(plain) if has_dates else ():
        pieces = re.findall(r"\d+", date)
        yield " ".join(sorted(pieces)), int("".join(pieces))


def months_in(text: str) -> set[int]:
    """The months that a text names; "may" only with a capital."""
    plain = normal_form(text)
    words = {*_NAME.findall(plain.casefold()), *(word for word in _NAME.findall(plain) if word == "May")}
    known = month_names()
    return {known[word] for word in words if word in known}
