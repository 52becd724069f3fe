"""Picks the sentences of a conversation that look like facts about its people, without a model.

A stand-in: it selects and attributes, and it understands nothing.  A sentence scores for speaking in the
first person, for verbs and nouns of a life (to live, to work, a sister, a birthday), for names, numbers and
dates; it loses for being a greeting, a compliment or a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from strandline.pipelines.models.answers import MAX_FACT_CHARACTERS
from strandline.pipelines.models.contract import TranscriptLine
from strandline.pipelines.models.local import fact_cues as cues
from strandline.pipelines.models.local.sentences import is_wide, sentences, words
from strandline.pipelines.text.lexemes import STOP_WORDS, word_set
from strandline.pipelines.text.spoken_dates import spoken_date
from strandline.schemas.values.message import speaker_name

LINES_PER_FACT = 2.5
THRESHOLD = 2.0
MAX_WORDS = 60
MIN_TOPIC_LETTERS = 4
_MARK_LINE = re.compile(r"^\[(?:picture|sound|video|document)\].*$", re.MULTILINE)
_NARROW_MINIMUM = 4
_WIDE_MINIMUM = 5

_NO_TOPICS = (
    STOP_WORDS["english"]
    | cues.LIFE
    | cues.WHEN
    | word_set("really great good awesome amazing thing things time much many know think week year")
)


@dataclass(frozen=True, slots=True)
class Pick:
    """A sentence chosen from one line, attributed to its speaker."""

    score: float
    text: str
    line: TranscriptLine
    said_by: str
    topics: tuple[str, ...]
    about_date: date | None


def pick_facts(lines: Sequence[TranscriptLine], *, max_facts: int) -> list[Pick]:
    """The best sentences, at most one for every two or three lines, in the order they were said."""
    limit = min(max_facts, max(1, round(len(lines) / LINES_PER_FACT)))
    best = sorted((pick for line in lines for pick in _picks(line)), key=lambda pick: -pick.score)[:limit]
    return sorted(best, key=lambda pick: pick.line.number)


def score(sentence: str) -> float:
    """How much ``sentence`` looks like a fact about its speaker; from about -3 to 7."""
    folded = sentence.casefold().replace("\u2019", "'")
    if sentence.endswith(("?", "？")) or not _is_of_fair_length(sentence):
        return -1.0
    spoken_words = words(sentence)
    spoken = set(spoken_words)
    total = 1.5 * bool(spoken & cues.FIRST_PERSON or cues.WIDE_FIRST_PERSON.search(folded))
    total += 1.0 * bool(spoken & cues.LIFE or cues.WIDE_LIFE.search(folded))
    total += 1.2 * bool(_speaks_of_belonging(spoken_words) or cues.WIDE_BELONGING.search(folded))
    total += 0.6 * bool(_has_number(spoken_words) or cues.WIDE_NUMBER.search(folded))
    total += 0.6 * bool(spoken & cues.WHEN or cues.WIDE_WHEN.search(folded))
    total += 0.4 * min(len(cues.NAME.findall(sentence)), 2)
    return total - 3.0 * bool(cues.EMPTY_TALK.search(folded))


def _speaks_of_belonging(spoken_words: Sequence[str]) -> bool:
    owners = [index for index, word in enumerate(spoken_words) if word in ("my", "our")]
    return any(cues.BELONGING.intersection(spoken_words[index + 1 : index + 4]) for index in owners)


def _has_number(spoken_words: Sequence[str]) -> bool:
    return any(word in cues.COUNTS or any(map(str.isdigit, word)) for word in spoken_words)


def attribute_sentence(line: TranscriptLine, sentence: str) -> str:
    """``sentence`` with who said it in front, such as ``Maria: I live in Oslo.``, and marks for pictures."""
    marks = [mark for mark in _MARK_LINE.findall(line.text) if mark not in sentence]
    return " ".join((f"{speaker_name(speaker(line), line.role)}: {sentence}", *marks))


def speaker(line: TranscriptLine) -> str:
    """The speaker's name, or the role of a speaker without a name: ``Maria``, ``User``."""
    return line.name or line.role.capitalize()


def topic_words(sentence: str) -> Iterator[str]:
    """Words of some weight: no stop words, cues or numbers, at least four letters; none for wide scripts."""
    for word in words(sentence):
        if (
            len(word) >= MIN_TOPIC_LETTERS
            and word not in _NO_TOPICS
            and "'" not in word
            and not word.isdigit()
        ):
            yield word


def _picks(line: TranscriptLine) -> Iterator[Pick]:
    if not _is_said_by_a_person(line):
        return
    for sentence in sentences(line.text):
        plain = _without_leading_talk(sentence)
        reached = score(plain)
        if reached >= THRESHOLD:
            day = spoken_date(plain, line.created_at.date())
            longest = sorted(dict.fromkeys(topic_words(plain)), key=lambda word: -len(word))
            text = _dated(attribute_sentence(line, plain), day)
            yield Pick(reached, text, line, speaker(line), tuple(longest[:3]), day)


def _is_said_by_a_person(line: TranscriptLine) -> bool:
    """Whether a person spoke: an assistant without a name of its own is a program, whose statements about
    itself and whose advice are not facts about a person.
    """
    is_named = line.name is not None and line.name.casefold() not in cues.PROGRAMS
    return line.role == "user" or (line.role == "assistant" and is_named)


def _dated(text: str, day: date | None) -> str:
    """``text`` with the day that it refers to behind it, since "yesterday" says nothing later on."""
    behind = "" if day is None or str(day) in text else f" ({day})"
    return text[: MAX_FACT_CHARACTERS - len(behind)] + behind


def _without_leading_talk(sentence: str) -> str:
    rest = cues.LEADING_TALK.sub("", sentence)
    return rest[:1].upper() + rest[1:] if rest else sentence


def _is_of_fair_length(sentence: str) -> bool:
    minimum = _WIDE_MINIMUM if is_wide(sentence) else _NARROW_MINIMUM
    return minimum <= len(words(sentence)) <= MAX_WORDS
