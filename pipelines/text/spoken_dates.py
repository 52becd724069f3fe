"""The day that a speaker refers to, from the words and the time of the message: "last Saturday", "yesterday",
"3 days ago"; in other languages of Europe the days near today, "next" and "last" with a weekday, and days and
weeks ago or ahead.

Only phrases that name one day are resolved; "last summer" or "in March" is left to a model.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import cache

from strandline.pipelines.text.common_words import (
    language_of,
    number_words,
    pattern,
    spoken_table,
)

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_ISO_DATE = re.compile(r"\b(\d{4}-\d{2}-\d{2})\b")
_WEEKDAY = re.compile(
    rf"(?<!every )\b(last|this past|this coming|next) ({'|'.join(_WEEKDAYS)})\b"
    r"(?! of\b| in (?:the|each|every) month)"
)
# "Last Saturday" in Chinese is the Saturday of the week before, and weeks begin on Monday.
_WEEKDAY_OF_WEEK = re.compile(r"(上|这|下)个?(?:周|星期|礼拜)([一二三四五六日天])")
_WEEKS = {"上": -1, "这": 0, "下": 1}
_NEAR_DAYS = (-2, 2, -1, 0, 1)
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
    if units := set(_any_unit().findall(folded)):
        for unit, phrase, days in _distances():
            if any(map(unit.fullmatch, units)) and (match := phrase.search(folded)):
                return _at_distance(match, days, said_on)
    if not _days_but(None).search(folded):
        return None
    folded = pattern("no_day").sub(" ", folded)
    for phrase, days in _OFFSETS:
        if phrase.search(folded):
            return said_on + timedelta(days=days)
    language = language_of(folded)
    names = sorted(spoken_table("days"), key=lambda name: name != language)
    days_of = (day for name in names if (day := _day_in(name, folded, said_on, is_its=name == language)))
    return next(days_of, None)


@cache
def _days_but(left_out: int | None) -> re.Pattern[str]:
    """The words of days near today, without those of one distance, and of weekdays."""
    names = [*_WEEKDAYS]
    for *phrases, _ahead, _back, weekdays in spoken_table("days").values():
        near = zip(_NEAR_DAYS, phrases, strict=True)
        names += [phrase for days, phrase in near if days != left_out] + weekdays.split()
    offsets = "|".join(phrase.pattern for phrase, days in _OFFSETS if days != left_out)
    return re.compile(rf"\b(?:{'|'.join(names)})\b|{offsets}")


@cache
def _any_unit() -> re.Pattern[str]:
    units = (unit for words in spoken_table("distances").values() for unit in words[:2])
    return re.compile(rf"\b(?:{'|'.join(units)})\b")


@cache
def _distances() -> list[tuple[re.Pattern[str], re.Pattern[str], int]]:
    """The word of a unit, a phrase with a number of them, and the days per unit, ago or ahead."""
    phrases = []
    known = "|".join(number_words())
    for day, week, one, verbs, *ago_and_ahead in spoken_table("distances").values():
        for unit, days in ((day, 1), (week, 7)):
            for sign, phrase in zip((-1, 1), ago_and_ahead, strict=False):
                text = phrase.replace("N", rf"(\d{{1,3}}|{one}|{known})").replace("U", rf"(?:{unit})\b")
                text = text.replace("V", verbs)
                phrases.append((re.compile(unit), re.compile(rf"\b(?:{text})(?!\w)"), sign * days))
    return phrases


def _at_distance(match: re.Match[str], days: int, said_on: date) -> date | None:
    """None if words beside the phrase change it: "two weeks ago yesterday", "2 or 3 days ago"."""
    number = match.lastindex or 0
    word, before = match.group(number), match.string[: match.start(number)]
    beside = [*before.split()[-3:], *match.string[match.end() :].split()[:2]]
    is_part = match.start(number) == match.start() and pattern("part_of_number").search(before)
    if is_part or _days_but(0).search(" ".join(beside)):
        return None
    return said_on + timedelta(days=days * (int(word) if word.isdigit() else number_words().get(word, 1)))


def _day_in(language: str, folded: str, said_on: date, *, is_its: bool) -> date | None:
    *phrases, ahead, back, weekdays = spoken_table("days")[language]
    for which, words in (("next", ahead), ("last", back)):
        for number, name in enumerate(weekdays.split()):
            if re.search(rf"\b(?:{words}) (?:{name})\b|\b(?:{name}) (?:{words})\b", folded):
                return _weekday(which, number, said_on)
    for days, phrase in zip(_NEAR_DAYS, phrases, strict=True):
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
