"""Edits of an owner's facts: each recorded as an event, and applied in the same transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID, uuid4

from strandline.pipelines.facts.edits import (
    FactEvent,
    FactSet,
    apply_fact_event,
    fact_like,
    lock_facts,
    open_fact_lanes,
    traces_of,
)
from strandline.pipelines.facts.kinds import USER, asked_lexemes, kinds_of, subject_of
from strandline.pipelines.facts.statements import contradict, has_name, names_in, telling_words
from strandline.pipelines.facts.tombstones import Trace, read_traces, trace_of, write_traces
from strandline.pipelines.text.common_words import speakers
from strandline.pipelines.text.lexemes import is_mostly_unspaced
from strandline.pipelines.text.numbers import numbers_in
from strandline.schemas.errors import ConflictError, UnknownPipelineError
from strandline.schemas.postgres.operations import Atomic, Operation, fetch
from strandline.schemas.queries.derived.facts_edit import (
    AddedFacts,
    BlankFactEvents,
    DecidingFactEvents,
    FactDerivations,
    FindFactRow,
    LiveFacts,
    LockSessionLanes,
    NearFacts,
    RecordFactEvent,
    RemoveFactsRow,
    TwinSessions,
)
from strandline.schemas.values.acts.acting import actor_or_current
from strandline.schemas.values.doubts import Settlement
from strandline.schemas.values.normal_form import folded

T = TypeVar("T")
_Compared = tuple[Mapping[str, Any], tuple[Trace, ...]]

# Known facts that an added one is compared with: the nearest.
MAX_NEAR_FACTS = 60

_NOT_DOUBTFUL = (
    "The fact is not doubtful, or was settled before; nothing was changed. A list of doubtful facts shows"
    " which are."
)
# A person has one of these at a time.
_EXCLUSIVE = frozenset({"residence", "work", "age", "name", "partner"})
MAX_ARTICLE_CHARACTERS = 3
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class _Edited:
    """An edit's number, and the facts that it removed from each set."""

    number: int
    gone: Mapping[FactSet, Sequence[RemoveFactsRow]]


@dataclass(frozen=True, slots=True)
class LockedFacts:
    """An owner's facts, locked: the set of each generation, the serving set, and who edits them.

    ``instruction`` is the event of the instruction that asks for it.
    """

    fact_sets: Sequence[FactSet]
    serving: FactSet
    actor: str | None
    instruction: UUID | None

    def edit(
        self,
        kind: str,
        fact_id: UUID | None,
        *,
        payload: Mapping[str, Any] | None = None,
        traces: tuple[Trace, ...] = (),
        made_in: FactSet | None = None,
    ) -> Operation[_Edited]:
        """Record an edit and apply it to each set; ``made_in`` has the fact, default: the serving set."""
        (recorded,) = yield from fetch(
            RecordFactEvent(
                shard_key=self.serving.shard_key,
                kind=kind,
                fact_id=fact_id,
                payload=None if payload is None else json.dumps(payload),
                traces=write_traces(traces),
                actor=actor_or_current(self.actor),
                instruction=self.instruction,
            )
        )
        number, generation_id = recorded.number, (made_in or self.serving).generation_id
        event = FactEvent(number, kind, fact_id, traces, recorded.created_at, (), payload, generation_id)
        gone: dict[FactSet, Sequence[RemoveFactsRow]] = {}
        for fact_set in self.fact_sets:
            gone[fact_set] = yield from apply_fact_event(fact_set, event)
        return _Edited(number, gone)


def edit_facts(shard_key: UUID, change: Callable[[], Operation[T]]) -> Operation[T]:
    """Carry out a change of an owner's facts in one transaction; each attempt calls ``change`` again."""
    yield from open_fact_lanes(shard_key)
    changed: T = yield Atomic(change)
    return changed


