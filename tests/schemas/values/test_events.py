"""Events: the published form, and what a reader does with one that it does not know."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from strandline.schemas.errors import UndecodableEventError
from strandline.schemas.values.flush_event import FlushEvent, decode_event, event_json_schema

PUBLISHED = Path(__file__).parent.parent.parent.parent / "docs" / "event.schema.json"


def record(**changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "event_id": uuid4(),
        "shard_key": uuid4(),
        "session_key": uuid4(),
        "incarnation": uuid4(),
        "cause": "threshold",
        "from_seq": 3,
        "through_seq": 9,
        "message_count": 7,
        "tokens": 120,
        "created_at": datetime.now(UTC),
        **changes,
    }


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == event_json_schema()


def test_an_event_survives_being_written_and_read() -> None:
    event = decode_event(record())
    assert FlushEvent.model_validate_json(event.model_dump_json()) == event


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        decode_event(record()).from_seq = 1


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(UndecodableEventError, match="version 2; this release reads up to 1"):
        decode_event(record(version=2))


@pytest.mark.parametrize("change", [{"surprise": 1}, {"cause": "whim"}, {"from_seq": 0}, {"event_id": "x"}])
def test_a_record_that_is_not_an_event_is_refused_with_the_wrong_field(change: dict[str, Any]) -> None:
    with pytest.raises(UndecodableEventError, match=next(iter(change))):
        decode_event(record(**change))
