"""People's changes to facts: events of the owner's lane, applied to each derivation that is kept.

An event is recorded in the transaction that applies it, under the locks of the owner's merge lanes; so a
merge that is just writing comes wholly before it or wholly after.  A new derivation applies all of them
first (``apply_fact_events``), and its merges respect the tombstones among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Generic, TypedDict, TypeVar
from uuid import UUID

from strandline.pipelines.admission import admit, refuse_if_erased
from strandline.pipelines.facts.kinds import fact_lexemes
from strandline.pipelines.facts.tombstones import Tombstone, Trace, read_traces
from strandline.schemas.postgres.operations import Operation, content_codec, fetch
from strandline.schemas.queries.derived.facts_edit import (
    DecidingFactEvents,
    FactDerivations,
    FactEvents,
    FactsOfTraces,
    FactsOfTracesRow,
    FactsThatHold,
    FactsUntil,
    FactTraces,
    FindFact,
    FindFactRow,
    LiveFactLike,
    LockFactLanes,
    MarkDoubt,
    OpenFactLanes,
    OwnFactTraces,
    RemoveFacts,
    RemoveFactsRow,
    RepeatFact,
    ReviseByPerson,
    RewordFact,
    SetFeedback,
    Uncondense,
    WriteFact,
)
from strandline.schemas.values.lanes import MERGE_STAGE, DerivationKeys
from strandline.schemas.values.normal_form import fingerprint


@dataclass(frozen=True, slots=True)
class FactSet:
    """One owner's facts in one generation."""

    shard_key: UUID
    generation_id: int

    @property
    def keys(self) -> DerivationKeys:
        return {"shard_key": self.shard_key, "generation_id": self.generation_id}

    def find(self, fact_id: UUID) -> Operation[FindFactRow | None]:
        """One of these facts, live or not; None if none has this id."""
        rows = yield from fetch(FindFact(**self.keys, fact_id=fact_id))
        return rows[0] if rows else None


def lock_facts(shard_key: UUID) -> Operation[tuple[list[FactSet], FactSet | None]]:
    """Lock an owner's facts for the rest of the transaction; returns the set of each generation, and the
    serving generation.

    While this waits for the locks, another derivation may begin, or start to serve; so they are looked up
    once all locks are held.

    Raises:
        ErasedError: the owner was erased.
    """
    yield from admit(shard_key)
    while True:
        locked = yield from fetch(LockFactLanes(shard_key=shard_key, stage=MERGE_STAGE))
        rows = yield from fetch(FactDerivations(shard_key=shard_key))
        if {row.generation_id for row in rows} <= {row.generation_id for row in locked}:
            break
        yield from open_fact_lanes(shard_key)
    fact_sets = [FactSet(shard_key, row.generation_id) for row in rows]
    serving = [FactSet(shard_key, row.generation_id) for row in rows if row.serving]
    return fact_sets, serving[0] if serving else None


def open_fact_lanes(shard_key: UUID) -> Operation[None]:
    """Make the rows that ``lock_facts`` locks, in a separate, earlier transaction.

    In the same transaction, an uncommitted row would block others, which may hold locks that it waits for.

    Raises:
        ErasedError: the owner was erased.
    """
    (opened,) = yield from fetch(OpenFactLanes(shard_key=shard_key, stage=MERGE_STAGE))
    refuse_if_erased(opened.erasure)
    codec = yield from content_codec()
    yield from codec.check_keys(shard_key, opened.first_data_key)


class Words(TypedDict):
    """The words of a fact, as parameters of statements."""

    text: str
    fingerprint: bytes
    lexemes: list[str]


class Details(TypedDict):
    """The other fields that a person gives a fact, as parameters of statements."""

    topics: list[str]
    about_date: date | None
    input: str | None
    agent_id: str | None
    team_id: str | None


