-- What sessions share with a scope of their namespace.  Its rows lie under a key of the scope's own, so each of
-- these runs in a transaction apart from the owners'.

-- name: shared_scope_of
-- With which scope a session shares, if with one.
-- params: shard_key uuid, session_key uuid
-- row: shared_key uuid, session_id text
SELECT s.shared_key, s.session_id FROM strandline.session s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s AND s.shared_key IS NOT NULL

-- name: hold_shared_session
-- Note that this life of a session shares, and hold its row until the end of the transaction; whether it was
-- forgotten.  The transaction is on the disk when it ends, before the receipts of another one say so.
-- params: shard_key uuid, session_key uuid, incarnation uuid, owner_key uuid, session_id text
-- row: is_gone boolean
WITH durably AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true)
)
INSERT INTO strandline.shared_session (shard_key, session_key, incarnation, owner_key, session_id)
SELECT %(shard_key)s, %(session_key)s, %(incarnation)s, %(owner_key)s, %(session_id)s FROM durably
ON CONFLICT (shard_key, session_key, incarnation) DO UPDATE SET owner_key = excluded.owner_key
RETURNING gone_at IS NOT NULL AS is_gone

-- name: share_messages
-- Copies of messages; those that are there already stay.
-- params: shard_key uuid, session_key uuid, incarnation uuid, seqs bigint[], ids text[], roles text[], tokens
--     integer[], created_at timestamptz[], envelopes text[], metadata text?[]
INSERT INTO strandline.shared_message (shard_key, session_key, incarnation, seq, id, role, tokens, created_at,
    envelope, metadata)
SELECT %(shard_key)s, %(session_key)s, %(incarnation)s, m.seq, m.id, m.role, m.tokens, m.created_at,
    m.envelope::json, m.metadata::json
FROM unnest(%(seqs)s::bigint[], %(ids)s::text[], %(roles)s::text[], %(tokens)s::integer[],
    %(created_at)s::timestamptz[], %(envelopes)s::text[], %(metadata)s::text[])
    AS m (seq, id, role, tokens, created_at, envelope, metadata)
ON CONFLICT DO NOTHING

-- name: share_chunks
-- Searchable pieces of these messages, or what they are by now.
-- params: shard_key uuid, generation_id integer, batch_id uuid, session_keys uuid[], from_seqs bigint[], pieces
--     integer[], through_seqs bigint[], event_ids uuid[], lengths integer[], lexemes text[], embeddings text?[]
INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq,
    event_id, batch_id, length, lexemes, embedding)
SELECT %(shard_key)s, %(generation_id)s, c.session_key, c.from_seq, c.piece, c.through_seq, c.event_id,
    %(batch_id)s, c.length, c.lexemes::tsvector, c.embedding::halfvec
FROM unnest(%(session_keys)s::uuid[], %(from_seqs)s::bigint[], %(pieces)s::integer[],
    %(through_seqs)s::bigint[], %(event_ids)s::uuid[], %(lengths)s::integer[], %(lexemes)s::text[],
    %(embeddings)s::text[])
    AS c (session_key, from_seq, piece, through_seq, event_id, length, lexemes, embedding)
ON CONFLICT (shard_key, generation_id, session_key, from_seq, piece) DO UPDATE SET batch_id = excluded.batch_id,
    length = excluded.length, lexemes = excluded.lexemes, embedding = excluded.embedding

-- name: search_shared_chunks
-- The best messages of a shared scope for a query, best first, each with those beside it.
-- params: shard_key uuid, generation_id integer, session_key uuid, visible_from bigint, embedding halfvec?, lexemes
--     text[], similarity_cutoff float8, top_k integer, beside integer
-- row: score float8, similarity float8, session_key uuid, from_seq bigint, through_seq bigint, seq bigint, id text,
--     role text, tokens integer, created_at timestamptz, envelope text, metadata text?, fact_id uuid?, fact text!
-- repeatable
SELECT f.score, f.similarity, f.session_key, f.from_seq, f.through_seq, m.seq, m.id, m.role, m.tokens,
    m.created_at, m.envelope::text, m.metadata::text, NULL::uuid AS fact_id, NULL::text AS fact
FROM strandline.search_v1(%(shard_key)s, %(generation_id)s, NULL, %(session_key)s, %(visible_from)s,
    %(embedding)s::halfvec, %(lexemes)s::text[], %(similarity_cutoff)s, %(top_k)s, true, NULL, '{}') AS f
CROSS JOIN LATERAL (
    -- The limit keeps this a look-up per hit, whatever the planner expects.
    SELECT * FROM strandline.shared_message n
    WHERE n.shard_key = %(shard_key)s AND n.session_key = f.session_key
        AND n.seq BETWEEN f.from_seq - %(beside)s::integer AND f.through_seq + %(beside)s::integer
    ORDER BY n.seq LIMIT f.through_seq - f.from_seq + 1 + 2 * %(beside)s::integer) AS m
ORDER BY f.score DESC, f.session_key, f.from_seq, m.seq

-- name: shared_session_names
-- What sessions that share with a scope are called.
-- params: shard_key uuid, session_keys uuid[]
-- row: session_key uuid, session_id text?
-- repeatable
SELECT DISTINCT l.session_key, l.session_id FROM strandline.shared_session l
WHERE l.shard_key = %(shard_key)s AND l.session_key = ANY (%(session_keys)s::uuid[]) AND l.gone_at IS NULL

-- name: shared_lives
-- With which scope a session shares, and all lives of it that can have shared something.
-- params: owner_key uuid, session_key uuid
-- row: shared_key uuid, incarnations uuid[]
-- repeatable
SELECT s.shared_key, array_agg(DISTINCT l.incarnation) AS incarnations FROM strandline.session s
CROSS JOIN LATERAL (
    SELECT s.incarnation UNION ALL
    SELECT e.incarnation FROM strandline.flush_event e
    WHERE e.shard_key = s.shard_key AND e.session_key = s.session_key) AS l (incarnation)
WHERE s.shard_key = %(owner_key)s AND s.session_key = %(session_key)s AND s.shared_key IS NOT NULL
GROUP BY s.shared_key

-- name: forget_shared
-- Take what these lives of a session shared out of a scope, for good.
-- params: shard_key uuid, session_key uuid, owner_key uuid, incarnations uuid[]
-- row: nothing void
-- repeatable
SELECT strandline.forget_shared_v1(%(shard_key)s, %(session_key)s, %(owner_key)s, %(incarnations)s::uuid[]) AS nothing
