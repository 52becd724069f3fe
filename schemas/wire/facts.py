"""Facts over HTTP."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from strandline.schemas.values.doubts import Settlement
from strandline.schemas.wire.base import Actor, Answer, Day, Name, Request, WaitingOut, example
from strandline.schemas.wire.messages import MessageIn

Text = Annotated[str, Field(min_length=1, max_length=1_000)]
Topics = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20)]


class FactIn(Request, json_schema_extra=example(text="Lives in Lisbon.", topics=["home"])):
    """A fact to add by hand."""

    text: Text
    topics: Topics | None = None
    about_date: Day | None = None
    input: Annotated[str, Field(max_length=8_000)] | None = None
    agent_id: Name | None = None
    team_id: Name | None = None
    as_is: bool = False
    actor: Actor | None = None


class FactPatch(Request, json_schema_extra=example(text="Lives in Porto.", actor="ana")):
    """Other words for a fact; topics and day stay unless they are given."""

    text: Text
    topics: Topics | None = None
    about_date: Day | None = None
    actor: Actor | None = None


class FactFeedback(Request, json_schema_extra=example(feedback="That was years ago.", actor="ana")):
    """People's opinion of a fact; null removes it."""

    feedback: Annotated[str, Field(max_length=8_000)] | None
    actor: Actor | None = None


class FactSettlement(Request, json_schema_extra=example(keep="new", actor="ana")):
    """Which facts to keep: both, the new (doubtful) one, or the old one."""

    keep: Settlement
    actor: Actor | None = None


class FactSearch(Request, json_schema_extra=example(query="Where does she live?", limit=5)):
    """Words or a question, of an owner's live facts."""

    query: Annotated[str, Field(max_length=100_000)]
    limit: Annotated[int, Field(ge=0, le=1_000)] = 10
    topics: Topics | None = None
    agent_id: Name | None = None
    team_id: Name | None = None


class FactChoice(Request, json_schema_extra=example(question="What should I cook for her?")):
    """A question for which a model chooses facts."""

    question: Annotated[str, Field(min_length=1, max_length=100_000)]
    limit: Annotated[int, Field(ge=0, le=1_000)] = 10
    among: Annotated[int, Field(ge=0, le=500)] = 200
    topics: Topics | None = None


class FactsFrom(
    Request,
    json_schema_extra=example(
        messages=[{"role": "user", "content": "I am allergic to nuts."}], key="intake-form-1"
    ),
):
    """Messages that are in no chat, to make facts of; ``key`` makes it repeatable."""

    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=1_000)]
    key: Name | None = None


class FactInstruction(Request, json_schema_extra=example(task="Forget where I live.", key="request-1")):
    """A user's request, such as to forget an address."""

    task: Annotated[str, Field(min_length=1, max_length=2_000)]
    key: Name | None = None


class RevisionOut(Answer):
    """One change of a fact, and where it comes from."""

    operation: str
    text: str
    event_id: UUID | None
    message_ids: list[str]
    seqs: list[int]
    model: str | None
    prompt_hash: str | None
    fact_event: int | None
    actor: str | None
    created_at: datetime


class DoubtOut(Answer):
    """Why a fact is doubtful: a refused operation on a known fact, with the reason.

    `operation` is `update` (other words), `invalidate` (end it) or `duplicate` (add nothing).
    """

    operation: str
    fact_id: UUID
    reason: str


_FACT: JsonDict = {
    "fact_id": "73f29f21-6e09-4f0a-a382-3babda36d7d2", "text": "User: I moved to Lisbon in May.",
    "topics": ["home"], "said_by": "user", "about_date": None, "said_at": "2026-11-25T10:00:00Z",
    "valid_from": "2026-11-25T10:00:00Z", "valid_until": None, "invalidated_at": None, "invalidated_by": None,
    "condensed_into": None, "input": None, "agent_id": None, "team_id": None, "feedback": None,
    "created_at": "2026-11-25T10:00:03Z", "updated_at": "2026-11-25T10:00:03Z", "user_id": "ana",
    "is_live": True, "is_doubtful": False, "doubt": None, "version": "1-62d1f3",
}  # fmt: skip


