"""The redaction hook that ships: e-mail addresses, phone numbers and payment cards become placeholders.

It looks at form alone, in linear time.  So it misses names and streets, and deliberate spellings ("anna at
example dot org"); ``docs/architecture/redaction.md`` has its figures.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache

# Letters of European languages: in Chinese or Japanese, no spaces separate an address from words.
LETTERS = "A-Za-z\u00c0-\u024f\u0370-\u03ff\u0400-\u052f"
# As RFC 5321 bounds them.
_MAX_LOCAL = 64
_MAX_DOMAIN = 255
_LOCAL = re.compile(rf"[0-9{LETTERS}._%+'-]")
_DOMAIN = re.compile(
    rf"(?:[0-9{LETTERS}](?:[0-9{LETTERS}-]{{0,62}})\.){{1,8}}(?:xn--[0-9a-z-]{{2,59}}|[{LETTERS}]{{2,24}})(?![0-9{LETTERS}_])"
)
# Ends of files' names, which no domain has: "logo@2x.png".
_FILES = frozenset("bmp css gif html ico jpeg jpg js json lock png svg toml webp whl xml yaml yml".split())


def find_emails(text: str) -> Iterator[tuple[int, int]]:
    """Where addresses begin and end."""
    at, end = text.find("@"), 0
    while at >= 0:
        if (span := _around(text, at, end)) is not None:
            yield span
            end = span[1]
        at = text.find("@", max(at + 1, end))


def _around(text: str, at: int, after: int) -> tuple[int, int] | None:
    domain = _DOMAIN.match(text, at + 1, at + 1 + _MAX_DOMAIN)
    if domain is None or domain[0].rpartition(".")[2].casefold() in _FILES:
        return None
    # "git@host.example:path" names a place, not a person.
    if text[domain.end() : domain.end() + 1] == ":" and text[domain.end() + 1 : domain.end() + 2].isalpha():
        return None
    start = at
    while start > max(after, at - _MAX_LOCAL) and _LOCAL.fullmatch(text[start - 1]):
        start -= 1
    while start < at and text[start] in ".-+%'":
        start += 1
    return None if start == at else (start, domain.end())


# No letter, digit, sign or currency before a number makes it part of something else.
_BEFORE = rf"(?<![0-9{LETTERS}_.,#$€£¥₹%+/\\@&-])"
_AFTER = rf"(?![0-9{LETTERS}_@%€£¥₹]|[.,:/-][0-9{LETTERS}])"

# Of "+" or "00", a country, and at most 15 digits in all (E.164).
_INTERNATIONAL = re.compile(
    rf"(?<![0-9{LETTERS}_+.,#$€£¥-])(?:\+ ?|00[ -]?)[1-9](?:[ ().\/-]{{0,3}}\d){{6,14}}{_AFTER}"
)
# North America: 3-3-4; without parentheses the area and the exchange begin with a digit from 2 on.
_NORTH_AMERICAN = re.compile(
    rf"{_BEFORE}(?:1[ .-])?(?:\(\d{{3}}\)[ -]?\d{{3}}|[2-9]\d\d([ .-])[2-9]\d\d)(?(1)\1|[ .-])\d{{4}}{_AFTER}"
)
# France and others: five pairs.
_PAIRS = re.compile(rf"{_BEFORE}0[1-9]([ .-])\d\d(?:\1\d\d){{3}}{_AFTER}")
# Europe: an area with its 0, a gap, and the rest in groups.
_AREA = re.compile(
    rf"{_BEFORE}(?:\(0[1-9]\d{{1,4}}\) ?|0[1-9]\d{{1,4}}(?: ?[/-] ?| ))"
    rf"\d{{3,8}}(?:[ -]\d{{2,6}}){{0,3}}{_AFTER}"
)
# Mobile numbers without a gap: Germany, Britain, France.
_MOBILE = re.compile(rf"{_BEFORE}(?:01[5-7]\d{{8,9}}|07[1-9]\d{{8}}|0[67]\d{{8}}){_AFTER}")
# China: 11 digits in groups, and without a gap in a text that is written so.
_CHINESE_GROUPS = re.compile(rf"{_BEFORE}1[3-9]\d([ -])\d{{4}}\1\d{{4}}{_AFTER}")
_CHINESE = re.compile(rf"{_BEFORE}1[3-9]\d{{9}}{_AFTER}")
_HAN = re.compile(r"[\u4e00-\u9fff]")

# After a word that says so, any number of 7 to 15 digits.
_SAID = re.compile(
    rf"(?:(?<![{LETTERS}])(?:(?:tele)?phone(?: (?:number|no\.?|is))?|tel|fax|mobile(?: number)?"
    r"|cell(?: ?phone)?|whats ?app|hotline|(?:call|text|reach) (?:me|us|him|her|them)(?: (?:at|on))?"
    r"|telefon(?:nummer)?|handy(?:nummer)?|mobil(?:nummer)?|rufnummer|t[ée]l[ée]phone|portable|tel[ée]fono"
    r"|m[óo]vil|celular|cellulare|telefone|telefoon|telefonnr"
    r"|телефон|тел)"
    rf"(?![{LETTERS}])|电话|電話|手机|手機|携帯|전화|휴대폰)"
    r"[ .:：=#\"'*`(-]{0,4}(?:号码|號碼|番号|번호)?(?:is |are |ist |lautet |est |es |是|は|는)?[ :\"'*`]{0,2}"
    r"(\+?\(?\d(?:[ ().\/-]{0,2}\d){6,14})(?![\d]|[.,:/-]\d)",
    re.IGNORECASE,
)
_DATE = re.compile(r"(?:19|20)\d\d[./-]\d\d?[./-]\d\d?|\d\d?[./-]\d\d?[./-](?:19|20)\d\d")

# Before a number of another kind; a word that says "phone" as well is found by _SAID.
_OTHER_KIND = re.compile(
    rf"(?:(?<![{LETTERS}])(?:sku|order|invoice|ref(?:erence)?|id|no|nr|item|part|ticket|case|bestellung"
    r"|rechnung|artikel|kunden(?:nr)?|vorgang|commande|facture|pedido|factura)|订单|訂單|注文)"
    r"[ .:：=#()\"'_-]{0,4}$",
    re.IGNORECASE,
)
_MAX_WORD_BEFORE = 20

# Countries with more than one digit (ITU-T E.164); 1 and 7 have one.
_COUNTRIES = frozenset(
    "20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81"
    " 82 84 86 90 91 92 93 94 95 98".split()
)
_MIN_INTERNATIONAL = 8
_NORTH_AMERICA = 11
_MIN_AREA, _MAX_AREA = 9, 13


def find_phones(text: str) -> Iterator[tuple[int, int]]:
    """Where phone numbers begin and end, in order and apart from each other."""
    patterns = [_INTERNATIONAL, _NORTH_AMERICAN, _PAIRS, _AREA, _MOBILE, _CHINESE_GROUPS]
    if _HAN.search(text):
        patterns.append(_CHINESE)
    matches = ((pattern, match) for pattern in patterns for match in pattern.finditer(text))
    spans = [span for pattern, match in matches if (span := _find_span(pattern, match))]
    spans += (match.span(1) for match in _SAID.finditer(text) if not _DATE.search(match[1]))
    end = 0
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= end:
            yield start, stop
            end = stop


def _find_span(pattern: re.Pattern[str], match: re.Match[str]) -> tuple[int, int] | None:
    """The span of a number without its trailer; None if it is not a number."""
    before = match.string[max(0, match.start() - _MAX_WORD_BEFORE) : match.start()]
    if not match[0].startswith("+") and _OTHER_KIND.search(before):
        return None
    if pattern is _INTERNATIONAL:
        return _international(match)
    if pattern is _AREA:
        is_number = _MIN_AREA <= sum(map(str.isdigit, match[0])) <= _MAX_AREA and not _DATE.search(match[0])
        return match.span() if is_number else None
    return match.span()


def _international(match: re.Match[str]) -> tuple[int, int] | None:
    digits = "".join(filter(str.isdigit, match[0]))
    digits = digits.removeprefix("00") if match[0].startswith("00") else digits
    if digits[0] == "1":
        # Exactly so many: digits after these are another number.
        return None if len(digits) < _NORTH_AMERICA else _ending_after(match, _NORTH_AMERICA)
    is_country = digits[0] == "7" or digits[:2] in _COUNTRIES or digits[:2] in _LONGER_COUNTRIES
    return match.span() if is_country and len(digits) >= _MIN_INTERNATIONAL else None


# Prefixes of country codes that have three digits.
_LONGER_COUNTRIES = frozenset("21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 80 85 87 88 96 97 99".split())


def _ending_after(match: re.Match[str], digits: int) -> tuple[int, int] | None:
    """The span up to so many digits behind a plus sign; None if another digit follows."""
    text, left = match[0], digits + (2 if match[0].startswith("00") else 0)
    for place, character in enumerate(text):
        left -= character.isdigit()
        if not left:
            is_whole = not text[place + 1 : place + 2].isdigit()
            return (match.start(), match.start() + place + 1) if is_whole else None
    return None


# Digits without a gap, or in the groups that cards show: four by four, of 15 digits 4-6-5, of 14 4-6-4.
_CANDIDATE = re.compile(
    r"(?<![\w.,+])(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{4,5})"
    r"(?![\w]|[.,-]\d)",
    re.ASCII,
)
# Beginnings with the lengths that their issuer gives out (ISO/IEC 7812, as the networks publish them).
_ISSUERS = (
    (re.compile(r"4"), frozenset({16, 19})),  # Visa; its 13 digits of old would be those of bar codes
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), frozenset({16})),  # Mastercard
    (re.compile(r"3[47]"), frozenset({15})),  # American Express
    (re.compile(r"6011|64[4-9]|65"), frozenset({16, 17, 18, 19})),  # Discover
    (re.compile(r"352[89]|35[3-8]"), frozenset({16, 17, 18, 19})),  # JCB
    (re.compile(r"30[0-5]|3095|3[689]"), frozenset({14, 15, 16, 17, 18, 19})),  # Diners Club
    (re.compile(r"62|81"), frozenset({16, 17, 18, 19})),  # UnionPay
    (re.compile(r"5018|5020|5038|5893|6304|6759|676[1-3]"), frozenset(range(13, 20))),  # Maestro
)
# The sum of the digits of twice a digit.
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def find_cards(text: str) -> Iterator[tuple[int, int]]:
    """Where card numbers begin and end."""
    for candidate in _CANDIDATE.finditer(text):
        digits = candidate[0].replace(" ", "").replace("-", "")
        if _is_issued(digits) and is_luhn(digits):
            yield candidate.span()


def is_luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812)."""
    numbers = [int(digit) for digit in reversed(digits)]
    return (sum(numbers[::2]) + sum(_DOUBLED[number] for number in numbers[1::2])) % 10 == 0


