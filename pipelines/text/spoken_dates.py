"""The day that a speaker refers to, from the words and the time of the message: "last Saturday", "yesterday",
"3 days ago"; in other languages of Europe the days near today, and "next" and "last" with a weekday.

Only phrases that name one day are resolved; "last summer" or "in March" is left to a model.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import cache

from strandline.pipelines.text.common_words import language_of, pattern, spoken_days

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DAYS_PER = {"day": 1, "week": 7}

_ISO_DATE = re.compile(r"\b(\d{4}-\d{2}-\d{2})\b")
_WEEKDAY = re.compile(
    rf"(?<!every )\b(last|this past|this coming|next) ({'|'.join(_WEEKDAYS)})\b"
    r"(?! of\b| in (?:the|each|every) month)"
)
_AGO = re.compile(rf"\b(\d{{1,3}}|a|{'|'.join(_NUMBERS)}) (day|week)s? ago\b")
_AHEAD = re.compile(rf"\bin (\d{{1,3}}|a|{'|'.join(_NUMBERS)}) (day|week)s?(?: time)?\b(?! of)")
# "Last Saturday" in Chinese is the Saturday of the week before, and weeks begin on Monday.
_WEEKDAY_OF_WEEK = re.compile(r"(上|这|下)个?(?:周|星期|礼拜)([一二三四五六日天])")
_WEEKS = {"上": -1, "这": 0, "下": 1}
_OFFSETS = (
    (re.compile(r"\bday before yesterday\b|前天|おととい|그저께"), -2),
    (re.compile(r"\bday after tomorrow\b|后天|あさって|모레"), 2),
    (re.compile(r"\b(yesterday|last night)\b|昨天|昨晚|昨日|어제"), -1),
    (re.compile(r"\b(today|tonight|this (morning|afternoon|evening))\b|今天|今晚|今日|오늘"), 0),
    (re.compile(r"\btomorrow\b|明天|明日|내일"), 1),
    (re.compile(r"\blast week\b|上周|上星期|先週"), -7),
    (re.compile(r"\bnext week\b|下周|下星期|来週"), 7),
)


def spoken_date(text: str, said_on: date) -> date | None:
    """The day that ``text`` refers to, if it follows from the day on which it was said.

    "Last Friday" is the latest one before that day, "next Friday" the first one after it.
    """
    try:
        return _spoken_date(text.casefold(), said_on)
    except OverflowError:  # beyond the ends of the calendar
        return None


def _spoken_date(folded: str, said_on: date) -> date | None:
    if written := _ISO_DATE.search(folded):
        return as_date(written.group(1))
    if weekday := _WEEKDAY.search(folded):
        return _weekday(weekday.group(1), _WEEKDAYS.index(weekday.group(2)), said_on)
    if weekday := _WEEKDAY_OF_WEEK.search(folded):
        return _weekday_of_week(weekday.group(1), weekday.group(2), said_on)
    for phrase, sign in ((_AGO, -1), (_AHEAD, 1)):
        if match := phrase.search(folded):
            return said_on + sign * timedelta(days=_count(match.group(1)) * _DAYS_PER[match.group(2)])
    if not _any_day().search(folded):
        return None
    folded = pattern("no_day").sub(" ", folded)
    for phrase, days in _OFFSETS:
        if phrase.search(folded):
            return said_on + timedelta(days=days)
    language = language_of(folded)
    names = sorted(spoken_days(), key=lambda name: name != language)
    days_of = (day for name in names if (day := _day_in(name, folded, said_on, is_its=name == language)))
    return next(days_of, None)


@cache
def _any_day() -> re.Pattern[str]:
    names = (
        phrase
        for *phrases, weekdays in spoken_days().values()
        for phrase in [*phrases[:5], *weekdays.split()]
    )
    offsets = "|".join(phrase.pattern for phrase, _ in _OFFSETS)
    return re.compile(rf"\b(?:{'|'.join(names)})\b|{offsets}")


def _day_in(language: str, folded: str, said_on: date, *, is_its: bool) -> date | None:
    *phrases, ahead, back, weekdays = spoken_days()[language]
    for which, words in (("next", ahead), ("last", back)):
        for number, name in enumerate(weekdays.split()):
            if re.search(rf"\b(?:{words}) (?:{name})\b|\b(?:{name}) (?:{words})\b", folded):
                return _weekday(which, number, said_on)
    for days, phrase in zip((-2, 2, -1, 0, 1), phrases, strict=True):
        # French "yesterday" is "here" in German.
        if (is_its or phrase != "hier") and re.search(rf"\b(?:{phrase})\b", folded):
            return said_on + timedelta(days=days)
    return None


def as_date(text: str | None) -> date | None:
    """The day at the beginning of an ISO text; None if it does not begin with a day."""
    try:
        return date.fromisoformat((text or "")[:10])
    except ValueError:
        return None


def _weekday(which: str, weekday: int, said_on: date) -> date:
    if which in ("last", "this past"):
        return said_on - timedelta(days=(said_on.weekday() - weekday) % 7 or 7)
    return said_on + timedelta(days=(weekday - said_on.weekday()) % 7 or 7)


def _weekday_of_week(which: str, weekday: str, said_on: date) -> date:
    monday = said_on - timedelta(days=said_on.weekday())
    return monday + timedelta(weeks=_WEEKS[which], days=min("一二三四五六日天".index(weekday), 6))


def _count(word: str) -> int:
    if word.isdigit():
        return int(word)
    return 1 if word == "a" else _NUMBERS.index(word) + 1
