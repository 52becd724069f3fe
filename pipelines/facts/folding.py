"""Folding: the inputs of a merge (candidates, related facts, people's events), and its operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict
from uuid import UUID, uuid5

from strandline.pipelines.capture import AppliedCapture
from strandline.pipelines.facts.condense import Condensing
from strandline.pipelines.facts.decisions import are_related, check_decision, repeats_badly
from strandline.pipelines.facts.instructions import Instruction
from strandline.pipelines.facts.kinds import MARK, asked_lexemes, fact_lexemes
from strandline.pipelines.facts.statements import telling_words
from strandline.pipelines.facts.tombstones import Tombstone, Utterance, trace_of
from strandline.pipelines.models.answers import MergeOperation
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.facts_edit import DecidingFactEvents, LiveFactLike
from strandline.schemas.queries.derived.facts_merge import (
    AddFact,
    AddFactRow,
    ConfirmFact,
    InsertRevision,
    InvalidateFact,
    PendingCandidatesRow,
    RelatedFacts,
    RelatedFactsRow,
    UpdateFact,
)
from strandline.schemas.values.doubts import Doubt
from strandline.schemas.values.lanes import DerivationKeys
from strandline.schemas.values.normal_form import fingerprint

# Known facts shown to one merge call.
MAX_KNOWN_FACTS = 80
# A word is common if so much of at least so many facts has it.
COMMON_SHARE, FEWEST_FACTS_WITH_COMMON_WORDS = 0.75, 8


class _Place(TypedDict):
    event_id: UUID
    ordinal: int


class Candidate(PendingCandidatesRow):
    """One row of ``fact_candidate``; its words may be those of ``context_seqs``, shown before its batch."""

    __slots__ = ()

    @property
    def place(self) -> _Place:
        """The candidate among those of its event, as parameters of statements."""
        return {"event_id": self.event_id, "ordinal": self.ordinal}

    @property
    def utterance(self) -> Utterance:
        """The candidate as tombstones see it, with the lines of its context among its messages."""
        seqs = (*self.context_seqs, *self.seqs)
        trace = trace_of(self.text, self.said_by, self.session_key, seqs)
        return Utterance(trace, self.said_at, self.flushed_at, self.is_by_assistants)


Dropped = tuple[Candidate, int]
"""A candidate that a person's event speaks against, and the number of that event."""


@dataclass(frozen=True, slots=True)
class MergeWork:
    """The inputs of one batch; the model does not see ``dropped``; ``condensing`` is set when it is time.

    ``capture`` is the operator's.
    """

    candidates: tuple[Candidate, ...]
    known: tuple[RelatedFactsRow, ...]
    dropped: tuple[Dropped, ...] = ()
    condensing: Condensing | None = None
    capture: AppliedCapture = field(default_factory=AppliedCapture)
    instructions: tuple[Instruction, ...] = ()


def is_older(candidate: Candidate, known: RelatedFactsRow) -> bool:
    """Whether a candidate was said before a known fact: by its time, and at the same time by its place."""
    if candidate.said_at != known.said_at:
        return candidate.said_at < known.said_at
    last = dict(zip(known.session_keys, known.last_seqs, strict=True))
    return max(candidate.seqs, default=0) < last.get(candidate.session_key, 0)


def related_facts(
    fetcher: Fetcher, keys: DerivationKeys, candidates: Sequence[Candidate]
) -> tuple[RelatedFactsRow, ...]:
    """The known facts that have most to do with the candidates, closest first; all while they are few.

    Vectors may come later, and another attempt then shows other facts: its answer is asked for by another
    step, so no answer is ever applied to facts that it was not shown.
    """
    sources = [(n, one.session_key, seq) for n, one in enumerate(candidates, 1) for seq in one.seqs]
    texts = [candidate.text for candidate in candidates]
    return tuple(fetcher.fetch(nearest_facts(keys, texts, MAX_KNOWN_FACTS, sources)))


