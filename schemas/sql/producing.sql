-- What producers run.  One block per statement; the comment after the name says what it is for.

-- name: put
-- Accept messages: one round trip.
SELECT status, detail, seqs, to_flush FROM strandline.put_v1(
    %(shard_key)s, %(session_key)s, %(claimed)s, %(session)s::jsonb, %(ids)s::text[], %(roles)s::text[],
    %(tokens)s::integer[], %(digests)s::bytea[], %(envelopes)s::text[], %(metadata)s::text[],
    %(created_at)s::timestamptz[], %(calls)s::text[], %(answers)s::text[])

-- name: claim_session
-- Write the directory entry of a new session, or find whose it is already.
WITH claimed AS (
    INSERT INTO strandline.session_owner (shard_key, namespace, session_id, user_id, owner_key)
    VALUES (%(directory_key)s, %(namespace)s, %(session_id)s, %(user_id)s, %(shard_key)s)
    ON CONFLICT DO NOTHING
    RETURNING user_id, owner_key
)
SELECT user_id, owner_key FROM claimed
UNION ALL
SELECT user_id, owner_key FROM strandline.session_owner WHERE shard_key = %(directory_key)s

-- name: find_owner
-- Whose session this is; no row if it was never put to.
SELECT user_id, owner_key FROM strandline.session_owner WHERE shard_key = %(directory_key)s

-- name: plan_window
-- What a flush plan is made from: marks, policy and the window's entries, in one snapshot.
SELECT strandline.window_v1(%(shard_key)s, %(session_key)s)

-- name: flush
-- Move the marks and record the events, if nothing changed since the plan.
SELECT generation_id, stage FROM strandline.flush_v1(
    %(shard_key)s, %(session_key)s, %(incarnation)s, %(old_window_from)s, %(old_flushed_through)s,
    %(window_from)s, %(flushed_through)s, %(tokens_out)s, %(cause)s, %(event_ids)s::uuid[],
    %(from_seqs)s::bigint[], %(through_seqs)s::bigint[], %(tokens)s::bigint[], %(messages)s::integer[],
    %(version)s::smallint)

-- name: postpone_planning
-- Nothing could be flushed: do not plan again before the window has grown by so much.
UPDATE strandline.session SET replan_at_tokens = pinned_tokens + window_tokens + %(tokens_more)s
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND incarnation = %(incarnation)s
    AND window_from = %(old_window_from)s AND flushed_through = %(old_flushed_through)s

-- name: read
-- One snapshot for a read: part 0 is the header (marks, coverage, facts, states), part 1 the tail,
-- newest first and cut off by count, part 2 the pinned head and the window.
WITH s AS (
    SELECT * FROM strandline.session WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s
), g AS (
    SELECT generation_id, pipeline, config FROM strandline.generation
    WHERE state = 'serving' AND pipeline = ANY (%(pipelines)s::text[])
), pending AS (
    SELECT g.pipeline, d.from_seq, d.through_seq FROM strandline.due d JOIN g USING (generation_id), s
    WHERE d.shard_key = s.shard_key AND d.session_key = s.session_key AND d.incarnation = s.incarnation
    UNION ALL
    SELECT g.pipeline, d.from_seq, d.through_seq FROM strandline.dead_letter d JOIN g USING (generation_id), s
    WHERE d.shard_key = s.shard_key AND d.session_key = s.session_key AND d.incarnation = s.incarnation
), gap AS (
    SELECT DISTINCT p.from_seq, least(p.through_seq, s.window_from - 1) AS through_seq
    FROM pending p, s WHERE p.from_seq < s.window_from
), tail AS (
    -- Per gap: as a plain join, a generic plan reads the whole log even where there is no gap.
    SELECT t.* FROM gap CROSS JOIN LATERAL (
        SELECT m.* FROM strandline.message m
        WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
            AND m.seq BETWEEN gap.from_seq AND gap.through_seq
        ORDER BY m.seq DESC LIMIT %(tail_rows)s) AS t
    ORDER BY t.seq DESC LIMIT %(tail_rows)s
), head AS (
    SELECT json_build_object(
        'window_from', s.window_from, 'flushed_through', s.flushed_through,
        'pinned_through', s.pinned_through, 'next_seq', s.next_seq, 'log_start_seq', s.log_start_seq,
        'token_limit', s.token_limit, 'flush_at_tokens', s.flush_at_tokens,
        'token_flush_size', s.token_flush_size, 'pipelines', s.pipelines) AS session
    FROM s
)
SELECT 0 AS part, 0::bigint AS seq, NULL::text AS id, NULL::text AS role, 0 AS tokens,
    NULL::timestamptz AS created_at,
    json_build_object(
        'session', (SELECT session FROM head),
        'serving', (SELECT json_object_agg(g.pipeline, json_build_object(
            'generation_id', g.generation_id, 'config', g.config)) FROM g),
        'pending', (SELECT json_agg(json_build_array(p.pipeline, p.from_seq, p.through_seq)) FROM pending p),
        'facts', (SELECT json_agg(f ORDER BY f.said_at, f.fact_id) FROM (
            SELECT f.fact_id, f.text, f.said_at FROM strandline.fact f JOIN g USING (generation_id)
            WHERE f.shard_key = %(shard_key)s AND f.live AND g.pipeline = 'facts'
            ORDER BY f.said_at DESC LIMIT %(max_facts)s) AS f),
        'states', (SELECT json_object_agg(g.pipeline, b.state) FROM g CROSS JOIN LATERAL (
            SELECT state FROM strandline.block_state b
            WHERE b.shard_key = %(shard_key)s AND b.scope_key = %(session_key)s
                AND b.generation_id = g.generation_id
            ORDER BY b.through_seq DESC LIMIT 1) AS b)
    )::text AS envelope, NULL::text AS metadata
