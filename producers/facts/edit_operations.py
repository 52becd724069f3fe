"""Edits: what people do to facts, checked, recorded and applied in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, TypeVar
from uuid import UUID, uuid4

from strandline.pipelines.facts.edits import (
    FactEvent,
    FactEventKind,
    FactSet,
    apply_fact_event,
    fact_like,
    lock_facts,
    open_fact_lanes,
    traces_of,
)
from strandline.pipelines.facts.tombstones import Trace, write_traces
from strandline.pipelines.models.answers import MAX_FACT_CHARACTERS, MAX_TOPIC_CHARACTERS, MAX_TOPICS
from strandline.schemas.errors import InvalidMessageError, UnknownPipelineError
from strandline.schemas.postgres.operations import Atomic, Operation, fetch
from strandline.schemas.queries.derived.facts_edit import (
    BlankFactEvents,
    FindFact,
    NameFactOwner,
    RecordFactEvent,
    RemoveFactsRow,
)
from strandline.schemas.values.foreign_values import plain_text, unreadable
from strandline.schemas.values.identity import Owner, check_name
from strandline.schemas.values.stored_text import check_text

T = TypeVar("T")

MAX_INPUT_CHARACTERS = 8_000
MAX_FEEDBACK_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Wording:
    """A fact as worded by a person; ``topics`` None keeps those that the fact has."""

    text: str
    topics: tuple[str, ...] | None = None
    about_date: date | None = None
    input: str | None = None
    agent_id: str | None = None
    team_id: str | None = None

    @classmethod
    def check(
        cls,
        text: object,
        *,
        topics: Sequence[str] | None = None,
        about_date: date | None = None,
        input: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
    ) -> Wording:
        """Check the arguments of a caller.

        Raises:
            InvalidMessageError: naming the argument that cannot be stored, and why.
        """
        return cls(
            text=_checked_text("text", text, MAX_FACT_CHARACTERS),
            topics=None if topics is None else checked_topics(topics),
            about_date=_checked_date(about_date),
            input=None if input is None else _checked_text("input", input, MAX_INPUT_CHARACTERS),
            agent_id=None if agent_id is None else check_name("agent_id", agent_id),
            team_id=None if team_id is None else check_name("team_id", team_id),
        )

    @property
    def payload(self) -> dict[str, Any]:
        """The form in which the event stores it."""
        fields = asdict(self) | {"about_date": self.about_date.isoformat() if self.about_date else None}
        return {name: value for name, value in fields.items() if value is not None}


def edit_facts(shard_key: UUID, change: Callable[[], Operation[T]]) -> Operation[T]:
    """Carry out a change of an owner's facts in one transaction; each attempt calls ``change`` again."""
    yield from open_fact_lanes(shard_key)
    changed: T = yield Atomic(change)
    return changed


def add_fact(owner: Owner, wording: Wording, actor: str | None) -> Operation[UUID]:
    """Add a fact; returns its id, or that of an existing fact that says the same.

    Raises:
        UnknownPipelineError: no worker has registered facts in this database.
    """
    shard_key = owner.shard_key
    fact_sets, serving = yield from _lock_registered(shard_key)
    yield from fetch(NameFactOwner(shard_key=shard_key, namespace=owner.namespace))
    like = yield from fact_like(serving, wording.text)
    fact_id = uuid4() if like is None else like
    event = yield from _record_event(serving, "add", fact_id, payload=wording.payload, actor=actor)
    yield from _apply_event(fact_sets, event)
    return fact_id


def replace_fact(
    shard_key: UUID, fact_id: UUID, wording: Wording, actor: str | None
) -> Operation[UUID | None]:
    """Give a live fact other words; returns its id after that, or None if there is no such fact."""
    fact_sets, serving = yield from _lock_registered(shard_key)
    rows = yield from fetch(FindFact(**serving.keys, fact_id=fact_id))
    if not rows or not rows[0].live:
        return None
    known = rows[0]
    kept = {
        "created_at": known.created_at.isoformat(),
        "valid_from": known.valid_from.isoformat(),
        "topics": known.topics,
        "about_date": known.about_date.isoformat() if known.about_date else None,
    }
    event = yield from _record_event(
        serving,
        "replace",
        fact_id,
        payload=kept | wording.payload,
        traces=(yield from _traces(serving, fact_id)),
        actor=actor,
    )
    like = yield from fact_like(serving, wording.text)
    yield from _apply_event(fact_sets, event)
    return like if like is not None else fact_id


