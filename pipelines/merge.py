"""Merge: the second stage of facts.  Folds candidates into what is known, on the owner's lane.

The lane is serial, so two sessions of one user never race; a model sees the candidates beside the known
facts that share words with them, and says what is new, what changes, what ends and what is known
already.  Facts are never replaced wholesale: each change is one revision with its provenance.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import blake2b
from typing import Any, ClassVar
from uuid import UUID, uuid5

from strandline.pipelines.engine.stage import Batch, Call, RawAnswer
from strandline.pipelines.extract import ask
from strandline.pipelines.lexemes import query_lexemes
from strandline.pipelines.models.answers import MergeOperation, parse_merge
from strandline.pipelines.models.contract import MergeTask, NumberedFact, TextModel
from strandline.schemas.database import Fetcher
from strandline.schemas.lanes import MERGE_STAGE, Lane

# What one merge call shows of the known facts: those that share most words with the candidates.
MAX_KNOWN = 60


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of ``fact_candidate``."""

    event_id: UUID
    session_key: UUID
    batch_id: UUID
    text: str
    seqs: list[int]
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    model: str
    prompt_hash: str


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A live fact of the owner that has to do with the candidates."""

    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class MergeWork:
    candidates: tuple[Candidate, ...]
    known: tuple[KnownFact, ...]


@dataclass(frozen=True, slots=True)
class MergeStage:
    """Folds all candidates of a batch into the owner's facts."""

    model: TextModel
    name: ClassVar[str] = MERGE_STAGE

    def load(self, fetcher: Fetcher, batch: Batch) -> MergeWork:
        candidates = tuple(
            Candidate(*row)
            for row in fetcher.fetch("pending_candidates", _scope(batch) | {"event_ids": batch.event_ids})
        )
        return MergeWork(candidates, _related(fetcher, batch, candidates))

    def calls(self, batch: Batch, work: MergeWork) -> Sequence[Call]:
        # One candidate and nothing known that has to do with it: there is nothing to decide.
        if len(work.candidates) + len(work.known) < 2 or not work.candidates:
            return ()
        task = MergeTask(_numbered(work.known), _numbered(work.candidates))
        return (Call(_step(work), lambda: ask(self.model, task)),)

    def write(
        self, fetcher: Fetcher, batch: Batch, work: MergeWork, answers: Mapping[str, RawAnswer]
    ) -> list[Lane]:
        fold = _Fold(fetcher, batch, work)
        for operation in _operations(work, answers.get(_step(work))):
            fold.apply(operation)
        return []


