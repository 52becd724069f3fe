"""Judges by text alone, without a model, whether a read holds the answer to a question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.producers.blocks.render import escaped


def flat(text: str) -> str:
    """The text with its letters in one case, and one blank for any white space."""
    return " ".join(text.split()).casefold()


def forms_of(text: str) -> frozenset[str]:
    """How a read may show a text: as the window does, and as memory does."""
    return frozenset({flat(text), flat(escaped(text))})


def count_standing(needed: Iterable[frozenset[str]], texts: Sequence[str]) -> int:
    """How many of the needed texts, each with its forms, stand in the given texts."""
    whole = flat("\n".join(texts))
    return sum(any(form and form in whole for form in forms) for forms in needed)
