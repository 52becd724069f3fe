"""Reads over HTTP: the context for a prompt, searches, summaries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args
from uuid import UUID

from pydantic import ConfigDict, Field

from strandline.schemas.wire.base import Answer, Count, Json, Moment, Request, WaitingOut, example, one_of
from strandline.schemas.wire.facts import FactOut
from strandline.schemas.wire.messages import MessageIn, MessageOut, RoleName

Query = Annotated[str, Field(max_length=100_000)]
MessagesForm = Literal["stored", "openai"]
ABOUT_FORM = (
    "Of `messages`: `openai` has only the fields that a chat completion takes, ready to be sent; `stored`"
    " also `id`, `seq`, `tokens`, `created_at` and `metadata`, and in `extra` other fields of OpenAI's form."
)


class ContextRequest(Request, json_schema_extra=example(input="Where do I live?", token_limit=8000)):
    """The question and the bounds of a read.

    ``input`` is the text to search memory for, or ``messages``; default: the latest messages of the session.
    ``initial_token_count`` are the tokens of the caller's own prompt.  ``wait_for`` is a ``seq`` to wait for,
    as long as ``Prefer: wait=…`` says (default: 10 seconds).  With ``begun_only`` false a session to which
    nothing was put reads as an empty one, with the memory of its user, instead of a 404.
    """

    input: Query | MessageIn | None = None
    messages: Annotated[list[MessageIn], Field(max_length=100)] | None = None
    token_limit: Annotated[int, Field(ge=4, le=2**31 - 1)] | None = Field(
        default=None,
        description="Tokens of the context; null: the session's. With fewer the window is cut as well.",
    )
    initial_token_count: Count = 0
    wait_for: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None
    insert_method: Literal["system", "user"] = "system"
    block_arguments: Json | None = None
    generation: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="Read as if this generation served its pipeline, without `wait_for`; null: what serves."
        " It takes a key of the whole namespace with the scope `operate`.",
    )
    begun_only: bool = True
    form: MessagesForm = Field(default="stored", description=ABOUT_FORM)


class OmissionOut(Answer):
    """A part that the read left out, or could not do in full, and why."""

    kind: str
    name: str
    reason: str
    from_seq: int | None = None
    through_seq: int | None = None


class SourceOut(Answer):
    """Messages of one session that something comes from."""

    session_id: str
    seqs: list[int]


class GivenFactOut(Answer):
    """A fact that is in the prompt."""

    fact_id: UUID
    text: str
    said_at: datetime
    sources: list[SourceOut]
    score: float
    tokens: int


class GivenMessageOut(Answer):
    """A message in the prompt that a search found."""

    message: MessageOut
    session_id: str
    score: float
    similarity: float
    tokens: int
    is_beside: bool


class GivenSummaryOut(Answer):
    """The summary in the prompt."""

    text: str
    through_seq: int
    is_cut: bool
    tokens: int


class ContextOut(Answer):
    """The messages for the next model call, and the sources of the memory in them.

    They fit ``token_limit``, unless ``over_budget`` says that the parts that are never cut do not: the pinned
    head, and the window within the session's own limit, which flushes keep below it.  A request with a lower
    limit, or with ``initial_token_count``, has the window cut to the remaining room; ``omitted`` names the
    missing parts.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "session_id": "chat-17",
                    "messages": [
                        {
                            "role": "user", "content": "I moved to Lisbon in May.", "id": "m-1", "seq": 1,
                            "tokens": 10, "created_at": "2026-11-25T10:00:00Z",
                        }
                    ],
                    "tokens": 10, "token_limit": 30000, "over_budget": False, "caught_up": True,
                    "covered_through": {"facts": 0, "summary": 0, "vectors": 0}, "omitted": [], "facts": [],
                    "hits": [], "summary": None, "window_from": 1, "pinned_through": 0,
                }
            ]
        }
    )  # fmt: skip

    session_id: str
    messages: list[MessageOut] = Field(
        description="In order, as `form` asks; memory is in the first, or before the window."
    )
    tokens: int = Field(description="Of all messages together, as the session's tokenizer counts.")
    token_limit: int = Field(description="What could be used: the limit without `initial_token_count`.")
    over_budget: bool = Field(description="`tokens` is above `token_limit`.")
    caught_up: bool = Field(description="Memory covers all that was flushed, or what `wait_for` names.")
    covered_through: dict[str, int] = Field(
        description="By pipeline, the last number up to which memory covers all."
    )
    omitted: list[OmissionOut] = Field(description="Parts that had no room, or could not be made, and why.")
    facts: list[GivenFactOut] = Field(description="The facts in the prompt.")
    hits: list[GivenMessageOut] = Field(description="The messages in the prompt that a search found.")
    summary: GivenSummaryOut | None = Field(description="The summary in the prompt; null: none is in it.")
    window_from: int = Field(description="The number of the first message of the window.")
    waiting: WaitingOut | None = Field(
        default=None, description="The messages that no flush has delivered yet; null: there are none."
    )
    pinned_through: int = Field(
        description="The number of the last message of the pinned head, with which each begins; 0: none."
    )
    prompt_seq: int | None = Field(
        default=None, description="The number of the message that replaced the head; null: none did."
    )
    time_zone: str | None = Field(
        default=None, description="Of the session, for messages whose time is in UTC; null: UTC."
    )


