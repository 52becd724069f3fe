"""Words that all texts have, by language: ``common_words.toml``."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from strandline.pipelines.text.lexemes import query_lexemes, remembered, word_set
from strandline.schemas.values.normal_form import folded


@cache
def _table() -> dict[str, dict[str, Any]]:
    file = resources.files(__package__) / "common_words.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def marks_of_languages() -> dict[str, frozenset[str]]:
    """The words by which each language is known, in small letters."""
    verbs = _table()["verbs"]
    return {
        name: word_set(f"{words} {verbs.get(name, '')}") for name, words in _table()["function_words"].items()
    }


@cache
def joining_words(language: str | None) -> frozenset[str]:
    """A language's function words, as they stand and as lexemes; of all languages if it is not known."""
    by_language = _table()["function_words"]
    words = by_language.get(language or "", " ".join(by_language.values()))
    return word_set(words) | frozenset(query_lexemes(words))


@cache
def speakers() -> frozenset[str]:
    """How facts call a speaker without a name, as these words stand and as lexemes."""
    words = _table()["statements"]["speakers"]
    return word_set(words) | frozenset(query_lexemes(words))


@cache
def weak_words() -> frozenset[str]:
    """Verbs, times and qualities in statements about anything."""
    return word_set(_table()["statements"]["weak"])


@cache
def command_words() -> frozenset[str]:
    """Words of instructions on memory, as they stand and as lexemes."""
    words = _table()["statements"]["commands"]
    return word_set(words) | frozenset(query_lexemes(words))


@cache
def opposites() -> dict[str, frozenset[str]]:
    """By word the words that say its opposite."""
    pairs = [pair.split("/") for pair in _table()["statements"]["opposites"].split()]
    both = [*pairs, *(pair[::-1] for pair in pairs)]
    return {word: frozenset(two for one, two in both if one == word) for word, _other in both}


@cache
def number_words(name: str = "numbers") -> dict[str, int]:
    """By word the ``numbers``, or the ``numbers_behind`` others; a ``_`` stands for a blank or a hyphen."""
    return {word: int(number) for number, words in _table()[name].items() for word in words.split()}


@cache
def month_names() -> dict[str, int]:
    names = _table()["months"]["names"]
    return {name: number for row in names for number, name in enumerate(row.split(), 1)}


@cache
def spoken_table(name: str) -> dict[str, list[str]]:
    """By language the words of ``days``, or of ``distances`` between them, as the table says."""
    words: dict[str, list[str]] = _table()[f"spoken_{name}"]
    return words


@cache
def pattern(name: str, language: str | None = None) -> re.Pattern[str]:
    """One of the table's ``patterns``, of small letters, with what a language adds to it."""
    patterns = _table()["patterns"]
    return re.compile("".join((*patterns[name], *patterns.get(f"{name}_in_{language}", ()))))


def negation_of(text: str) -> re.Pattern[str]:
    """The words that deny in the language of a text."""
    return _negation_in(language_of(text))


@cache
def _negation_in(language: str | None) -> re.Pattern[str]:
    if f"negation_in_{language}" in _table()["patterns"]:
        return pattern(f"negation_in_{language}")
    table = _table()["homographs"]
    others = "|".join(table[name] for name in ("all", language) if name in table) if language else "(?!)"
    return re.compile(rf"(?!(?<!\w)(?:{others})(?!\w))(?:{pattern('negation').pattern})")


@remembered
def qualifiers_of(text: str) -> frozenset[str]:
    """What the force of a text in small letters hangs on, such as ``only`` and ``sometimes``."""
    matches = _qualifiers(language_of(text) in _WITHOUT_BLANKS).finditer(text)
    return frozenset(match.lastgroup or "" for match in matches)


@cache
def _qualifiers(is_joined: bool) -> re.Pattern[str]:
    words = "|".join(f"(?P<{name}>{words[is_joined]})" for name, words in _table()["qualifiers"].items())
    return re.compile(words if is_joined else rf"(?<!\w)(?:{words})(?!\w)")


def any_of(phrases: Iterable[str]) -> str:
    """A part of a pattern, for phrases that begin with a letter: each is tried only where its letter stands.

    Of phrases that begin with the same letter, the first that fits is taken.
    """
    by_letter: dict[str, list[str]] = {}
    for phrase in phrases:
        by_letter.setdefault(phrase[0], []).append(phrase[1:])
    choices = "|".join(f"{letter}(?:{'|'.join(rests)})" for letter, rests in by_letter.items())
    return f"(?=[{''.join(by_letter)}])(?:{choices})"


_SCRIPTS = (
    ("japanese", re.compile("[\u3041-\u30fa]")),
    ("korean", re.compile("[\u1100-\u11ff\uac00-\ud7a3]")),
    ("chinese", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("cyrillic", re.compile("[\u0400-\u052f]")),
    ("greek", re.compile("[\u0370-\u03ff]")),
    ("arabic", re.compile("[\u0620-\u06ff]")),
    ("hebrew", re.compile("[\u05d0-\u05ea]")),
    ("hindi", re.compile("[\u0904-\u0965]")),
    ("thai", re.compile("[\u0e01-\u0e4e]")),
    ("latin", re.compile("[a-z\u00df-\u024f\u1e00-\u1eff]")),
)
SCRIPTS_WITHOUT_CASE = frozenset({"japanese", "korean", "chinese", "arabic", "hebrew", "hindi", "thai"})
# A character of these says as much as a few letters.
_DENSE = frozenset({"japanese", "korean", "chinese"})
_WITHOUT_BLANKS = _DENSE | {"thai"}
_ENGLISH_I = re.compile(r"(?<!\w)I(?= [a-z])")
_WORD = re.compile(r"[^\W\d_]+")


@remembered
def language_of(text: str) -> str | None:
    """The language, or the script if no language of it is known; None if the text is too short to tell."""
    plain = folded(text)
    scripts = _SCRIPTS[-1:] if plain.isascii() else _SCRIPTS
    counts = Counter(
        {name: len(pattern.findall(plain)) * (3 if name in _DENSE else 1) for name, pattern in scripts}
    )
    if counts["japanese"]:
        counts["japanese"] += counts.pop("chinese")
    script, weight = counts.most_common(1)[0]
    if script not in ("latin", "cyrillic"):
        return script if weight else None
    words = set(_WORD.findall(plain))
    is_cyrillic, marks = script == "cyrillic", marks_of_languages().items()
    hits = Counter({name: len(words & its) for name, its in marks if (name == "russian") == is_cyrillic})
    if not is_cyrillic and _ENGLISH_I.search(text):
        hits["english"] += 1
    (first, most), *others = hits.most_common(2)
    if most > sum(hit for _name, hit in others):
        return first
    letters = {} if is_cyrillic else _table()["letters"]
    if name := next((name for name, some in letters.items() if re.search(some, plain)), None):
        return name
    return "cyrillic" if is_cyrillic and len(words) > 2 else None


def is_foreign(text: str, parts: Iterable[str]) -> bool:
    """Whether a text is in another language than all parts; False if that of one cannot be told."""
    language, others = language_of(text), [language_of(part) for part in parts]
    return language is not None and None not in others and language not in others