def add_fact(
    shard_key: UUID,
    payload: Mapping[str, Any],
    actor: str | None,
    *,
    instruction: UUID | None = None,
    fact_id: UUID | None = None,
    is_checked: bool = False,
) -> Operation[UUID]:
    """Add a fact; returns its id, or that of an existing fact that says the same.

    Args:
        payload: as events store it.
        instruction: the event of the instruction that asks for it.
        fact_id: the caller's choice of an id, which counts unless a fact of this owner has or had it.
        is_checked: the fact is doubtful if it may contradict a known one, and is that one if the two
            differ in how they call the user alone.

    Raises:
        UnknownPipelineError: no worker has registered facts in this database.
    """
    facts = yield from lock_registered(shard_key, actor, instruction)
    traces: tuple[Trace, ...] = ()
    if is_checked:
        payload, traces = yield from _compare(facts.serving, payload)
    like = yield from fact_like(facts.serving, payload["text"])
    id_ = (yield from _free_id(facts.serving, fact_id)) if like is None else like
    yield from facts.edit("add", id_, payload=payload, traces=traces)
    return id_


def _compare(fact_set: FactSet, payload: Mapping[str, Any]) -> Operation[_Compared]:
    """The payload in a known fact's words if that says the same; and with the fact it may contradict.

    A known fact that is not doubtful does not become it because it is added again.
    """
    text = payload["text"]
    near = yield from fetch(NearFacts(**fact_set.keys, lexemes=asked_lexemes(text), limit=MAX_NEAR_FACTS))
    text = next((fact.text for fact in near if say_the_same(fact.text, text)), text)
    payload = {**payload, "text": text}
    other = next((fact.fact_id for fact in near if may_contradict(fact.text, text)), None)
    if other is None:
        return payload, ()
    like = yield from fact_like(fact_set, text)
    known = None if like is None else (yield from fact_set.find(like))
    if known is not None and known.doubts is None:
        return payload, ()
    return {**payload, "doubts": str(other)}, (yield from _traces(fact_set, other))


def add_facts_once(
    shard_key: UUID, payloads: Mapping[UUID, Mapping[str, Any]], actors: Mapping[UUID, str]
) -> Operation[int]:
    """Add facts under the caller's ids, each once: earlier additions stay as they are.

    A payload may hold ``feedback`` as well.  Returns how many were added.

    Raises:
        UnknownPipelineError: no worker has registered facts in this database.
    """
    facts = yield from lock_registered(shard_key)
    rows = yield from fetch(AddedFacts(shard_key=shard_key, fact_ids=list(payloads)))
    known = {row.fact_id for row in rows}
    for fact_id, payload in payloads.items():
        if fact_id in known:
            continue
        wording = {name: value for name, value in payload.items() if name != "feedback"}
        actor = actors[fact_id]
        yield from replace(facts, actor=actor).edit("add", fact_id, payload=wording)
        if payload.get("feedback") is not None:
            like = yield from fact_like(facts.serving, payload["text"])
            if like is not None:
                yield from judge_fact(shard_key, like, payload["feedback"], actor)
    return len(payloads) - len(known)


def replace_fact(
    shard_key: UUID,
    fact_id: UUID,
    payload: Mapping[str, Any],
    actor: str | None,
    *,
    instruction: UUID | None = None,
) -> Operation[UUID | None]:
    """Give a live fact other words; returns its id after that, or None if there is no such fact."""
    facts = yield from lock_registered(shard_key, actor, instruction)
    fact = yield from facts.serving.find(fact_id)
    if fact is None or not fact.live:
        return None
    kept = _said_payload(fact)
    del kept["said_at"]
    traces = yield from _traces(facts.serving, fact_id)
    like = yield from fact_like(facts.serving, payload["text"])
    yield from facts.edit("replace", fact_id, payload=kept | dict(payload), traces=traces)
    return like if like is not None else fact_id


