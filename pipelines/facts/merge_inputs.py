"""The inputs of a merge: candidates, related known facts, and people's events that concern them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from strandline.pipelines.capture import AppliedCapture
from strandline.pipelines.facts.condense import Condensing
from strandline.pipelines.facts.decisions import check_decision
from strandline.pipelines.facts.editing.instructions import Instruction
from strandline.pipelines.facts.tombstones import Tombstone, Utterance, read_traces, trace_of
from strandline.pipelines.models.answers import MergeOperation
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.facts_edit import DecidingFactEvents
from strandline.schemas.queries.derived.facts_merge import PendingCandidatesRow, RelatedFacts
from strandline.schemas.values.fingerprints import fingerprint
from strandline.schemas.values.lanes import DerivationKeys

# What one merge call shows of the known facts: those that share most words with the candidates.
MAX_KNOWN_FACTS = 60


class Candidate(PendingCandidatesRow):
    """One row of ``fact_candidate``; ``flushed_at`` is when the last of its messages was delivered.

    ``context_seqs`` are the lines that extract saw before its batch: its words may be theirs.
    """

    __slots__ = ()

    @property
    def utterance(self) -> Utterance:
        """The candidate as tombstones see it, with the lines of its context among its messages."""
        seqs = (*self.context_seqs, *self.seqs)
        trace = trace_of(self.text, self.said_by, self.session_key, seqs)
        return Utterance(trace, self.said_at, self.flushed_at)


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A live fact of the owner that is related to the candidates.

    ``worded_by`` and ``worded_at`` name the person's event that worded it last, if one did.
    """

    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes
    is_by_assistants: bool = False
    worded_by: int | None = None
    worded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A candidate that a person's event speaks against, and the number of that event."""

    candidate: Candidate
    number: int


@dataclass(frozen=True, slots=True)
class MergeWork:
    """The inputs of one batch; the model does not see ``dropped``; ``condensing`` is set when it is time.

    ``capture`` is what an operator allows.
    """

    candidates: tuple[Candidate, ...]
    known: tuple[KnownFact, ...]
    dropped: tuple[Dropped, ...] = ()
    condensing: Condensing | None = None
    capture: AppliedCapture = field(default_factory=AppliedCapture)
    instructions: tuple[Instruction, ...] = ()


def related_facts(
    fetcher: Fetcher, keys: DerivationKeys, candidates: Sequence[Candidate]
) -> tuple[KnownFact, ...]:
    """The known facts that share words with the candidates, closest first."""
    words = {lexeme for candidate in candidates for lexeme in query_lexemes(candidate.text)}
    rows = fetcher.fetch(
        RelatedFacts(
            **keys,
            lexemes=sorted(words),
            fingerprints=[fingerprint(candidate.text) for candidate in candidates],
            limit=MAX_KNOWN_FACTS,
        )
    )
    return tuple(KnownFact(row.fact_id, row.text, row.said_at, row.fingerprint, *row[4:]) for row in rows)


def tombstones_about(
    fetcher: Fetcher,
    keys: DerivationKeys,
    candidates: Sequence[Candidate],
    known: Sequence[KnownFact] = (),
    wordings: Iterable[str] = (),
) -> list[Tombstone]:
    """The deletions, corrections and clearings that may concern these candidates, facts and words."""
    words = {fingerprint(candidate.text) for candidate in candidates} | {fact.fingerprint for fact in known}
    words |= set(map(fingerprint, wordings))
    rows = fetcher.fetch(
        DecidingFactEvents(
            shard_key=keys["shard_key"],
            fact_ids=[fact.fact_id for fact in known],
            fingerprints=[word.hex() for word in words],
            session_keys=list({candidate.session_key for candidate in candidates}),
        )
    )
    return [
        Tombstone(row.number, row.kind, row.fact_id, read_traces(row.traces), row.created_at) for row in rows
    ]


def held_back_by(candidate: Candidate, tombstones: Iterable[Tombstone]) -> int | None:
    """The number of the last event that holds the candidate back, or None."""
    utterance = candidate.utterance
    return max((stone.number for stone in tombstones if stone.holds_back(utterance)), default=None)


