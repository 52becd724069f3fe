"""What was derived from a session, and what a fresh one gives with the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from strandline import Memory
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, rows_of


@dataclass(frozen=True)
class Derived:
    """Live facts of the owner, chunks in the order of the log, and the summary of the session."""

    facts: Sequence[str]
    chunks: Sequence[str]
    summary: str


def derived_of(url: str, memory: Memory) -> Derived:
    keys = identify_session(memory.namespace, memory.session_id, memory.user_id)
    serving = (
        "JOIN strandline.generation g USING (generation_id) WHERE g.state = 'serving' AND shard_key = %s"
    )
    facts = rows_of(url, f"SELECT text FROM strandline.fact {serving} AND live", keys.shard_key)
    chunks = rows_of(
        url,
        f"SELECT lexemes::text FROM strandline.chunk {serving} AND session_key = %s ORDER BY from_seq, piece",
        keys.shard_key,
        keys.session_key,
    )
    states = rows_of(
        url,
        f"SELECT block_state.state->>'text' FROM strandline.block_state {serving} AND scope_key = %s"
        " AND g.pipeline = 'summary' ORDER BY ordinal DESC LIMIT 1",
        keys.shard_key,
        keys.session_key,
    )
    return Derived(
        sorted(text for (text,) in facts),
        [text for (text,) in chunks],
        states[0][0] if states else "",
    )


def fresh_copy(make_memory: MakeMemory, memories: Sequence[Memory], **options: Any) -> list[Memory]:
    """Sessions of another user with the messages of these, as they stand, all of them flushed."""
    user_id = uuid4().hex
    copies = []
    for memory in memories:
        copy = make_memory(user_id=user_id, **options)
        messages = [message.to_dict() for message in memory.get_all()]
        if messages:
            copy.put_messages(messages)
            copy.flush(all=True)
        copies.append(copy)
    return copies