def tombstones_about(
    fetcher: Fetcher,
    keys: DerivationKeys,
    candidates: Sequence[Candidate],
    known: Sequence[RelatedFactsRow] = (),
    wordings: Iterable[str] = (),
) -> list[Tombstone]:
    """The deletions, corrections and clearings that may concern these candidates, facts and words."""
    traces = [candidate.utterance.trace for candidate in candidates]
    words = {trace.fingerprint for trace in traces} | {fact.fingerprint for fact in known}
    words |= set(map(fingerprint, wordings))
    rows = fetcher.fetch(
        DecidingFactEvents(
            shard_key=keys["shard_key"],
            fact_ids=[fact.fact_id for fact in known],
            fingerprints=[word.hex() for word in words],
            session_keys=list({candidate.session_key for candidate in candidates}),
            lexemes=sorted({lexeme for trace in traces for lexeme in trace.lexemes}),
        )
    )
    return [Tombstone.read(row) for row in rows]


def held_back_by(candidate: Candidate, tombstones: Iterable[Tombstone]) -> int | None:
    """The number of the last event that holds the candidate back, or None."""
    utterance = candidate.utterance
    return max((stone.number for stone in tombstones if stone.holds_back(utterance)), default=None)


def keep_allowed(
    work: MergeWork,
    operations: Iterable[MergeOperation],
    tombstones: Sequence[Tombstone],
    as_they_are: Mapping[UUID, bytes],
) -> tuple[list[MergeOperation], list[Dropped], int]:
    """The operations that may be applied, the candidates that people's events speak against, and refusals.

    A model decided on facts as they were when the merge began.  People's edits since then win, and a person's
    wording wins over earlier statements: such a fact is neither reworded nor ended.  The candidate then
    becomes a separate fact, in its own words, or gives way.  Refused decisions are counted, whatever
    becomes of their candidates.

    Args:
        tombstones: all that may concern the candidates, read under the lane's lock.
        as_they_are: the fingerprints of the known facts that are live now.
    """
    numbers = {
        place: number
        for place, candidate in enumerate(work.candidates, 1)
        if (number := held_back_by(candidate, tombstones)) is not None
    }
    checked = list(_check(work, operations))
    decided = [_decide(work, op, tombstones, as_they_are) for op in checked]
    for op, number in decided:
        if number is not None:
            numbers.setdefault(op.candidate, number)
    kept = (op for op, number in decided if number is None and op.candidate not in numbers)
    dropped = [(work.candidates[place - 1], number) for place, number in numbers.items()]
    return list(_each_added_once(kept)), dropped, sum(op.doubt is not None for op in checked)


def _check(work: MergeWork, operations: Iterable[MergeOperation]) -> Iterator[MergeOperation]:
    known, common = dict(enumerate(work.known, 1)), _common_words(work.known)
    for op in operations:
        if op.fact is not None:
            candidate = work.candidates[op.candidate - 1]
            op = check_decision(  # noqa: PLW2901
                op,
                candidate,
                known[op.fact],
                common=common,
                is_older=is_older(candidate, known[op.fact]),
                speaker=candidate.said_by,
            )
            if op.fact is not None and not candidate.is_by_assistants:
                known[op.fact] = known[op.fact]._replace(is_by_assistants=False)
        yield op


def _common_words(known: Sequence[RelatedFactsRow]) -> frozenset[str]:
    """The words that are in most of an owner's facts, and tell none of them apart."""
    counts = Counter(word for fact in known for word in telling_words(fact.text))
    enough = max(FEWEST_FACTS_WITH_COMMON_WORDS, len(known)) * COMMON_SHARE
    return frozenset(word for word, count in counts.items() if count > enough)


def _decide(
    work: MergeWork,
    op: MergeOperation,
    tombstones: Sequence[Tombstone],
    as_they_are: Mapping[UUID, bytes],
) -> tuple[MergeOperation, int | None]:
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
    if op.op == "duplicate" or known.number is None:
        return op, None
    if not work.candidates[op.candidate - 1].utterance.is_before(known.created_at):
        return op, None
    return alone, known.number if op.op == "invalidate" else None


def _in_words_that_may_be(
    work: MergeWork, op: MergeOperation, tombstones: Sequence[Tombstone]
) -> MergeOperation:
    """The operation, in the candidate's own words if a person has removed the model's since it was said.

    A model may by itself arrive at the words of a deleted fact.
    """
    if op.text is None:
        return op
    words, utterance = fingerprint(op.text), work.candidates[op.candidate - 1].utterance
    if not any(stone.took_away(words) and stone.speaks_to(utterance) for stone in tombstones):
        return op
    if op.op == "invalidate":
        return replace(op, text=None)
    return MergeOperation("add", op.candidate, None, None)


