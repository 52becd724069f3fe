"""Finds numbers of payment cards: by beginnings of their issuers, lengths, groups, and the check digit."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
