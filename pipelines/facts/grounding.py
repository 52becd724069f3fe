"""Grounding: a model's findings are checked against the messages that they are said to come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

from strandline.pipelines.facts.statements import names_in, telling_words
from strandline.pipelines.models.answers import ExtractedFact
from strandline.pipelines.models.contract import TranscriptLine
from strandline.pipelines.text.common_words import is_foreign, language_of, marks_of_languages, pattern
from strandline.pipelines.text.numbers import is_miscounted, months_in, numbers_in
from strandline.pipelines.text.spoken_dates import spoken_date
from strandline.schemas.values.normal_form import folded

# Roles whose words can be a fact. The output of tools and instructions to the assistant belong to no speaker;
# they become a fact when a speaker in the conversation says them.
SPEAKERS = frozenset({"user", "assistant"})

EARLIEST = date(1800, 1, 1)
LATEST_AHEAD = timedelta(days=36_525)
# A date or a name may stand up to so many lines before the line that refers to it ("yes", "on that day").
LINES_BEFORE = 10
_SHORT_STEM = 3
# A day within this time of a message needs no word for it: "on Saturday", "last month" and "soon" in any
# language point no further, and not all of them are known here.
NEAR = timedelta(days=31)
# "Last year", "next summer", "at Christmas" point no further.
_WITHIN_TWO_YEARS = timedelta(days=730)
_DAYS_PER_UNIT = (7, 30.44, 365.25)
# How exact a number of weeks, months or years is.
_EXACTNESS = 0.25
_BUDDHIST_YEARS = 543


def ground_fact(
    fact: ExtractedFact, lines: Sequence[TranscriptLine], context: Sequence[TranscriptLine] = ()
) -> ExtractedFact | None:
    """The fact as its messages support it; None if they have no speaker, hold nothing of it or count else.

    ``messages`` keeps the others; ``said_by`` is one of their speakers, or None if the model named
    another and they have several; ``about_date`` is a possible day that the lines can mean, or else the day
    that a single message names.

    Args:
        context: the lines before the first, oldest first.
    """
    cited = [line for number in fact.messages if (line := lines[number - 1]).role in SPEAKERS]
    if not cited:
        return None
    first = cited[0].number - 1
    before = [*context, *lines[:first]] if first < LINES_BEFORE else lines[first - LINES_BEFORE : first]
    spoken = [line.text for line in (*cited, *before[-LINES_BEFORE:])]
    if _is_made_up(fact.text, spoken) or is_miscounted(fact.text, spoken, has_dates=False):
        return None
    return replace(
        fact,
        messages=tuple(line.number for line in cited),
        said_by=_speaker(fact.said_by, cited),
        about_date=_date(fact.about_date, fact.text, cited, spoken),
    )


def _is_made_up(text: str, spoken: Sequence[str]) -> bool:
    """Whether a text names something, and no line in its language has a word or number of it."""
    if not names_in(text):
        return False
    words = [word[:_SHORT_STEM] for word in (*telling_words(text), *map(folded, names_in(text)))]
    numbers = numbers_in(text)
    for line in spoken:
        plain = folded(line)
        if any(word in plain for word in words) or (numbers and numbers_in(line) & numbers):
            return False
    return not is_foreign(text, spoken)


def _speaker(said_by: str | None, cited: Sequence[TranscriptLine]) -> str | None:
    roles = {line.name or line.role: line.role for line in cited}
    name = (said_by or "").strip()
    if name.casefold() in map(str.casefold, roles):
        return name
    speakers = [
        speaker
        for speaker, role in roles.items()
        if name.casefold() in (role, f"{speaker} ({role})".casefold()) or len(roles) == 1
    ]
    return speakers[0] if len(speakers) == 1 else None


def _date(
    about: date | None, text: str, cited: Sequence[TranscriptLine], spoken: Sequence[str]
) -> date | None:
    latest = max(line.created_at for line in cited).date()
    if about is not None:
        if not EARLIEST <= about <= latest + LATEST_AHEAD:
            return None
        # The model may have written out words of a language that is not known here.
        known = [*spoken] if language_of(cited[0].text) in marks_of_languages() else [*spoken, text]
        if any(may_mean(one, about, line.created_at.date()) for line in cited for one in known):
            return about
    if len(cited) > 1:
        return None
    # The model has not resolved it, which is easily done where the fact kept the words of the message.
    (line,) = cited
    named = spoken_date(text, line.created_at.date())
    return named if named == spoken_date(line.text, line.created_at.date()) else None


def may_mean(text: str, day: date, said_on: date) -> bool:
    """Whether ``text``, spoken on a day, can speak of ``day``.

    It can if ``day`` is near; if the text names its year, its month, or its day in a language without known
    months; or if it speaks of about so many years, months or weeks.
    """
    distance = abs(day - said_on)
    if distance <= NEAR or spoken_date(text, said_on) == day:
        return True
    spoken, named = numbers_in(text), months_in(text)
    if {day.year, day.year + _BUDDHIST_YEARS} & spoken or {day.day, day.month} <= spoken:
        return True
    is_known = language_of(text) in marks_of_languages()
    if (day.month in named and distance <= _WITHIN_TWO_YEARS) or (
        day.day in spoken and not named and not is_known
    ):
        return True
    speaks_of_times = pattern("times").search(text.casefold()) is not None
    return (speaks_of_times and distance <= _WITHIN_TWO_YEARS) or (
        (speaks_of_times or not is_known) and any(_is_about(distance, count) for count in spoken)
    )


def _is_about(distance: timedelta, count: int) -> bool:
    return any(
        abs(distance.days - count * days) <= max(days, _EXACTNESS * count * days) for days in _DAYS_PER_UNIT
    )
