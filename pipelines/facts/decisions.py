"""A model's decisions about known facts are proposals, checked here against the messages and their speakers.

Only the proposal, its candidate and the known facts shown count, so a stored answer always gives the same
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import SequenceMatcher
from itertools import product
from typing import Protocol

from strandline.pipelines.facts.kinds import USER, are_about_others, kinds_of, may_share_subject, subject_of
from strandline.pipelines.facts.statements import (
    adds_to,
    are_exchanged,
    contradict,
    counts_otherwise,
    differ_in_part,
    has_name,
    have_in_common,
    holds_all_of,
    is_denied_otherwise,
    is_negated,
    is_qualified_as,
    is_qualified_otherwise,
    is_supposed,
    is_turned,
    leading_name,
    names_in,
    says_all_of,
    share_of,
)
from strandline.pipelines.models.answers import MergeOperation
from strandline.pipelines.text.common_words import is_foreign, language_of
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.text.numbers import is_miscounted, numbers_in
from strandline.schemas.values.doubts import Doubt, DoubtReason

# Below are names of different places, as Berlin and Madrid.
_LIKE = 0.5
_IN_LATIN = str.maketrans("абвгдезиклмнопрстуфαβγδεικλμνοπρστηω", "abvgdeziklmnoprstufavgdeiklmnoprstio")
# A repetition has so much of its telling words from what it repeats.
REPEATED_SHARE = 0.5


class Statement(Protocol):
    """A candidate or a known fact; ``is_by_assistants``: it rests on assistants' lines alone."""

    @property
    def text(self) -> str: ...
    @property
    def said_at(self) -> datetime: ...
    @property
    def is_by_assistants(self) -> bool: ...


def check_decision(
    op: MergeOperation,
    candidate: Statement,
    known: Statement,
    *,
    common: Collection[str] = (),
    is_older: bool = False,
    speaker: str | None = None,
) -> MergeOperation:
    """The decision as it may be applied: unchanged, in the candidate's own words, or as an ``add``.

    It needs something in common.  Assistants' statements neither end nor reword a user's or a person's fact,
    do not stand for a user's, and give it no words.  A wording is made of both parts, in the language of one
    of them.  An ``add`` in place of a refused decision has it as its ``doubt``.

    Args:
        common: words that are in so many of the owner's facts that they tell nothing.
        is_older: the candidate was said before the known fact.
        speaker: the name of who said the candidate.
    """
    if not are_related(candidate.text, known.text, {*common, *query_lexemes(speaker or "")}, speaker):
        return beside(op, "unrelated")
    if op.op == "duplicate":
        return _duplicate(op, candidate, known, is_older)
    if _is_weaker(candidate, known):
        return beside(op, "assistant")
    if _is_weaker(known, candidate):
        op = replace(op, text=None)  # of both it would pass for the user's
    if is_supposed(candidate.text) and not is_supposed(known.text):
        is_of_both = op.op == "update" and op.text and is_made_of(op.text, [known.text, candidate.text])
        return op if is_of_both else beside(op, "supposed")
    if are_about_others(candidate.text, known.text, speaker):
        return beside(op, "unrelated")
    if op.op == "invalidate":
        fault = op.text and _fault(op.text, [candidate.text], [known.text, candidate.text])
        return replace(op, text=None) if fault else op
    return _update(op, candidate.text, known.text, is_older)


def _duplicate(op: MergeOperation, candidate: Statement, known: Statement, is_older: bool) -> MergeOperation:
    reason = repeats_badly(candidate, known)
    if reason != "loses":
        return beside(op, reason) if reason else op
    if _is_weaker(candidate, known):
        return beside(op, "assistant")
    # It says the same and more, so that it repeats nothing, but completes it.
    is_more = says_all_of(candidate.text, known.text) and _covers(candidate.text, known.text)
    return replace(op, op="update", text=None) if is_more else beside(op, "older" if is_older else reason)