UNION ALL
SELECT 1, t.seq, t.id, t.role, t.tokens, t.created_at, t.envelope::text, t.metadata::text FROM tail t
UNION ALL
SELECT 2, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM s JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    AND m.seq >= s.window_from AND m.seq < s.next_seq
UNION ALL
SELECT 2, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM s JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    AND m.seq BETWEEN s.log_start_seq AND s.pinned_through
ORDER BY part, seq

-- name: coverage
-- Which ranges some pipelines have not covered yet (for a bounded wait).
SELECT g.pipeline, d.from_seq, s.flushed_through
FROM strandline.session s
JOIN strandline.generation g ON g.state = 'serving' AND g.pipeline = ANY (%(pipelines)s::text[])
LEFT JOIN strandline.due d ON d.shard_key = s.shard_key AND d.session_key = s.session_key
    AND d.generation_id = g.generation_id AND d.incarnation = s.incarnation AND d.from_seq <= %(seq)s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: history
-- A page of the whole log, in order.
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    AND m.seq >= s.log_start_seq AND m.seq < s.next_seq AND m.seq > %(after_seq)s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
ORDER BY m.seq LIMIT %(page_size)s

-- name: reset
-- Begin the log anew; with derived, forget what was derived.
SELECT messages FROM strandline.reset_v1(%(shard_key)s, %(session_key)s, %(derived)s)

-- name: search_chunks
-- The best pieces of conversation for a query: an exact scan of the scope, cosine similarity and BM25
-- (k1 = 1.2, b = 0.75) fused by score, with their messages.  Without a vector the text decides alone.
-- All in float8: left to itself this would be numeric arithmetic.
WITH scope AS MATERIALIZED (
    SELECT c.session_key, c.from_seq, c.piece, c.through_seq, c.length, c.lexemes,
        CASE WHEN c.embedding IS NULL OR %(embedding)s::halfvec IS NULL THEN 0
             ELSE greatest(0, 1 - (c.embedding <=> %(embedding)s::halfvec)) END AS similarity
    FROM strandline.chunk c
    WHERE c.shard_key = %(shard_key)s AND c.generation_id = %(generation_id)s
        AND (%(scope_key)s::uuid IS NULL OR c.session_key = %(scope_key)s)
        AND NOT (c.session_key = %(session_key)s AND c.through_seq >= %(visible_from)s)
), extent AS (
    SELECT count(*)::float8 AS pieces, greatest(avg(length), 1)::float8 AS average FROM scope
), hit AS (
    SELECT s.session_key, s.from_seq, s.piece, s.length::float8, u.lexeme, cardinality(u.positions)::float8 AS occurrences
    FROM scope s CROSS JOIN LATERAL unnest(s.lexemes) AS u
    WHERE u.lexeme = ANY (%(lexemes)s::text[])
), rarity AS (
    SELECT h.lexeme, ln(1 + (e.pieces - count(*) + 0.5::float8) / (count(*) + 0.5::float8)) AS weight
    FROM hit h CROSS JOIN extent e GROUP BY h.lexeme, e.pieces
), bm25 AS (
    SELECT h.session_key, h.from_seq, h.piece,
        sum(r.weight * h.occurrences * 2.2::float8 / (h.occurrences
            + 1.2::float8 * (0.25::float8 + 0.75::float8 * h.length / e.average))) AS score
    FROM hit h JOIN rarity r USING (lexeme) CROSS JOIN extent e
    GROUP BY h.session_key, h.from_seq, h.piece
), scored AS (
    SELECT s.session_key, s.from_seq, s.through_seq,
        max(s.similarity * %(vector_weight)s
            + coalesce(b.score / nullif((SELECT max(score) FROM bm25), 0), 0) * (1 - %(vector_weight)s)) AS score,
        max(s.similarity) AS similarity
    FROM scope s LEFT JOIN bm25 b USING (session_key, from_seq, piece)
    GROUP BY s.session_key, s.from_seq, s.through_seq
), best AS (
    SELECT * FROM scored WHERE score > 0 AND similarity >= %(similarity_cutoff)s
    ORDER BY score DESC, session_key, from_seq LIMIT %(top_k)s
)
SELECT b.score, b.session_key, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text,
    m.metadata::text
FROM best b JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = b.session_key
    AND m.seq BETWEEN b.from_seq AND b.through_seq
ORDER BY b.score DESC, b.session_key, b.from_seq, m.seq

-- name: list_facts
-- An owner's facts with where each came from, newest first.
SELECT f.fact_id, f.text, f.topics, f.said_by, f.about_date, f.said_at, f.live, f.invalidated_at,
    f.invalidated_by, f.created_at, f.updated_at,
    (SELECT json_agg(json_build_object(
        'operation', r.operation, 'text', r.text, 'event_id', r.event_id, 'session_key', r.session_key,
        'message_ids', (SELECT json_agg(m.id ORDER BY m.seq) FROM strandline.message m
            WHERE m.shard_key = r.shard_key AND m.session_key = r.session_key AND m.seq = ANY (r.seqs)),
        'seqs', r.seqs, 'model', r.model, 'prompt_hash', r.prompt_hash,
        'created_at', r.created_at) ORDER BY r.revision)
     FROM strandline.fact_revision r
     WHERE r.shard_key = f.shard_key AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id
    )::text AS revisions
FROM strandline.fact f
JOIN strandline.generation g ON g.generation_id = f.generation_id AND g.state = 'serving'
WHERE f.shard_key = %(shard_key)s AND (f.live OR %(with_invalidated)s)
ORDER BY f.said_at DESC, f.fact_id LIMIT %(limit)s OFFSET %(offset)s
