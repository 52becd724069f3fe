"""Finds phone numbers: by a plus sign, by a form that a country writes, or by a word before them.

Most numbers in a text are none: dates, amounts, versions, orders, ids.  So digits alone are never enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from strandline.pipelines.redaction.email_addresses import LETTERS

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
    """The span of a number, without what only follows it; None if it is none after all."""
    before = match.string[max(0, match.start() - _MAX_WORD_BEFORE) : match.start()]
    if not match[0].startswith("+") and _OTHER_KIND.search(before):
        return None
    if pattern is _INTERNATIONAL:
        return _international(match)
    if pattern is _AREA:
        is_number = _MIN_AREA <= _digits(match[0]) <= _MAX_AREA and not _DATE.search(match[0])
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


# What begins so has three digits.
_LONGER_COUNTRIES = frozenset("21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 80 85 87 88 96 97 99".split())


def _ending_after(match: re.Match[str], digits: int) -> tuple[int, int] | None:
    """The span up to so many digits behind a plus sign; None if the last one is followed by another."""
    text, left = match[0], digits + (2 if match[0].startswith("00") else 0)
    for place, character in enumerate(text):
        left -= character.isdigit()
        if not left:
            is_whole = not text[place + 1 : place + 2].isdigit()
            return (match.start(), match.start() + place + 1) if is_whole else None
    return None


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))
