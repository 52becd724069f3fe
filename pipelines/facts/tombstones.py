"""Tombstones: the facts that people deleted, corrected or cleared, which a derivation must respect.

They hold no text.  A fact is recognised by the fingerprint of its words, or by the messages that it came
from together with most of its lexemes; so it is recognised even if another prompt words it differently.
A late message of another chat, and an assistant's echo, are recognised by most lexemes alone.
Only earlier statements and assistants' are held back: later words of people are new knowledge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any
from uuid import UUID

from strandline.pipelines.facts.kinds import MARK
from strandline.pipelines.facts.statements import is_negated, names_in
from strandline.pipelines.text.common_words import pattern, speakers
from strandline.pipelines.text.lexemes import query_lexemes, remembered
from strandline.pipelines.text.numbers import numbers_in
from strandline.schemas.queries.derived.facts_edit import DecidingFactEventsRow
from strandline.schemas.values.normal_form import fingerprint, folded

# Of two sentences about one message, the shorter one must share more than this with the other.
ALIKE_ABOVE = 0.5
# The same of two sentences of different chats, which more probably are two statements.
SAME_ABOVE = 0.75

_SETS = ("lexemes", "names", "numbers", "denied")

# Endings, where no blanks stand between words.
_HIRAGANA = re.compile("[\u3041-\u309f]+")
# Where a negation may begin or end.
_CLAUSE_END = re.compile(
    r"[,;:.!?]\s|[、。，；]|\b(?:and|but|und|aber|sondern|et|mais|y|pero|sino|e|ma|mas|maar|и|а|но)\b", re.I
)


def telling_lexemes(lexemes: Iterable[str], said_by: str | None) -> frozenset[str]:
    """The lexemes that tell facts of one speaker apart: the speaker's own name is in all of them."""
    words = (lexeme for lexeme in lexemes if not (lexeme.startswith(MARK) or _HIRAGANA.fullmatch(lexeme)))
    return frozenset(words) - speakers() - frozenset(query_lexemes(said_by or ""))


def are_alike(left: frozenset[str], right: frozenset[str], above: float = ALIKE_ABOVE) -> bool:
    """Whether most of the shorter sentence is in the other; two without any lexemes are not."""
    shorter = min(len(left), len(right))
    return shorter > 0 and len(left & right) > above * shorter


@dataclass(frozen=True, slots=True)
class Trace:
    """The marks by which a tombstone recognises one wording of a fact.

    Without a session and ``seqs`` are the traces of words that a person wrote, and of a session that was
    made to forget; the latter have their fingerprint alone.  Lexemes are digests, so that a tombstone holds
    no words.

    Attributes:
        names, numbers: the lexemes of names, and of numbers.
        denied: the lexemes that stand only in negated clauses.
    """

    fingerprint: bytes
    session_key: UUID | None = None
    seqs: frozenset[int] = frozenset()
    lexemes: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    def recognises(self, other: Trace, *, in_other_terms: bool = False) -> bool:
        """Whether ``other`` says the same: in the same words, or in similar ones from a common message.

        Args:
            in_other_terms: also if it denies what this says, or has other numbers or names.
        """
        if self.fingerprint == other.fingerprint:
            return True
        same_messages = self.session_key == other.session_key and bool(self.seqs & other.seqs)
        is_alike = same_messages and are_alike(self.lexemes, other.lexemes)
        return is_alike and (in_other_terms or not self.is_contrary_to(other))

    def is_said_by(self, other: Trace) -> bool:
        """Whether ``other``, of any chat, says the same by most of its words."""
        is_telling = len(self.lexemes & other.lexemes) > 1 or self.lexemes == other.lexemes
        is_alike = is_telling and are_alike(self.lexemes, other.lexemes, SAME_ABOVE)
        return self.fingerprint == other.fingerprint or (is_alike and not self.is_contrary_to(other))

    def is_echoed_by(self, other: Trace) -> bool:
        """Whether ``other``, of an assistant, says the same: most words do, or half with a name or number."""
        shared = self.lexemes & other.lexemes
        half = ALIKE_ABOVE * min(len(self.lexemes), len(other.lexemes))
        is_named = bool(shared & (self.names | self.numbers)) and len(shared) >= half
        is_alike = is_named or are_alike(self.lexemes, other.lexemes)
        return self.fingerprint == other.fingerprint or (is_alike and not self.is_contrary_to(other))

    def is_contrary_to(self, other: Trace) -> bool:
        """Whether two similar sentences are different statements: by a negation, numbers, or a name."""
        here, there = self.lexemes - other.lexemes, other.lexemes - self.lexemes
        if here & self.numbers and there & other.numbers:
            return True
        here, there = here - self.numbers, there - other.numbers
        if here and there and here <= self.names and there <= other.names:
            return True
        if self.denied and other.denied:
            return bool(self._plain_lexemes & other.denied and self.denied & other._plain_lexemes)
        denying, asserting = (self, other) if self.denied else (other, self)
        repeated = len(denying._plain_lexemes & asserting.lexemes)
        return bool(denying.denied) and repeated <= ALIKE_ABOVE * len(asserting.lexemes)

    @property
    def _plain_lexemes(self) -> frozenset[str]:
        return self.lexemes - self.denied


