"""What people do to facts: events of the owner's lane, applied to each derivation that is kept.

An event is recorded in the transaction that applies it, under the locks of the owner's merge lanes; so a
merge that is just writing comes wholly before it or wholly after.  A new derivation applies all of them
first (``apply_fact_events``), and its merges heed the tombstones among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from strandline.pipelines.fact_words import fingerprint
from strandline.pipelines.lexemes import query_lexemes
from strandline.pipelines.tombstones import Trace, read_traces
from strandline.schemas.lanes import MERGE_STAGE
from strandline.schemas.operations import Fetch, Operation, Row

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
    """

    number: int
    kind: FactEventKind
    fact_id: UUID | None
    payload: Mapping[str, Any] | None
    traces: tuple[Trace, ...]
    at: datetime


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
        yield Fetch("open_fact_lanes", lanes)
    derivations = [Derivation(shard_key, generation_id) for generation_id, _serving in rows]
    serving = [Derivation(shard_key, generation_id) for generation_id, is_serving in rows if is_serving]
    return derivations, serving[0] if serving else None


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
        return (yield from _remove(derivation, event, (yield from _deleted(derivation, event))))
    else:
        rows: list[Row] = yield Fetch("facts_until", derivation.keys | {"until": event.at})
        return (yield from _remove(derivation, event, [fact_id for (fact_id,) in rows]))
    return []


def fact_like(derivation: Derivation, text: str) -> Operation[UUID | None]:
    """The live fact that says the same words as ``text``."""
    rows: list[Row] = yield Fetch("live_fact_like", derivation.keys | {"fingerprint": fingerprint(text)})
    return rows[0][0] if rows else None


def traces_of(derivation: Derivation, fact_ids: Sequence[UUID]) -> Operation[dict[UUID, tuple[Trace, ...]]]:
    """By what facts of a derivation are recognised, with what was condensed into them."""
    rows: list[Row] = yield Fetch("fact_traces", derivation.keys | {"fact_ids": list(fact_ids)})
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
    meant = yield from _meant(derivation, event)
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
        yield Fetch(
            "set_feedback",
            derivation.keys | {"fact_ids": meant, "feedback": event.payload.get("feedback")},
        )


def _meant(derivation: Derivation, event: FactEvent) -> Operation[list[UUID]]:
    """The facts an event speaks of: the one of its id, else those that are recognised as it."""
    rows: list[Row] = yield Fetch("find_fact", derivation.keys | {"fact_id": event.fact_id})
    if rows:
        return [rows[0][0]]
    found = yield from _said_before(
        derivation, event, [trace.session_key for trace in event.traces if trace.session_key is not None]
    )
    traces = yield from traces_of(derivation, [row[0] for row in found])
    return [
        fact_id
        for fact_id, _text, _live in found
        if any(mine.recognises(theirs) for mine in event.traces for theirs in traces.get(fact_id, ()))
    ]


def _said_before(
    derivation: Derivation, event: FactEvent, session_keys: Sequence[UUID] = ()
) -> Operation[list[Row]]:
    """Facts that were once worded as the one an event speaks of, or come from these sessions."""
    about = {
        "fingerprints": [trace.fingerprint.hex() for trace in event.traces],
        "session_keys": list(session_keys),
        "number": event.number,
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
    rows: list[Row] = yield Fetch("write_fact", _wording(derivation, event) | {"fact_id": event.fact_id})
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
