"""Folding: the operations of one merge, each applied as a change of a fact and a revision of it."""

from __future__ import annotations

from uuid import UUID, uuid5

from strandline.pipelines.facts.decisions import may_stand_for
from strandline.pipelines.facts.merge_inputs import Candidate, KnownFact, MergeWork
from strandline.pipelines.models.answers import MergeOperation
from strandline.pipelines.text.lexemes import indexed_lexemes, query_lexemes
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.facts_edit import LiveFactLike
from strandline.schemas.queries.derived.facts_merge import (
    AddFact,
    ConfirmFact,
    InsertRevision,
    InvalidateFact,
    UpdateFact,
)
from strandline.schemas.values.fingerprints import fingerprint
from strandline.schemas.values.lanes import DerivationKeys


class _Source(DerivationKeys):
    """The source of a revision, as parameters of the statements that write one."""

    fact_id: UUID
    text: str
    fingerprint: bytes
    lexemes: list[str]
    own_text: str | None
    own_fingerprint: bytes | None
    own_lexemes: list[str] | None
    event_id: UUID
    session_key: UUID
    seqs: list[int]
    extract_batch_id: UUID
    merge_batch_id: UUID
    model: str
    prompt_hash: str


class Fold:
    """Applies operations one after the other.

    Ids of new facts follow from batch and candidate, so that the same answer always makes the same rows.
    The outcome of each candidate is kept, for a later one that only repeats it; and the current wording of
    each known fact, since a fact is changed only if it still says what was expected.

    Args:
        batch_id: the merge batch.
    """

    def __init__(self, fetcher: Fetcher, keys: DerivationKeys, batch_id: UUID, work: MergeWork) -> None:
        self._fetcher = fetcher
        self._keys = keys
        self._batch_id = batch_id
        self._work = work
        self._became: dict[int, UUID] = {}
        self._reworded: set[UUID] = set()
        self._words = {fact.fact_id: fact.fingerprint for fact in work.known}
        self._withheld: set[int] = set()

    @property
    def withheld(self) -> list[int]:
        """The candidates that changed nothing, since an operator has the operation switched off."""
        return sorted(self._withheld - self._became.keys())

    def apply(self, operation: MergeOperation) -> None:
        """Apply an operation as far as an operator allows it."""
        allowed = self._work.capture.restrict(operation)
        if allowed is None:
            self._withheld.add(operation.candidate)
        else:
            self._apply(allowed)

    def _apply(self, operation: MergeOperation) -> None:
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
            self._add_or_confirm(number, candidate, candidate.text)

    def _like(self, candidate: Candidate) -> UUID | None:
        """The fact made of the earlier candidate that this one repeats: the one that shares most words."""
        wording, words = fingerprint(candidate.text), set(query_lexemes(candidate.text))

        def likeness(number: int) -> tuple[bool, int]:
            text = self._work.candidates[number - 1].text
            return fingerprint(text) == wording, len(words.intersection(query_lexemes(text)))

        alike = (n for n in self._became if may_stand_for(self._work.candidates[n - 1], candidate))
        nearest = max(alike, key=likeness, default=None)
        return None if nearest is None else self._became[nearest]

    def _add(self, number: int, candidate: Candidate, text: str) -> UUID:
        fact_id = uuid5(self._batch_id, str(number))
        # Words that are known already make no second fact: the one there gets another source.
        (kept,) = self._fetcher.fetch(
            AddFact(
                **self._source(candidate, fact_id, text),
                topics=candidate.topics,
                about_date=candidate.about_date,
                said_at=candidate.said_at,
                said_by=candidate.said_by,
            )
        )
        self._became[number] = kept.fact_id
        return kept.fact_id

    def _add_or_confirm(self, number: int, candidate: Candidate, text: str) -> UUID | None:
        """Add a fact; where nothing may be added, confirm the one that says these words, if there is one."""
        if not self._work.capture.capture.is_add_off:
            return self._add(number, candidate, text)
        rows = self._fetcher.fetch(LiveFactLike(**self._keys, fingerprint=fingerprint(text)))
        if not rows:
            self._withheld.add(number)
            return None
        self._confirm(number, candidate, rows[0].fact_id)
        return rows[0].fact_id

    def _update(self, number: int, candidate: Candidate, known: KnownFact, text: str) -> None:
        words = fingerprint(text)
        update = UpdateFact(
            **self._keys,
            fact_id=known.fact_id,
            text=text,
            fingerprint=words,
            lexemes=indexed_lexemes(text),
            topics=candidate.topics,
            about_date=candidate.about_date,
            said_at=candidate.said_at,
            expected=self._words[known.fact_id],
        )
        if self._fetcher.fetch(update):
            self._words[known.fact_id] = words
            self._reworded.add(known.fact_id)
            self._revise(number, candidate, known.fact_id, "update", text)
        else:
            # Ended earlier in this fold, or another fact says just this: then that one takes its place.
            by_fact_id = self._add_or_confirm(number, candidate, text)
            if by_fact_id is not None and not self._work.capture.capture.is_delete_off:
                self._end(number, candidate, known, by_fact_id)

    def _replace(self, number: int, candidate: Candidate, known: KnownFact, text: str) -> None:
        """End the known fact and put the candidate in its place; the known fact stays on record."""
        if fingerprint(text) == known.fingerprint:
            self._confirm(number, candidate, known.fact_id)
            return
        if candidate.said_at < known.said_at:
            self._add_past(number, candidate, known, text)
            return
        # A candidate that ends several facts becomes one.
        by_fact_id = self._became.get(number) or self._add(number, candidate, text)
        self._end(number, candidate, known, by_fact_id)

    def _add_past(self, number: int, candidate: Candidate, known: KnownFact, text: str) -> None:
        """Add what came late, and was true only until the known fact was: what is newer it never ends."""
        fact_id = self._add(number, candidate, text)
        if fact_id != uuid5(self._batch_id, str(number)):
            return  # it was said again since
        ended = InvalidateFact(
            **self._keys,
            fact_id=fact_id,
            by_fact_id=known.fact_id,
            said_at=known.said_at,
            expected=fingerprint(text),
        )
        if self._fetcher.fetch(ended):
            self._revise(number, candidate, fact_id, "invalidate", text)

    def _end(self, number: int, candidate: Candidate, known: KnownFact, by_fact_id: UUID) -> None:
        # Words that an earlier candidate gave this very fact: it says so already, and must not end itself.
        if by_fact_id == known.fact_id:
            return
        ended = InvalidateFact(
            **self._keys,
            fact_id=known.fact_id,
            by_fact_id=by_fact_id,
            said_at=candidate.said_at,
            expected=self._words[known.fact_id],
        )
        if self._fetcher.fetch(ended):
            self._revise(number, candidate, known.fact_id, "invalidate", known.text)
            self._became[number] = by_fact_id

    def _confirm(self, number: int, candidate: Candidate, fact_id: UUID) -> None:
        self._fetcher.fetch(ConfirmFact(**self._keys, fact_id=fact_id, said_at=candidate.said_at))
        self._revise(number, candidate, fact_id, "duplicate", candidate.text)

    def _revise(self, number: int, candidate: Candidate, fact_id: UUID, operation: str, text: str) -> None:
        self._became[number] = fact_id
        source = self._source(candidate, fact_id, text, changes=operation != "invalidate")
        self._fetcher.fetch(InsertRevision(**source, operation=operation))

    def _source(self, candidate: Candidate, fact_id: UUID, text: str, *, changes: bool = True) -> _Source:
        """The source of a revision; with the candidate's own words, if it ``changes`` them."""
        own = candidate.text if changes and text != candidate.text else None
        return {
            **self._keys,
            "fact_id": fact_id,
            "text": text,
            "fingerprint": fingerprint(text),
            "lexemes": indexed_lexemes(text),
            "own_text": own,
            "own_fingerprint": None if own is None else fingerprint(own),
            "own_lexemes": None if own is None else indexed_lexemes(own),
            "event_id": candidate.event_id,
            "session_key": candidate.session_key,
            "seqs": candidate.seqs,
            "extract_batch_id": candidate.batch_id,
            "merge_batch_id": self._batch_id,
            "model": candidate.model,
            "prompt_hash": candidate.prompt_hash,
        }
