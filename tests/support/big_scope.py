"""A scope of ten thousand messages, made up in the tables themselves, and a search in it."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import psycopg

from strandline.producers.search.message_filter import ALL_MESSAGES, FilterParams
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session

# A scope of 10,000 messages as workers make them, of ten common words and many rare ones.
FILL = """
INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq, event_id,
    batch_id, length, lexemes, embedding)
SELECT %s, g.generation_id, %s, n, 0, n, gen_random_uuid(), gen_random_uuid(), 12,
    array_to_tsvector(ARRAY(SELECT DISTINCT w.name || ((n * 7 + i * i * 13) %% w.kinds)
        FROM (VALUES ('often', 10), ('rare', 5000)) AS w (name, kinds), generate_series(1, 6) AS i)),
    ARRAY(SELECT sin(n * d) / 11.3 FROM generate_series(1, 256) AS d)::vector::halfvec
FROM generate_series(1, 10000) AS n, strandline.generation g WHERE g.pipeline = 'vectors' RETURNING 1
"""

# 2,000 facts, each of two of these messages.
FILL_FACTS = """
WITH made AS (
    INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics,
        said_at)
    SELECT %(shard_key)s, g.generation_id, md5('fact' || n)::uuid, 'fact ' || n, decode(md5(n::text), 'hex'),
        ARRAY['often' || n %% 10, 'rare' || n], '{}', now()
    FROM generate_series(1, 2000) AS n, strandline.generation g WHERE g.pipeline = 'facts' RETURNING *
)
INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,
    fingerprint, lexemes, event_id, session_key, seqs, extract_batch_id, merge_batch_id, model, prompt_hash)
SELECT m.shard_key, m.generation_id, m.fact_id, 1, 'add', m.text, m.fingerprint, m.lexemes, m.fact_id,
    %(session_key)s, ARRAY[s.n, s.n + 1], m.fact_id, m.fact_id, '', ''
FROM made m CROSS JOIN LATERAL (SELECT substr(m.text, 6)::bigint * 4 AS n) AS s RETURNING generation_id
"""


class ScopeSearch(FilterParams):
    """The parameters of ``search_chunks``."""

    shard_key: UUID
    session_key: UUID
    scope_key: UUID | None
    generation_id: int
    embedding: str
    lexemes: list[str]
    similarity_cutoff: float
    visible_from: int
    top_k: int
    messages: bool
    facts_generation_id: int | None
    facts_shown: list[UUID]
    topics: list[str] | None
    agent_id: str | None
    team_id: str | None
    is_own: bool
    names: list[str]
    dates_from: list[date]
    dates_through: list[date]
    dates_fit: list[float]
    words: int
    beside: int
    facts_alone_id: int | None
    top_facts: int
    part_of: UUID | None
    through_session: UUID
    through_seq: int
    through_piece: int
    pieces_since: int
    at_once: int


def fill_scope(database_url: str, *, with_facts: bool) -> ScopeSearch:
    """Fill the scope; returns what ``search_chunks`` is run with."""
    keys = identify_session(DEFAULT_NAMESPACE, "s", None)
    named = {"shard_key": keys.shard_key, "session_key": keys.session_key}
    with psycopg.connect(database_url) as connection:
        connection.execute(FILL.encode(), (keys.shard_key, keys.session_key))
        (facts_generation_id, *_) = {row[0] for row in connection.execute(FILL_FACTS.encode(), named)}
        ((generation_id,),) = connection.execute(
            "SELECT generation_id FROM strandline.generation WHERE pipeline = 'vectors'"
        )
    return ScopeSearch(
        shard_key=keys.shard_key,
        session_key=keys.session_key,
        scope_key=None,
        generation_id=generation_id,
        embedding="[" + ",".join(["0.0625"] * 256) + "]",
        lexemes=["often1", "often2", "rare17"],
        similarity_cutoff=0.0,
        visible_from=10_001,
        top_k=10,
        messages=True,
        facts_generation_id=facts_generation_id if with_facts else None,
        facts_shown=[],
        topics=None,
        agent_id=None,
        team_id=None,
        is_own=False,
        names=[],
        dates_from=[],
        dates_through=[],
        dates_fit=[],
        words=0,
        beside=0,
        facts_alone_id=None,
        top_facts=0,
        part_of=None,
        through_session=keys.session_key,
        through_seq=0,
        through_piece=0,
        pieces_since=0,
        at_once=0,
        **ALL_MESSAGES.params(keys.session_key),
    )
