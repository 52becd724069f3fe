"""Tombstones: the facts that people deleted, corrected or cleared, which a derivation must respect.

They hold no text.  A fact is recognised by the fingerprint of its words, or by the messages that it came
from together with most of its lexemes; so it is recognised even if another prompt words it differently. Only
earlier statements are held back: a statement repeated later is new knowledge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.queries.derived.facts_edit import DecidingFactEventsRow
from strandline.schemas.values.fingerprints import fingerprint

# How models and the local stand-in call a speaker without a name.
_NAMELESS = frozenset(query_lexemes("user assistant"))

# Of two sentences about one message, the shorter one must share more than this with the other.
ALIKE_ABOVE = 0.5


def telling_lexemes(lexemes: Iterable[str], said_by: str | None) -> frozenset[str]:
    """The lexemes that tell facts of one speaker apart: the speaker's own name is in all of them."""
    return frozenset(lexemes) - _NAMELESS - frozenset(query_lexemes(said_by or ""))


def are_alike(left: frozenset[str], right: frozenset[str]) -> bool:
    """Whether most of the shorter sentence is in the other; two without any lexemes are not."""
    shorter = min(len(left), len(right))
    return shorter > 0 and len(left & right) > ALIKE_ABOVE * shorter


@dataclass(frozen=True, slots=True)
class Trace:
    """The marks by which a tombstone recognises one wording of a fact.

    ``session_key`` is None, and the rest is empty, if a person worded it, or if the session was made to
    forget.
    """

    fingerprint: bytes
    session_key: UUID | None = None
    seqs: frozenset[int] = frozenset()
    lexemes: frozenset[str] = frozenset()

    def recognises(self, other: Trace) -> bool:
        """Whether ``other`` says the same: in the same words, or in similar ones from a common message."""
        if self.fingerprint == other.fingerprint:
            return True
        same_messages = self.session_key == other.session_key and bool(self.seqs & other.seqs)
        return same_messages and are_alike(self.lexemes, other.lexemes)


@dataclass(frozen=True, slots=True)
class Utterance:
    """A candidate as tombstones see it: ``said_at`` by its message, ``flushed_at`` by the server's clock."""

    trace: Trace
    said_at: datetime
    flushed_at: datetime | None

    def is_before(self, moment: datetime) -> bool:
        """Whether it was said before ``moment``, by its own time or because it was delivered by then."""
        return self.said_at <= moment or (self.flushed_at is not None and self.flushed_at <= moment)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A person's event that holds candidates back: a deletion, a correction, or a clearing of everything.

    Attributes:
        number: its place among the owner's events, from 1.
        fact_id: the fact's id in the generation that it was made in; None for ``clear``.
        traces: the marks by which other derivations recognise the fact.
        at: the time of the edit, by the server's clock.
    """

    number: int
    kind: str
    fact_id: UUID | None
    traces: tuple[Trace, ...]
    at: datetime

    @classmethod
    def read(cls, row: DecidingFactEventsRow) -> Tombstone:
        return cls(row.number, row.kind, row.fact_id, read_traces(row.traces), row.created_at)

    def recognises(self, traces: Iterable[Trace]) -> bool:
        """Whether it concerns a fact with these traces."""
        return any(mine.recognises(theirs) for theirs in traces for mine in self.traces)

    def holds_back(self, utterance: Utterance) -> bool:
        if not utterance.is_before(self.at):
            return False
        return self.kind == "clear" or self.recognises([utterance.trace])

    def took_away(self, words: bytes) -> bool:
        """Whether the fact that it concerns was once worded with this fingerprint."""
        return any(trace.fingerprint == words for trace in self.traces)


def trace_of(text: str, said_by: str | None, session_key: UUID, seqs: Iterable[int]) -> Trace:
    """The trace of a candidate."""
    lexemes = telling_lexemes(query_lexemes(text), said_by)
    return Trace(fingerprint(text), session_key, frozenset(seqs), lexemes)


def read_traces(text: str) -> tuple[Trace, ...]:
    """Traces from stored JSON, or from the rows of ``fact_traces``."""
    return tuple(_trace(item) for item in json.loads(text))


def write_traces(traces: Sequence[Trace]) -> str:
    """Traces as the JSON that is stored: each once, and with lexemes only if it names messages."""
    return json.dumps([_trace_fields(trace) for trace in dict.fromkeys(traces)])


def _trace(item: Mapping[str, Any]) -> Trace:
    session_key, text = item.get("session_key"), item.get("text")
    words, lexemes = bytes.fromhex(item["fingerprint"]), item.get("lexemes") or ()
    if text is not None:  # stored texts are keyed
        words = fingerprint(text)
        lexemes = query_lexemes(item.get("own_text") or text) if "lexemes" in item else ()
    return Trace(
        fingerprint=words,
        session_key=None if session_key is None else UUID(session_key),
        seqs=frozenset(item.get("seqs") or ()),
        lexemes=telling_lexemes(lexemes, item.get("said_by")),
    )


def _trace_fields(trace: Trace) -> dict[str, Any]:
    stored: dict[str, Any] = {"fingerprint": trace.fingerprint.hex()}
    if trace.session_key is not None:
        stored |= {
            "session_key": str(trace.session_key),
            "seqs": sorted(trace.seqs),
            "lexemes": sorted(trace.lexemes),
        }
    return stored
