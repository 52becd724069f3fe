"""Contradictions that the words of two facts show, for facts that come from people and agents."""

from __future__ import annotations

import re

from strandline.pipelines.facts.kinds import USER, kinds_of, subject_of
from strandline.pipelines.facts.statements import contradict, has_name, names_in, telling_words
from strandline.pipelines.text.common_words import speakers
from strandline.pipelines.text.lexemes import is_mostly_unspaced
from strandline.pipelines.text.numbers import numbers_in
from strandline.schemas.values.normal_form import folded

# A person has one of these at a time.
_EXCLUSIVE = frozenset({"residence", "work", "age", "name", "partner"})
MAX_ARTICLE_CHARACTERS = 3
_WORD = re.compile(r"[^\W_]+")


def may_contradict(one: str, other: str) -> bool:
    """Whether one statement denies the other, or both name another home, employer, age, name or partner.

    Their first words tell whether they are about the same person.
    """
    if _subject(one) != _subject(other):
        return False
    if contradict(one, other):
        return True
    if not kinds_of(one) & kinds_of(other) & _EXCLUSIVE:
        return False
    numbers, others = numbers_in(one), numbers_in(other)
    return bool(numbers - others and others - numbers) or (
        _names_more(one, other) and _names_more(other, one)
    )


def say_the_same(one: str, other: str) -> bool:
    """Whether two statements have the same words, but for how they call the user."""
    return _words_about(one) == _words_about(other) and _subject(one) == _subject(other)


def _words_about(text: str) -> list[str]:
    words = _WORD.findall(folded(text))
    if words[:1] and words[0] in speakers():
        return words[1:]
    has_article = len(words) > 1 and len(words[0]) <= MAX_ARTICLE_CHARACTERS and words[1] in speakers()
    return words[2:] if has_article else words


def _subject(text: str) -> str:
    """Whom a statement is about: a name as it stands, or the user if it begins with a verb of a kind."""
    first = _WORD.search(text)
    word = "" if first is None else first.group()
    return subject_of(text) or (USER if kinds_of(word) else folded(word))


def _names_more(one: str, other: str) -> bool:
    """Whether a statement has a name, or without capitals a word, that another one has not."""
    names = {name for name in names_in(one) if not kinds_of(name)}
    if not names and is_mostly_unspaced(one):
        return bool(telling_words(one) - telling_words(other))
    return any(not has_name(name, other) for name in names)
