"""The redaction hook that ships: e-mail addresses, phone numbers and payment cards become placeholders.

It looks at form alone, in a time that grows with the text's length, and asks nobody.  So it misses what has
no form of its own (a name, a street), and what is written to be missed ("anna at example dot org");
``docs/architecture/redaction.md`` has its figures.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from strandline.pipelines.redaction.card_numbers import find_cards
from strandline.pipelines.redaction.email_addresses import find_emails
from strandline.pipelines.redaction.phone_numbers import find_phones

NAME = "contacts"
# Raise it when it comes to find something else.
VERSION = "1"

_DIGIT = re.compile(r"\d")
_SPACES = "\u00a0\u2002\u2003\u2005\u2007\u2009\u200a\u202f\u3000"
_HYPHENS = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u30fc"
# Nothing shorter has the digits of a phone number.
_MIN_DIGITS = 7


# No digit of a script lies above.
_LAST_CODE = 0x1FFFF


@cache
def _plain_forms() -> dict[int, int]:
    """Full-width forms, digits of other scripts, spaces and hyphens as ASCII; one character for each."""
    digits = ((code, unicodedata.decimal(chr(code), None)) for code in range(128, _LAST_CODE))
    plain = {code: ord("0") + digit for code, digit in digits if digit is not None}
    plain |= {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    plain |= {ord(space): ord(" ") for space in _SPACES}
    return plain | {ord(hyphen): ord("-") for hyphen in _HYPHENS}


def redact_contacts(text: str) -> str:
    """The text with ``[email]``, ``[phone]`` and ``[card]`` in the place of what they stand for."""
    spans = find_contacts(text)
    return _with_placeholders(text, spans) if spans else text


_Span = tuple[int, int, str]


def find_contacts(text: str) -> list[_Span]:
    """Where they begin and end, with the placeholder of each, in order and apart from each other."""
    plain = text if text.isascii() else text.translate(_plain_forms())
    spans: list[_Span] = []
    for placeholder, may_hold, find in _FINDERS:
        if may_hold(plain):
            places = [(start, end, placeholder) for start, end in find(plain)]
            plain = _without(plain, places)
            spans += places
    return sorted(spans)


def _has_numbers(text: str) -> bool:
    return len(_DIGIT.findall(text)) >= _MIN_DIGITS


# What is found first is gone for the next: an address may hold a number, and a card's look like a phone's.
_FINDERS: tuple[tuple[str, Callable[[str], bool], Callable[[str], Iterator[tuple[int, int]]]], ...] = (
    ("[email]", lambda text: "@" in text, find_emails),
    ("[card]", _has_numbers, find_cards),
    ("[phone]", _has_numbers, find_phones),
)


def _without(text: str, spans: Iterable[_Span]) -> str:
    """The text with a character that is part of nothing in the place of each in ``spans``."""
    return _cut(text, spans, lambda start, end, _placeholder: "\0" * (end - start))


def _with_placeholders(text: str, spans: Iterable[_Span]) -> str:
    return _cut(text, spans, lambda _start, _end, placeholder: placeholder)


def _cut(text: str, spans: Iterable[_Span], instead: Callable[[int, int, str], str]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, placeholder in spans:
        pieces += (text[at:start], instead(start, end, placeholder))
        at = end
    return "".join((*pieces, text[at:]))