def _is_issued(digits: str) -> bool:
    return len(set(digits)) > 1 and any(
        beginning.match(digits) and len(digits) in lengths for beginning, lengths in _ISSUERS
    )


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
    digits = ((code, unicodedata.decimal(chr(code), None)) for code in range(128, _LAST_CODE))
    plain = {code: ord("0") + digit for code, digit in digits if digit is not None}
    plain |= {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    plain |= {ord(space): ord(" ") for space in _SPACES}
    return plain | {ord(hyphen): ord("-") for hyphen in _HYPHENS}


def redact_contacts(text: str) -> str:
    """The text with ``[email]``, ``[phone]`` and ``[card]`` in place of contacts."""
    spans = find_contacts(text)
    return _cut(text, spans, lambda _start, _end, placeholder: placeholder) if spans else text


_Span = tuple[int, int, str]


def find_contacts(text: str) -> list[_Span]:
    """Where they begin and end, with the placeholder of each, in order and apart from each other."""
    plain = text if text.isascii() else text.translate(_plain_forms())
    spans: list[_Span] = []
    for placeholder, may_hold, find in _FINDERS:
        if may_hold(plain):
            places = [(start, end, placeholder) for start, end in find(plain)]
            plain = _cut(plain, places, lambda start, end, _placeholder: "\0" * (end - start))
            spans += places
    return sorted(spans)


def _has_numbers(text: str) -> bool:
    return len(_DIGIT.findall(text)) >= _MIN_DIGITS


# Earlier finds are gone for later finders: an address may hold a number, and a card's looks like a phone's.
_FINDERS: tuple[tuple[str, Callable[[str], bool], Callable[[str], Iterator[tuple[int, int]]]], ...] = (
    ("[email]", lambda text: "@" in text, find_emails),
    ("[card]", _has_numbers, find_cards),
    ("[phone]", _has_numbers, find_phones),
)


def _cut(text: str, spans: Iterable[_Span], instead: Callable[[int, int, str], str]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, placeholder in spans:
        pieces += (text[at:start], instead(start, end, placeholder))
        at = end
    return "".join((*pieces, text[at:]))
