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
from typing import Any, Literal, TypedDict, cast
from uuid import UUID

from strandline.pipelines.admission import admit, refuse_if_erased
from strandline.pipelines.facts.tombstones import Trace, read_traces
from strandline.pipelines.text.lexemes import indexed_lexemes
from strandline.schemas.postgres.operations import Operation, check_owner_keys, fetch
from strandline.schemas.queries.derived.facts_edit import (
    DecidingFactEvents,
    FactDerivations,
    FactEvents,
    FactEventsRow,
    FactsOfTraces,
    FactsOfTracesRow,
    FactsThatHold,
    FactsUntil,
    FactTraces,
    FindFact,
    LiveFactLike,
    LockFactLanes,
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
from strandline.schemas.values.fingerprints import fingerprint
from strandline.schemas.values.lanes import MERGE_STAGE, DerivationKeys


@dataclass(frozen=True, slots=True)
class FactSet:
    """One owner's facts in one generation."""

    shard_key: UUID
    generation_id: int

    @property
    def keys(self) -> DerivationKeys:
        return {"shard_key": self.shard_key, "generation_id": self.generation_id}


def lock_facts(shard_key: UUID) -> Operation[tuple[list[FactSet], FactSet | None]]:
    """Lock an owner's facts for the rest of the transaction; returns the set of each generation, and the
    one that serves.

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
    """Make the rows that ``lock_facts`` locks, in a separate transaction before the one that locks them.

    In the same transaction, an uncommitted row would block others, which may hold locks that it waits for.

    Raises:
        ErasedError: the owner was erased.
    """
    (opened,) = yield from fetch(OpenFactLanes(shard_key=shard_key, stage=MERGE_STAGE))
    refuse_if_erased(opened.erasure)
    yield from check_owner_keys(shard_key, opened.first_data_key)


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
class Wording:
    """A payload as statements take it."""

    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    about_date: date | None
    valid_from: datetime | None
    created_at: datetime | None
    said_at: datetime | None
    input: str | None
    agent_id: str | None
    team_id: str | None

    @property
    def words(self) -> Words:
        return {"text": self.text, "fingerprint": self.fingerprint, "lexemes": self.lexemes}

    @property
    def details(self) -> Details:
        return {
            "topics": self.topics,
            "about_date": self.about_date,
            "input": self.input,
            "agent_id": self.agent_id,
            "team_id": self.team_id,
        }


def read_wording(payload: Mapping[str, Any]) -> Wording:
    text: str = payload["text"]
    about_date = payload.get("about_date")
    return Wording(
        text=text,
        fingerprint=fingerprint(text),
        lexemes=indexed_lexemes(text),
        topics=list(payload.get("topics") or ()),
        about_date=date.fromisoformat(about_date) if about_date else None,
        valid_from=_read_moment(payload.get("valid_from")),
        created_at=_read_moment(payload.get("created_at")),
        said_at=_read_moment(payload.get("said_at")),
        input=payload.get("input"),
        agent_id=payload.get("agent_id"),
        team_id=payload.get("team_id"),
    )


def _read_moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


FactEventKind = Literal["add", "replace", "delete", "clear", "feedback"]


@dataclass(frozen=True, slots=True)
class FactEvent:
    """A person's edit of an owner's facts.

    Attributes:
        number: its place among the owner's events, from 1.
        fact_id: the fact's id in the generation that it was made in; None for ``clear``.
        payload: the new wording, or the feedback; None for other edits, and if a later deletion removed the
            text.
        traces: the marks by which other derivations recognise the fact.
        at: the time of the edit, by the server's clock.
        made_in: the generation whose fact was edited, if the edit is applied at once; else None.
    """

    number: int
    kind: FactEventKind
    fact_id: UUID | None
    payload: Mapping[str, Any] | None
    traces: tuple[Trace, ...]
    at: datetime
    made_in: int | None = None


def apply_fact_events(shard_key: UUID, generation_id: int) -> Operation[int]:
    """Apply all of people's edits of an owner's facts to one derivation, in order; returns how many.

    For a new derivation, run it before its first merge, and once more before it serves, since feedback may
    concern facts that were derived in between.  Run it inside a transaction.  However often it runs, each
    edit takes effect once.
    """
    yield from lock_facts(shard_key)
    rows = yield from fetch(FactEvents(shard_key=shard_key))
    for row in rows:
        yield from apply_fact_event(FactSet(shard_key, generation_id), _event(row))
    return len(rows)


def apply_fact_event(fact_set: FactSet, event: FactEvent) -> Operation[list[RemoveFactsRow]]:
    """Apply one event; returns the facts that it removed, as ``remove_facts`` does."""
    if event.kind == "add":
        yield from _add(fact_set, event)
    elif event.kind == "replace":
        return (yield from _replace(fact_set, event))
    elif event.kind == "feedback":
        yield from _set_feedback(fact_set, event)
    elif event.kind == "delete":
        return (
            yield from _remove(fact_set, event, (yield from _by_themselves(fact_set, event, _ids_to_delete)))
        )
    else:
        rows = yield from fetch(FactsUntil(**fact_set.keys, until=event.at, number=event.number))
        return (yield from _remove(fact_set, event, [row.fact_id for row in rows]))
    return []


def take_away_again(
    shard_key: UUID, fact_ids: Sequence[UUID], *, before: int | None = None
) -> Operation[None]:
    """Remove those of some live facts that say what a person deleted or replaced, in every derivation.

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
        events = yield from _events_about(shard_key, traces)
        for event in events if before is None else [event for event in events if event.number < before]:
            ids = yield from _ids_recognised(fact_set, event, since=event.number - 1)
            yield from _remove(fact_set, event, [fact_id for fact_id in ids if fact_id in traces])


def fact_like(fact_set: FactSet, text: str) -> Operation[UUID | None]:
    """The live fact that says the same words as ``text``."""
    rows = yield from fetch(LiveFactLike(**fact_set.keys, fingerprint=fingerprint(text)))
    return rows[0].fact_id if rows else None


def traces_of(fact_set: FactSet, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Trace, ...]]]:
    """The traces of some facts, including those of facts that were condensed into them."""
    rows = yield from fetch(FactTraces(**fact_set.keys, fact_ids=list(fact_ids)))
    return {row.root: read_traces(row.traces) for row in rows}


