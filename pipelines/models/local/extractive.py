"""The local stand-in for a model: sentences, facts and a summary picked from the messages as they stand."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import resources
from itertools import pairwise

from strandline.pipelines.models.answers import MAX_FACT_CHARACTERS
from strandline.pipelines.models.contract import SummaryTask, TranscriptLine
from strandline.pipelines.text.lexemes import STOP_WORDS, remembered, word_set
from strandline.pipelines.text.spoken_dates import spoken_date
from strandline.schemas.values.message import speaker_of_line
from strandline.schemas.values.normal_form import folded

_SENTENCE = re.compile(
    r"[^.!?。！？\n]*(?:[.!?](?!\s|$|[\"')])[^.!?。！？\n]*)*(?:[.!?。！？]+[\"')」”]*|\n|$)"
)
_ABBREVIATION = re.compile(r"\b(?:mr|mrs|ms|dr|st|prof|vs|e\.g|i\.e|etc)\.$", re.IGNORECASE)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['\u2019][^\W_]+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def sentences(text: str) -> list[str]:
    """The sentences of ``text`` in order, trimmed, with their end marks; none of them empty."""
    sentences: list[list[str]] = []
    for match in _SENTENCE.finditer(text):
        piece = " ".join(match.group().split())
        if not piece:
            continue
        if sentences and _ABBREVIATION.search(sentences[-1][-1]):
            sentences[-1].append(piece)
        else:
            sentences.append([piece])
    return [" ".join(pieces) for pieces in sentences]


@remembered
def words(text: str) -> tuple[str, ...]:
    """Case-folded words; each Chinese, Japanese or Korean character counts as one."""
    return tuple(_WORD.findall(folded(text).replace("\u2019", "'")))


def is_wide(text: str) -> bool:
    """True where ``text`` has Chinese, Japanese or Korean characters."""
    return _WIDE.search(text) is not None


def estimated_tokens(text: str) -> int:
    """About as many tokens as a model counts: one per wide character, one per four others."""
    wide = len(_WIDE.findall(text))
    return wide + (len(text) - wide + 3) // 4


LINES_PER_SENTENCE = 4
MAX_TOPICS = 6
_MAX_WORDS = 60


def roll_summary(task: SummaryTask) -> tuple[str, list[str]]:
    """The new summary, within about ``task.max_tokens``, and its most frequent words as topics."""
    kept = [line.strip() for line in task.previous.splitlines() if line.strip()]
    spoken = [
        attribute_sentence(line, text)
        for line in task.lines
        if line.role != "tool"
        for text in sentences(line.text)
    ]
    frequencies = Counter(word for sentence in kept + spoken for word in _weighty(sentence))
    rows = kept + _heaviest(spoken, frequencies, limit=max(1, -(-len(task.lines) // LINES_PER_SENTENCE)))
    summary = "\n".join(_within(list(dict.fromkeys(rows)), frequencies, task.max_tokens))
    counted = Counter(word for row in summary.splitlines() for word in _weighty(row) if not is_wide(row))
    topics = sorted(counted, key=lambda word: (-counted[word], word))[:MAX_TOPICS]
    return summary or "-", topics


def _weighty(sentence: str) -> list[str]:
    if is_wide(sentence):
        characters = words(sentence)
        return [first + second for first, second in pairwise(characters)]
    said_by, _, rest = sentence.rpartition(": ")
    names = set(words(said_by))
    return [word for word in topic_words(rest) if word not in names]


def _weight(sentence: str, frequencies: Counter[str]) -> float:
    sentence_words = set(_weighty(sentence))
    if not sentence_words or len(words(sentence)) > _MAX_WORDS:
        return 0.0
    # The root keeps long sentences from winning by length alone; what looks like a fact goes first.
    frequency = sum(frequencies[word] for word in sentence_words) / math.sqrt(len(sentence_words))
    return frequency * (0.2 + max(score(sentence.rpartition(": ")[2]), 0.0))


def _heaviest(sentences: Sequence[str], frequencies: Counter[str], *, limit: int) -> list[str]:
    order = sorted(range(len(sentences)), key=lambda index: (-_weight(sentences[index], frequencies), index))
    return [sentences[index] for index in sorted(order[:limit])]


def _within(rows: list[str], frequencies: Counter[str], max_tokens: int) -> list[str]:
    sizes = {row: estimated_tokens(row) + 1 for row in rows}
    total = sum(sizes.values())
    lightest_first = sorted(rows, key=lambda row: _weight(row, frequencies))
    dropped: set[str] = set()
    for row in lightest_first[: len(rows) - 1]:
        if total <= max_tokens:
            break
        dropped.add(row)
        total -= sizes[row]
    return [_cut(row, max_tokens) for row in rows if row not in dropped]


def _cut(row: str, max_tokens: int) -> str:
    if estimated_tokens(row) <= max_tokens:
        return row
    return row[: max_tokens - 1 if is_wide(row) else 4 * max_tokens - 4].rstrip() + "…"


# Names of an assistant that describe it instead of naming it.
PROGRAMS = frozenset({"", "assistant", "ai", "ai assistant", "bot", "chatbot", "助手"})

# A name inside a sentence: a capital that is not its beginning.
NAME = re.compile(r"(?<=[\w,;:] )(?!I\b)[A-Z][\w'-]+")


@cache
def _table(part: str) -> dict[str, str]:
    file = resources.files(__package__) / "extractive.toml"
    table: dict[str, str] = tomllib.loads(file.read_text(encoding="utf-8"))[part]
    return table


@cache
def _words(name: str) -> frozenset[str]:
    return word_set(_table("words")[name])


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_table("patterns")[name], re.VERBOSE)


@cache
def _no_topics() -> frozenset[str]:
    return STOP_WORDS["english"].union(*map(_words, ("life", "when", "no_topics")))


LINES_PER_FACT = 2.5
THRESHOLD = 2.0
MAX_WORDS = 60
MIN_TOPIC_LETTERS = 4
_MARK_LINE = re.compile(r"^\[(?:picture|sound|video|document)\].*$", re.MULTILINE)
_NARROW_MINIMUM = 4
_WIDE_MINIMUM = 5


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
    total = 1.5 * bool(spoken & _words("first_person") or _pattern("wide_first_person").search(folded))
    total += 1.0 * bool(spoken & _words("life") or _pattern("wide_life").search(folded))
    total += 1.2 * bool(_speaks_of_belonging(spoken_words) or _pattern("wide_belonging").search(folded))
    total += 0.6 * bool(_has_number(spoken_words) or _pattern("wide_number").search(folded))
    total += 0.6 * bool(spoken & _words("when") or _pattern("wide_when").search(folded))
    total += 0.4 * min(len(NAME.findall(sentence)), 2)
    return total - 3.0 * bool(_pattern("empty_talk").search(folded))


def _speaks_of_belonging(spoken_words: Sequence[str]) -> bool:
    owners = [index for index, word in enumerate(spoken_words) if word in ("my", "our")]
    return any(_words("belonging").intersection(spoken_words[index + 1 : index + 4]) for index in owners)


def _has_number(spoken_words: Sequence[str]) -> bool:
    return any(word in _words("counts") or any(map(str.isdigit, word)) for word in spoken_words)


def attribute_sentence(line: TranscriptLine, sentence: str) -> str:
    """``sentence`` with who said it in front, such as ``Maria: I live in Oslo.``, and marks for pictures."""
    marks = [mark for mark in _MARK_LINE.findall(line.text) if mark not in sentence]
    return " ".join((f"{speaker_of_line(speaker(line), line.role)}: {sentence}", *marks))


def speaker(line: TranscriptLine) -> str:
    """The speaker's name, or the role of a speaker without a name: ``Maria``, ``User``."""
    return line.name or line.role.capitalize()


def topic_words(sentence: str) -> Iterator[str]:
    """Words of some weight: no stop words, cues or numbers, at least four letters; none for wide scripts."""
    for word in words(sentence):
        if (
            len(word) >= MIN_TOPIC_LETTERS
            and word not in _no_topics()
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
    """Whether a person spoke: an assistant without a name is a program, and neither its advice nor its
    statements about itself are facts about a person.
    """
    is_named = line.name is not None and line.name.casefold() not in PROGRAMS
    return line.role == "user" or (line.role == "assistant" and is_named)


def _dated(text: str, day: date | None) -> str:
    """``text`` with its day appended, since "yesterday" says nothing later on."""
    behind = "" if day is None or str(day) in text else f" ({day})"
    return text[: MAX_FACT_CHARACTERS - len(behind)] + behind


def _without_leading_talk(sentence: str) -> str:
    rest = _pattern("leading_talk").sub("", sentence)
    return rest[:1].upper() + rest[1:] if rest else sentence


def _is_of_fair_length(sentence: str) -> bool:
    minimum = _WIDE_MINIMUM if is_wide(sentence) else _NARROW_MINIMUM
    return minimum <= len(words(sentence)) <= MAX_WORDS
