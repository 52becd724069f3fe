"""Compares facts, as the same or similar, by their words, without case, width, order or speaker."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.pipelines.text.lexemes import query_lexemes

# How models and the local stand-in call a speaker without a name.
_NAMELESS = frozenset(query_lexemes("user assistant"))

# Of two sentences about one message, the shorter one must share more than this with the other.
ALIKE_ABOVE = 0.5


def telling_lexemes(lexemes: Iterable[str], said_by: str | None) -> frozenset[str]:
    """The lexemes that tell facts of one speaker apart: the speaker's own name is in all of them."""
    return frozenset(lexemes) - _NAMELESS - frozenset(query_lexemes(said_by or ""))


def are_alike(left: frozenset[str], right: frozenset[str]) -> bool:
    """Whether most of the shorter sentence is in the other; two without any lexemes are not."""
    shorter = min(len(left), len(right))
    return shorter > 0 and len(left & right) > ALIKE_ABOVE * shorter