HitKindName = Literal["message", "fact"]


def _messages_alone() -> list[HitKindName]:
    return ["message"]


class SearchRequest(
    Request, json_schema_extra=example(query="Lisbon", scope="owner", kinds=["message", "fact"])
):
    """Words or a question; ``scope`` is this session, all of its owner's, or the shared scope.

    A fork has copies of messages, under the same ids: a search of the owner's finds each.
    ``begun_only``: as for a context.  ``roles``, ``metadata``, ``since`` and ``until`` choose messages as
    they do in a history; of delivered ones the newest 10,000 that pass are compared.
    """

    query: Query
    limit: Annotated[int, Field(ge=0, le=1_000)] = 10
    scope: Literal["session", "owner", "shared"] = "session"
    exclude_current: bool = False
    include_window: bool = True
    kinds: Annotated[list[HitKindName], Field(min_length=1, max_length=2)] = Field(
        default_factory=_messages_alone
    )
    begun_only: bool = True
    roles: Annotated[list[RoleName], Field(max_length=5)] | None = None
    metadata: dict[str, str | int | float | bool | None] | None = None
    since: Moment | None = None
    until: Moment | None = None


class HitOut(Answer):
    """A message or a fact that matches, best first; ``similarity`` null where only words were compared."""

    kind: Annotated[str, one_of(*get_args(HitKindName))]
    score: float
    similarity: float | None
    text: str
    session_id: str | None = None
    message: MessageOut | None = None
    fact: FactOut | None = None


class Hits(
    Answer,
    json_schema_extra=example(
        items=[
            {
                "kind": "message",
                "score": 0.81,
                "similarity": None,
                "text": "I moved to Lisbon in May.",
                "session_id": "chat-17",
                "message": {"role": "user", "content": "I moved to Lisbon in May.", "id": "m-1", "seq": 1},
            }
        ]
    ),
):
    """The hits of a search, best first."""

    items: list[HitOut]


class SummaryText(Answer):
    """The rolling summary that workers have made of a session; ``is_complete``: of all delivered messages."""

    text: str
    topics: list[str]
    through_seq: int
    is_complete: bool
    model: str
    created_at: datetime


class SummaryOut(Answer):
    """The summary of a session; null: there is none yet."""

    summary: SummaryText | None


class LatestSummaryRequest(Request, json_schema_extra=example(messages=20)):
    """The range to summarize: of the last ``messages``, or of the last ``runs``."""

    messages: Annotated[int, Field(ge=1, le=1_000)] | None = None
    runs: Annotated[int, Field(ge=1, le=1_000)] | None = None
    instructions: Annotated[str, Field(max_length=8_000)] | None = None


class LatestSummaryText(Answer):
    """A summary that was made on call, and its cost."""

    text: str
    topics: list[str]
    from_seq: int
    through_seq: int
    messages: int
    model: str
    input_tokens: int
    output_tokens: int


class LatestSummaryOut(Answer):
    """A summary of the last messages; null: nothing was said."""

    summary: LatestSummaryText | None