def keep_allowed(
    work: MergeWork,
    operations: Iterable[MergeOperation],
    tombstones: Sequence[Tombstone],
    as_they_are: Mapping[UUID, bytes],
) -> tuple[list[MergeOperation], list[Dropped]]:
    """The operations that may be applied, and the candidates that people's events speak against.

    A model decided on facts as they were when the merge began.  People's edits since then win, and a person's
    wording wins over earlier statements: such a fact is neither reworded nor ended.  The candidate then
    becomes a separate fact, in its own words, or gives way.

    Args:
        tombstones: all that may concern the candidates, read under the lane's lock.
        as_they_are: the fingerprints of the known facts that are live now.
    """
    numbers = {
        place: number
        for place, candidate in enumerate(work.candidates, 1)
        if (number := held_back_by(candidate, tombstones)) is not None
    }
    decided = [_decide(work, op, tombstones, as_they_are) for op in _check(work, operations)]
    for op, number in decided:
        if number is not None:
            numbers.setdefault(op.candidate, number)
    kept = (op for op, number in decided if number is None and op.candidate not in numbers)
    return list(_each_added_once(kept)), [
        Dropped(work.candidates[place - 1], number) for place, number in numbers.items()
    ]


def _check(work: MergeWork, operations: Iterable[MergeOperation]) -> Iterator[MergeOperation]:
    """The operations as far as they hold: a fact that a user's line meets is a user's from then on."""
    known = dict(enumerate(work.known, 1))
    for op in operations:
        if op.fact is not None:
            candidate = work.candidates[op.candidate - 1]
            op = check_decision(op, candidate, known[op.fact])  # noqa: PLW2901
            if op.fact is not None and not candidate.is_by_assistants:
                known[op.fact] = replace(known[op.fact], is_by_assistants=False)
        yield op


def _decide(
    work: MergeWork,
    op: MergeOperation,
    tombstones: Sequence[Tombstone],
    as_they_are: Mapping[UUID, bytes],
) -> tuple[MergeOperation, int | None]:
    """The operation as it may be applied, or the number of the event that its candidate gives way to."""
    if op.fact is None:
        return op, None
    known = work.known[op.fact - 1]
    alone = MergeOperation("add", op.candidate, None, None)
    op = _in_words_that_may_be(work, op, tombstones)
    if op.fact is None:
        return op, None
    if as_they_are.get(known.fact_id) != known.fingerprint:
        changed_by = _changed_by(known, tombstones) if op.op == "duplicate" else None
        return alone, changed_by
    if op.op == "duplicate" or known.worded_at is None:
        return op, None
    if not work.candidates[op.candidate - 1].utterance.is_before(known.worded_at):
        return op, None
    return alone, known.worded_by if op.op == "invalidate" else None


def _in_words_that_may_be(
    work: MergeWork, op: MergeOperation, tombstones: Sequence[Tombstone]
) -> MergeOperation:
    """The operation, in the candidate's own words if a person has removed the model's since it was said.

    A model may by itself arrive at the words of a deleted fact.
    """
    if op.text is None:
        return op
    words, utterance = fingerprint(op.text), work.candidates[op.candidate - 1].utterance
    if not any(stone.took_away(words) and utterance.is_before(stone.at) for stone in tombstones):
        return op
    if op.op == "invalidate":
        return MergeOperation("invalidate", op.candidate, op.fact, None)
    return MergeOperation("add", op.candidate, None, None)


def _changed_by(known: KnownFact, tombstones: Sequence[Tombstone]) -> int | None:
    """The last event by which a person removed this fact, or its words."""
    return max(
        (
            stone.number
            for stone in tombstones
            if stone.fact_id == known.fact_id or stone.took_away(known.fingerprint)
        ),
        default=None,
    )


def _each_added_once(operations: Iterable[MergeOperation]) -> Iterator[MergeOperation]:
    """The operations, with a candidate that is added for two reasons added only once."""
    added: set[int] = set()
    for op in operations:
        if op.op != "add":
            yield op
        elif op.candidate not in added:
            added.add(op.candidate)
            yield op