@dataclass(frozen=True, slots=True)
class FactEvent(Tombstone):
    """A person's edit of an owner's facts: to add, replace, delete, clear or judge (``feedback``).

    Attributes:
        payload: the new wording, or the feedback; None for other edits, and if a later deletion removed the
            text.
        made_in: the generation whose fact was edited, if the edit is applied at once; else None.
    """

    payload: Mapping[str, Any] | None = None
    made_in: int | None = None

    @property
    def doubts(self) -> UUID | None:
        """The fact that an added one may contradict, as it is known in ``made_in``."""
        doubts = (self.payload or {}).get("doubts")
        return None if doubts is None else UUID(doubts)

    @property
    def words(self) -> Words:
        text: str = (self.payload or {})["text"]
        return {"text": text, "fingerprint": fingerprint(text), "lexemes": fact_lexemes(text)}

    @property
    def details(self) -> Details:
        wording = self.payload or {}
        about_date = wording.get("about_date")
        return {
            "topics": list(wording.get("topics") or ()),
            "about_date": date.fromisoformat(about_date) if about_date else None,
            "input": wording.get("input"),
            "agent_id": wording.get("agent_id"),
            "team_id": wording.get("team_id"),
        }

    def moment(self, name: str) -> datetime:
        """A moment that a person gives, at most that of the event: a later fact would outlive a clearing."""
        moment = (self.payload or {}).get(name)
        return min(datetime.fromisoformat(moment), self.at) if moment else self.at


def apply_fact_events(shard_key: UUID, generation_id: int) -> Operation[int]:
    """Apply all of people's edits of an owner's facts to one derivation, in order; returns how many.

    For a new derivation, run it before its first merge, and once more before it serves, since feedback may
    concern facts that were derived in between.  Run it inside a transaction.  However often it runs, each
    edit takes effect once.
    """
    yield from lock_facts(shard_key)
    rows = yield from fetch(FactEvents(shard_key=shard_key))
    for row in rows:
        payload = json.loads(row.payload) if row.payload else None
        traces = read_traces(row.traces)
        event = FactEvent(row.number, row.kind, row.fact_id, traces, row.created_at, payload=payload)
        yield from apply_fact_event(FactSet(shard_key, generation_id), event)
    return len(rows)


def apply_fact_event(fact_set: FactSet, event: FactEvent) -> Operation[list[RemoveFactsRow]]:
    return (yield from _Application(fact_set, event).apply())


def take_away_again(
    shard_key: UUID, fact_ids: Sequence[UUID], *, before: int | None = None
) -> Operation[None]:
    """Remove from some live facts those with words that a person deleted or replaced, in every derivation.

    This applies to facts that got other words, or came back, because a session was forgotten: a person may
    have removed exactly these while other facts replaced them, or while another derivation worded them
    differently. A fact that was said again since, or that a person worded, stays. The caller has locked the
    facts.

    Args:
        before: apply only the events before this one; default: all.
    """
    if not fact_ids:
        return
    rows = yield from fetch(FactDerivations(shard_key=shard_key))
    for row in rows:
        fact_set = FactSet(shard_key, row.generation_id)
        traces = yield from _own_traces(fact_set, fact_ids)
        for stone in (yield from _stones_about(shard_key, traces)):
            if before is None or stone.number < before:
                removal = _Removal(fact_set, stone)
                ids = yield from removal.find_traced(since=stone.number - 1)
                yield from removal.remove([fact_id for fact_id in ids if fact_id in traces])


def fact_like(fact_set: FactSet, text: str) -> Operation[UUID | None]:
    """The live fact that says the same words as ``text``."""
    rows = yield from fetch(LiveFactLike(**fact_set.keys, fingerprint=fingerprint(text)))
    return rows[0].fact_id if rows else None


def traces_of(fact_set: FactSet, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Trace, ...]]]:
    """The traces of some facts, including those of facts that were condensed into them."""
    rows = yield from fetch(FactTraces(**fact_set.keys, fact_ids=list(fact_ids)))
    return {row.root: read_traces(row.traces) for row in rows}


