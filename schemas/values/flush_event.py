"""Events: the versioned, immutable records that pipelines consume and that can be replayed.

An event names a range of the log; it carries no content.  Unknown fields are refused, older versions are
brought up to date on read, and ``event_json_schema`` is the contract for other consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import UndecodableEventError

FlushCause = Literal["threshold", "idle", "turn", "manual", "import", "source", "instruction"]
EVENT_VERSION: Literal[1] = 1
TRACEPARENT = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"


class FlushEvent(BaseModel):
    """One flush: the messages ``from_seq`` to ``through_seq`` of a session, delivered to its pipelines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["flush"] = "flush"
    version: Literal[1] = EVENT_VERSION
    event_id: UUID
    shard_key: UUID
    session_key: UUID
    incarnation: UUID
    cause: FlushCause
    from_seq: int = Field(ge=1)
    through_seq: int = Field(ge=1)
    message_count: int = Field(ge=0)
    tokens: int = Field(ge=0)
    created_at: datetime
    traceparent: str | None = Field(None, pattern=TRACEPARENT, description="Of the span that flushed.")


def decode_event(record: Mapping[str, Any]) -> FlushEvent:
    """Read an event of any known version.

    Raises:
        UndecodableEventError: its version is newer than this release, or it does not have an event's form.
    """
    version = record.get("version")
    if not isinstance(version, int) or version > EVENT_VERSION:
        raise UndecodableEventError(
            f"Event {record.get('event_id')} has version {quote(version)}; this release reads up to"
            f" {EVENT_VERSION}. Upgrade this process; it then processes the event."
        )
    try:
        return FlushEvent.model_validate(record)
    except ValidationError as error:
        fields = ", ".join(str(item["loc"][0]) for item in error.errors(include_input=False) if item["loc"])
        raise UndecodableEventError(
            f"Event {record.get('event_id')} cannot be read; wrong fields: {fields or 'all'}."
        ) from None


def event_json_schema() -> dict[str, Any]:
    """The JSON Schema of an event, as published to other consumers."""
    return FlushEvent.model_json_schema()