@dataclass(frozen=True, slots=True)
class Utterance:
    """A candidate as tombstones see it: ``said_at`` by its message, ``flushed_at`` by the server's clock."""

    trace: Trace
    said_at: datetime
    flushed_at: datetime | None
    is_by_assistants: bool = False

    def is_before(self, moment: datetime) -> bool:
        """Whether it was said before ``moment``, by its own time or because it was delivered by then."""
        return self.said_at <= moment or self.is_delivered_by(moment)

    def is_delivered_by(self, moment: datetime) -> bool:
        return self.flushed_at is not None and self.flushed_at <= moment


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages of a session that were put, and not in the facts, when a person edited them."""

    session_key: UUID
    from_seq: int
    through_seq: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A person's event that holds candidates back: a deletion, a correction, or a clearing of everything.

    Attributes:
        number: its place among the owner's events, from 1.
        fact_id: the fact's id in the generation that it was made in; None for ``clear``.
        traces: the marks by which other derivations recognise the fact.
        at: the time of the edit, by the server's clock.
        waiting: what workers had not read by then; of messages not delivered, those with a later time.
    """

    number: int
    kind: str
    fact_id: UUID | None
    traces: tuple[Trace, ...]
    at: datetime
    waiting: tuple[Waiting, ...] = ()

    @classmethod
    def read(cls, row: DecidingFactEventsRow) -> Tombstone:
        traces, waiting = read_traces(row.traces), read_waiting(row.waiting)
        return cls(row.number, row.kind, row.fact_id, traces, row.created_at, waiting)

    def recognises(self, traces: Iterable[Trace]) -> bool:
        """Whether it concerns a fact with these traces.

        A correction has spoken on the matter, so it concerns other numbers and names, and denials as well.
        """
        in_other_terms = self.kind == "replace"
        return any(
            mine.recognises(theirs, in_other_terms=in_other_terms)
            for theirs in traces
            for mine in self.traces
        )

    def holds_back(self, utterance: Utterance) -> bool:
        if self._is_after(utterance) and (self.kind == "clear" or self.recognises([utterance.trace])):
            return True
        return self.is_echoed_by(utterance) or self._is_overtaken_by(utterance)

    def speaks_to(self, utterance: Utterance) -> bool:
        """Whether it holds for such words: they were said before it, or by an assistant."""
        return utterance.is_by_assistants or self._is_after(utterance)

    def is_echoed_by(self, utterance: Utterance) -> bool:
        """Whether an assistant says the fact again."""
        if not utterance.is_by_assistants or (self._is_after(utterance) and not self._is_late(utterance)):
            return False
        return any(trace.is_echoed_by(utterance.trace) for trace in self.traces)

    def _is_overtaken_by(self, utterance: Utterance) -> bool:
        """Whether it was said before, and only now comes from another chat."""
        if not (self._is_after(utterance) and self._is_late(utterance)):
            return False
        return any(trace.is_said_by(utterance.trace) for trace in self.traces)

    def _is_after(self, utterance: Utterance) -> bool:
        return utterance.is_before(self.at) or self._found_waiting(utterance)

    def _is_late(self, utterance: Utterance) -> bool:
        return not utterance.is_delivered_by(self.at) or self._found_waiting(utterance)

    def _found_waiting(self, utterance: Utterance) -> bool:
        trace = utterance.trace
        return any(
            one.session_key == trace.session_key and one.from_seq <= max(trace.seqs) <= one.through_seq
            for one in self.waiting
        )

    def took_away(self, words: bytes) -> bool:
        """Whether the fact that it concerns was once worded with this fingerprint."""
        return any(trace.fingerprint == words for trace in self.traces)