def _own_traces(fact_set: FactSet, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Trace, ...]]]:
    rows = yield from fetch(OwnFactTraces(**fact_set.keys, fact_ids=list(fact_ids)))
    return {row.fact_id: read_traces(row.traces) for row in rows}


def _stones_about(shard_key: UUID, traces: Mapping[UUID, Sequence[Trace]]) -> Operation[list[Tombstone]]:
    theirs = [trace for of_fact in traces.values() for trace in of_fact]
    rows = yield from fetch(
        DecidingFactEvents(
            shard_key=shard_key,
            fact_ids=[],
            fingerprints=[trace.fingerprint.hex() for trace in theirs],
            session_keys=list({trace.session_key for trace in theirs if trace.session_key is not None}),
            lexemes=[],
        )
    )
    stones = [Tombstone.read(row) for row in rows if row.kind != "clear"]
    return [stone for stone in stones if stone.recognises(theirs)]


E = TypeVar("E", bound=Tombstone)


@dataclass(frozen=True, slots=True)
class _Removal(Generic[E]):
    fact_set: FactSet
    event: E

    @property
    def keys(self) -> DerivationKeys:
        return self.fact_set.keys

    def find_traced(self, *, since: int) -> Operation[list[UUID]]:
        """The facts that the event's traces concern, but for facts said again, or worded after ``since``."""
        sessions = [trace.session_key for trace in self.event.traces if trace.session_key is not None]
        facts = yield from self.said_before(sessions, since=since)
        traces = yield from _own_traces(self.fact_set, [row.fact_id for row in facts])
        return [row.fact_id for row in facts if self.event.recognises(traces.get(row.fact_id, ()))]

    def said_before(
        self, session_keys: Sequence[UUID] = (), *, since: int | None = None
    ) -> Operation[list[FactsOfTracesRow]]:
        return (
            yield from fetch(
                FactsOfTraces(
                    **self.keys,
                    fingerprints=[trace.fingerprint.hex() for trace in self.event.traces],
                    session_keys=list(session_keys),
                    number=self.event.number if since is None else since,
                    at=self.event.at,
                )
            )
        )

    def remove(self, fact_ids: Sequence[UUID]) -> Operation[list[RemoveFactsRow]]:
        if not fact_ids:
            return []
        gone = RemoveFacts(**self.keys, fact_ids=list(fact_ids), number=self.event.number)
        return (yield from fetch(gone))


