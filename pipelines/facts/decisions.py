"""A model's decisions about known facts are proposals, checked here against the messages and their speakers.

Only the proposal, its candidate and the known fact count, so a stored answer always gives the same changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from strandline.pipelines.models.answers import MergeOperation
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.values.doubts import Doubt, DoubtReason
from strandline.schemas.values.normal_form import folded, normal_form

# How much of a part's lexemes a sentence must hold.
KEPT_SHARE = 0.5

_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"(?<=[\w,;:)] )(?=[^\W\d_])\w+")
_NEGATION = re.compile(
    r"\b(?:not|no(?:ne|body|thing|r)?|never|neither|without|cannot|\w+n't|nicht|nichts|kein\w*|nie|niemals|ohne"
    r"|ne|pas|jamais|sans|nunca|jamás|sin|non|senza|não|nao|sem|niet|geen|nooit|не|нет|никогда|без)\b"
    r"|[不没沒無无못]|ない|ません|なく|안 |않|없|ไม่"
)
# Joining words besides the stop words of the lexemes, and joining characters where no blanks are.
_JOINING = frozenset(
    query_lexemes(
        "since und oder aber mit ist hat der die das ein eine den dem von zu auf für et ou est le la les de"
        " du des un une en avec y con es el los las una del que e i o il di è per com da do tem het van"
        " и в на с у"
    )
)
_PARTICLES = frozenset("和与跟及并且也的了是在有而はがをにでとものへや은는이가을를에의로와과도고며")


class Statement(Protocol):
    """A candidate or a known fact; ``is_by_assistants``: it rests on assistants' lines alone."""

    @property
    def text(self) -> str: ...
    @property
    def is_by_assistants(self) -> bool: ...


def check_decision(op: MergeOperation, candidate: Statement, known: Statement) -> MergeOperation:
    """The decision as it may be applied: unchanged, in the candidate's own words, or as an ``add``.

    Assistants' statements neither end nor reword a user's or a person's fact, and do not stand for a user's.
    A wording is made of both parts; an update that would lose one of them adds, with its ``doubt``.
    """
    if reason := _doubt(op, candidate, known):
        return beside(op, reason)
    if op.text is None or op.op == "duplicate" or _is_sound(op, candidate, known):
        return op
    return replace(op, text=None)


def beside(op: MergeOperation, reason: DoubtReason) -> MergeOperation:
    """The candidate as a separate fact, with the decision as its doubt."""
    if op.op == "add" or op.fact is None:
        raise ValueError("Only a decision on a known fact can be doubted.")
    return MergeOperation("add", op.candidate, None, None, Doubt(op.op, op.fact, reason))


def _doubt(op: MergeOperation, candidate: Statement, known: Statement) -> DoubtReason | None:
    if op.op == "duplicate":
        return None if may_stand_for(known, candidate) else "assistant"
    if candidate.is_by_assistants and not known.is_by_assistants:
        return "assistant"
    if op.op == "invalidate" or _is_sound(op, candidate, known):
        return None
    parts = [known.text, candidate.text]
    if set(query_lexemes(known.text)) <= set(query_lexemes(candidate.text)) and holds_all_of(
        candidate.text, parts
    ):
        return None
    return "loses" if op.text is None or not holds_all_of(op.text, parts) else "adds"


def _is_sound(op: MergeOperation, candidate: Statement, known: Statement) -> bool:
    parts = [known.text, candidate.text]
    if op.text is None:
        return False
    held = parts[1:] if op.op == "invalidate" else parts
    return holds_all_of(op.text, held) and not adds_to(op.text, parts)


def may_stand_for(other: Statement, candidate: Statement) -> bool:
    is_lost = other.is_by_assistants and not candidate.is_by_assistants
    return not is_lost or holds_all_of(other.text, [candidate.text])


def is_made_of(text: str, parts: Sequence[str]) -> bool:
    """Whether ``text`` may replace all ``parts``: it holds each of them, and nothing else."""
    return holds_all_of(text, parts) and not adds_to(text, parts)


def holds_all_of(text: str, parts: Sequence[str]) -> bool:
    """Whether ``text`` has most lexemes of each part, every number and name, and a negation if one has."""
    lexemes, numbers = set(query_lexemes(text)), numbers_in(text)
    return is_negated(text) == any(map(is_negated, parts)) and all(
        numbers_in(part) <= numbers
        and names_in(part) <= lexemes
        and _share(set(query_lexemes(part)), lexemes) >= KEPT_SHARE
        for part in parts
    )


def adds_to(text: str, parts: Sequence[str]) -> set[str]:
    """The lexemes of ``text`` that no part has, but for words that only join others."""
    # As they stand too: "like" is a stop word, "likes" is none.
    plain = folded(" ".join(parts))
    characters = set(plain) | _PARTICLES
    known = _JOINING.union(re.findall(r"\w+", plain), *map(query_lexemes, parts), *map(numbers_in, parts))
    return {
        word
        for word in query_lexemes(text)
        if word not in known and not (len(word) == 2 and _PARTICLES & set(word) and set(word) <= characters)
    }


def _share(part: set[str], whole: set[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0


def numbers_in(text: str) -> set[str]:
    return set(_NUMBER.findall(normal_form(text)))


def names_in(text: str) -> set[str]:
    return set(query_lexemes(" ".join(word for word in _NAME.findall(text) if word[0].isupper())))


def is_negated(text: str) -> bool:
    return _NEGATION.search(folded(text).replace("’", "'")) is not None
