"""What counts how much in the score of a message, or a fact, that is searched for.

Postgres ranks by the same constants (``schemas/sql/fragments/search.sql``).  What they are for is in
docs/architecture/vectors-and-search.md, and how they were chosen in docs/search-trials.md.
"""

from __future__ import annotations

# The weight of words beside a vector.
WORDS_BESIDE_VECTOR = 0.53
# The query names a speaker: what others say, and what mostly asks.
OTHER_SPEAKER = 0.7
ASKS = 0.85
# The query speaks of the asker: what an assistant says.
ASSISTANT = 0.7
# What reads like a standing wish, if no speaker is named.
STANDING_WISH = 1.3
# The query names a date: what was said on others, and what is added for that day alone.
OTHER_DAY = 0.3
NAMED_DAY = 0.1
# Where several sessions are searched, what counts of a message beside its session's best.
BESIDE_BEST = 0.9
# Of the weight of all the query's words: texts that have less say little, if vectors say more.
KNOWN_SHARE = 0.35
# Contrasts up to here are those of vectors drawn at random; from there on they say what is meant.
FAINT_CONTRAST, CLEAR_CONTRAST = 0.15, 0.25


def full_text_score(best: float, whole: float, nearest: float) -> float:
    """The word score that counts 1: that of the best text, or more if no text has much of the query.

    Args:
        best: the highest word score.
        whole: the weight of all words of the query, found or not.
        nearest: the highest contrast; 0 without vectors.
    """
    clearness = (nearest - FAINT_CONTRAST) / (CLEAR_CONTRAST - FAINT_CONTRAST)
    return max(best, KNOWN_SHARE * min(1.0, max(0.0, clearness)) * whole)