def _update(op: MergeOperation, candidate: str, known: str, is_older: bool) -> MergeOperation:
    parts = [known, candidate]
    if contradict(candidate, known):
        return beside(op, "negation")
    if op.text is not None and is_made_of(op.text, parts):
        return op
    if _covers(candidate, known):
        return replace(op, text=None)
    if not is_older and counts_otherwise(candidate, known):
        return replace(op, op="invalidate", text=None)
    return beside(op, "older" if is_older else _fault(op.text or candidate, parts, parts) or "loses")


def _covers(candidate: str, known: str) -> bool:
    return is_made_of(candidate, [known, candidate]) and not is_miscounted(candidate, [known])


def _is_weaker(one: Statement, other: Statement) -> bool:
    return one.is_by_assistants and not other.is_by_assistants


def beside(op: MergeOperation, reason: DoubtReason) -> MergeOperation:
    """The candidate as a separate fact, with the decision as its doubt."""
    if op.op == "add" or op.fact is None:
        raise ValueError("Only a decision on a known fact can be doubted.")
    return MergeOperation("add", op.candidate, None, None, Doubt(op.op, op.fact, reason))


def are_related(one: str, other: str, common: Collection[str] = (), speaker: str | None = None) -> bool:
    """Whether two statements share a telling word or number, or a kind and perhaps the subject."""
    if have_in_common(one, other, common):
        return True
    if not kinds_of(one) & kinds_of(other) or not may_share_subject(one, other, speaker):
        return False
    left, right = leading_name(one), leading_name(other)
    return left is None or right is None or _is_like(left, right)


def repeats_badly(candidate: Statement, known: Statement) -> DoubtReason | None:
    """Why a candidate does not repeat another statement: it denies, names or counts something else."""
    if _is_weaker(known, candidate) and not (
        holds_all_of(known.text, [candidate.text]) and holds_all_of(candidate.text, [known.text])
    ):
        return "assistant"
    if contradict(candidate.text, known.text):
        return "negation"
    if is_supposed(candidate.text) != is_supposed(known.text):
        return "supposed"
    is_lost = (
        not numbers_in(candidate.text) <= numbers_in(known.text)
        or is_miscounted(candidate.text, [known.text])
        or _names_another(candidate.text, known.text)
        or len({subject_of(candidate.text), subject_of(known.text)} - {None, USER}) > 1
    )
    checks = (are_about_others, differ_in_part, is_turned, is_qualified_otherwise, _says_other)
    return "loses" if is_lost or any(check(candidate.text, known.text) for check in checks) else None


def _says_other(one: str, other: str) -> bool:
    """Whether most words of a statement are not in another; but the reverse may be denied in other words."""
    if language_of(one) != language_of(other) or is_negated(one) != is_negated(other):
        return False
    return share_of(one, other) < REPEATED_SHARE


def _names_another(one: str, other: str) -> bool:
    left, right, language = names_in(one), names_in(other), language_of(one)
    if language != language_of(other):
        left, right = left - right, right - left
        return bool(left and right) and not any(_is_like(a, b) for a in left for b in right)
    # In German every noun has a capital.
    return language != "german" and any(not has_name(name, other) for name in left)


def _is_like(one: str, other: str) -> bool:
    """Whether two names may be one in two languages, as Cologne and Köln are."""
    pairs = product(*(query_lexemes(name.casefold().translate(_IN_LATIN)) for name in (one, other)))
    return any(SequenceMatcher(None, left, right).ratio() > _LIKE for left, right in pairs)


def is_made_of(text: str, parts: Sequence[str]) -> bool:
    """Whether ``text`` may replace all ``parts``: it holds each of them, and nothing else."""
    return _fault(text, parts, parts) is None


def _fault(text: str, held: Sequence[str], parts: Sequence[str]) -> DoubtReason | None:
    if is_foreign(text, parts):
        return "language"
    if is_denied_otherwise(text, held):
        return "negation"
    if not (holds_all_of(text, held) and is_qualified_as(text, held, parts)) or are_exchanged(text, parts):
        return "loses"
    if not is_supposed(text) and any(map(is_supposed, held)):
        return "supposed"
    return "adds" if adds_to(text, parts) else None
