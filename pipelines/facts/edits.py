"""People's changes to facts: events of the owner's lane, applied to each derivation that is kept.

An event is recorded in the transaction that applies it, under the locks of the owner's merge lanes; so a
merge that is just writing comes wholly before it or wholly after.  A new derivation applies all of them
first (``apply_fact_events``), and its merges respect the tombstones among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from strandline.pipelines.facts.similarity import fingerprint
from strandline.pipelines.facts.tombstones import Trace, read_traces
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.postgres.operations import Fetch, Operation, Row
from strandline.schemas.values.lanes import MERGE_STAGE

FactEventKind = Literal["add", "replace", "delete", "clear", "feedback"]


@dataclass(frozen=True, slots=True)
class FactEvent:
    """One thing that a person did to an owner's facts.

    Attributes:
        number: its place among the owner's events, from 1.
        fact_id: the fact as the derivation that served knew it; None for ``clear``.
        payload: the new wording, or the feedback; None for the others, and where a later deletion took the
            text away.
        traces: by what the fact is recognised in other derivations.
        at: when it was done, by the server's clock.
        made_in: the generation that served when it was done, where it is applied at once; else None.
    """

    number: int
    kind: FactEventKind
    fact_id: UUID | None
    payload: Mapping[str, Any] | None
    traces: tuple[Trace, ...]
    at: datetime
    made_in: int | None = None


@dataclass(frozen=True, slots=True)
class Derivation:
    """The facts of one owner in one generation."""

    shard_key: UUID
    generation_id: int

    @property
    def keys(self) -> dict[str, Any]:
        return {"shard_key": self.shard_key, "generation_id": self.generation_id}


def hold_facts(shard_key: UUID) -> Operation[tuple[list[Derivation], Derivation | None]]:
    """Lock an owner's facts for the rest of the transaction; gives its derivations, and the serving one.

    While the locks are waited for, another derivation may be begun, or come to serve; so they are looked up
    once all locks are held.
    """
    lanes = {"shard_key": shard_key, "stage": MERGE_STAGE}
    while True:
        held: list[Row] = yield Fetch("hold_fact_lanes", lanes)
        rows: list[Row] = yield Fetch("fact_derivations", {"shard_key": shard_key})
        if {generation_id for generation_id, _serving in rows} <= {row[0] for row in held}:
            break
        yield from open_fact_lanes(shard_key)
    derivations = [Derivation(shard_key, generation_id) for generation_id, _serving in rows]
    serving = [Derivation(shard_key, generation_id) for generation_id, is_serving in rows if is_serving]
    return derivations, serving[0] if serving else None


def open_fact_lanes(shard_key: UUID) -> Operation[None]:
    """Make the rows that ``hold_facts`` locks, in a separate transaction before the one that locks them.

    Made in the same transaction, an uncommitted row would hold up others, which may hold what it waits for.
    """
    yield Fetch("open_fact_lanes", {"shard_key": shard_key, "stage": MERGE_STAGE})


def apply_fact_events(shard_key: UUID, generation_id: int) -> Operation[int]:
    """Apply everything that people did to an owner's facts to one derivation, in order; gives how many.

    For a new derivation, before its first merge; and once more before it serves, since feedback finds the
    facts that were derived only then.  Run it inside a transaction.  However often it runs, what people did
    counts once.
    """
    yield from hold_facts(shard_key)
    rows: list[Row] = yield Fetch("fact_events", {"shard_key": shard_key})
    for row in rows:
        yield from apply_fact_event(Derivation(shard_key, generation_id), _event(row))
    return len(rows)


def apply_fact_event(derivation: Derivation, event: FactEvent) -> Operation[list[Row]]:
    """Apply one event; gives the facts that are gone by it, as ``remove_facts`` does."""
    if event.kind == "add":
        yield from _add(derivation, event)
    elif event.kind == "replace":
        return (yield from _replace(derivation, event))
    elif event.kind == "feedback":
        yield from _set_feedback(derivation, event)
    elif event.kind == "delete":
        return (
            yield from _remove(derivation, event, (yield from _by_themselves(derivation, event, _deleted)))
        )
    else:
        rows: list[Row] = yield Fetch("facts_until", derivation.keys | {"until": event.at})
        return (yield from _remove(derivation, event, [fact_id for (fact_id,) in rows]))
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
    rows: list[Row] = yield Fetch("fact_derivations", {"shard_key": shard_key})
    for generation_id, _serving in rows:
        derivation = Derivation(shard_key, generation_id)
        traces = yield from _own_traces(derivation, fact_ids)
        events = yield from _events_about(shard_key, traces)
        for event in events if before is None else [event for event in events if event.number < before]:
            meant = yield from _recognised(derivation, event, since=event.number - 1)
            yield from _remove(derivation, event, [fact_id for fact_id in meant if fact_id in traces])


def fact_like(derivation: Derivation, text: str) -> Operation[UUID | None]:
    """The live fact that says the same words as ``text``."""
    rows: list[Row] = yield Fetch("live_fact_like", derivation.keys | {"fingerprint": fingerprint(text)})
    return rows[0][0] if rows else None


def traces_of(derivation: Derivation, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Trace, ...]]]:
    """By what facts of a derivation are recognised, with what was condensed into them."""
    rows: list[Row] = yield Fetch("fact_traces", derivation.keys | {"fact_ids": list(fact_ids)})
    return {fact_id: read_traces(traces) for fact_id, traces in rows}


def _own_traces(derivation: Derivation, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Trace, ...]]]:
    """By what facts are recognised, each for itself."""
    rows: list[Row] = yield Fetch("own_fact_traces", derivation.keys | {"fact_ids": list(fact_ids)})
    return {fact_id: read_traces(traces) for fact_id, traces in rows}


def _add(derivation: Derivation, event: FactEvent) -> Operation[None]:
    if event.payload is None:
        return
    like = yield from fact_like(derivation, event.payload["text"])
    if like is not None:
        yield from _repeat(derivation, event, like)
    else:
        yield from _write(derivation, event, "add")


def _replace(derivation: Derivation, event: FactEvent) -> Operation[list[Row]]:
    """Give the fact its new words; one that says them already takes its place."""
    meant = yield from _by_themselves(derivation, event, _meant)
    if event.payload is None:
        return (yield from _remove(derivation, event, meant))
    like = yield from fact_like(derivation, event.payload["text"])
    if like is not None and like not in meant[:1]:
        yield from _repeat(derivation, event, like)
        return (yield from _remove(derivation, event, [fact_id for fact_id in meant if fact_id != like]))
    if not meant:
        yield from _write(derivation, event, "replace")
    elif not (yield from _is_worded_by(derivation, event, meant[0])):
        yield Fetch("reword_fact", _wording(derivation, event) | {"fact_id": meant[0]})
        yield from _revise(derivation, event, meant[0], "replace")
    return (yield from _remove(derivation, event, meant[1:]))


def _set_feedback(derivation: Derivation, event: FactEvent) -> Operation[None]:
    if event.payload is not None:
        meant = yield from _meant(derivation, event)
        rows: list[Row] = yield Fetch("facts_that_hold", derivation.keys | {"fact_ids": meant})
        judged = {"fact_ids": [row[0] for row in rows], "feedback": event.payload.get("feedback")}
        yield Fetch("set_feedback", derivation.keys | judged)


def _by_themselves(
    derivation: Derivation,
    event: FactEvent,
    find: Callable[[Derivation, FactEvent], Operation[list[UUID]]],
) -> Operation[list[UUID]]:
    """What ``find`` gives, once facts among it that were condensed with others stand by themselves."""
    found = yield from find(derivation, event)
    rows: list[Row] = yield Fetch("uncondense", derivation.keys | {"fact_ids": found})
    if not rows:
        return found
    # What earlier events had taken away while it was part of another one is among what came back.
    yield from take_away_again(derivation.shard_key, [row[0] for row in rows], before=event.number)
    return (yield from find(derivation, event))


def _events_about(shard_key: UUID, traces: Mapping[UUID, Sequence[Trace]]) -> Operation[list[FactEvent]]:
    """The deletions and corrections that recognise one of these facts."""
    theirs = [trace for of_fact in traces.values() for trace in of_fact]
    rows: list[Row] = yield Fetch(
        "deciding_fact_events",
        {
            "shard_key": shard_key,
            "fact_ids": [],
            "fingerprints": [trace.fingerprint.hex() for trace in theirs],
            "session_keys": list({trace.session_key for trace in theirs} - {None}),
        },
    )
    events = (
        FactEvent(number, kind, fact_id, None, read_traces(stored), at)
        for number, kind, fact_id, stored, at in rows
        if kind != "clear"
    )
    return [
        event for event in events if any(mine.recognises(trace) for mine in event.traces for trace in theirs)
    ]


def _meant(derivation: Derivation, event: FactEvent) -> Operation[list[UUID]]:
    """The facts an event speaks of: the one of its id, and where others word it, what is recognised as it.

    The derivation that the event was made in has the fact itself, and what is alike there is another one.
    """
    rows: list[Row] = yield Fetch("find_fact", derivation.keys | {"fact_id": event.fact_id})
    named = [row[0] for row in rows]
    if named and derivation.generation_id == event.made_in:
        return named
    return list(dict.fromkeys(named + (yield from _recognised(derivation, event, since=event.number))))


def _recognised(derivation: Derivation, event: FactEvent, *, since: int) -> Operation[list[UUID]]:
    """The facts that say what the event speaks of, by its traces.

    Not those that were said again after it, or that a person's event of a number above ``since`` worded.
    """
    found = yield from _said_before(
        derivation,
        event,
        [trace.session_key for trace in event.traces if trace.session_key is not None],
        since=since,
    )
    traces = yield from _own_traces(derivation, [row[0] for row in found])
    return [
        fact_id
        for fact_id, _text, _live in found
        if any(mine.recognises(theirs) for mine in event.traces for theirs in traces.get(fact_id, ()))
    ]


def _said_before(
    derivation: Derivation, event: FactEvent, session_keys: Sequence[UUID] = (), *, since: int | None = None
) -> Operation[list[Row]]:
    """Facts that were once worded as the one an event speaks of, or come from these sessions."""
    about = {
        "fingerprints": [trace.fingerprint.hex() for trace in event.traces],
        "session_keys": list(session_keys),
        "number": event.number if since is None else since,
        "at": event.at,
    }
    rows: list[Row] = yield Fetch("facts_of_traces", derivation.keys | about)
    return rows


def _deleted(derivation: Derivation, event: FactEvent) -> Operation[list[UUID]]:
    """The facts that a deletion speaks of, with those that say the same words, also where these ended."""
    meant = yield from _meant(derivation, event)
    words = {trace.fingerprint for trace in event.traces}
    found = yield from _said_before(derivation, event)
    return list(dict.fromkeys(meant + [row[0] for row in found if fingerprint(row[1]) in words]))


def _remove(derivation: Derivation, event: FactEvent, fact_ids: Sequence[UUID]) -> Operation[list[Row]]:
    if not fact_ids:
        return []
    gone: list[Row] = yield Fetch(
        "remove_facts", derivation.keys | {"fact_ids": list(fact_ids), "number": event.number}
    )
    return gone


def _write(derivation: Derivation, event: FactEvent, operation: str) -> Operation[None]:
    new = {"fact_id": event.fact_id, "number": event.number}
    rows: list[Row] = yield Fetch("write_fact", _wording(derivation, event) | new)
    if rows and event.fact_id is not None:
        yield from _revise(derivation, event, event.fact_id, operation)


def _repeat(derivation: Derivation, event: FactEvent, fact_id: UUID) -> Operation[None]:
    if not (yield from _is_worded_by(derivation, event, fact_id)):
        yield Fetch("repeat_fact", _wording(derivation, event) | {"fact_id": fact_id})
        yield from _revise(derivation, event, fact_id, "duplicate")


def _is_worded_by(derivation: Derivation, event: FactEvent, fact_id: UUID) -> Operation[bool]:
    """Whether this event, or a later one, has had its say already."""
    rows: list[Row] = yield Fetch("find_fact", derivation.keys | {"fact_id": fact_id})
    return bool(rows) and (rows[0][-1] or 0) >= event.number


def _revise(derivation: Derivation, event: FactEvent, fact_id: UUID, operation: str) -> Operation[None]:
    yield Fetch(
        "revise_by_person",
        _wording(derivation, event) | {"fact_id": fact_id, "operation": operation, "number": event.number},
    )


def _wording(derivation: Derivation, event: FactEvent) -> dict[str, Any]:
    payload = event.payload or {}
    text = payload["text"]
    return derivation.keys | {
        "text": text,
        "fingerprint": fingerprint(text),
        "lexemes": query_lexemes(text),
        "topics": list(payload.get("topics") or ()),
        "about_date": payload.get("about_date"),
        "at": event.at,
        "valid_from": payload.get("valid_from") or event.at,
        "created_at": payload.get("created_at") or event.at,
        "input": payload.get("input"),
        "agent_id": payload.get("agent_id"),
        "team_id": payload.get("team_id"),
    }


def _event(row: Row) -> FactEvent:
    number, kind, fact_id, payload, traces, at = row
    return FactEvent(number, kind, fact_id, json.loads(payload) if payload else None, read_traces(traces), at)