def fingerprint(text: str) -> bytes:
    """What makes two facts the same words: case, width, punctuation and spacing do not count."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(c if c.isalnum() else " " for c in folded).split()
    return blake2b(" ".join(words).encode(), digest_size=16).digest()


def _step(work: MergeWork) -> str:
    """The name of the call, which follows from what it shows.

    An answer speaks of facts by their numbers.  Should another session's reset take facts away before it is
    applied, the numbers mean others, and a new answer is asked for.
    """
    shown = blake2b(digest_size=8)
    for text in [fact.text for fact in work.known] + [candidate.text for candidate in work.candidates]:
        shown.update(fingerprint(text))
    return f"merge-{shown.hexdigest()}"


def _operations(work: MergeWork, answer: RawAnswer | None) -> Iterable[MergeOperation]:
    if answer is None:
        return (MergeOperation("add", number, None, None) for number in range(1, len(work.candidates) + 1))
    return parse_merge(answer.body.decode(), len(work.known), len(work.candidates))


def _related(fetcher: Fetcher, batch: Batch, candidates: Sequence[Candidate]) -> tuple[KnownFact, ...]:
    words = {lexeme for candidate in candidates for lexeme in query_lexemes(candidate.text)}
    rows = fetcher.fetch(
        "related_facts",
        _scope(batch)
        | {
            "lexemes": sorted(words),
            "fingerprints": [fingerprint(candidate.text) for candidate in candidates],
            "limit": MAX_KNOWN,
        },
    )
    return tuple(KnownFact(*row) for row in rows)


def _numbered(facts: Sequence[Candidate | KnownFact]) -> tuple[NumberedFact, ...]:
    return tuple(NumberedFact(number, fact.text, fact.said_at) for number, fact in enumerate(facts, 1))


def _scope(batch: Batch) -> dict[str, Any]:
    return {"shard_key": batch.lane.shard_key, "generation_id": batch.lane.generation_id}


class _Fold:
    """Applies operations one after the other, each as a change of a fact and a revision of it.

    Ids of new facts follow from batch and candidate, so that the same answer always makes the same rows.
    What became of each candidate is kept, for a later one that only repeats it.
    """

    def __init__(self, fetcher: Fetcher, batch: Batch, work: MergeWork) -> None:
        self._fetcher = fetcher
        self._batch = batch
        self._work = work
        self._became: dict[int, UUID] = {}

    def apply(self, operation: MergeOperation) -> None:
        number = operation.candidate
        candidate = self._work.candidates[number - 1]
        known = None if operation.fact is None else self._work.known[operation.fact - 1]
        text = operation.text or candidate.text
        if operation.op == "update" and known is not None:
            self._update(number, candidate, known, text)
        elif operation.op == "invalidate" and known is not None:
            self._replace(number, candidate, known, text)
        elif operation.op == "duplicate" and (same := known.fact_id if known else self._like(candidate)):
            self._confirm(number, candidate, same)
        else:
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
        fact_id = uuid5(self._batch.batch_id, str(number))
        params = self._changed(candidate, fact_id, text) | {"said_by": candidate.said_by}
        kept = UUID(str(self._fetcher.fetch("add_fact", params)[0][0]))
        # Words that are known already make no second fact: the one there gets another source.
        self._revise(number, candidate, kept, "add" if kept == fact_id else "duplicate", text)
        return kept

    def _update(self, number: int, candidate: Candidate, known: KnownFact, text: str) -> None:
        if self._fetcher.fetch("update_fact", self._changed(candidate, known.fact_id, text)):
            self._revise(number, candidate, known.fact_id, "update", text)
        else:
            # Ended earlier in this fold, or another fact says just this: then that one takes its place.
            self._end(number, candidate, known, self._add(number, candidate, text))

    def _replace(self, number: int, candidate: Candidate, known: KnownFact, text: str) -> None:
        """What was known ends, and the candidate takes its place; what was known stays on record."""
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
        keys = _scope(self._batch) | {"fact_id": known.fact_id, "by_fact_id": by_fact_id}
        if self._fetcher.fetch("invalidate_fact", keys):
            self._revise(number, candidate, known.fact_id, "invalidate", known.text)
            self._became[number] = by_fact_id

    def _confirm(self, number: int, candidate: Candidate, fact_id: UUID) -> None:
        self._fetcher.fetch(
            "confirm_fact", _scope(self._batch) | {"fact_id": fact_id, "said_at": candidate.said_at}
        )
        self._revise(number, candidate, fact_id, "duplicate", candidate.text)

    def _changed(self, candidate: Candidate, fact_id: UUID, text: str) -> dict[str, Any]:
        return _scope(self._batch) | {
            "fact_id": fact_id,
            "text": text,
            "fingerprint": fingerprint(text),
            "lexemes": query_lexemes(text),
            "topics": candidate.topics,
            "about_date": candidate.about_date,
            "said_at": candidate.said_at,
        }

    def _revise(self, number: int, candidate: Candidate, fact_id: UUID, operation: str, text: str) -> None:
        self._became[number] = fact_id
        self._fetcher.fetch(
            "insert_revision",
            _scope(self._batch)
            | {
                "fact_id": fact_id,
                "operation": operation,
                "text": text,
                "fingerprint": fingerprint(text),
                "lexemes": query_lexemes(text),
                "event_id": candidate.event_id,
                "session_key": candidate.session_key,
                "seqs": candidate.seqs,
                "extract_batch_id": candidate.batch_id,
                "merge_batch_id": self._batch.batch_id,
                "model": candidate.model,
                "prompt_hash": candidate.prompt_hash,
            },
        )
