"""The rules that facts are judged by without a model; each can be held against a fact by hand."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from bench.facts.data import Observation
from bench.facts.deriving import SourcedFact
from strandline.pipelines.facts.tombstones import are_alike, telling_lexemes
from strandline.pipelines.models.contract import Embedder
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.text.spoken_dates import spoken_date

COVERING_SHARE = 0.5
COVERING_SIMILARITY = 0.7

# What cannot be understood alone at the beginning of a sentence; "I" has the speaker's name before it.
_OPEN_BEGINNINGS = frozenset(
    "he she it they him her them his hers its their theirs this that these those there we us our such one"
    " yes no yeah yep nope sure ok okay and but so because then also too".split()
)
_ATTRIBUTION = re.compile(r"^([\w .'-]{1,40}): ")
_WORD = re.compile(r"[\w'’]+")


def stands_alone(text: str, speakers: Collection[str]) -> bool:
    """Whether a fact can be understood alone.

    Its first word, after the name of a speaker and a colon, is no pronoun, no demonstrative, no answer and no
    conjunction; and it names somebody: a speaker, "the user", or a word with a capital inside the sentence.
    """
    said = _ATTRIBUTION.match(text)
    words = _WORD.findall(text[said.end() :] if said else text)
    if not words or words[0].casefold() in _OPEN_BEGINNINGS:
        return False
    names = {name.casefold() for name in speakers} | {"user"}
    named = {word.removesuffix("'s").removesuffix("’s").casefold() for word in _WORD.findall(text)}
    return bool(names & named) or any(word[0].isupper() and len(word) > 1 for word in words[1:])


def names_a_day(fact: SourcedFact) -> tuple[int, int]:
    """Of the days that its messages name ("yesterday"): how many there are (0 or 1), and how many it has.

    It has the day if that is its date, or stands in its text as YYYY-MM-DD.
    """
    days = {day for at, text in fact.said if (day := spoken_date(text, at.date())) is not None}
    is_resolved = fact.about_date in days or any(day.isoformat() in fact.text for day in days)
    return (1, int(is_resolved)) if days else (0, 0)


def count_duplicates(facts: Sequence[SourcedFact]) -> int:
    """How many facts say what an earlier one says: most of the shorter one's lexemes are in the other."""
    seen: list[frozenset[str]] = []
    duplicates = 0
    for fact in facts:
        lexemes = telling_lexemes(query_lexemes(fact.text), None)
        duplicates += any(_is_same(lexemes, earlier) for earlier in seen)
        seen.append(lexemes)
    return duplicates


def _is_same(left: frozenset[str], right: frozenset[str]) -> bool:
    """Alike, and of similar length: a longer sentence may say more."""
    return are_alike(left, right) and len(left & right) > 0.7 * max(len(left), len(right))


def count_cited(observations: Sequence[Observation], facts: Sequence[SourcedFact]) -> int:
    """How many observations have a fact from one of their messages."""
    cited = {source for fact in facts for source in fact.sources}
    return sum(bool(one.evidence & cited) for one in observations)


def count_covered_by_words(observations: Sequence[Observation], facts: Sequence[SourcedFact]) -> int:
    """How many observations have a fact with at least half of their lexemes."""
    lexemes = [frozenset(query_lexemes(fact.text)) for fact in facts]
    covered = 0
    for one in observations:
        words = frozenset(query_lexemes(one.text))
        covered += any(len(words & held) >= COVERING_SHARE * len(words) for held in lexemes)
    return covered


def count_similar(
    observations: Sequence[Observation], facts: Sequence[SourcedFact], embedder: Embedder
) -> int:
    """How many observations have a fact with a cosine of at least 0.7, by this embedder."""
    if not observations or not facts:
        return 0
    of_observations = np.array(embedder.embed([one.text for one in observations]).vectors)
    of_facts = np.array(embedder.embed([fact.text for fact in facts]).vectors)
    best = (of_observations @ of_facts.T).max(axis=1)
    return int((best >= COVERING_SIMILARITY).sum())
