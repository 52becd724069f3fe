"""Folding: the operations of one merge, each applied as a change of a fact and a revision of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from strandline.pipelines.facts.merge_inputs import Candidate, KnownFact, MergeWork
from strandline.pipelines.facts.similarity import fingerprint
from strandline.pipelines.models.answers import MergeOperation
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.postgres.database import Fetcher


class Fold:
    """Applies operations one after the other.

    Ids of new facts follow from batch and candidate, so that the same answer always makes the same rows.
    What became of each candidate is kept, for a later one that only repeats it; and how each known fact is
    worded by now, since no fact is changed that says something else than was expected.

    Args:
        scope: ``shard_key`` and ``generation_id``.
        batch_id: the merge batch.
    """

    def __init__(self, fetcher: Fetcher, scope: Mapping[str, Any], batch_id: UUID, work: MergeWork) -> None:
        self._fetcher = fetcher
        self._scope = dict(scope)
        self._batch_id = batch_id
        self._work = work
        self._became: dict[int, UUID] = {}
        self._reworded: set[UUID] = set()
        self._words = {fact.fact_id: fact.fingerprint for fact in work.known}

    def apply(self, operation: MergeOperation) -> None:
        number = operation.candidate
        candidate = self._work.candidates[number - 1]
        known = None if operation.fact is None else self._work.known[operation.fact - 1]
        text = operation.text or candidate.text
        if operation.op == "update" and known is not None and known.fact_id not in self._reworded:
            self._update(number, candidate, known, text)
        elif operation.op == "invalidate" and known is not None:
            self._replace(number, candidate, known, text)
        elif operation.op == "duplicate" and (same := known.fact_id if known else self._like(candidate)):
            self._confirm(number, candidate, same)
        else:
            # Also a second candidate that makes one fact more exact: its wording knows nothing of the first.
            self._add(number, candidate, candidate.text)

    def _like(self, candidate: Candidate) -> UUID | None:
        """The fact made of the earlier candidate that this one repeats: the one that shares most words."""
        said, words = fingerprint(candidate.text), set(query_lexemes(candidate.text))

        def likeness(number: int) -> tuple[bool, int]:
            text = self._work.candidates[number - 1].text
            return fingerprint(text) == said, len(words.intersection(query_lexemes(text)))

        nearest = max(self._became, key=likeness, default=None)
        return None if nearest is None else self._became[nearest]

    def _add(self, number: int, candidate: Candidate, text: str) -> UUID:
        fact_id = uuid5(self._batch_id, str(number))
        params = self._changed(candidate, fact_id, text)
        # Words that are known already make no second fact: the one there gets another source.
        ((fact_id,),) = self._fetcher.fetch("add_fact", params | {"said_by": candidate.said_by})
        kept: UUID = fact_id
        self._became[number] = kept
        return kept

    def _update(self, number: int, candidate: Candidate, known: KnownFact, text: str) -> None:
        if self._fetcher.fetch("update_fact", self._changed(candidate, known.fact_id, text)):
            self._words[known.fact_id] = fingerprint(text)
            self._reworded.add(known.fact_id)
            self._revise(number, candidate, known.fact_id, "update", text)
        else:
            # Ended earlier in this fold, or another fact says just this: then that one takes its place.
            self._end(number, candidate, known, self._add(number, candidate, text))

    def _replace(self, number: int, candidate: Candidate, known: KnownFact, text: str) -> None:
        """End the known fact and put the candidate in its place; the known fact stays on record."""
        if fingerprint(text) == known.fingerprint:
            self._confirm(number, candidate, known.fact_id)
            return
        # A candidate that ends several facts becomes one.
        by_fact_id = self._became.get(number) or self._add(number, candidate, text)
        self._end(number, candidate, known, by_fact_id)

    def _end(self, number: int, candidate: Candidate, known: KnownFact, by_fact_id: UUID) -> None:
        # Words that an earlier candidate gave this very fact: it says so already, and must not end itself.
        if by_fact_id == known.fact_id:
            return
        keys = {
            "fact_id": known.fact_id,
            "by_fact_id": by_fact_id,
            "said_at": candidate.said_at,
            "expected": self._words[known.fact_id],
        }
        if self._fetcher.fetch("invalidate_fact", self._scope | keys):
            self._revise(number, candidate, known.fact_id, "invalidate", known.text)
            self._became[number] = by_fact_id

    def _confirm(self, number: int, candidate: Candidate, fact_id: UUID) -> None:
        self._fetcher.fetch("confirm_fact", self._scope | {"fact_id": fact_id, "said_at": candidate.said_at})
        self._revise(number, candidate, fact_id, "duplicate", candidate.text)

    def _changed(self, candidate: Candidate, fact_id: UUID, text: str) -> dict[str, Any]:
        """A fact as it is to be, and where that comes from."""
        return self._source(candidate, fact_id, text) | {
            "expected": self._words.get(fact_id),
            "topics": candidate.topics,
            "about_date": candidate.about_date,
            "said_at": candidate.said_at,
        }

    def _revise(self, number: int, candidate: Candidate, fact_id: UUID, operation: str, text: str) -> None:
        self._became[number] = fact_id
        source = self._source(candidate, fact_id, text, changes=operation != "invalidate")
        self._fetcher.fetch("insert_revision", source | {"operation": operation})

    def _source(
        self, candidate: Candidate, fact_id: UUID, text: str, *, changes: bool = True
    ) -> dict[str, Any]:
        """Where a revision comes from; with the candidate's own words, where it ``changes`` to others."""
        own = candidate.text if changes and text != candidate.text else None
        return self._scope | {
            "fact_id": fact_id,
            "text": text,
            "fingerprint": fingerprint(text),
            "lexemes": query_lexemes(text),
            "own_text": own,
            "own_fingerprint": None if own is None else fingerprint(own),
            "own_lexemes": None if own is None else query_lexemes(own),
            "event_id": candidate.event_id,
            "session_key": candidate.session_key,
            "seqs": candidate.seqs,
            "extract_batch_id": candidate.batch_id,
            "merge_batch_id": self._batch_id,
            "model": candidate.model,
            "prompt_hash": candidate.prompt_hash,
        }