class FactOut(Answer):
    """A fact; ``strandline.Fact`` explains the times.  ``version`` is its ETag."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FACT]})

    fact_id: UUID
    text: str
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    invalidated_at: datetime | None
    invalidated_by: UUID | None
    condensed_into: UUID | None
    input: str | None
    agent_id: str | None
    team_id: str | None
    feedback: str | None
    created_at: datetime
    updated_at: datetime
    user_id: str | None
    is_live: bool
    is_doubtful: bool
    doubt: DoubtOut | None
    version: str


class ChosenFactsOut(Answer):
    """The facts that a model chose, the most helpful first, and the cost."""

    items: list[FactOut]
    considered: int
    model: str | None
    input_tokens: int
    output_tokens: int


class FactHistoryOut(Answer):
    """A fact with its revisions, oldest first."""

    fact: FactOut
    revisions: list[RevisionOut]


class FactsOut(Answer):
    """A page of facts, and how many there are in all; of none, the messages that wait for their delivery."""

    items: list[FactOut]
    next_cursor: str | None
    total: int
    waiting: WaitingOut | None = None


class FoundFactOut(Answer):
    """A fact that matches."""

    fact: FactOut
    score: float
    similarity: float | None


class FoundFacts(Answer):
    """The facts that match, best first."""

    items: list[FoundFactOut]


class Cleared(Answer):
    """How many live facts were deleted."""

    facts: int


class FactChangesOut(Answer):
    """The facts that workers have made of messages or an instruction so far.

    `failure` says why workers gave up on it: it is a dead letter then, and not complete.
    """

    source_id: str
    is_complete: bool
    added: list[FactOut]
    updated: list[FactOut]
    deleted: list[UUID]
    failure: str | None = None


class TopicOut(Answer):
    """A topic, and the number of live facts that have it."""

    topic: str
    facts: int


class TopicsOut(Answer):
    """The most frequent topics first."""

    items: list[TopicOut]


class FiguresOut(Answer):
    """How much there is of one owner; times are null where there is nothing."""

    facts: int
    oldest_fact_at: datetime | None
    newest_fact_at: datetime | None
    sessions: int
    messages: int
    tokens: int
    first_session_at: datetime | None
    last_put_at: datetime | None


class CaptureIn(
    Request, json_schema_extra=example(may_delete=False, instructions="Only what concerns travel.")
):
    """The rules for capturing facts; null leaves them to the level above."""

    may_add: bool | None = None
    may_update: bool | None = None
    may_delete: bool | None = None
    instructions: Annotated[str, Field(max_length=8_000)] | None = None
    more_instructions: Annotated[str, Field(max_length=8_000)] | None = None
    summary_instructions: Annotated[str, Field(max_length=8_000)] | None = None
    actor: Actor | None = None


class CaptureOut(Answer):
    """The rules for capturing facts now; null where they were never set."""

    may_add: bool | None
    may_update: bool | None
    may_delete: bool | None
    instructions: str | None
    more_instructions: str | None
    summary_instructions: str | None


class CaptureSet(Answer):
    """The number of the act."""

    number: int


class UserOut(Answer):
    """A user with the figures."""

    user_id: str
    figures: FiguresOut


SortOrder = Literal["newest", "oldest", "updated"]


class OptimizeIn(Request, json_schema_extra=example(apply=False)):
    """Whether to carry the proposal out at once; by default nothing changes."""

    apply: bool = False


class MergedOut(Answer):
    """One sentence in place of several facts."""

    text: str
    topics: list[str]
    fact_ids: list[UUID]
    parts: list[str]


class OptimizationOut(Answer):
    """A proposal to say the facts in fewer sentences, and whether it was carried out."""

    merged: list[MergedOut]
    facts_before: int
    facts_after: int
    tokens_before: int
    tokens_after: int
    model: str
    applied: bool
