"""Aim: the speaker and the days that a question asks about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date, timedelta
from itertools import islice

from strandline.pipelines.text.common_words import any_of
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.text.spoken_dates import spoken_date

# A month without a year is that of any of so many years: the current one, the next, and those before.
YEARS_BACK = 15
# The fit of the day after a named one, on which it is spoken of as well.
NEXT_DAY_FIT = 0.95
# The fit of other days near a named one: it may have been spoken of before or after.
PART_FIT = 0.5
# Days around one counted back from today; people count roughly.
DAYS_AROUND = 3
# A date without a year has two in each year.
MAX_RANGES = 256

_MONTHS = (
    ("january", "januar", "jänner", "janvier", "enero"),
    ("february", "februar", "février", "febrero"),
    ("march", "märz", "mars", "marzo"),
    ("april", "avril", "abril"),
    ("may", "mai", "mayo"),
    ("june", "juni", "juin", "junio"),
    ("july", "juli", "juillet", "julio"),
    ("august", "août", "agosto"),
    ("september", "septembre", "septiembre"),
    ("october", "oktober", "octobre", "octubre"),
    ("november", "novembre", "noviembre"),
    ("december", "dezember", "décembre", "diciembre"),
)
_NUMBERS = {name: number for number, names in enumerate(_MONTHS, start=1) for name in names}
_SHORT = {names[0][:3]: number for number, names in enumerate(_MONTHS, start=1) if names[0] != "may"}
_NAMED = any_of([*sorted(_NUMBERS, key=len, reverse=True), *(rf"{short}\.?" for short in _SHORT)])
# Of a text whose words are one space apart. In ASCII, since other letters that count as the same without case
# (a dotless i, a long s) are not in the tables.
_DATE = re.compile(
    rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th|\.)?(?: of| de)? )?({_NAMED})(?![^\W\d_])\.?"
    r"(?: (\d{1,2})(?:st|nd|rd|th)?\b(?![\d:]))?(?: ?,? ?(?:de )?((?:19|20)\d\d))?",
    re.IGNORECASE | re.ASCII,
)
_CAPITALISED = re.compile(r"\b[^\W\d_a-z]\w*")
_YEAR_FIRST = re.compile(r"\b((?:19|20)\d\d)([-./])(\d{1,2})\2(\d{1,2})\b", re.ASCII)
_YEAR_LAST = re.compile(r"\b(\d{1,2})([-./])(\d{1,2})\2((?:19|20)\d\d)\b", re.ASCII)
# As Chinese, Japanese and Korean write a day or a month.
_WITH_SIGNS = re.compile(
    r"(?<!\d)(?=\d)(?:((?:19|20)\d\d) ?[年년] ?)?(\d{1,2}) ?[月월](?![曜요])(?: ?(\d{1,2}) ?[日号號일])?",
    re.ASCII,
)
# No sum and no measure.
_YEAR = re.compile(
    r"\b(?<![$€£¥.,])((?:19|20)\d\d)(?:\b|(?=[年년]))(?![.,]\d)"
    r"(?! ?(?:[$€£¥%]|dollars?|euros?|pounds?|bucks|yen|km|miles?|met(?:er|re)s?|m|kg|g|ml|people|users|words"
    r"|steps|calories|times)\b)",
    re.IGNORECASE,
)
# Months that are names of people, or verbs, as well; alone, they are months after such words.
_ALSO_NAMES = frozenset({"april", "may", "june", "august", "jan", "mai"})
_OF_TIME = re.compile(
    r"\b(?:in|during|of|since|until|till|by|from|before|after|early|late|mid|last|this|next|im|seit)[\s-]+(\w+)",
    re.IGNORECASE,
)
# Verbs or other words of English as well.
_DOUBTFUL = frozenset({"march", "mars", "mar", "juni", "juli"})
# Small, or with a capital letter where that is no other word: "Mon" is a day, "US" a country.
_FIRST_PERSON = re.compile(
    r"\b(?:[Ii]|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself|[Ww]e|[Oo]urs?|us|[Ii]ch|[Mm]ir|[Mm]ich|[Mm]eine?[nmrs]?|[Ww]ir|uns"
    r"|[Jj]e|[Mm]oi|mon|mes|[Nn]ous|mi|mis|[Yy]o|[Nn]osotros)\b",
    re.ASCII,
)
_LAST = re.compile(r"\blast (week|month|year)\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class DayRange:
    """Days that a question names; ``fit`` is less than 1 if they only contain the day that it names."""

    first: date
    last: date
    fit: float


@dataclass(frozen=True, slots=True)
class Aim:
    """Whether a question speaks of the asker, the lexemes that may be names, and the days that it names."""

    is_own: bool = False
    names: tuple[str, ...] = ()
    days: tuple[DayRange, ...] = ()

    def fit(self, said_on: date) -> float:
        """How well a day fits, 0 to 1; 1 if no date is named."""
        if not self.days:
            return 1.0
        return max((days.fit for days in self.days if days.first <= said_on <= days.last), default=0.0)


NO_AIM = Aim()


def aim_of(question: str, today: date) -> Aim:
    plain = " ".join(question.replace("\u2019", "'").split())
    words = dict.fromkeys(_CAPITALISED.findall(plain))
    names = query_lexemes(" ".join(word for word in words if word[0].isalpha() and not word[0].islower()))
    # Of days to come nothing was said yet, but on others.
    days = islice((days for days in _days(plain, today) if days.first <= today), MAX_RANGES)
    return Aim(_FIRST_PERSON.search(plain) is not None, tuple(names), tuple(days))


def _days(question: str, today: date) -> Iterator[DayRange]:
    named = [*_written_dates(question), *_signed_dates(question), *_named_dates(question)]
    for year, month, day in named:
        yield from _of_date(year, month, day, today)
    if not named:
        years = {int(year) for year in _YEAR.findall(question)}
        for year in sorted(years):
            yield DayRange(date(year, 1, 1), date(year, 12, 31), 1.0)
        if not years:
            yield from _days_before(question, today)


def _written_dates(question: str) -> Iterator[tuple[int, int, int]]:
    for year, _, month, day in _YEAR_FIRST.findall(question):
        yield from _days_of(int(year), (int(month), int(day)))
    for first, mark, second, year in _YEAR_LAST.findall(question):
        day_first = int(second), int(first)
        yield from _days_of(int(year), day_first, *([day_first[::-1]] if mark != "." else []))


def _days_of(year: int, *readings: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    for month, day in dict.fromkeys(readings):
        if _day(year, month, day) is not None:
            yield year, month, day


def _signed_dates(question: str) -> Iterator[tuple[int | None, int, int | None]]:
    for year, month, day in _WITH_SIGNS.findall(question):
        if 1 <= int(month) <= 12:
            yield int(year) if year else None, int(month), int(day) if day else None


def _named_dates(question: str) -> Iterator[tuple[int | None, int, int | None]]:
    dates = _DATE.findall(question)
    people = _ALSO_NAMES.intersection(name.lower().rstrip(".") for _, name, *_ in dates if name[0].isupper())
    if people:
        people -= {word.lower() for word in _OF_TIME.findall(question)}
    for before, name, after, year in dates:
        plain = name.lower().rstrip(".")
        is_alone = not (before or after or year)
        if is_alone and (name[0].islower() or plain in _DOUBTFUL or plain in people):
            continue
        month = _NUMBERS.get(plain) or _SHORT[plain]
        day = before or after
        yield int(year) if year else None, month, int(day) if day else None


def _of_date(year: int | None, month: int, day: int | None, today: date) -> Iterator[DayRange]:
    years = [year] if year else range(today.year + 1, today.year - YEARS_BACK - 1, -1)
    for number in years:
        whole = _month(number, month)
        named = None if day is None else _day(number, month, day)
        if named is not None:
            yield DayRange(named, named, 1.0)
            yield DayRange(named + timedelta(days=1), named + timedelta(days=1), NEXT_DAY_FIT)
        yield DayRange(*whole, 1.0 if named is None else PART_FIT)


def _days_before(question: str, today: date) -> Iterator[DayRange]:
    """Days before today: "what shall I cook today" asks for older messages."""
    units = {unit.lower() for unit in _LAST.findall(question)}
    if "week" in units:
        yield DayRange(today - timedelta(days=13), today - timedelta(days=1), 1.0)
    if "month" in units:
        last = today.replace(day=1) - timedelta(days=1)
        yield DayRange(last.replace(day=1), last, 1.0)
    if "year" in units:
        yield DayRange(date(today.year - 1, 1, 1), date(today.year - 1, 12, 31), 1.0)
    day = None if units else spoken_date(question, today)
    if day is not None and day.year > MINYEAR and day < today:
        around = timedelta(days=DAYS_AROUND)
        yield DayRange(day, day, 1.0)
        yield DayRange(day - around, day + around, PART_FIT)


def _month(year: int, month: int) -> tuple[date, date]:
    first = date(year, month, 1)
    following = date(year + month // 12, month % 12 + 1, 1)
    return first, following - timedelta(days=1)


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(min(max(year, MINYEAR), MAXYEAR - 1), month, day)
    except ValueError:
        return None
