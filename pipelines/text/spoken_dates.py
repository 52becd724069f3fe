"""The day that a speaker refers to, from the words and the time of the message: "last Saturday", "yesterday",
"3 days ago"; in other languages of Europe the days near today, "next" and "last" with a weekday, and days and
weeks ago or ahead.

Only phrases that name one day are resolved; "last summer" or "in March" is left to a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from datetime import date, timedelta
from functools import cache

from strandline.pipelines.text.common_words import any_of, language_of, number_words, pattern, spoken_table

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_ISO_DATE = re.compile(r"\b(\d{4}-\d{2}-\d{2})\b")
_WEEKDAY = re.compile(
    rf"\b(?<!every )(last|this past|this coming|next) ({'|'.join(_WEEKDAYS)})\b"
    r"(?! of\b| in (?:the|each|every) month)"
)
# "Last Saturday" in Chinese is the Saturday of the week before, and weeks begin on Monday.
_WEEKDAY_OF_WEEK = re.compile(r"(上|这|下)个?(?:周|星期|礼拜)([一二三四五六日天])")
_WEEKS = {"上": -1, "这": 0, "下": 1}
_NEAR_DAYS = (-2, 2, -1, 0, 1)
_OFFSETS = {
    -2: ("day before yesterday", "前天", "おととい", "그저께"),
    2: ("day after tomorrow", "后天", "あさって", "모레"),
    -1: ("yesterday", "last night", "昨天", "昨晚", "昨日", "어제"),
    0: ("today", "tonight", "this morning", "this afternoon", "this evening", "今天", "今晚", "今日", "오늘"),
    1: ("tomorrow", "明天", "明日", "내일"),
    -7: ("last week", "上周", "上星期", "先週"),
    7: ("next week", "下周", "下星期", "来週"),
}


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
            if _is_any(unit, units) and (match := _compiled(phrase).search(folded)):
                return _at_distance(match, days, said_on)
    if not _named_days(folded):
        return None
    folded = _no_day(has_far=pattern("far").search(folded) is not None).sub(" ", folded)
    named = _named_days(folded)
    for days, phrases in _OFFSETS.items():
        if not named.isdisjoint(phrases):
            return said_on + timedelta(days=days)
    language = language_of(folded)
    names = sorted(spoken_table("days"), key=lambda name: name != language)
    days_of = (_day_in(name, named, folded, said_on, is_its=name == language) for name in names)
    return next(filter(None, days_of), None)


def _named_days(folded: str) -> set[str]:
    """The words of days near today, and of weekdays but those of English: they need "last" or "next"."""
    return set(_days_but(None).findall(folded)).difference(_WEEKDAYS)


def _is_any(phrase: str, words: Iterable[str]) -> bool:
    return any(re.fullmatch(phrase, word) for word in words)


@cache
def _days_but(left_out: int | None) -> re.Pattern[str]:
    """The words of days near today, without those of one distance, and of weekdays."""
    words, signs = [*_WEEKDAYS], list[str]()
    for days, phrases in _OFFSETS.items():
        for phrase in phrases if days != left_out else ():
            (words if phrase.isascii() else signs).append(phrase)
    for *near, _ahead, _back, weekdays in spoken_table("days").values():
        others = [phrase for days, phrase in zip(_NEAR_DAYS, near, strict=True) if days != left_out]
        words += "|".join([*others, *weekdays.split()]).split("|")
    return re.compile(rf"\b{any_of(words)}\b|{any_of(signs)}")


@cache
def _no_day(*, has_far: bool) -> re.Pattern[str]:
    """Words of days that name none; words near a far time, which take long, only for a text that has one."""
    near_far = rf"(?:\S{{1,20}} ){{0,2}}{pattern('far').pattern}(?:,? \S{{1,20}}){{0,2}}"
    texts = [pattern("no_day").pattern, *([near_far] if has_far else []), pattern("no_day_in_signs").pattern]
    return re.compile("|".join(texts))


@cache
def _any_unit() -> re.Pattern[str]:
    units = (unit for words in spoken_table("distances").values() for unit in words[:2])
    return re.compile(rf"\b{any_of('|'.join(units).split('|'))}\b")


# Each when a text names its unit: to compile the phrases of all languages takes a fifth of a second.
_compiled = cache(re.compile)


@cache
def _distances() -> list[tuple[str, str, int]]:
    """The word of a unit, a pattern with a number of them, and the days per unit, ago or ahead."""
    phrases = []
    for day, week, one, verbs, *ago_and_ahead in spoken_table("distances").values():
        numbers = rf"(\d{{1,3}}|{any_of([*one.split('|'), *number_words()])})"
        for unit, days in ((day, 1), (week, 7)):
            for sign, phrase in zip((-1, 1), ago_and_ahead, strict=False):
                text = phrase.replace("N", numbers).replace("U", rf"(?:{unit})\b").replace("V", verbs)
                phrases.append((unit, rf"\b(?:{text})(?!\w)", sign * days))
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


def _day_in(language: str, named: Set[str], folded: str, said_on: date, *, is_its: bool) -> date | None:
    *phrases, ahead, back, weekdays = spoken_table("days")[language]
    named_weekdays = [one for one in enumerate(weekdays.split()) if _is_any(one[1], named)]
    for which, words in (("next", ahead), ("last", back)):
        for number, name in named_weekdays:
            if re.search(rf"\b(?:{words}) (?:{name})\b|\b(?:{name}) (?:{words})\b", folded):
                return _weekday(which, number, said_on)
    for days, phrase in zip(_NEAR_DAYS, phrases, strict=True):
        # French "yesterday" is "here" in German.
        if (is_its or phrase != "hier") and _is_any(phrase, named):
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