def _changed_by(known: RelatedFactsRow, tombstones: Sequence[Tombstone]) -> int | None:
    removing = (s for s in tombstones if s.fact_id == known.fact_id or s.took_away(known.fingerprint))
    return max((stone.number for stone in removing), default=None)


def _each_added_once(operations: Iterable[MergeOperation]) -> Iterator[MergeOperation]:
    added: set[int] = set()
    for op in operations:
        if op.op != "add" or op.doubt is not None or op.candidate not in added:
            yield op
        if op.op == "add":
            added.add(op.candidate)


class _Source(DerivationKeys):
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

    Ids of new facts follow from event and words, so that they last in later derivations.
    The outcome of each candidate is kept, for later repetitions; and the current wording of
    each known fact, since a fact is changed only if its words are as expected.

    Args:
        batch_id: the merge batch.
    """

    def __init__(self, fetcher: Fetcher, keys: DerivationKeys, batch_id: UUID, work: MergeWork) -> None:
        self._fetcher = fetcher
        self._keys = keys
        self._batch_id = batch_id
        self._work = work
        self._became: dict[int, UUID] = {}
        self._added: dict[tuple[int, str], UUID] = {}
        self._reworded: set[UUID] = set()
        self._words = {fact.fact_id: fact.fingerprint for fact in work.known}
        self._withheld: set[int] = set()
        self._number = 0

    @property
    def withheld(self) -> list[int]:
        """The candidates that changed nothing, since an operator has the operation switched off."""
        return sorted(self._withheld - self._became.keys())

    def apply(self, operation: MergeOperation) -> None:
        """Apply an operation within the operator's capture."""
        allowed = self._work.capture.restrict(operation)
        if allowed is None:
            self._withheld.add(operation.candidate)
        else:
            self._apply(allowed)

    @property
    def _candidate(self) -> Candidate:
        return self._work.candidates[self._number - 1]

    def _apply(self, operation: MergeOperation) -> None:
        self._number = operation.candidate
        known = None if operation.fact is None else self._work.known[operation.fact - 1]
        text = operation.text or self._candidate.text
        if operation.op == "update" and known is not None and known.fact_id not in self._reworded:
            self._update(known, text)
        elif operation.op == "invalidate" and known is not None:
            self._replace(known, text)
        elif operation.op == "duplicate" and (same := known.fact_id if known else self._like()):
            self._confirm(same)
        else:
            # Also a second candidate that makes one fact more exact: its wording knows nothing of the first.
            self._add_or_confirm(self._candidate.text, operation.doubt)

    def _like(self) -> UUID | None:
        candidate = self._candidate
        wording, words = fingerprint(candidate.text), set(query_lexemes(candidate.text))

        def likeness(number: int) -> tuple[bool, int]:
            text = self._work.candidates[number - 1].text
            return fingerprint(text) == wording, len(words.intersection(query_lexemes(text)))

        earlier = ((number, self._work.candidates[number - 1]) for number in self._became)
        alike = (
            number
            for number, other in earlier
            if are_related(candidate.text, other.text, (), candidate.said_by)
            and repeats_badly(candidate, other) is None
        )
        nearest = max(alike, key=likeness, default=None)
        return None if nearest is None else self._became[nearest]

    def _add(self, text: str, doubt: Doubt | None = None) -> AddFactRow:
        """Add the candidate in these words; once, however many decisions ask for it."""
        candidate = self._candidate
        if (fact_id := self._added.get((self._number, text))) is not None:
            return AddFactRow(fact_id, is_new=False)
        # Words that are known already make no second fact: the one there gets another source.
        (kept,) = self._fetcher.fetch(
            AddFact(
                **self._source(uuid5(self._batch_id, f"{self._number} {text}"), text),
                topics=candidate.topics,
                about_date=candidate.about_date,
                said_at=candidate.said_at,
                said_by=candidate.said_by,
                doubt_operation=None if doubt is None else doubt.op,
                doubt_reason=None if doubt is None else doubt.reason,
                doubt_fact_id=None if doubt is None else self._work.known[doubt.fact - 1].fact_id,
            )
        )
        self._became[self._number] = self._added[self._number, text] = kept.fact_id
        return kept

    def _add_or_confirm(self, text: str, doubt: Doubt | None = None) -> UUID | None:
        if not self._work.capture.capture.is_add_off:
            return self._add(text, doubt).fact_id
        rows = self._fetcher.fetch(LiveFactLike(**self._keys, fingerprint=fingerprint(text)))
        if not rows:
            self._withheld.add(self._number)
            return None
        self._confirm(rows[0].fact_id)
        return rows[0].fact_id

    def _update(self, known: RelatedFactsRow, text: str) -> None:
        candidate, words = self._candidate, fingerprint(text)
        update = UpdateFact(
            **self._keys,
            fact_id=known.fact_id,
            text=text,
            fingerprint=words,
            lexemes=fact_lexemes(text),
            topics=candidate.topics,
            about_date=candidate.about_date,
            said_at=candidate.said_at,
            expected=self._words[known.fact_id],
        )
        if self._fetcher.fetch(update):
            self._words[known.fact_id] = words
            self._reworded.add(known.fact_id)
            self._revise(known.fact_id, "update", text)
        else:
            # Ended earlier in this fold, or another fact says just this: then that one takes its place.
            by_fact_id = self._add_or_confirm(text)
            if by_fact_id is not None and not self._work.capture.capture.is_delete_off:
                self._end(known, by_fact_id)

    def _replace(self, known: RelatedFactsRow, text: str) -> None:
        if fingerprint(text) == known.fingerprint:
            self._confirm(known.fact_id)
            return
        if is_older(self._candidate, known):
            self._add_past(known, text)
            return
        # A candidate that ends several facts becomes one.
        by_fact_id = self._became.get(self._number) or self._add(text).fact_id
        self._end(known, by_fact_id)

    def _add_past(self, known: RelatedFactsRow, text: str) -> None:
        """Add a late candidate that was true only until the known fact: it never ends newer ones."""
        fact_id, is_new = self._add(text)
        if not is_new:
            return  # it was said again since
        ended = InvalidateFact(
            **self._keys,
            fact_id=fact_id,
            by_fact_id=known.fact_id,
            said_at=known.said_at,
            expected=fingerprint(text),
        )
        if self._fetcher.fetch(ended):
            self._revise(fact_id, "invalidate", text)

    def _end(self, known: RelatedFactsRow, by_fact_id: UUID) -> None:
        # Words that an earlier candidate gave this very fact: it says so already, and must not end itself.
        if by_fact_id == known.fact_id:
            return
        ended = InvalidateFact(
            **self._keys,
            fact_id=known.fact_id,
            by_fact_id=by_fact_id,
            said_at=self._candidate.said_at,
            expected=self._words[known.fact_id],
        )
        if self._fetcher.fetch(ended):
            self._revise(known.fact_id, "invalidate", known.text)
            self._became[self._number] = by_fact_id

    def _confirm(self, fact_id: UUID) -> None:
        candidate = self._candidate
        self._fetcher.fetch(ConfirmFact(**self._keys, fact_id=fact_id, said_at=candidate.said_at))
        self._revise(fact_id, "duplicate", candidate.text)

    def _revise(self, fact_id: UUID, operation: str, text: str) -> None:
        self._became[self._number] = fact_id
        source = self._source(fact_id, text, changes=operation != "invalidate")
        self._fetcher.fetch(InsertRevision(**source, operation=operation))

    def _source(self, fact_id: UUID, text: str, *, changes: bool = True) -> _Source:
        candidate = self._candidate
        own = candidate.text if changes and text != candidate.text else None
        return {
            **self._keys,
            "fact_id": fact_id,
            "text": text,
            "fingerprint": fingerprint(text),
            "lexemes": fact_lexemes(text),
            "own_text": own,
            "own_fingerprint": None if own is None else fingerprint(own),
            "own_lexemes": None if own is None else fact_lexemes(own),
            "event_id": candidate.event_id,
            "session_key": candidate.session_key,
            "seqs": candidate.seqs,
            "extract_batch_id": candidate.batch_id,
            "merge_batch_id": self._batch_id,
            "model": candidate.model,
            "prompt_hash": candidate.prompt_hash,
        }


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
