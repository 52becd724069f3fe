"""Explaining a fact: the way back to its messages, and what people did to it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from strandline.pipelines.inspect.explanation import (
    FactEventTrace,
    FactExplanation,
    RemovedFactExplanation,
    RevisionTrace,
)
from strandline.pipelines.inspect.rows import message_of, model_calls, part, source_of
from strandline.schemas.postgres.database import Fetcher


def explain_fact(
    fetcher: Fetcher, within: dict[str, Any], fact_id: UUID
) -> FactExplanation | RemovedFactExplanation | None:
    """Explain a fact by its id, also one that people took away; None if no owner looked at has one.

    ``within`` says where to look: ``namespace``, ``session_id``, ``user_id``, and ``owner_key`` for an owner
    that may have no session.
    """
    wanted = within | {"fact_id": fact_id}
    for shard_key, generation_id in fetcher.fetch("explain_find_facts", wanted):
        return _explain_fact(fetcher, shard_key, generation_id, fact_id)
    for (shard_key,) in fetcher.fetch("explain_find_fact_events", wanted):
        key = {"shard_key": shard_key, "generation_id": None, "fact_id": fact_id}
        return RemovedFactExplanation(fact_id=fact_id, events=_events(fetcher, key))
    return None


def _explain_fact(fetcher: Fetcher, shard_key: UUID, generation_id: int, fact_id: UUID) -> FactExplanation:
    key = {"shard_key": shard_key, "generation_id": generation_id, "fact_id": fact_id}
    row = fetcher.fetch("explain_fact", key)[0]
    names = [name for name in FactExplanation.model_fields if name not in ("revisions", "events")]
    return part(FactExplanation, names, row, revisions=_revisions(fetcher, key), events=_events(fetcher, key))


def _revisions(fetcher: Fetcher, key: dict[str, Any]) -> tuple[RevisionTrace, ...]:
    rows = fetcher.fetch("explain_revisions", key)
    sources = [(row[0], source_of(message_of(row[1:]))) for row in fetcher.fetch("explain_sources", key)]
    calls = model_calls(fetcher, key["shard_key"], [batch_id for row in rows for batch_id in row[6:9]])
    names = (
        "revision", "operation", "text", "at", "model", "prompt_hash", "extract_batch_id", "merge_batch_id",
        "condense_batch_id", "event_id", "cause", "flushed_at", "namespace", "session_id", "fact_event",
        "actor",
    )  # fmt: skip
    return tuple(
        part(
            RevisionTrace,
            names,
            row,
            messages=tuple(source for revision, source in sources if revision == row[0]),
            calls=tuple(call for call in calls if call.batch_id in row[6:9]),
        )
        for row in rows
    )


def _events(fetcher: Fetcher, key: dict[str, Any]) -> tuple[FactEventTrace, ...]:
    rows = fetcher.fetch("explain_fact_events", key)
    return tuple(part(FactEventTrace, list(FactEventTrace.model_fields), row) for row in rows)
