"""Lets the real pipeline derive the facts of a conversation, flushed every few messages as in a chat."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from bench.environment import Ground
from bench.facts.data import ObservedConversation
from strandline import FactExtractionMemoryBlock
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner

NAMESPACE = "default"
_LOOK_EVERY_SECONDS = 0.1

_FACTS = """
SELECT f.text, f.about_date, coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.created_at), '{}'),
    coalesce(array_agg(m.envelope->>'content'), '{}')
FROM strandline.fact f
JOIN strandline.fact_revision r ON r.shard_key = f.shard_key AND r.generation_id = f.generation_id
    AND r.fact_id = f.fact_id AND r.operation <> 'invalidate'
JOIN strandline.message m ON m.shard_key = r.shard_key AND m.session_key = r.session_key
    AND m.seq = ANY (r.seqs)
WHERE f.live AND f.shard_key = %s
GROUP BY f.shard_key, f.generation_id, f.fact_id, f.text, f.about_date, f.said_at
ORDER BY f.said_at, f.fact_id
"""
_COSTS = """
SELECT count(*), coalesce(sum(c.input_tokens), 0)::bigint, coalesce(sum(c.output_tokens), 0)::bigint,
    sum(c.cost_usd)::float
FROM strandline.model_call c WHERE c.shard_key = %s
"""
_DEAD = "SELECT count(*) FROM strandline.dead_letter d WHERE d.shard_key = %s"
_DUE = "SELECT count(*) FROM strandline.due d WHERE d.shard_key = %s"
_ERRORS = "SELECT DISTINCT last_error FROM strandline.lane WHERE shard_key = %s AND last_error IS NOT NULL"


@dataclass(frozen=True, slots=True)
class SourcedFact:
    """A live fact, with the messages it comes from: their ids, and when and in which words they were said."""

    text: str
    about_date: date | None
    sources: frozenset[str]
    said: Sequence[tuple[datetime, str]]


@dataclass(frozen=True, slots=True)
class Derived:
    """The facts of one conversation, and what they cost; ``usd`` is None where the model has no price."""

    facts: Sequence[SourcedFact]
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    dead: int


class NotDerivedError(Exception):
    """The facts were not derived in time; its sentence says what workers said last."""


def derive(
    ground: Ground,
    conversation: ObservedConversation,
    settings: Settings,
    *,
    flush_every: int,
    seconds: float,
) -> Derived:
    """Put a conversation, flushing after every ``flush_every`` messages, and derive its facts.

    Each flush is a batch of its own, so that what stands before its first message is another batch's.

    Raises:
        NotDerivedError: it is not done within ``seconds``.
    """
    settings = settings.model_copy(update={"batch_token_budget": 1})
    database = Database.connect(ConnectionOptions.from_settings(ground.url, settings))
    try:
        runner = BackgroundRunner(
            database, prepare_stages(database, settings, (EXTRACT_STAGE, MERGE_STAGE)), settings
        )
        runner.start()
        try:
            _put(ground, conversation, flush_every)
            _await(ground, conversation, seconds)
        finally:
            runner.stop()
    finally:
        database.close()
    return _read(ground, conversation)


def _put(ground: Ground, conversation: ObservedConversation, flush_every: int) -> None:
    for number, messages in enumerate(conversation.sessions, 1):
        name = f"{conversation.name}-{number}"
        memory = ground.memory(
            session_id=name, user_id=conversation.name, blocks=[FactExtractionMemoryBlock()]
        )
        for start in range(0, len(messages), flush_every):
            memory.put_messages(messages[start : start + flush_every])
            memory.flush(all=True)


def _await(ground: Ground, conversation: ObservedConversation, seconds: float) -> None:
    shard_key = identify_user(NAMESPACE, conversation.name).shard_key
    deadline = time.monotonic() + seconds
    while ground.rows(_DUE, shard_key) != [(0,)]:
        if time.monotonic() > deadline:
            said = "; ".join(error for (error,) in ground.rows(_ERRORS, shard_key)) or "no error"
            raise NotDerivedError(f"{conversation.name} was not derived within {seconds:.0f} s: {said}.")
        time.sleep(_LOOK_EVERY_SECONDS)


def _read(ground: Ground, conversation: ObservedConversation) -> Derived:
    shard_key = identify_user(NAMESPACE, conversation.name).shard_key
    facts = [
        SourcedFact(text, about, frozenset(ids), list(zip(times, texts, strict=True)))
        for text, about, ids, times, texts in ground.rows(_FACTS, shard_key)
    ]
    ((calls, input_tokens, output_tokens, usd),) = ground.rows(_COSTS, shard_key)
    ((dead,),) = ground.rows(_DEAD, shard_key)
    return Derived(facts, calls, input_tokens, output_tokens, usd, dead)
