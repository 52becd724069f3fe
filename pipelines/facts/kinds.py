"""Kinds of statement that short facts make and whom they are about, by a table of words in sixteen languages.

Within a kind facts can contradict one another: "User lives in Porto." and "用户住在北京。" are both
of residence.  ``kinds.toml`` is the table.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import chain
from typing import NamedTuple
from unicodedata import normalize  # noqa: TID251 - of the table's words

from strandline.pipelines.text.lexemes import indexed_lexemes, query_lexemes, remembered
from strandline.schemas.values.normal_form import folded

USER = "user"
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


class _Entry(NamedTuple):
    text: str
    is_beginning: bool
    name: str


_Entries = Mapping[str, Sequence[_Entry]]


@remembered
def kinds_of(text: str) -> frozenset[str]:
    """The kinds of statement that ``text`` makes, such as ``residence``; none if no word tells one."""
    return frozenset(entry.name for entry in _entries_in(_plain(text)))


def words_of_kinds(plain: str) -> set[str]:
    """The words of several characters in a text in small letters that tell its kinds."""
    return {entry.text for entry in _entries_in(plain) if len(entry.text) > 1}


def _entries_in(plain: str) -> Iterator[_Entry]:
    for start in _START.finditer(plain):
        yield from _at(plain, start.start(), _kinds())


def fact_lexemes(text: str) -> list[str]:
    """The lexemes by which a fact is found, with marks of its kinds, which no text has as a word."""
    return [*indexed_lexemes(text), *_marks(text)]


def asked_lexemes(text: str) -> list[str]:
    """The lexemes of a statement with which facts may have something in common, and marks of its kinds."""
    return [*query_lexemes(text), *_marks(text)]


def _marks(text: str) -> list[str]:
    return [f"{MARK}{kind}" for kind in sorted(kinds_of(text))]


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
            words = [_Entry(named, is_beginning=False, name=USER)]
        if words:
            word = max(words, key=lambda entry: len(entry.text))
            # "User's sister's dog": the last of them.
            if word.name != _OTHER and (word.name != USER or subject is None):
                subject = word.name
            place = _end_of_word(plain, place + len(word.text))
        elif possessor := _POSSESSOR.match(plain, place):
            place = possessor.end()
        else:
            break
    return subject


@remembered
def kin_of(word: str) -> str | None:
    """The relation that a word names, such as ``mother`` for "mum", in any language."""
    names = {entry.name for entry in _at(word, 0, _others())} - {_OTHER}
    return names.pop() if len(names) == 1 else None


def may_share_subject(one: str, other: str, speaker: str | None = None) -> bool:
    """Whether two statements may be about the same person, which a name alone does not tell."""
    return len({subject_of(one, speaker), subject_of(other, speaker)} - {None}) < 2


def _plain(text: str) -> str:
    return folded(text[:MAX_CHARACTERS]).translate(_SPELLING)


def _end_of_word(plain: str, place: int) -> int:
    rest = _REST_OF_WORD.match(plain, place)
    return place if rest is None else rest.end()


def _at(plain: str, start: int, entries: _Entries) -> list[_Entry]:
    near = chain.from_iterable(entries.get(plain[start : start + size], ()) for size in (3, 2, 1))
    return [
        entry
        for entry in near
        if plain.startswith(entry.text, start)
        and (entry.is_beginning or not plain[start + len(entry.text) :][:1].isalnum())
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
    entries: defaultdict[str, dict[_Entry, None]] = defaultdict(dict)
    for name, words in lines:
        for word in words.split(", "):
            text = _plain(word.removesuffix("*"))
            is_beginning = word.endswith("*") or _IS_JOINED.match(text) is not None
            bare = text if text.isascii() else normalize("NFC", _ACCENTS.sub("", normalize("NFD", text)))
            for form in {text, bare if len(bare) >= _FEWEST_WITHOUT_ACCENTS else text}:
                entries[form[:3]][_Entry(form, is_beginning, name)] = None
    return {first: tuple(listed) for first, listed in entries.items()}