def trace_of(
    text: str, said_by: str | None, session_key: UUID | None = None, seqs: Iterable[int] = ()
) -> Trace:
    """The trace of a candidate, or of other words."""
    return Trace(fingerprint(text), session_key, frozenset(seqs), *_sets_of(text, said_by))


@remembered
def _sets_of(text: str, said_by: str | None) -> tuple[frozenset[str], ...]:
    """The sets of a trace: marks of all telling lexemes, of names, of numbers, of denied words."""
    numbers = set(map(str, numbers_in(text)))
    words = telling_lexemes(query_lexemes(pattern("speaker").sub(" ", folded(text))), said_by)
    lexemes = numbers.union(word for word in words if not word[0].isdigit())
    kinds = set(query_lexemes(" ".join(names_in(text)))), numbers, _denied_lexemes(text)
    marks = {lexeme: blake2b(lexeme.encode(), digest_size=8).hexdigest() for lexeme in lexemes}
    return tuple(frozenset(marks[one] for one in lexemes.intersection(kind)) for kind in (lexemes, *kinds))


def _denied_lexemes(text: str) -> set[str]:
    if not is_negated(text):
        return set()
    clauses = [(is_negated(clause), query_lexemes(clause)) for clause in _CLAUSE_END.split(text)]
    denied = {lexeme for is_denied, lexemes in clauses if is_denied for lexeme in lexemes}
    return denied.difference(lexeme for is_denied, lexemes in clauses if not is_denied for lexeme in lexemes)


def read_traces(text: str) -> tuple[Trace, ...]:
    """Traces from stored JSON, or from the rows of ``fact_traces``."""
    return tuple(_trace(item) for item in json.loads(text))


def write_traces(traces: Sequence[Trace]) -> str:
    """Traces as the JSON that is stored: each once."""
    return json.dumps([dict(_trace_fields(trace)) for trace in dict.fromkeys(traces)])


def read_waiting(text: str) -> tuple[Waiting, ...]:
    return tuple(Waiting(UUID(session_key), *seqs) for session_key, *seqs in json.loads(text))


def _trace(item: Mapping[str, Any]) -> Trace:
    session_key = None if item.get("session_key") is None else UUID(item["session_key"])
    seqs = frozenset(item.get("seqs") or ())
    text = item.get("text")
    if text is not None:  # of a revision
        trace = trace_of(item.get("own_text") or text, item.get("said_by"), session_key, seqs)
        return replace(trace, fingerprint=fingerprint(text))
    sets = (frozenset(item.get(name) or ()) for name in _SETS)
    return Trace(bytes.fromhex(item["fingerprint"]), session_key, seqs, *sets)


def _trace_fields(trace: Trace) -> Iterator[tuple[str, Any]]:
    yield "fingerprint", trace.fingerprint.hex()
    if trace.session_key is not None:
        yield "session_key", str(trace.session_key)
        yield "seqs", sorted(trace.seqs)
    for name in _SETS:
        if words := getattr(trace, name):
            yield name, sorted(words)