def _own_traces(fact_set: FactSet, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Trace, ...]]]:
    """The traces of facts, each by itself."""
    rows = yield from fetch(OwnFactTraces(**fact_set.keys, fact_ids=list(fact_ids)))
    return {row.fact_id: read_traces(row.traces) for row in rows}


def _add(fact_set: FactSet, event: FactEvent) -> Operation[None]:
    if event.payload is None:
        return
    like = yield from fact_like(fact_set, event.payload["text"])
    if like is not None:
        yield from _repeat(fact_set, event, like)
    else:
        yield from _write(fact_set, event, "add")


def _replace(fact_set: FactSet, event: FactEvent) -> Operation[list[RemoveFactsRow]]:
    """Give the fact its new words; a fact that says them already replaces it."""
    ids = yield from _by_themselves(fact_set, event, _ids_of_event)
    if event.payload is None:
        return (yield from _remove(fact_set, event, ids))
    like = yield from fact_like(fact_set, event.payload["text"])
    if like is not None and like not in ids[:1]:
        yield from _repeat(fact_set, event, like)
        return (yield from _remove(fact_set, event, [fact_id for fact_id in ids if fact_id != like]))
    if not ids:
        yield from _write(fact_set, event, "replace")
    elif not (yield from _is_worded_by(fact_set, event, ids[0])):
        wording = read_wording(event.payload or {})
        yield from fetch(
            RewordFact(
                **fact_set.keys,
                fact_id=ids[0],
                **wording.words,
                topics=wording.topics,
                about_date=wording.about_date,
                at=event.at,
            )
        )
        yield from _revise(fact_set, event, ids[0], "replace")
    return (yield from _remove(fact_set, event, ids[1:]))


def _set_feedback(fact_set: FactSet, event: FactEvent) -> Operation[None]:
    if event.payload is not None:
        ids = yield from _ids_of_event(fact_set, event)
        rows = yield from fetch(FactsThatHold(**fact_set.keys, fact_ids=ids))
        fact_ids = [row.fact_id for row in rows]
        feedback: str | None = event.payload.get("feedback")
        yield from fetch(SetFeedback(**fact_set.keys, fact_ids=fact_ids, feedback=feedback))


def _by_themselves(
    fact_set: FactSet,
    event: FactEvent,
    find: Callable[[FactSet, FactEvent], Operation[list[UUID]]],
) -> Operation[list[UUID]]:
    """The facts that ``find`` returns, after condensed facts among them were taken apart."""
    facts = yield from find(fact_set, event)
    rows = yield from fetch(Uncondense(**fact_set.keys, fact_ids=facts))
    if not rows:
        return facts
    # What earlier events had taken away while it was part of another one is among what came back.
    yield from take_away_again(fact_set.shard_key, [row.fact_id for row in rows], before=event.number)
    return (yield from find(fact_set, event))


def _events_about(shard_key: UUID, traces: Mapping[UUID, Sequence[Trace]]) -> Operation[list[FactEvent]]:
    """The deletions and corrections that recognise one of these facts."""
    theirs = [trace for of_fact in traces.values() for trace in of_fact]
    rows = yield from fetch(
        DecidingFactEvents(
            shard_key=shard_key,
            fact_ids=[],
            fingerprints=[trace.fingerprint.hex() for trace in theirs],
            session_keys=list({trace.session_key for trace in theirs if trace.session_key is not None}),
        )
    )
    events = (
        FactEvent(row.number, _kind(row.kind), row.fact_id, None, read_traces(row.traces), row.created_at)
        for row in rows
        if row.kind != "clear"
    )
    return [
        event for event in events if any(mine.recognises(trace) for mine in event.traces for trace in theirs)
    ]