def delete_fact(
    shard_key: UUID, fact_id: UUID, actor: str | None, *, instruction: UUID | None = None
) -> Operation[bool]:
    """Delete a fact for good; False if there is no such fact.

    Its id may be one of another derivation that is kept, which served when the caller read it.
    """
    facts = yield from lock_registered(shard_key, actor, instruction)
    for fact_set in sorted(facts.fact_sets, key=lambda one: one != facts.serving):
        if (yield from fact_set.find(fact_id)) is not None:
            break
    else:
        return False
    traces = yield from _traces(fact_set, fact_id)
    edited = yield from facts.edit("delete", fact_id, traces=traces, made_in=fact_set)
    gone = list(chain.from_iterable(edited.gone.values()))
    yield from fetch(
        BlankFactEvents(
            shard_key=shard_key,
            number=edited.number,
            fact_ids=[row.fact_id for row in gone],
            numbers=sorted({number for row in gone for number in row.worded_by}),
        )
    )
    return True


def lock_sources(shard_key: UUID, fact_id: UUID) -> Operation[dict[UUID, set[int]]]:
    """Lock the lanes of the sessions that a fact comes from; returns their messages, copies in forks too."""
    sources = yield from _sources(shard_key, fact_id)
    yield from fetch(LockSessionLanes(shard_key=shard_key, session_keys=sorted(sources)))
    return (yield from _sources(shard_key, fact_id))


def _sources(shard_key: UUID, fact_id: UUID) -> Operation[dict[UUID, set[int]]]:
    sources: dict[UUID, set[int]] = {}
    for row in (yield from fetch(FactDerivations(shard_key=shard_key))):
        for trace in (yield from _traces(FactSet(shard_key, row.generation_id), fact_id)):
            if trace.session_key is not None:
                sources.setdefault(trace.session_key, set()).update(trace.seqs)
    return sources


def clear_facts(shard_key: UUID, actor: str | None) -> Operation[int]:
    """Delete all of an owner's facts for good; returns how many of them were live."""
    facts = yield from lock_registered(shard_key, actor)
    live = yield from fetch(LiveFacts(**facts.serving.keys))
    traces = yield from traces_of(facts.serving, [row.fact_id for row in live])
    edited = yield from facts.edit("clear", None, traces=tuple(chain.from_iterable(traces.values())))
    yield from fetch(BlankFactEvents(shard_key=shard_key, number=edited.number, fact_ids=None, numbers=[]))
    return sum(row.live for row in edited.gone[facts.serving])


def was_taken_away(shard_key: UUID, text: str, agent: str) -> Operation[bool]:
    """Whether a person, and not ``agent``, deleted, reworded or cleared a fact of these words."""
    words = trace_of(text, None)
    rows = yield from fetch(
        DecidingFactEvents(
            shard_key=shard_key,
            fact_ids=[],
            fingerprints=[words.fingerprint.hex()],
            session_keys=[],
            lexemes=sorted(words.lexemes),
        )
    )
    others = (row for row in rows if row.actor != agent)
    return any(trace.is_said_by(words) for row in others for trace in read_traces(row.traces))


def judge_fact(
    shard_key: UUID, fact_id: UUID, feedback: str | None, actor: str | None
) -> Operation[UUID | None]:
    """Record people's opinion of a fact; returns its id, or None if there is no such fact."""
    facts = yield from lock_registered(shard_key, actor)
    if (yield from facts.serving.find(fact_id)) is None:
        return None
    traces = yield from _traces(facts.serving, fact_id)
    yield from facts.edit("feedback", fact_id, payload={"feedback": feedback}, traces=traces)
    return fact_id


def settle_doubt(
    shard_key: UUID, fact_id: UUID, keep: Settlement, actor: str | None
) -> Operation[UUID | None]:
    """Decide between a doubtful fact and the fact it may contradict; None if there is no such fact.

    The kept words become a person's, with their times, so that no earlier statement ends them.
    Returns the id of the kept fact; of both, that of the doubtful one.

    Raises:
        ConflictError: the fact is not doubtful.
    """
    facts = yield from lock_registered(shard_key, actor)
    new = yield from facts.serving.find(fact_id)
    if new is None:
        return None
    old = None if new.doubts is None else (yield from facts.serving.find(new.doubts))
    if old is None:
        raise ConflictError(_NOT_DOUBTFUL, for_clients=_NOT_DOUBTFUL)
    if keep == "new":
        return (yield from replace_fact(shard_key, old.fact_id, _said_payload(new), actor))
    if keep == "old":
        yield from delete_fact(shard_key, fact_id, actor)
    for fact in (old, new) if keep == "both" else (old,):
        yield from facts.edit("add", fact.fact_id, payload=_said_payload(fact))
    return new.fact_id if keep == "both" else old.fact_id