def delete_fact(shard_key: UUID, fact_id: UUID, actor: str | None) -> Operation[bool]:
    """Delete a fact for good; False if there is no such fact."""
    fact_sets, serving = yield from _lock_registered(shard_key)
    if not (yield from fetch(FindFact(**serving.keys, fact_id=fact_id))):
        return False
    traces = yield from _traces(serving, fact_id)
    event = yield from _record_event(serving, "delete", fact_id, traces=traces, actor=actor)
    gone = yield from _apply_event(fact_sets, event)
    yield from fetch(
        BlankFactEvents(
            shard_key=shard_key,
            number=event.number,
            fact_ids=[row.fact_id for row in gone],
            numbers=sorted({number for row in gone for number in row.worded_by}),
        )
    )
    return True


def clear_facts(shard_key: UUID, actor: str | None) -> Operation[int]:
    """Delete all of an owner's facts for good; returns how many of them were live."""
    fact_sets, serving = yield from _lock_registered(shard_key)
    event = yield from _record_event(serving, "clear", None, actor=actor)
    cleared = 0
    for fact_set in fact_sets:
        gone = yield from apply_fact_event(fact_set, event)
        cleared += sum(row.live for row in gone) if fact_set == serving else 0
    yield from fetch(BlankFactEvents(shard_key=shard_key, number=event.number, fact_ids=None, numbers=[]))
    return cleared


def judge_fact(
    shard_key: UUID, fact_id: UUID, feedback: str | None, actor: str | None
) -> Operation[UUID | None]:
    """Record people's opinion of a fact; returns its id, or None if there is no such fact."""
    fact_sets, serving = yield from _lock_registered(shard_key)
    if not (yield from fetch(FindFact(**serving.keys, fact_id=fact_id))):
        return None
    event = yield from _record_event(
        serving,
        "feedback",
        fact_id,
        payload={"feedback": feedback},
        traces=(yield from _traces(serving, fact_id)),
        actor=actor,
    )
    yield from _apply_event(fact_sets, event)
    return fact_id


def checked_feedback(feedback: object) -> str | None:
    """Feedback as it is stored; None removes it."""
    return None if feedback is None else _checked_text("feedback", feedback, MAX_FEEDBACK_CHARACTERS)


def checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    """Topics in the form that extraction gives them: lower case, each once.

    Raises:
        InvalidMessageError: one is empty or too long, or there are too many.
    """
    try:
        is_list = not isinstance(topics, str) and isinstance(topics, Sequence) and len(topics) <= MAX_TOPICS
        topics = list(topics) if is_list else []
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("topics", error) from error
    if not is_list:
        raise InvalidMessageError("topics", f"must be a list of at most {MAX_TOPICS} short texts")
    cleaned = (_checked_text("topics", topic, MAX_TOPIC_CHARACTERS).casefold() for topic in topics)
    return tuple(dict.fromkeys(cleaned))


def _lock_registered(shard_key: UUID) -> Operation[tuple[list[FactSet], FactSet]]:
    fact_sets, serving = yield from lock_facts(shard_key)
    if serving is None:
        raise UnknownPipelineError(
            "No worker has registered the pipeline 'facts' in this database, so there is nowhere to keep"
            " facts; start a worker once."
        )
    return fact_sets, serving


def _traces(fact_set: FactSet, fact_id: UUID) -> Operation[tuple[Trace, ...]]:
    return (yield from traces_of(fact_set, [fact_id])).get(fact_id, ())


def _record_event(
    serving: FactSet,
    kind: FactEventKind,
    fact_id: UUID | None,
    *,
    payload: Mapping[str, Any] | None = None,
    traces: tuple[Trace, ...] = (),
    actor: str | None,
) -> Operation[FactEvent]:
    rows = yield from fetch(
        RecordFactEvent(
            shard_key=serving.shard_key,
            kind=kind,
            fact_id=fact_id,
            payload=None if payload is None else json.dumps(payload),
            traces=write_traces(traces),
            actor=None if actor is None else check_name("actor", actor),
        )
    )
    (recorded,) = rows
    return FactEvent(
        recorded.number, kind, fact_id, payload, traces, recorded.created_at, serving.generation_id
    )


def _apply_event(fact_sets: Sequence[FactSet], event: FactEvent) -> Operation[list[RemoveFactsRow]]:
    gone: list[RemoveFactsRow] = []
    for fact_set in fact_sets:
        gone += yield from apply_fact_event(fact_set, event)
    return gone


def _checked_text(field: str, value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise InvalidMessageError(field, f"must be text, not {type(value).__name__}")
    check_text(field, value)
    text = plain_text(value).strip()
    if not text:
        raise InvalidMessageError(field, "is empty; give at least one word")
    if len(text) > limit:
        raise InvalidMessageError(field, f"is longer than {limit} characters; make it shorter")
    return text


def _checked_date(value: object) -> date | None:
    if value is None:
        return None
    if not isinstance(value, date):
        raise InvalidMessageError("about_date", f"must be a date, not {type(value).__name__}")
    # A datetime is a date as well, and its day counts; a subclass may have methods that do anything.
    return date.fromordinal(date.toordinal(value))
