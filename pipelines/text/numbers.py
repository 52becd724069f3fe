"""The numbers that a text says, in digits of any script or in words, and the months that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from strandline.pipelines.text.common_words import any_of, month_names, number_words, pattern
from strandline.pipelines.text.lexemes import query_lexemes, remembered
from strandline.schemas.values.normal_form import folded, normal_form

_NUMBER = re.compile(r"(?:(?<![^\s(])[-\u2212]|\b(?:minus|moins|menos|meno|eksi|минус) )?(?:[$€£¥₽] ?)?(\d+)")
_THOUSANDS = re.compile(r"(?<=\d)[.,'\u00a0\u202f](?=\d{3}(?!\d))")
_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_DATE = re.compile(r"\d{1,4}(?:[-/.]\d{1,2}){2}")
_MAX_DIGITS = 1_000
# Between the words of one number, and words for one that may stand apart.
_JOINED = "(?: and | y | e | et |-et-|und|en|ën|[ -]|)"
_ET, _ONES = (" et ", "-et-"), frozenset({"one", "bir", "jeden", "один", "одна"})
# ``re`` does not count vowel signs as letters.
_NAME = re.compile(r"[^\s\d.,;:!?()]+")
# Numbers that stand before what they count, and in dates; a single one is an article as well.
_COUNTED = re.compile(
    "(?<![零一二三四五六七八九十百])([二两兩三四五六七八九十][一二三四五六七八九十]{0,3}|一(?=[月日])|두|세|네)"
    " ?(?=[个個只隻歳岁歲年月日匹本台人つ名点點时時次杯条件辆]|마리|명|개|살|번|대|잔|권)"
)
_DIGITS = dict(zip("一二三四五六七八九两兩두세네", (*range(1, 10), 2, 2, 2, 3, 4), strict=True))
_HALF = re.compile(r"(?<!\w)(halb|half past) (\d{1,2})(?!\d|[:.]\d)")
_CLOCK = re.compile(r"(?<![\d:.])(1[0-2]|0?[1-9])(?:[:.](\d\d))? ?([ap])\.?m\b")


@remembered
def numbers_in(text: str) -> frozenset[int]:
    """The numbers of a text with their signs; a month that is named next to a number counts as its number."""
    signed = (match for match in _NUMBER.finditer(in_digits(text)) if len(match[1]) < _MAX_DIGITS)
    values = frozenset(int(match[1]) * (1 if match[0][0] in "0123456789$€£¥₽" else -1) for match in signed)
    return values | months_in(text) if values else values


@remembered
def in_digits(text: str) -> str:
    """A text in small letters, with numbers and times of day in digits."""
    plain = _COUNTED.sub(_count_in_digits, _THOUSANDS.sub("", folded(text)))
    plain = _number_pattern().sub(_words_in_digits, plain)
    plain = _HALF.sub(lambda time: f"{int(time[2]) - (time[1] == 'halb')}:30", plain)
    return _CLOCK.sub(lambda time: f"{int(time[1]) % 12 + 12 * (time[3] == 'p')}:{time[2] or '00'}", plain)


def _count_in_digits(count: re.Match[str]) -> str:
    tens, ten, units = count[1].rpartition("十")
    return str(10 * _DIGITS.get(tens, 1) * bool(ten) + _DIGITS.get(units, 0))


@cache
def _number_pattern() -> re.Pattern[str]:
    """The words of one number or several, one behind the other."""
    first = any_of([*_forms_of("numbers"), "ein(?=und)", "een(?=en)"])
    word = any_of([*_forms_of("numbers_behind"), *_forms_of("numbers")])
    return re.compile(rf"(?<!\w){first}(?:{_JOINED}{word}){{0,7}}(?!\w)")


def _forms_of(name: str) -> list[str]:
    return [word.replace("_", "[ -]") for word in sorted(number_words(name), key=len, reverse=True)]


@cache
def _word_pattern() -> re.Pattern[str]:
    words = sorted([*_forms_of("numbers"), *_forms_of("numbers_behind")], key=len, reverse=True)
    return re.compile(f"({_JOINED})({'|'.join(words)})")


def _words_in_digits(run: re.Match[str]) -> str:
    """Numbers that are spoken one behind the other: "two hundred and five", "twenty seven"."""
    values = number_words() | number_words("numbers_behind")
    pieces: list[str | int] = []
    for joined, word in _word_pattern().findall(run[0]):
        value = values[word] if word in values else values[re.sub("[ -]", "_", word)]
        last = pieces[-1] if pieces else ""
        number = None if isinstance(last, str) else _sum(last, joined, word, value)
        if number is not None:
            pieces[-1] = number
        elif pieces and not joined:
            return run[0]  # "zweiten" is neither "zwei" nor "ten"
        elif pieces and word in number_words("numbers_behind"):
            pieces.append(joined + word)
        else:
            pieces += [joined, value]
    return "".join(map(str, pieces))


def _sum(before: int, joined: str, word: str, value: int) -> int | None:
    """The number that a word makes with those before it; None if it begins another."""
    last, tens = before % 1000, before % 100
    if joined in ("und", "en", "ën"):  # "fünfundzwanzig"
        return before + value if 0 < tens < 10 and 20 <= value < 100 else None
    is_article = joined == " " and word in number_words("numbers_behind") and word not in _ONES
    if is_article or (joined == " and " and tens) or (joined in _ET and value not in (1, 11)):
        return None
    if value == 1000:
        return before * value if before < value else None
    if value == 100 and 0 < last < 10:
        return before + last * (value - 1)
    most = 20 if tens in (60, 80) else 10
    fits = value < most if tens >= 20 and tens % 10 == 0 else value < (100 if last else 1000) and not tens
    return before + value if fits else None


def is_miscounted(text: str, parts: Iterable[str], *, has_dates: bool = True) -> bool:
    """Whether a word has a number in ``text``, or a date an order, and only others in the parts.

    ``has_dates``: days and lengths of time count too; they may have been computed.
    """
    counted = list(_counts(text, has_dates))
    numbers_of: dict[str, set[int]] = {}
    for part in parts if counted else ():
        for word, number in _counts(part, has_dates):
            numbers_of.setdefault(word, set()).add(number)
    return any(number not in numbers_of.get(word, {number}) for word, number in counted)


def _counts(text: str, has_dates: bool) -> Iterator[tuple[str, int]]:
    """The words after a number, and months before one, each with it; dates in digits with their order."""
    plain, named = in_digits(text), month_names()
    tokens = _TOKEN.findall(plain)
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if token.isdigit() and len(token) < _MAX_DIGITS:
            number = int(token)
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
