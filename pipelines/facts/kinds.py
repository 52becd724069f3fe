"""Kinds of statement that short facts make and whom they are about, by a table of words in sixteen languages.

Within a kind facts can contradict one another: "User lives in Porto." and "用户住在北京。" are both
of residence.  ``kinds.toml`` is the table.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import chain
from unicodedata import normalize  # noqa: TID251 - of the table's words

from strandline.pipelines.text.lexemes import indexed_lexemes, query_lexemes, remembered
from strandline.schemas.values.normal_form import folded

USER = "user"
_GROUPS = {"son": "child", "daughter": "child", "mother": "parents", "father": "parents"}
# Before a kind among the lexemes of a fact.
MARK = "kind:"
_OTHER = "other"
# A fact is short; a longer text is read no further.
MAX_CHARACTERS = 1_000
# Without their accents shorter words would be other words: "thé".
_FEWEST_WITHOUT_ACCENTS = 5
# Scripts whose words take prefixes and suffixes, or stand without blanks: an entry matches anywhere in them.
_JOINED = "\u0590-\u07ff\u0e00-\u0eff\u1000-\u11ff\u3005-\u312f\u3400-\u9fff\uac00-\ud7ff"
_IS_JOINED = re.compile(f"[{_JOINED}]")
_START = re.compile(rf"(?<!\w)\w|[{_JOINED}]")
_REST_OF_WORD = re.compile(rf"[^\W{_JOINED}]*")
_POSSESSOR = re.compile(r"\w{1,60}'s ")
_ACCENTS = re.compile("[\u0300-\u036f]")
_SPELLING = str.maketrans({"ё": "е", "’": "'"})


# By the first letters of their words: a word, whether it is only the beginning of one, and what it tells.
_Entries = Mapping[str, Iterable[tuple[str, bool, str]]]


@remembered
def kinds_of(text: str) -> frozenset[str]:
    """The kinds of statement that ``text`` makes, such as ``residence``; none if no word tells one."""
    return frozenset(kind for _word, kind in _entries_in(_plain(text), _kinds()))


def words_of_kinds(plain: str) -> set[str]:
    """The words of several characters in a text in small letters that tell its kinds."""
    return {word for word, _kind in _entries_in(plain, _kinds()) if len(word) > 1}


def _entries_in(plain: str, entries: _Entries) -> Iterator[tuple[str, str]]:
    for start in _START.finditer(plain):
        yield from _at(plain, start.start(), entries)


def fact_lexemes(text: str) -> list[str]:
    """The lexemes by which a fact is found, with marks of its kinds, which no text has as a word."""
    return [*indexed_lexemes(text), *_marks(text)]


def asked_lexemes(text: str) -> list[str]:
    """The lexemes of a statement with which facts may have something in common, and marks of its kinds."""
    return [*query_lexemes(text), *_marks(text)]


def _marks(text: str) -> list[str]:
    return [f"{MARK}{kind}" for kind in sorted(kinds_of(text))]


@remembered
def subject_of(text: str, speaker: str | None = None) -> str | None:
    """Whom ``text`` is about: ``USER``, someone of theirs such as ``sister``, or None if that is not said.

    Args:
        speaker: the user's name, if it is known.
    """
    plain, named = _plain(text), _plain(speaker or "")
    subject, place = None, 0
    while start := _START.search(plain, place):
        place = start.start()
        words = _at(plain, place, _others()) or _at(plain, place, _lead_words())
        if named and plain.startswith(named, place):
            words = [(named, USER)]
        if words:
            word, name = max(words, key=lambda entry: len(entry[0]))
            # "User's sister's dog": the last of them.
            if name != _OTHER and (name != USER or subject is None):
                subject = name
            place = _end_of_word(plain, place + len(word))
        elif possessor := _POSSESSOR.match(plain, place):
            place = possessor.end()
        else:
            break
    return subject


@remembered
def kin_in(plain: str) -> frozenset[str]:
    """The relatives, friends and animals in a text in small letters, such as ``mother`` for "mum"."""
    return frozenset(name for _word, name in _entries_in(plain, _others()))


def are_about_others(one: str, other: str, speaker: str | None = None) -> bool:
    """Whether one of two statements is about somebody whom the other does not name: "my brother", "I"."""
    left, right = subject_of(one, speaker), subject_of(other, speaker)
    if left == right or None in (left, right) or "partner" in kinds_of(one) & kinds_of(other):
        return False
    whose = ((left, kin_in(_plain(other))), (right, kin_in(_plain(one))))
    return any(who != USER and kin.isdisjoint({who, _GROUPS.get(who or "")}) for who, kin in whose)


def may_share_subject(one: str, other: str, speaker: str | None = None) -> bool:
    """Whether two statements may be about the same person, which a name alone does not tell."""
    return len({subject_of(one, speaker), subject_of(other, speaker)} - {None}) < 2


def _plain(text: str) -> str:
    return folded(text[:MAX_CHARACTERS]).translate(_SPELLING)


def _end_of_word(plain: str, place: int) -> int:
    rest = _REST_OF_WORD.match(plain, place)
    return place if rest is None else rest.end()


def _at(plain: str, start: int, entries: _Entries) -> list[tuple[str, str]]:
    """The words of entries that stand at a place, each with what it tells."""
    near = chain.from_iterable(entries.get(plain[start : start + size], ()) for size in (3, 2, 1))
    return [
        (word, name)
        for word, is_beginning, name in near
        if plain.startswith(word, start)
        and (is_beginning or not plain[start + len(word) : start + len(word) + 1].isalnum())
    ]


@cache
def _table() -> dict[str, dict[str, dict[str, str]]]:
    table: dict[str, dict[str, dict[str, str]]] = tomllib.loads(
        resources.files(__package__).joinpath("kinds.toml").read_text(encoding="utf-8")
    )
    return table


@cache
def _kinds() -> _Entries:
    kinds = _table()["kinds"].items()
    return _read((kind, words) for kind, languages in kinds for words in languages.values())


@cache
def _others() -> _Entries:
    return _read(_table()["subject"]["others"].items())


@cache
def _lead_words() -> _Entries:
    return _read(_table()["subject"]["leading"].items())


def _read(lines: Iterable[tuple[str, str]]) -> _Entries:
    """The entries of a part of the table, by their first three letters."""
    entries: defaultdict[str, dict[tuple[str, bool, str], None]] = defaultdict(dict)
    for name, words in lines:
        plain = folded(words).translate(_SPELLING)
        bare = plain if plain.isascii() else normalize("NFC", _ACCENTS.sub("", normalize("NFD", plain)))
        for entry, without_accents in zip(plain.split(", "), bare.split(", "), strict=True):
            word, short = entry.removesuffix("*"), without_accents.removesuffix("*")
            is_beginning = word != entry or _IS_JOINED.match(word) is not None
            for form in {word, short if len(short) >= _FEWEST_WITHOUT_ACCENTS else word}:
                entries[form[:3]][form, is_beginning, name] = None
    return entries
