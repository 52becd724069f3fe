"""Which known facts a statement may concern: by words, kinds of statement and, if it was said, by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strandline.pipelines.facts.kinds import MARK, asked_lexemes
from strandline.schemas.queries.derived.facts_merge import RelatedFacts
from strandline.schemas.values.fingerprints import fingerprint
from strandline.schemas.values.lanes import DerivationKeys

# Of a common kind and of a cosine of 1 without what all facts have in common; a word that is held by one fact
# of 500 weighs 5.8.  Measured in tests/pipelines/facts/test_what_merge_sees.py.
KIND_WEIGHT, MEANING_WEIGHT = 1.5, 7.0

Source = tuple[int, UUID, int]
"""A message that a statement was said in: the statement's number, from 1, its session and its seq."""


def nearest_facts(
    keys: DerivationKeys, texts: Sequence[str], limit: int, sources: Sequence[Source] = ()
) -> RelatedFacts:
    """The query for the known facts that are nearest to one of the statements; all while they are few."""
    words = [(number, lexeme) for number, text in enumerate(texts, 1) for lexeme in asked_lexemes(text)]
    return RelatedFacts(
        **keys,
        lexemes=[lexeme for _, lexeme in words],
        numbers=[number for number, _ in words],
        weights=[KIND_WEIGHT if lexeme.startswith(MARK) else 1.0 for _, lexeme in words],
        fingerprints=[fingerprint(text) for text in texts],
        sessions=[session_key for _, session_key, _ in sources],
        seqs=[seq for *_, seq in sources],
        cited=[number for number, *_ in sources],
        meaning=MEANING_WEIGHT,
        limit=limit,
    )
