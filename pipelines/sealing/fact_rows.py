"""Rows of facts in their sealed form: facts, their revisions, candidates, and people's events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.application.resealing import (
    ResealCandidates,
    ResealFactEvents,
    ResealFacts,
    ResealRevisions,
    UnsealedCandidates,
    UnsealedFactEvents,
    UnsealedFacts,
    UnsealedRevisions,
)
from strandline.schemas.sealed.values import keyed_word, reseal_within, seal_traces
from strandline.schemas.sealing.owner_keys import OwnerKeys

# What of a person's event is content; SQL reads the topics and the day (refresh_facts_v1).
PAYLOAD = "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"
FACT, INPUT, FEEDBACK, TOPIC, SAID_BY = "fact", "input", "feedback", "topic", "said_by"
_NOTHING = UUID(int=0)


def reseal_facts(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal an owner's facts; yields how many were found, page by page."""
    generation, fact = -1, _NOTHING
    while rows := fetcher.fetch(
        UnsealedFacts(
            shard_key=keys.shard_key,
            prefix=keys.prefix,
            after_generation=generation,
            after_fact=fact,
            limit=page,
        )
    ):
        generation, fact = rows[-1].generation_id, rows[-1].fact_id
        facts = [
            {
                "generation_id": row.generation_id,
                "fact_id": str(row.fact_id),
                "version": row.version,
                "text": keys.reseal(row.text, FACT),
                "fingerprint": keys.digest(row.fingerprint).hex(),
                "lexemes": _words(keys, row.lexemes),
                "topics": _names(keys, row.topics, TOPIC),
                "said_by": _name(keys, row.said_by, SAID_BY),
                "input": _text(keys, row.input, INPUT),
                "feedback": _text(keys, row.feedback, FEEDBACK),
            }
            for row in rows
        ]
        fetcher.fetch(ResealFacts(shard_key=keys.shard_key, facts=json.dumps(facts)))
        yield len(rows)


def reseal_revisions(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal the histories of an owner's facts."""
    generation, fact, revision = -1, _NOTHING, 0
    while rows := fetcher.fetch(
        UnsealedRevisions(
            shard_key=keys.shard_key,
            prefix=keys.prefix,
            after_generation=generation,
            after_fact=fact,
            after_revision=revision,
            limit=page,
        )
    ):
        generation, fact, revision = rows[-1].generation_id, rows[-1].fact_id, rows[-1].revision
        revisions = [
            {
                "generation_id": row.generation_id,
                "fact_id": str(row.fact_id),
                "revision": row.revision,
                "version": row.version,
                "text": keys.reseal(row.text, FACT),
                "fingerprint": keys.digest(row.fingerprint).hex(),
                "lexemes": _words(keys, row.lexemes),
                "own_text": _text(keys, row.own_text, FACT),
                "own_fingerprint": None
                if row.own_fingerprint is None
                else keys.digest(row.own_fingerprint).hex(),
                "own_lexemes": None if row.own_lexemes is None else _words(keys, row.own_lexemes),
            }
            for row in rows
        ]
        fetcher.fetch(ResealRevisions(shard_key=keys.shard_key, revisions=json.dumps(revisions)))
        yield len(rows)


def reseal_candidates(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal what extract found."""
    generation, event, ordinal = -1, _NOTHING, -1
    while rows := fetcher.fetch(
        UnsealedCandidates(
            shard_key=keys.shard_key,
            prefix=keys.prefix,
            after_generation=generation,
            after_event=event,
            after_ordinal=ordinal,
            limit=page,
        )
    ):
        generation, event, ordinal = rows[-1].generation_id, rows[-1].event_id, rows[-1].ordinal
        candidates: list[dict[str, Any]] = [
            {
                "generation_id": row.generation_id,
                "event_id": str(row.event_id),
                "ordinal": row.ordinal,
                "version": row.version,
                "text": keys.reseal(row.text, FACT),
                "fingerprint": keys.digest(row.fingerprint).hex(),
                "topics": _names(keys, row.topics, TOPIC),
                "said_by": _name(keys, row.said_by, SAID_BY),
            }
            for row in rows
        ]
        fetcher.fetch(ResealCandidates(shard_key=keys.shard_key, candidates=json.dumps(candidates)))
        yield len(rows)


def reseal_fact_events(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal what people changed, and the traces of what they took away."""
    number = 0
    while rows := fetcher.fetch(
        UnsealedFactEvents(shard_key=keys.shard_key, prefix=keys.prefix, after_number=number, limit=page)
    ):
        number = rows[-1].number
        fetcher.fetch(
            ResealFactEvents(
                shard_key=keys.shard_key,
                numbers=[row.number for row in rows],
                versions=[row.version for row in rows],
                payloads=[
                    None if row.payload is None else reseal_within(keys, row.payload, PAYLOAD) for row in rows
                ],
                traces=[seal_traces(keys, row.traces) for row in rows],
            )
        )
        yield len(rows)


def _words(keys: OwnerKeys, words: Sequence[str]) -> list[str]:
    return [keyed_word(keys, word) for word in words]


def _names(keys: OwnerKeys, names: Sequence[str], kind: str) -> list[str]:
    return [keys.reseal_name(name, kind) for name in names]


def _name(keys: OwnerKeys, name: str | None, kind: str) -> str | None:
    return None if name is None else keys.reseal_name(name, kind)


def _text(keys: OwnerKeys, text: str | None, kind: str) -> str | None:
    return None if text is None else keys.reseal(text, kind)
