"""Doubts: a model's decisions on known facts that code refused, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

DoubtedOperation = Literal["update", "invalidate", "duplicate"]
Settlement = Literal["both", "new", "old"]
DoubtReason = Literal[
    "unrelated", "older", "assistant", "negation", "loses", "adds", "language", "supposed", "contradicts"
]

DOUBT_SENTENCES: Mapping[DoubtReason, str] = MappingProxyType(
    {
        "unrelated": "It has nothing in common with the known fact.",
        "older": "It was said before the known fact.",
        "assistant": "An assistant alone said one of the two, and a person the other.",
        "negation": "One of the two affirms, and the other denies.",
        "loses": "The words proposed for both, or those of the known fact, leave something out.",
        "adds": "The words proposed for both say more than the two.",
        "language": "The words proposed for both are in another language.",
        "supposed": "One of the two tells only a wish, a question or a possibility.",
        "contradicts": "It was added by hand, and its words may contradict the known fact.",
    }
)
"""A sentence for each reason; "it" is the new statement."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """The refused operation, the number of the known fact that it concerned, and the reason."""

    op: DoubtedOperation
    fact: int
    reason: DoubtReason


def doubt_sentence(reason: str) -> str:
    """The sentence of a stored reason; the reason of another release stands for itself."""
    return next((sentence for name, sentence in DOUBT_SENTENCES.items() if name == reason), reason)
