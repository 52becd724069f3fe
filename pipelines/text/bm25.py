"""BM25: the weight of words, by one formula for messages and facts.

Postgres ranks by the same formula, with the same constants (``schemas/sql/fragments/bm25.sql``).
"""

from __future__ import annotations

import math

K1 = 1.2
B = 0.75
# In lexemes.  Counts are set against this in every scope, so that long answers do not swamp short turns.
USUAL_LENGTH = 40
# The share of a word's count that messages at a distance get.
NEARBY = {-3: 0.1, -2: 0.2, -1: 0.4, 0: 1.0, 1: 0.4, 2: 0.2, 3: 0.1}


def by_length(length: float) -> float:
    """The divisor of a word's count in a text of ``length`` lexemes."""
    return 1 - B + B * length / USUAL_LENGTH


def saturated(times: float) -> float:
    """The weight of a word that occurs ``times`` times in a text, adjusted for the text's length."""
    return times / (times + K1)


def rarity(texts: int, holders: int) -> float:
    """The weight of a word that ``holders`` of ``texts`` texts contain."""
    return math.log(1 + (texts - holders + 0.5) / (holders + 0.5))
