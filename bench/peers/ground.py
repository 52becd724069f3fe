"""What all comparisons with another library stand on: its name, its place in the database, a full window."""

from __future__ import annotations

from itertools import chain
from typing import Any
from uuid import uuid4

from bench.environment import Given, Ground
from strandline.producers.tokens import count_default
from strandline.schemas.values.policy import DEFAULT_HISTORY_RATIO, DEFAULT_TOKEN_LIMIT

LLAMAINDEX = "LlamaIndex Memory"
SCHEMA = "llamaindex"


def peer_memory(ground: Ground, memory_class: Any, **more: Any) -> Any:
    """A memory of theirs in the case's database, through Strandline's driver; ``more`` is theirs."""
    url = ground.url.replace("postgresql://", "postgresql+psycopg://", 1)
    return memory_class.from_defaults(
        session_id=uuid4().hex, async_database_uri=url, db_schema=SCHEMA, **more
    )


def full_window(ground: Ground) -> list[Given]:
    """As many messages as stay in the window: the puts that are timed cross the mark in between."""
    room = int(DEFAULT_TOKEN_LIMIT * DEFAULT_HISTORY_RATIO)
    window: list[Given] = []
    for message in chain.from_iterable([ground.pieces] * (room // 20)):
        room -= count_default(message["content"])
        if room < 0:
            break
        window.append(message)
    return window
