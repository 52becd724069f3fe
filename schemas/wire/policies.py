"""The policy of a session over HTTP: as a put gives it, a change of it, and as it is stored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from strandline.schemas.values.policy import (
    DEFAULT_FLUSH_SIZE,
    DEFAULT_HISTORY_RATIO,
    DEFAULT_IDLE_SECONDS,
    DEFAULT_TOKEN_LIMIT,
    DEFAULT_WINDOW_BYTES,
    DEFAULT_WINDOW_MESSAGES,
)
from strandline.schemas.wire.base import Actor, Answer, Name, Request, TimeZone, example

Limit = Annotated[int, Field(ge=1, le=2**31 - 1)]
# A read holds the whole window, and several times its size while it is written out: over HTTP, where one
# process serves many tenants, no session has more than this.
WindowMessages = Annotated[int, Field(ge=1, le=20_000)]
WindowBytes = Annotated[int, Field(ge=1, le=DEFAULT_WINDOW_BYTES)]

# Meanings of a policy's fields.
ABOUT = {
    "token_limit": "Tokens of a context: pinned head, memory, and messages that were not flushed yet.",
    "chat_history_token_ratio": "The share of `token_limit` above which a put flushes.",
    "token_flush_size": "Tokens that a flush takes out of the window at least.",
    "idle_seconds": "Seconds without a put after which workers flush; null: never.",
    "max_window_messages": "Messages above which a put flushes.",
    "max_window_bytes": "Bytes above which a put flushes.",
    "message_flush_size": "Messages that a flush takes out of the window at least; null: a quarter.",
    "time_zone": (
        "An IANA name, such as Europe/Lisbon: whose days messages have whose time is in UTC or left out;"
        " null: UTC. An offset in `created_at` wins."
    ),
    "deliver": (
        "`window`: facts and other memory are made of messages that a flush took out of the window; `turn`:"
        " of each turn as soon as its answer is put, and it stays in the window. `turn` makes 8 times"
        " as many calls of text models at a turn a second, 46 times where turns are far apart."
    ),
    "blocks": "Names of pipelines that make memory of the session; null: facts, summary and vectors.",
    "max_facts": "How many facts a context shows, and above which workers merge them; null: what fits.",
    "shared_scope": "Memory that sessions of several users share: its name; null: none.",
}


class PolicyIn(Request):
    """Limits and pipelines of a session, stored by the put that begins it; later puts leave them as they are.

    ``blocks`` are names of pipelines; null: facts, summary and vectors.
    """

    token_limit: Limit = Field(default=DEFAULT_TOKEN_LIMIT, description=ABOUT["token_limit"])
    chat_history_token_ratio: float = Field(
        default=DEFAULT_HISTORY_RATIO, gt=0, le=1, description=ABOUT["chat_history_token_ratio"]
    )
    token_flush_size: Limit = Field(default=DEFAULT_FLUSH_SIZE, description=ABOUT["token_flush_size"])
    idle_seconds: Limit | None = Field(default=DEFAULT_IDLE_SECONDS, description=ABOUT["idle_seconds"])
    max_window_messages: WindowMessages = Field(
        default=DEFAULT_WINDOW_MESSAGES, description=ABOUT["max_window_messages"]
    )
    max_window_bytes: WindowBytes = Field(default=DEFAULT_WINDOW_BYTES, description=ABOUT["max_window_bytes"])
    message_flush_size: Limit | None = Field(default=None, description=ABOUT["message_flush_size"])
    deliver: Literal["window", "turn"] = Field(default="window", description=ABOUT["deliver"])
    time_zone: TimeZone | None = Field(default=None, description=ABOUT["time_zone"])
    blocks: list[Name] | None = Field(default=None, max_length=64, description=ABOUT["blocks"])
    max_facts: Limit | None = Field(default=None, description=ABOUT["max_facts"])
    shared_scope: Name | None = Field(default=None, description=ABOUT["shared_scope"])


class PolicyChangeIn(Request, json_schema_extra=example(token_limit=8000, actor="ops")):
    """A change of a session's policy; fields that are left out stay as they are.

    ``idle_seconds`` null: never flush because the session is idle.
    """

    token_limit: Limit | None = Field(default=None, description=ABOUT["token_limit"])
    chat_history_token_ratio: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description=ABOUT["chat_history_token_ratio"]
    )
    token_flush_size: Limit | None = Field(default=None, description=ABOUT["token_flush_size"])
    idle_seconds: Limit | None = Field(default=None, description=ABOUT["idle_seconds"])
    max_window_messages: WindowMessages | None = Field(default=None, description=ABOUT["max_window_messages"])
    max_window_bytes: WindowBytes | None = Field(default=None, description=ABOUT["max_window_bytes"])
    message_flush_size: Limit | None = Field(default=None, description=ABOUT["message_flush_size"])
    deliver: Literal["window", "turn"] | None = Field(default=None, description=ABOUT["deliver"])
    time_zone: TimeZone | None = Field(default=None, description=ABOUT["time_zone"])
    blocks: Annotated[list[Name], Field(max_length=64)] | None = Field(
        default=None, description=ABOUT["blocks"]
    )
    max_facts: Limit | None = Field(default=None, description=ABOUT["max_facts"])
    actor: Actor | None = None


class PolicyOut(Answer):
    """The stored policy of a session."""

    token_limit: int
    flush_at_tokens: int
    token_flush_size: int
    idle_seconds: int | None
    tokenizer: str
    pipelines: list[str]
    max_facts: int | None
    shared_scope: str | None
    max_window_messages: int
    max_window_bytes: int
    message_flush_size: int | None
    deliver: str
    time_zone: str | None = None
