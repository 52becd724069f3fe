"""Grounding: checks the facts that a model found against the messages it cites.

A model reads text of users and of tools, which may mislead it. It may name who said a thing and which day it
is about; this module decides whether that is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

from strandline.pipelines.models.answers import ExtractedFact
from strandline.pipelines.models.contract import TranscriptLine
from strandline.pipelines.text.spoken_dates import spoken_date

# Roles whose words can be a fact. The output of tools and instructions to the assistant belong to no speaker;
# they become a fact when a speaker in the conversation says them.
SPEAKERS = frozenset({"user", "assistant"})

EARLIEST = date(1800, 1, 1)
LATEST_AHEAD = timedelta(days=36_525)


def ground_fact(fact: ExtractedFact, lines: Sequence[TranscriptLine]) -> ExtractedFact | None:
    """The fact as far as its messages support it; None if none of them was said by a speaker.

    ``messages`` keeps those that are; ``said_by`` is one of their speakers, or None if the model named
    another and they have several; ``about_date`` is a possible day, or, if the model gives none, the day that
    a single message names.
    """
    cited = [line for number in fact.messages if (line := lines[number - 1]).role in SPEAKERS]
    if not cited:
        return None
    return replace(
        fact,
        messages=tuple(line.number for line in cited),
        said_by=_speaker(fact.said_by, cited),
        about_date=_date(fact.about_date, fact.text, cited),
    )


def _speaker(said_by: str | None, cited: Sequence[TranscriptLine]) -> str | None:
    """As prompts show a speaker: a name, a role, or both as ``name (role)``."""
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


def _date(about: date | None, text: str, cited: Sequence[TranscriptLine]) -> date | None:
    if about is not None:
        latest = max(line.created_at for line in cited).date() + LATEST_AHEAD
        return about if EARLIEST <= about <= latest else None
    if len(cited) > 1:
        return None
    # The model has not resolved it, which is easily done where the fact kept the words of the message.
    (line,) = cited
    named = spoken_date(text, line.created_at.date())
    return named if named == spoken_date(line.text, line.created_at.date()) else None
