"""What looks for short words in stored text finds none by chance."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from random import Random

from tests.support.whole_words import says


def test_no_random_text_says_a_short_word() -> None:
    octets = Random(1).randbytes(300_000)  # noqa: S311  # the same each time
    for text, word in (
        (b64encode(octets), "eve"),
        (urlsafe_b64encode(octets), "bob"),
        (octets.hex(), "4711"),
    ):
        shown = text if isinstance(text, str) else text.decode()
        assert word in shown and not says(f'{{"content": "{shown}"}}', word)
        assert all(says(found, word) for found in (word, f'["{word}"]', f"Fact of {word}.", f"<b>{word}</b>"))
