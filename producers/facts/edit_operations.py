"""Edits: what people do to facts, checked before they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from typing import Any, cast, get_args
from uuid import UUID

from strandline.pipelines.facts import recording
from strandline.pipelines.models.answers import MAX_FACT_CHARACTERS, MAX_TOPIC_CHARACTERS, MAX_TOPICS
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.redacting import redact_texts
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation, Run, claim_owner_keys, fetch
from strandline.schemas.queries.derived.facts_edit import NameFactOwner
from strandline.schemas.values.doubts import Settlement
from strandline.schemas.values.foreign_values import plain_text, unreadable
from strandline.schemas.values.identity import Owner, check_name
from strandline.schemas.values.stored_text import check_text

MAX_INPUT_CHARACTERS = 8_000
MAX_FEEDBACK_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Wording:
    """A fact as worded by a person; ``topics`` None keeps the fact's."""

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

    def redact(self, redaction: Redaction) -> Wording:
        """The same as its hooks leave its text, topics and input.

        Raises:
            InvalidMessageError: a hook refuses one of them, or leaves nothing.
            RedactionError: a hook failed.
        """
        texts = [self.text, *(self.topics or ()), *(() if self.input is None else (self.input,))]
        text, *rest = redact_texts(redaction, texts, "text")
        topics = tuple(rest[: len(self.topics or ())])
        return replace(
            self,
            text=_checked_text("text", text, MAX_FACT_CHARACTERS),
            topics=None if self.topics is None else checked_topics(topics),
            input=None if self.input is None else _checked_text("input", rest[-1], MAX_INPUT_CHARACTERS),
        )

    @property
    def payload(self) -> dict[str, Any]:
        """The form in which the event stores it."""
        fields = asdict(self) | {"about_date": self.about_date.isoformat() if self.about_date else None}
        return {name: value for name, value in fields.items() if value is not None}


def redact_wording(wording: Wording, redaction: Redaction | None) -> Operation[Wording]:
    """A wording as it may be stored: to be done before a transaction, since a hook takes its time.

    Raises: as ``Wording.redact``.
    """
    if redaction is None:
        return wording
    allowed: Wording = yield Run(partial(wording.redact, redaction))
    return allowed


def redact_feedback(feedback: str | None, redaction: Redaction | None) -> Operation[str | None]:
    """Checked feedback as it may be stored; raises as ``redact_wording``."""
    if redaction is None or feedback is None:
        return feedback
    (text,) = yield Run(partial(redact_texts, redaction, [feedback], "feedback"))
    return checked_feedback(text)


def add_fact(
    owner: Owner, wording: Wording, actor: str | None, *, fact_id: UUID | None = None, as_is: bool = False
) -> Operation[UUID]:
    """Add a fact; returns its id, or that of an existing fact that says the same.

    ``fact_id`` is the caller's choice of an id; it counts unless a fact of this owner has or had it.  With
    ``as_is`` it is not compared with others.

    Raises:
        UnknownPipelineError: no worker has registered facts in this database.
    """
    yield from claim_owner_keys(owner.namespace, owner.shard_key)
    fact_id = yield from recording.add_fact(
        owner.shard_key, wording.payload, actor, fact_id=fact_id, is_checked=not as_is
    )
    yield from fetch(NameFactOwner.of(owner))
    return fact_id


def checked_feedback(feedback: object) -> str | None:
    """Feedback as it is stored; None removes it."""
    return None if feedback is None else _checked_text("feedback", feedback, MAX_FEEDBACK_CHARACTERS)


def checked_settlement(keep: object) -> Settlement:
    """Which facts a person keeps of a doubtful one and the fact it may contradict."""
    if isinstance(keep, str) and plain_text(keep) in get_args(Settlement):
        return cast("Settlement", plain_text(keep))
    raise InvalidMessageError("keep", "must be 'both', 'new' (the doubtful fact) or 'old'")


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
