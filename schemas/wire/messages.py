"""Messages over HTTP: in OpenAI's form, with what Strandline adds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import Field
from pydantic.config import JsonDict

from strandline.schemas.wire.base import (
    MAX_PAGE,
    Actor,
    Answer,
    Count,
    Json,
    Moment,
    Name,
    PastMoment,
    Request,
    Seq,
    Short,
    example,
    one_of,
)
from strandline.schemas.wire.policies import PolicyIn

RunState = Literal["pending", "running", "paused", "completed", "cancelled", "error"]
RoleName = Literal["system", "developer", "user", "assistant", "tool"]
ContentField = str | list[Json] | None


_USER_MESSAGE: JsonDict = {"role": "user", "content": "I moved to Lisbon in May."}


class MessageIn(Request):
    """One chat message in OpenAI's form.

    ``id`` makes a put repeatable; ``metadata`` is never sent to a model; ``created_at`` is when it was said,
    by default when it is accepted.  Further fields of OpenAI's that are not named here go into ``extra``.
    """

    role: RoleName
    content: ContentField = None
    id: Short | None = None
    name: Short | None = None
    tool_calls: list[Json] | None = None
    tool_call_id: Annotated[str, Field(min_length=1)] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    annotations: list[Json] | None = None
    audio: Json | None = None
    metadata: Json | None = None
    created_at: PastMoment | None = None
    extra: Json | None = None

    def openai_form(self) -> dict[str, Any]:
        """The dict that ``Message.from_openai`` reads."""
        fields = {name: getattr(self, name) for name in self.model_fields_set - {"extra"}}
        return {**(self.extra or {}), **fields}


class MessageOut(Answer):
    """A stored message: OpenAI's form, its number in the session (``seq``), its size by the session's
    tokenizer (``tokens``), and its time.

    In a context a message that the read made (memory without a pinned head) has no ``seq`` and no ``id``.
    """

    role: Annotated[str, one_of(*get_args(RoleName))]
    content: ContentField
    id: str | None = None
    seq: int | None = None
    tokens: int | None = None
    created_at: datetime | None = None
    name: str | None = None
    tool_calls: list[Json] | None = None
    tool_call_id: str | None = None
    metadata: Json | None = None
    extra: Json | None = None


class PutMessages(Request, json_schema_extra=example(messages=[_USER_MESSAGE])):
    """Messages to append, all or none, in this order."""

    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=1_000)]
    policy: PolicyIn | None = None
    replace_prompt: bool = Field(
        default=False,
        description="The first message, a system or developer message, replaces the system messages that"
        " begin the session at the head of later contexts; the log keeps them.",
    )


class MessagePlace(Answer):
    """Where a message was stored."""

    id: str
    seq: int


class MessagesPut(Answer, json_schema_extra=example(messages=[{"id": "m-1", "seq": 1}])):
    """The places of the messages of a put, in its order; repeated, a put gives the same.

    ``seq`` is a message's number in the session, counted from 1 and never used twice; 0: nothing was stored,
    as for memory that a context gave and that was put back.
    """

    messages: list[MessagePlace]


class HistoryRequest(Request, json_schema_extra=example(limit=20, roles=["user", "assistant"])):
    """The newest messages that pass all filters."""

    limit: Annotated[int, Field(ge=0, le=MAX_PAGE)] = 100
    offset: Count = 0
    roles: Annotated[list[RoleName], Field(max_length=5)] | None = None
    metadata: dict[str, str | int | float | bool | None] | None = None
    since: Moment | None = None
    until: Moment | None = None


class ReplaceMessage(Request, json_schema_extra=example(content="I live in Porto.", actor="ana")):
    """Other content for a message, at the same place."""

    content: ContentField
    actor: Actor | None = None


class RewindRequest(Request, json_schema_extra=example(from_seq=2, actor="ana")):
    """Take back every message from ``from_seq`` on."""

    from_seq: Seq
    actor: Actor | None = None


class CorrectionOut(Answer):
    """A correction: its number in the session, and the messages that it took back or replaced."""

    number: int
    kind: str
    from_seq: int
    through_seq: int
    seqs: list[int]
    created_at: datetime


class RunRequest(
    Request,
    json_schema_extra=example(
        messages=[{"role": "assistant", "content": "It rains in Lisbon."}], agent_id="weather"
    ),
):
    """The messages of one run of an agent, in order."""

    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=1_000)]
    status: RunState = "completed"
    agent_id: Name | None = None
    team_id: Name | None = None


class RunOut(Answer):
    """A run as it is stored."""

    run_id: str
    status: str
    seqs: list[int]
    agent_id: str | None
    team_id: str | None
    corrections: list[CorrectionOut]


def _unfinished_states() -> list[RunState]:
    return ["pending", "running", "paused", "cancelled", "error"]


class RunHistoryQuery(Request, json_schema_extra=example(last_n=3)):
    """Whose runs: of the last ``last_n`` that pass; null: all."""

    last_n: Annotated[int, Field(ge=0, le=MAX_PAGE)] | None = 5
    skip_roles: Annotated[list[RoleName], Field(max_length=5)] = Field(default_factory=list)
    skip_statuses: Annotated[list[RunState], Field(max_length=6)] = Field(default_factory=_unfinished_states)
    agent_id: Name | None = None
    team_id: Name | None = None


class FlushEvents(Answer):
    """Flush events that were recorded; none if there was nothing to deliver."""

    events: list[UUID]