def _said_payload(fact: FindFactRow) -> dict[str, Any]:
    return {
        "text": fact.text,
        "said_at": fact.said_at.isoformat(),
        "created_at": fact.created_at.isoformat(),
        "valid_from": fact.valid_from.isoformat(),
        "topics": fact.topics,
        "about_date": fact.about_date.isoformat() if fact.about_date else None,
    }


def lock_registered(
    shard_key: UUID, actor: str | None = None, instruction: UUID | None = None
) -> Operation[LockedFacts]:
    """Lock an owner's facts, to be edited by ``actor`` because of an instruction, if there was one.

    Raises:
        UnknownPipelineError: no worker has registered facts in this database.
    """
    fact_sets, serving = yield from lock_facts(shard_key)
    if serving is None:
        raise UnknownPipelineError(
            "No worker has registered the pipeline 'facts' in this database, so there is nowhere to keep"
            " facts; start a worker once."
        )
    return LockedFacts(fact_sets, serving, actor, instruction)


def _free_id(serving: FactSet, fact_id: UUID | None) -> Operation[UUID]:
    if fact_id is None or (yield from serving.find(fact_id)) is not None:
        return uuid4()
    return fact_id


def _traces(fact_set: FactSet, fact_id: UUID) -> Operation[tuple[Trace, ...]]:
    """The traces of a fact, also by the copies of its messages in forks."""
    traces = (yield from traces_of(fact_set, [fact_id])).get(fact_id, ())
    keys = sorted({trace.session_key for trace in traces if trace.session_key is not None})
    twins = yield from fetch(TwinSessions(shard_key=fact_set.shard_key, session_keys=keys))
    return traces + tuple(
        replace(trace, session_key=twin.twin_key, seqs=copied)
        for twin in twins
        for trace in traces
        if trace.session_key == twin.session_key
        and (copied := frozenset(seq for seq in trace.seqs if seq <= twin.through_seq))
    )


def may_contradict(one: str, other: str) -> bool:
    """Whether one statement denies the other, or both name another home, employer, age, name or partner.

    Their first words tell whether they are about the same person.
    """
    if _subject(one) != _subject(other):
        return False
    if contradict(one, other):
        return True
    if not kinds_of(one) & kinds_of(other) & _EXCLUSIVE:
        return False
    numbers, others = numbers_in(one), numbers_in(other)
    return bool(numbers - others and others - numbers) or (
        _names_more(one, other) and _names_more(other, one)
    )


def say_the_same(one: str, other: str) -> bool:
    """Whether two statements have the same words, but for how they call the user."""
    return _words_about(one) == _words_about(other) and _subject(one) == _subject(other)


def _words_about(text: str) -> list[str]:
    words = _WORD.findall(folded(text))
    if words[:1] and words[0] in speakers():
        return words[1:]
    has_article = len(words) > 1 and len(words[0]) <= MAX_ARTICLE_CHARACTERS and words[1] in speakers()
    return words[2:] if has_article else words


def _subject(text: str) -> str:
    """Whom a statement is about: a name as it stands, or the user if it begins with a verb of a kind."""
    first = _WORD.search(text)
    word = "" if first is None else first.group()
    return subject_of(text) or (USER if kinds_of(word) else folded(word))


def _names_more(one: str, other: str) -> bool:
    """Whether a statement has a name, or without capitals a word, that another one has not."""
    names = {name for name in names_in(one) if not kinds_of(name)}
    if not names and is_mostly_unspaced(one):
        return bool(telling_words(one) - telling_words(other))
    return any(not has_name(name, other) for name in names)