def _ids_of_event(fact_set: FactSet, event: FactEvent) -> Operation[list[UUID]]:
    """The facts that an event concerns: the one of its id, and in other derivations, facts recognised as it.

    The derivation that the event was made in has the fact itself; a similar fact there is another one.
    """
    named: list[UUID] = []
    if event.fact_id is not None:
        rows = yield from fetch(FindFact(**fact_set.keys, fact_id=event.fact_id))
        named = [row.fact_id for row in rows]
    if named and fact_set.generation_id == event.made_in:
        return named
    return list(dict.fromkeys(named + (yield from _ids_recognised(fact_set, event, since=event.number))))


def _ids_recognised(fact_set: FactSet, event: FactEvent, *, since: int) -> Operation[list[UUID]]:
    """The facts that the event concerns, by its traces.

    Excluded are facts that were said again after it, or that a person's event above number ``since`` worded.
    """
    facts = yield from _said_before(
        fact_set,
        event,
        [trace.session_key for trace in event.traces if trace.session_key is not None],
        since=since,
    )
    traces = yield from _own_traces(fact_set, [row.fact_id for row in facts])
    return [
        row.fact_id
        for row in facts
        if any(mine.recognises(theirs) for mine in event.traces for theirs in traces.get(row.fact_id, ()))
    ]


def _said_before(
    fact_set: FactSet, event: FactEvent, session_keys: Sequence[UUID] = (), *, since: int | None = None
) -> Operation[list[FactsOfTracesRow]]:
    """Facts that were once worded like the one that an event concerns, or come from these sessions."""
    return (
        yield from fetch(
            FactsOfTraces(
                **fact_set.keys,
                fingerprints=[trace.fingerprint.hex() for trace in event.traces],
                session_keys=list(session_keys),
                number=event.number if since is None else since,
                at=event.at,
            )
        )
    )


def _ids_to_delete(fact_set: FactSet, event: FactEvent) -> Operation[list[UUID]]:
    """The facts that a deletion concerns, and facts with the same words, even if these ended."""
    ids = yield from _ids_of_event(fact_set, event)
    words = {trace.fingerprint for trace in event.traces}
    facts = yield from _said_before(fact_set, event)
    return list(dict.fromkeys(ids + [row.fact_id for row in facts if fingerprint(row.text) in words]))


def _remove(fact_set: FactSet, event: FactEvent, fact_ids: Sequence[UUID]) -> Operation[list[RemoveFactsRow]]:
    if not fact_ids:
        return []
    gone = yield from fetch(RemoveFacts(**fact_set.keys, fact_ids=list(fact_ids), number=event.number))
    return gone


def _write(fact_set: FactSet, event: FactEvent, operation: str) -> Operation[None]:
    if event.fact_id is None:
        return
    wording = read_wording(event.payload or {})
    rows = yield from fetch(
        WriteFact(
            **fact_set.keys,
            fact_id=event.fact_id,
            number=event.number,
            **wording.words,
            **wording.details,
            at=_no_later(wording.said_at, event),
            valid_from=_no_later(wording.valid_from, event),
            created_at=_no_later(wording.created_at, event),
        )
    )
    if rows:
        yield from _revise(fact_set, event, event.fact_id, operation)


def _no_later(moment: datetime | None, event: FactEvent) -> datetime:
    """A moment that a person gives, or that of the event: a fact of the future would outlive a clearing."""
    return event.at if moment is None else min(moment, event.at)


def _repeat(fact_set: FactSet, event: FactEvent, fact_id: UUID) -> Operation[None]:
    if not (yield from _is_worded_by(fact_set, event, fact_id)):
        wording = read_wording(event.payload or {})
        yield from fetch(
            RepeatFact(
                **fact_set.keys,
                fact_id=fact_id,
                at=_no_later(wording.said_at, event),
                **wording.details,
            )
        )
        yield from _revise(fact_set, event, fact_id, "duplicate")


def _is_worded_by(fact_set: FactSet, event: FactEvent, fact_id: UUID) -> Operation[bool]:
    """Whether this event, or a later one, has been applied already."""
    rows = yield from fetch(FindFact(**fact_set.keys, fact_id=fact_id))
    return bool(rows) and (rows[0].worded_by or 0) >= event.number


def _revise(fact_set: FactSet, event: FactEvent, fact_id: UUID, operation: str) -> Operation[None]:
    wording = read_wording(event.payload or {})
    yield from fetch(
        ReviseByPerson(
            **fact_set.keys,
            fact_id=fact_id,
            operation=operation,
            number=event.number,
            **wording.words,
        )
    )


def _event(row: FactEventsRow) -> FactEvent:
    payload = json.loads(row.payload) if row.payload else None
    return FactEvent(
        row.number, _kind(row.kind), row.fact_id, payload, read_traces(row.traces), row.created_at
    )


def _kind(stored: str) -> FactEventKind:
    return cast(FactEventKind, stored)