class _Application(_Removal[FactEvent]):
    __slots__ = ()

    def apply(self) -> Operation[list[RemoveFactsRow]]:
        if self.event.kind == "add":
            yield from self._add()
        elif self.event.kind == "replace":
            return (yield from self._replace())
        elif self.event.kind == "feedback":
            yield from self._set_feedback()
        elif self.event.kind == "delete":
            return (yield from self.remove((yield from self._by_themselves(self._ids_to_delete))))
        else:
            until = FactsUntil(**self.keys, until=self.event.at, number=self.event.number)
            return (yield from self.remove([row.fact_id for row in (yield from fetch(until))]))
        return []

    def _add(self) -> Operation[None]:
        if self.event.payload is None:
            return
        like = yield from fact_like(self.fact_set, self.event.payload["text"])
        if like is not None:
            yield from self._repeat(like)
        else:
            yield from self._write()
        if self.event.doubts is not None:
            yield from self._mark_doubt(like or self.event.fact_id, self.event.doubts)

    def _mark_doubt(self, fact_id: UUID | None, doubted_id: UUID) -> Operation[None]:
        """Mark an added fact as doubtful, if the fact it may contradict is in this derivation already."""
        doubted = yield from self.fact_set.find(doubted_id)
        if doubted is None and (traced := (yield from self.find_traced(since=self.event.number))):
            doubted = yield from self.fact_set.find(traced[0])
        if doubted is not None and fact_id is not None and doubted.fact_id != fact_id:
            yield from fetch(
                MarkDoubt(
                    **self.keys,
                    fact_id=fact_id,
                    doubt_reason="contradicts",
                    doubt_fact_id=doubted.fact_id,
                    number=self.event.number,
                )
            )

    def _replace(self) -> Operation[list[RemoveFactsRow]]:
        ids = yield from self._by_themselves(self._ids)
        if self.event.payload is None:
            return (yield from self.remove(ids))
        like = yield from fact_like(self.fact_set, self.event.payload["text"])
        if like is not None and like not in ids[:1]:
            yield from self._repeat(like)
            return (yield from self.remove([fact_id for fact_id in ids if fact_id != like]))
        if not ids:
            yield from self._write()
        elif not (yield from self._has_worded(ids[0])):
            details = self.event.details
            yield from fetch(
                RewordFact(
                    **self.keys,
                    fact_id=ids[0],
                    **self.event.words,
                    topics=details["topics"],
                    about_date=details["about_date"],
                    at=self.event.at,
                )
            )
            yield from self._revise(ids[0], "replace")
        return (yield from self.remove(ids[1:]))

    def _set_feedback(self) -> Operation[None]:
        if self.event.payload is not None:
            ids = yield from self._ids()
            rows = yield from fetch(FactsThatHold(**self.keys, fact_ids=ids))
            fact_ids = [row.fact_id for row in rows]
            feedback: str | None = self.event.payload.get("feedback")
            yield from fetch(SetFeedback(**self.keys, fact_ids=fact_ids, feedback=feedback))

    def _by_themselves(self, find: Callable[[], Operation[list[UUID]]]) -> Operation[list[UUID]]:
        """The facts that ``find`` returns, after condensed facts among them were taken apart."""
        facts = yield from find()
        rows = yield from fetch(Uncondense(**self.keys, fact_ids=facts))
        if not rows:
            return facts
        # Facts that earlier events took away while it was part of another one came back too.
        back = [row.fact_id for row in rows]
        yield from take_away_again(self.fact_set.shard_key, back, before=self.event.number)
        return (yield from find())

    def _ids(self) -> Operation[list[UUID]]:
        """The facts that the event concerns: the one of its id, and in other derivations, those like it.

        The derivation that the event was made in has the fact itself; a similar fact there is another one.
        """
        fact_id = self.event.fact_id
        fact = None if fact_id is None else (yield from self.fact_set.find(fact_id))
        named = [] if fact is None else [fact.fact_id]
        if named and self.fact_set.generation_id == self.event.made_in:
            return named
        return list(dict.fromkeys(named + (yield from self.find_traced(since=self.event.number))))

    def _ids_to_delete(self) -> Operation[list[UUID]]:
        ids = yield from self._ids()
        facts = yield from self.said_before()
        same = [row.fact_id for row in facts if self.event.took_away(fingerprint(row.text))]
        return list(dict.fromkeys(ids + same))

    def _write(self) -> Operation[None]:
        event = self.event
        if event.fact_id is None:
            return
        rows = yield from fetch(
            WriteFact(
                **self.keys,
                fact_id=event.fact_id,
                number=event.number,
                **event.words,
                **event.details,
                at=event.moment("said_at"),
                valid_from=event.moment("valid_from"),
                created_at=event.moment("created_at"),
            )
        )
        if rows:
            yield from self._revise(event.fact_id, event.kind)

    def _repeat(self, fact_id: UUID) -> Operation[None]:
        if not (yield from self._has_worded(fact_id)):
            at = self.event.moment("said_at")
            yield from fetch(RepeatFact(**self.keys, fact_id=fact_id, at=at, **self.event.details))
            yield from self._revise(fact_id, "duplicate")

    def _has_worded(self, fact_id: UUID) -> Operation[bool]:
        fact = yield from self.fact_set.find(fact_id)
        return fact is not None and (fact.worded_by or 0) >= self.event.number

    def _revise(self, fact_id: UUID, operation: str) -> Operation[None]:
        number, words = self.event.number, self.event.words
        yield from fetch(
            ReviseByPerson(**self.keys, fact_id=fact_id, operation=operation, number=number, **words)
        )
