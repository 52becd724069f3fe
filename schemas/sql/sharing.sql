-- Messages that sessions share with a scope of their namespace. Their rows lie under the scope's own key, so each of
-- these statements runs in a separate transaction from the owners'.

-- name: shared_scope_of
-- The scope that a session shares with, if any, and the session's life and names.
-- row: shared_key uuid, namespace text, session_id text, incarnation uuid
SELECT s.shared_key, s.namespace, s.session_id, s.incarnation FROM strandline.session s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s AND s.shared_key IS NOT NULL

-- name: lock_shared_session
-- Record that this incarnation of a session shares, and lock its row until the end of the transaction; returns
-- whether it was forgotten.
-- params: owner_key uuid, session_id text
-- row: is_gone boolean
SELECT strandline.lock_shared_session_v1(
    %(shard_key)s, %(session_key)s, %(incarnation)s, %(owner_key)s, %(session_id)s) AS is_gone

-- name: shared_copies
-- The copies of a range of a session's messages.
-- row: seq bigint, id text, envelope text
-- opens: envelope
SELECT m.seq, m.id, m.envelope::text FROM strandline.shared_message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq BETWEEN %(from_seq)s AND %(through_seq)s

-- name: clear_shared
-- Remove some copies of a session's messages (clear_shared_v1).
-- row: nothing void?
SELECT strandline.clear_shared_v1(%(shard_key)s, %(session_key)s, %(seqs)s::bigint[]) AS nothing

-- name: share_messages
-- Copies of messages; existing copies stay.
-- params: tokens integer[], created_at timestamptz[], metadata text?[]
-- seals: envelopes json message ids, metadata json metadata ids
INSERT INTO strandline.shared_message (shard_key, session_key, incarnation, seq, id, role, tokens, created_at,
    envelope, metadata)
SELECT %(shard_key)s, %(session_key)s, %(incarnation)s, m.seq, m.id, m.role, m.tokens, m.created_at,
    m.envelope::json, m.metadata::json
FROM unnest(%(seqs)s::bigint[], %(ids)s::text[], %(roles)s::text[], %(tokens)s::integer[],
    %(created_at)s::timestamptz[], %(envelopes)s::text[], %(metadata)s::text[])
    AS m (seq, id, role, tokens, created_at, envelope, metadata)
ON CONFLICT DO NOTHING

-- name: share_chunks
-- Insert or update searchable pieces of these messages.
-- seals: lexemes tsvector, speakers array
INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq,
    event_id, batch_id, length, lexemes, embedding, role, speaker, tone, said_on)
SELECT %(shard_key)s, %(generation_id)s, c.session_key, c.from_seq, c.piece, c.through_seq, c.event_id,
    %(batch_id)s, c.length, c.lexemes::tsvector, c.embedding::halfvec, c.role, c.speaker::text[], c.tone, c.said_on
FROM unnest(%(session_keys)s::uuid[], %(from_seqs)s::bigint[], %(pieces)s::integer[],
    %(through_seqs)s::bigint[], %(event_ids)s::uuid[], %(lengths)s::integer[], %(lexemes)s::text[],
    %(embeddings)s::text[], %(roles)s::text[], %(speakers)s::text[], %(tones)s::smallint[], %(said_on)s::date[])
    AS c (session_key, from_seq, piece, through_seq, event_id, length, lexemes, embedding, role, speaker, tone, said_on)
ON CONFLICT (shard_key, generation_id, session_key, from_seq, piece) DO UPDATE SET batch_id = excluded.batch_id,
    length = excluded.length, lexemes = excluded.lexemes, embedding = excluded.embedding, role = excluded.role,
    speaker = excluded.speaker, tone = excluded.tone, said_on = excluded.said_on

-- name: search_shared_chunks
-- The best messages of a shared scope for a query, best first, each with those next to it (search_hits_v1).
-- params: generation_id integer?
-- row: score float8, similarity float8, session_key uuid, from_seq bigint, through_seq bigint, seq bigint, id text,
--     role text, tokens integer, created_at timestamptz, envelope text, metadata text?, fact_id uuid?, fact text!,
--     sources text?
-- opens: envelope, metadata
-- seals: lexemes query, names query
-- repeatable
SELECT * FROM strandline.search_hits_v1(%(shard_key)s, %(generation_id)s, NULL, %(session_key)s, %(visible_from)s,
    %(embedding)s::halfvec, %(lexemes)s::text[], %(similarity_cutoff)s, %(top_k)s, true, NULL, '{}',
    NULL, NULL, NULL, %(is_own)s, %(names)s::text[], %(dates_from)s::date[], %(dates_through)s::date[], %(dates_fit)s::float8[],
    %(words)s::integer, p_beside => %(beside)s::integer, p_is_shared => true)

-- name: shared_session_names
-- The names of sessions that share with a scope.
-- row: session_name
SELECT DISTINCT l.session_key, l.session_id FROM strandline.shared_session l
WHERE l.shard_key = %(shard_key)s AND l.session_key = ANY (%(session_keys)s::uuid[]) AND l.gone_at IS NULL

-- name: shared_lives
-- The scope that a session shares with, and all of its incarnations that may have shared messages.
-- params: owner_key uuid
-- row: shared_key uuid, incarnations uuid[]
SELECT s.shared_key, array_agg(DISTINCT l.incarnation) AS incarnations FROM strandline.session s
CROSS JOIN LATERAL (
    SELECT s.incarnation UNION ALL
    SELECT e.incarnation FROM strandline.flush_event e
    WHERE e.shard_key = %(owner_key)s AND e.session_key = %(session_key)s) AS l (incarnation)
WHERE s.shard_key = %(owner_key)s AND s.session_key = %(session_key)s AND s.shared_key IS NOT NULL
GROUP BY s.shared_key

-- name: forget_shared
-- Remove what these incarnations of a session shared with a scope, for good.
-- params: owner_key uuid, incarnations uuid[]
-- row: nothing void?
-- repeatable
SELECT strandline.forget_shared_v1(%(shard_key)s, %(session_key)s, %(owner_key)s, %(incarnations)s::uuid[]) AS nothing
