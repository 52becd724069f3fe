"""Words that all texts have, by language: ``common_words.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from strandline.pipelines.text.lexemes import query_lexemes, word_set


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
    """How facts call a speaker without a name."""
    return word_set(_table()["statements"]["speakers"])


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
def number_words() -> dict[str, int]:
    return {word: int(number) for number, words in _table()["numbers"].items() for word in words.split()}


@cache
def month_names() -> dict[str, int]:
    names = _table()["months"]["names"]
    return {name: number for row in names for number, name in enumerate(row.split(), 1)}


@cache
def pattern(name: str) -> re.Pattern[str]:
    """``negation``, ``clause``, ``listed`` or ``times``, for text in small letters."""
    return re.compile("".join(_table()["patterns"][name]))
