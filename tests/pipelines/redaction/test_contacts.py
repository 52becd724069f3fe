"""The hook that ships finds addresses, phone and card numbers by their form, and leaves others alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.redaction.generated import Sample, samples, score
from strandline.pipelines.redaction.contacts import is_luhn, redact_contacts

FOUND = {
    "mail anna.meier+x@example.co.uk, ok": "mail [email], ok",
    "Anna <a@b.io> writes.": "Anna <[email]> writes.",
    "邮箱是anna@example.com。": "邮箱是[email]。",
    "Anna@müller.de!": "[email]!",
    "ｆｕｌｌ＠ｅｘａｍｐｌｅ．ｃｏｍ": "[email]",
    "<a href='mailto:x@y.org'>": "<a href='mailto:[email]'>",
    "card 4111 1111 1111 1111 please": "card [card] please",
    "4111-1111-1111-1111": "[card]",
    "Amex 3782 822463 10005.": "Amex [card].",
    "６０１１０００９９０１３９４２４": "[card]",
    "Ruf an: +49 170 1234567": "Ruf an: [phone]",
    "+49 (0)30 12345678": "[phone]",
    "+1 (555) 234-5678 10 am": "[phone] 10 am",
    "0049 170 1234567": "[phone]",
    "(555) 234-5678 or 555-234-5679": "[phone] or [phone]",
    "1-800-555-0199": "[phone]",
    "01 23 45 67 89": "[phone]",
    "0170 1234567": "[phone]",
    "030/1234567": "[phone]",
    "01701234567": "[phone]",
    "我的手机是13800138000，谢谢": "我的手机是[phone]，谢谢",
    "电话：010-12345678": "电话：[phone]",
    "+８６　１３８　００１３　８０００": "[phone]",
    "call me at 5551234": "call me at [phone]",
    "Telefon: 123 456 78": "Telefon: [phone]",
    "a@b.io, +49 170 1234567, 4111111111111111": "[email], [phone], [card]",
}
LEFT = (
    "on 2024-05-12 10:30", "12.05.2024", "05/12/2024", "01.02.2024 10:30",
    "2024-05-12T10:30:00+02:00",
    "$1,000,000.00", "1 000 000 000", "€ 12.345.678,90", "order 5551234567",
    "ORD-555-123-4567", "#5551234567",
    "SKU 0546-842747",
    "550e8400-e29b-41d4-a716-446655440000", "v10.0.19041.1234", "192.168.100.1", "1732523691",
    "1732523691000",
    "ISBN 978-3-16-148410-0", "3.14159265358979", "4111111111111112", "1234 5678 9012 3456",
    "git@github.com:a/b.git", "logo@2x.png", "@app.route", "pkg@1.2.3", "a @ b.com", "-73.935242, 40.730610",
    "2020 2021 2022", "123-45-6789", "0.0123456789", "00001234567", "page 100-200", "1e10", "0x1234567890",
)  # fmt: skip


@pytest.mark.parametrize(("text", "redacted"), FOUND.items())
def test_what_has_the_form_of_a_contact_is_redacted(text: str, redacted: str) -> None:
    assert redact_contacts(text) == redacted


@pytest.mark.parametrize("text", LEFT)
def test_other_numbers_and_signs_are_left(text: str) -> None:
    assert redact_contacts(text) == text
    assert redact_contacts(f"见{text}。") == f"见{text}。"


def test_a_seeded_set_is_found_and_nothing_else() -> None:
    """The set that the published figures are of; ``python -m bench.redaction`` prints them."""
    for kind, figures in score(samples(seed=1, of_each=200)).items():
        assert figures.recall >= 0.97, kind
        assert figures.precision >= 0.99, kind


def test_a_sample_that_is_missed_counts() -> None:
    missed = Sample("[phone]", "none at all", ("12",))
    invented = Sample(None, "+49 170 1234567", ())
    figures = score([missed, invented])["[phone]"]
    assert (figures.recall, figures.precision) == (0.0, 0.0)


@given(st.text(alphabet="0123456789@.-+ ()/ab\uff10\uff20\u4e00", max_size=60))
def test_a_redacted_text_stays_as_it_is(text: str) -> None:
    once = redact_contacts(text)
    assert redact_contacts(once) == once


@given(st.text(max_size=80))
def test_a_text_without_digits_and_addresses_is_the_same_object(text: str) -> None:
    if "@" not in text and "\uff20" not in text and not any(character.isdigit() for character in text):
        assert redact_contacts(text) is text


@given(st.from_regex(r"[0-9]{12,18}", fullmatch=True))
def test_of_ten_check_digits_one_is_right(digits: str) -> None:
    assert sum(is_luhn(digits + str(last)) for last in range(10)) == 1
