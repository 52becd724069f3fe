"""Further rows in their sealed form: words of chunks, states of lanes, answers of models, items."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.application.resealing import (
    ResealAnswers,
    ResealChunks,
    ResealItems,
    ResealResponses,
    ResealStates,
    UnsealedAnswers,
    UnsealedChunks,
    UnsealedItems,
    UnsealedResponses,
    UnsealedStates,
)
from strandline.schemas.sealed.values import keyed_tsvector, keyed_words
from strandline.schemas.sealing.owner_keys import OwnerKeys

STATE, ANSWER, ITEM, RESPONSE = "state", "answer", "item", "response"
_NOTHING = UUID(int=0)


def reseal_chunks(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Key the words of an owner's pieces; yields how many were found, page by page."""
    generation, session, seq, piece = -1, _NOTHING, 0, 0
    while rows := fetcher.fetch(
        UnsealedChunks(
            shard_key=keys.shard_key,
            has_vectors=keys.has_vectors,
            after_generation=generation,
            after_session=session,
            after_seq=seq,
            after_piece=piece,
            limit=page,
        )
    ):
        last = rows[-1]
        generation, session, seq, piece = last.generation_id, last.session_key, last.from_seq, last.piece
        fetcher.fetch(
            ResealChunks(
                shard_key=keys.shard_key,
                has_vectors=keys.has_vectors,
                generation_ids=[row.generation_id for row in rows],
                session_keys=[row.session_key for row in rows],
                from_seqs=[row.from_seq for row in rows],
                pieces=[row.piece for row in rows],
                versions=[row.version for row in rows],
                lexemes=[keyed_tsvector(keys, row.lexemes) for row in rows],
                speakers=[keyed_words(keys, row.speaker) for row in rows],
            )
        )
        yield len(rows)


def reseal_states(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal the states of an owner's lanes."""
    after = _NOTHING
    while rows := fetcher.fetch(
        UnsealedStates(shard_key=keys.shard_key, prefix=keys.json_prefix, after_batch=after, limit=page)
    ):
        after = rows[-1].batch_id
        fetcher.fetch(
            ResealStates(
                shard_key=keys.shard_key,
                batch_ids=[row.batch_id for row in rows],
                versions=[row.version for row in rows],
                states=[keys.reseal_json(row.state, STATE) for row in rows],
            )
        )
        yield len(rows)


def reseal_answers(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal what models have answered."""
    batch, step = _NOTHING, ""
    while rows := fetcher.fetch(
        UnsealedAnswers(
            shard_key=keys.shard_key,
            prefix=keys.prefix.encode(),
            after_batch=batch,
            after_step=step,
            limit=page,
        )
    ):
        batch, step = rows[-1].batch_id, rows[-1].step
        fetcher.fetch(
            ResealAnswers(
                shard_key=keys.shard_key,
                batch_ids=[row.batch_id for row in rows],
                steps=[row.step for row in rows],
                versions=[row.version for row in rows],
                bodies=[keys.reseal_bytes(row.body, ANSWER) for row in rows],
            )
        )
        yield len(rows)


def reseal_items(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal the values of a store of items."""
    path, key = "", ""
    while rows := fetcher.fetch(
        UnsealedItems(
            shard_key=keys.shard_key, prefix=keys.json_prefix, after_path=path, after_key=key, limit=page
        )
    ):
        path, key = rows[-1].path, rows[-1].key
        fetcher.fetch(
            ResealItems(
                shard_key=keys.shard_key,
                paths=[row.path for row in rows],
                keys=[row.key for row in rows],
                versions=[row.version for row in rows],
                texts=[keys.reseal_json(row.value, ITEM) for row in rows],
            )
        )
        yield len(rows)


def reseal_responses(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal the responses that the HTTP service keeps for requests that come again."""
    after = _NOTHING
    while rows := fetcher.fetch(
        UnsealedResponses(shard_key=keys.shard_key, prefix=keys.json_prefix, after_request=after, limit=page)
    ):
        after = rows[-1].request_key
        fetcher.fetch(
            ResealResponses(
                shard_key=keys.shard_key,
                request_keys=[row.request_key for row in rows],
                versions=[row.version for row in rows],
                bodies=[keys.reseal_json(row.body, RESPONSE) for row in rows],
            )
        )
        yield len(rows)
