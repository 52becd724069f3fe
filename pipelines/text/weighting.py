"""The weights of the parts of a score, by which messages and facts are ranked.

Postgres ranks by the same constants (``schemas/sql/fragments/search.sql``).  Their purpose is in
docs/architecture/vectors-and-search.md, and how they were chosen in docs/search-trials.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# The weight of words when there is a vector.
WORDS_BESIDE_VECTOR = 0.53
# The query names a speaker: messages of other speakers, and messages that mostly ask.
OTHER_SPEAKER = 0.7
ASKS = 0.85
# The query speaks of the asker: messages of an assistant.
ASSISTANT = 0.7
# A message that reads like a standing wish, if no speaker is named.
STANDING_WISH = 1.3
# The query names a date: messages of other days, and the bonus of that day's messages.
OTHER_DAY = 0.3
NAMED_DAY = 0.1
# Where several sessions are searched: weight of messages next to their session's best.
BESIDE_BEST = 0.9
# Of the weight of all the query's words: texts that have less say little, if vectors say more.
KNOWN_SHARE = 0.35
# Up to the first, contrasts are those of random vectors; from the second on, they show likeness of meaning.
FAINT_CONTRAST, CLEAR_CONTRAST = 0.15, 0.25
K1 = 1.2
B = 0.75
# In lexemes.  Counts are set against this in every scope, so that long answers do not swamp short turns.
USUAL_LENGTH = 40
# The share of a word's count that messages at a distance get.
NEARBY = {-3: 0.1, -2: 0.2, -1: 0.4, 0: 1.0, 1: 0.4, 2: 0.2, 3: 0.1}


def weight_of_words(held: Sequence[float], words: int, of_none: float) -> float:
    """The weight of all words of a query.

    Args:
        held: the weights of the lexemes that occur in the scope; a word may have several, by its variants.
        words: how many words there are.
        of_none: the weight of a word that does not occur.
    """
    return sum(held) + max(0, words - len(held)) * of_none


def full_text_score(best: float, whole: float, nearest: float) -> float:
    """The word score that counts 1: that of the best text, or more if no text has much of the query.

    Args:
        best: the highest word score.
        whole: the weight of all words of the query, found or not.
        nearest: the highest contrast; 0 without vectors.
    """
    clearness = (nearest - FAINT_CONTRAST) / (CLEAR_CONTRAST - FAINT_CONTRAST)
    return max(best, KNOWN_SHARE * min(1.0, max(0.0, clearness)) * whole)


def by_length(length: float) -> float:
    """The divisor of a word's count in a text of ``length`` lexemes."""
    return 1 - B + B * length / USUAL_LENGTH


def saturated(times: float) -> float:
    """The weight of a word that occurs ``times`` times in a text, adjusted for the text's length."""
    return times / (times + K1)


def rarity(texts: int, holders: int) -> float:
    """The weight of a word that ``holders`` of ``texts`` texts contain."""
    return math.log(1 + (texts - holders + 0.5) / (holders + 0.5))
