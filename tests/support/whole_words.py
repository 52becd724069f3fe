"""Looking for a short word in text that also holds keys, tokens or digests.

Three letters turn up by chance in one of some thousand such texts, in base64 as in hexadecimal digits.
"""

from __future__ import annotations

import re


def says(text: str, word: str) -> bool:
    """Whether a text has the word by itself, and not within a longer run of base64 or hexadecimal digits."""
    return re.search(rf"(?<![\w+/=-]){re.escape(word)}(?![\w+/=-])", text) is not None
