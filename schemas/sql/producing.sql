-- What producers run.  One block per statement; the comment after the name says what it is for.

-- name: put_one
-- Accept one message where that needs no thought: the session is there, the message is no part of its head,
-- crosses none of its marks, and no watch has to be planned.  No row: nothing was done, and put_v1 decides.  So
-- it does where the id was used before: the unique index refuses it then, which undoes all of this.
WITH moved AS (
    UPDATE strandline.session t SET
        next_seq = t.next_seq + 1, window_tokens = t.window_tokens + %(tokens)s::integer,
        window_messages = t.window_messages + 1, window_bytes = t.window_bytes + %(bytes)s::integer,
        replan_at_tokens = CASE WHEN %(role)s::text IN ('user', 'tool') THEN 0 ELSE t.replan_at_tokens END,
        last_put_at = clock_timestamp()
    WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s
        AND NOT (t.next_seq = t.pinned_through + 1 AND %(role)s::text IN ('system', 'developer'))
        AND t.pinned_tokens + t.window_tokens + %(tokens)s::integer <= t.flush_at_tokens
        AND t.window_messages < t.max_window_messages
        AND t.window_bytes + %(bytes)s::integer <= t.max_window_bytes
        AND (t.idle_seconds IS NULL OR t.watched_until >= statement_timestamp())
    RETURNING t.next_seq - 1 AS seq, t.incarnation, t.last_put_at
)
INSERT INTO strandline.message (
    shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
    answers, created_at)
SELECT %(shard_key)s, %(session_key)s, n.seq, n.incarnation, %(id)s::text, %(role)s::text,
    %(tokens)s::integer, %(bytes)s::integer, %(digest)s::bytea, %(envelope)s::json, %(metadata)s::json, %(calls)s::json,
    %(answers)s::text, coalesce(%(created_at)s::timestamptz, n.last_put_at)
FROM moved n
RETURNING seq

-- name: put_many
-- The same for one message into each of several sessions, all different, in one commit; the sessions whose
-- message was taken come back.  Left out is one whose id was used before, and one whose session somebody holds
-- locked: so it keeps no other waiting, and two such statements never wait for each other.
-- (JSON, since it is written in a third of the time that psycopg takes for arrays.  No CTE is joined to
-- another: their sizes are unknown to the planner, which would compare all with all.)
WITH held AS (
    SELECT g.*, t.next_seq, t.incarnation
    FROM json_to_recordset(%(messages)s::json) AS g (
        shard_key uuid, session_key uuid, id text, role text, tokens integer, bytes integer, digest bytea,
        envelope json, metadata json, created_at timestamptz, calls json, answers text)
    JOIN strandline.session t ON t.shard_key = g.shard_key AND t.session_key = g.session_key
    WHERE NOT (t.next_seq = t.pinned_through + 1 AND g.role IN ('system', 'developer'))
        AND t.pinned_tokens + t.window_tokens + g.tokens <= t.flush_at_tokens
        AND t.window_messages < t.max_window_messages AND t.window_bytes + g.bytes <= t.max_window_bytes
        AND (t.idle_seconds IS NULL OR t.watched_until >= statement_timestamp())
    FOR NO KEY UPDATE OF t SKIP LOCKED
), stored AS (
    INSERT INTO strandline.message (
        shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
        answers, created_at)
    SELECT h.shard_key, h.session_key, h.next_seq, h.incarnation, h.id, h.role, h.tokens, h.bytes, h.digest,
        h.envelope, h.metadata, h.calls, h.answers, coalesce(h.created_at, clock_timestamp())
    FROM held h
    ON CONFLICT (shard_key, incarnation, id) DO NOTHING
    RETURNING shard_key, session_key, seq, role, tokens, bytes
), moved AS (
    UPDATE strandline.session t SET
        next_seq = t.next_seq + 1, window_tokens = t.window_tokens + n.tokens,
        window_messages = t.window_messages + 1, window_bytes = t.window_bytes + n.bytes,
        replan_at_tokens = CASE WHEN n.role IN ('user', 'tool') THEN 0 ELSE t.replan_at_tokens END,
        last_put_at = clock_timestamp()
    FROM stored n WHERE t.shard_key = n.shard_key AND t.session_key = n.session_key
)
SELECT session_key::text, seq FROM stored

-- name: put
-- Accept messages: one round trip.
SELECT status, detail, seqs, to_flush FROM strandline.put_v1(
    %(shard_key)s, %(session_key)s, %(claimed)s, %(session)s::jsonb, %(ids)s::text[], %(roles)s::text[],
    %(tokens)s::integer[], %(bytes)s::integer[], %(digests)s::bytea[], %(envelopes)s::text[],
    %(metadata)s::text[], %(created_at)s::timestamptz[], %(calls)s::text[], %(answers)s::text[])

-- name: claim_session
-- Write the directory entry of a new session, or find whose it is already.
WITH claimed AS (
    INSERT INTO strandline.session_owner (shard_key, namespace, session_id, user_id, owner_key)
    VALUES (%(directory_key)s, %(namespace)s, %(session_id)s, %(user_id)s, %(shard_key)s)
    ON CONFLICT (shard_key) DO NOTHING
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
SELECT generation_id, stage, scope_key FROM strandline.flush_v1(
    %(shard_key)s, %(session_key)s, %(incarnation)s, %(old_window_from)s, %(old_flushed_through)s,
    %(window_from)s, %(flushed_through)s, %(tokens_out)s, %(messages_out)s, %(bytes_out)s, %(cause)s, %(event_ids)s::uuid[],
    %(from_seqs)s::bigint[], %(through_seqs)s::bigint[], %(tokens)s::bigint[], %(messages)s::integer[],
    %(version)s::smallint, %(lazily)s::boolean)

-- name: postpone_planning
-- Nothing could be flushed: do not plan again before the window has grown by so much.
UPDATE strandline.session SET replan_at_tokens = pinned_tokens + window_tokens + %(tokens_more)s
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND incarnation = %(incarnation)s
    AND window_from = %(old_window_from)s AND flushed_through = %(old_flushed_through)s

-- name: read
-- One snapshot for a read: part 0 is the header (marks, coverage, facts, states), part 1 the tail,
-- newest first and cut off by count and bytes, part 2 the pinned head and the window, without what is known of it.
WITH s AS (
    SELECT * FROM strandline.session WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s
), g AS (
    SELECT generation_id, pipeline, version, entry_scope, config
    FROM strandline.serving_v1(%(shard_key)s, %(pipelines)s::text[])
), pending AS (
    -- By the keys as they are given, here and below: those of s would not lead into an index before s is read.
    SELECT g.pipeline, d.from_seq, d.through_seq FROM strandline.due d JOIN g USING (generation_id), s
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s AND d.incarnation = s.incarnation
        AND d.from_seq >= s.log_start_seq
    UNION ALL
    SELECT g.pipeline, d.from_seq, d.through_seq FROM strandline.dead_letter d JOIN g USING (generation_id), s
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s AND d.incarnation = s.incarnation
        AND d.from_seq >= s.log_start_seq AND d.dropped_at IS NULL
), gap AS (
    SELECT DISTINCT p.from_seq, least(p.through_seq, s.window_from - 1) AS through_seq
    FROM pending p, s WHERE p.from_seq < s.window_from
), tail AS (
    -- Per gap: as a plain join, a generic plan reads the whole log even where there is no gap.
    SELECT * FROM (
        SELECT t.*, sum(t.bytes) OVER (ORDER BY t.seq DESC) AS taken_bytes FROM gap CROSS JOIN LATERAL (
            SELECT m.* FROM strandline.message m
            WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
                AND m.seq BETWEEN gap.from_seq AND gap.through_seq
            ORDER BY m.seq DESC LIMIT %(tail_rows)s) AS t
        ) AS t
    WHERE t.taken_bytes <= %(tail_bytes)s
    ORDER BY t.seq DESC LIMIT %(tail_rows)s
), known AS (
    -- What the process has read before, if it is still so (producers/reading/window_cache.py): the last message bears the
    -- same seal, so it is the same row of the same table, and no other of these words.
    SELECT %(known_through)s::bigint AS through_seq FROM s
    WHERE s.window_from >= %(known_from)s::bigint AND EXISTS (
        SELECT FROM strandline.message m
        WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
            AND m.seq = %(known_through)s::bigint
            AND md5((m.xmin, m.incarnation, m.id, m.digest, m.created_at)::text) = %(known_seal)s::text)
), head AS (
    SELECT json_build_object(
        'window_from', s.window_from, 'flushed_through', s.flushed_through,
        'pinned_through', s.pinned_through, 'next_seq', s.next_seq, 'log_start_seq', s.log_start_seq,
        'token_limit', s.token_limit, 'flush_at_tokens', s.flush_at_tokens,
        'token_flush_size', s.token_flush_size, 'pipelines', s.pipelines,
        'shared_key', s.shared_key) AS session
    FROM s
)
SELECT 0 AS part, 0::bigint AS seq, NULL::text AS id, NULL::text AS role, 0 AS tokens,
    NULL::timestamptz AS created_at,
    json_build_object(
        'session', (SELECT session FROM head),
        'known', EXISTS (SELECT FROM known),
        'seal', (SELECT l.seal FROM s CROSS JOIN LATERAL (
            SELECT md5((m.xmin, m.incarnation, m.id, m.digest, m.created_at)::text) AS seal
            FROM strandline.message m
            WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
                AND m.seq >= s.window_from AND m.seq < s.next_seq
            ORDER BY m.seq DESC LIMIT 1) AS l),
        'serving', (SELECT json_object_agg(g.pipeline, json_build_object(
            'generation_id', g.generation_id, 'version', g.version,
            -- What only the search asks for.
            'config', CASE WHEN g.pipeline = 'vectors' THEN g.config END)) FROM g),
        'pending', (SELECT json_agg(json_build_array(p.pipeline, p.from_seq, p.through_seq)) FROM pending p),
        'facts', (SELECT json_agg(f ORDER BY f.said_at, f.fact_id) FROM g CROSS JOIN LATERAL (
            -- Per generation, of which there is one: as a join, all facts would be sorted for the newest few.
            SELECT t.fact_id, t.text, t.said_at FROM strandline.fact t
            WHERE t.shard_key = %(shard_key)s AND t.generation_id = g.generation_id AND t.live
            ORDER BY t.said_at DESC LIMIT %(max_facts)s) AS f WHERE g.pipeline = 'facts'),
        'states', (SELECT json_object_agg(g.pipeline, b.state) FROM g CROSS JOIN LATERAL (
            SELECT state FROM strandline.block_state b
            WHERE b.shard_key = %(shard_key)s AND b.generation_id = g.generation_id AND b.scope_key
                = CASE g.entry_scope WHEN 'owner' THEN %(shard_key)s::uuid ELSE %(session_key)s::uuid END
            ORDER BY b.ordinal DESC LIMIT 1) AS b)
    )::text AS envelope, NULL::text AS metadata
UNION ALL
SELECT 1, t.seq, t.id, t.role, t.tokens, t.created_at, t.envelope::text, t.metadata::text FROM tail t
UNION ALL
SELECT 2, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM s JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq >= greatest(s.window_from, (SELECT k.through_seq + 1 FROM known k)) AND m.seq < s.next_seq
UNION ALL
SELECT 2, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM s JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq BETWEEN s.log_start_seq AND s.pinned_through
ORDER BY part, seq

-- name: coverage
-- Which ranges some pipelines have not covered yet, and the last message there is (for a bounded wait).
SELECT g.pipeline, d.from_seq, s.next_seq - 1 AS last_seq
FROM strandline.session s
LEFT JOIN strandline.serving_v1(%(shard_key)s, %(pipelines)s::text[]) g ON true
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
SELECT messages, ended, touched FROM strandline.reset_v1(%(shard_key)s, %(session_key)s, %(derived)s)

-- name: search_chunks
-- The best messages and facts of a scope for a query, best first; a message with those beside it.
SELECT f.score, f.similarity, f.session_key, f.from_seq, f.through_seq, m.seq, m.id, m.role, m.tokens,
    m.created_at, m.envelope::text, m.metadata::text, f.fact_id, k.text
FROM strandline.search_v1(%(shard_key)s, %(generation_id)s, %(scope_key)s, %(session_key)s, %(visible_from)s,
    %(embedding)s::halfvec, %(lexemes)s::text[], %(similarity_cutoff)s, %(top_k)s, %(messages)s,
    %(facts_generation_id)s::integer, %(facts_shown)s::uuid[]) AS f
LEFT JOIN LATERAL (
    -- The limit keeps this a look-up per hit, whatever the planner expects.
    SELECT * FROM strandline.message n
    WHERE n.shard_key = %(shard_key)s AND n.session_key = f.session_key
        AND n.seq BETWEEN f.from_seq - %(beside)s::integer AND f.through_seq + %(beside)s::integer
    ORDER BY n.seq LIMIT f.through_seq - f.from_seq + 1 + 2 * %(beside)s::integer) AS m ON true
LEFT JOIN LATERAL (
    SELECT t.text FROM strandline.fact t
    WHERE t.shard_key = %(shard_key)s AND t.generation_id = %(facts_generation_id)s::integer
        AND t.fact_id = f.fact_id LIMIT 1) AS k ON true
WHERE m.seq IS NOT NULL OR k.text IS NOT NULL
ORDER BY f.score DESC, f.session_key, f.from_seq, f.fact_id, m.seq

-- name: unsearched_messages
-- What a search cannot find otherwise, newest first: messages of the sessions last put to that are not delivered,
-- that vectors have not covered, or that were flushed while the session fed no vectors.
WITH s AS (
    SELECT t.session_key, t.incarnation, t.next_seq, t.flushed_through, t.pipelines,
        greatest(t.log_start_seq, t.pinned_through + 1) AS first_seq
    FROM strandline.session t
    WHERE t.shard_key = %(shard_key)s
        AND (%(scope_key)s::uuid IS NULL OR t.session_key = %(scope_key)s::uuid)
        AND (%(left_out)s::uuid IS NULL OR t.session_key <> %(left_out)s::uuid)
    ORDER BY t.last_put_at DESC LIMIT %(sessions)s
), flushed AS (
    -- Under which policy, as strandline.fed_v1 tells it of one message.
    SELECT s.session_key, 1 + coalesce(max(c.flushed_through), 0) AS from_seq, s.flushed_through AS through_seq,
        'vectors' = ANY (s.pipelines) AS fed
    FROM s LEFT JOIN strandline.policy_change c ON c.shard_key = %(shard_key)s AND c.session_key = s.session_key
    GROUP BY s.session_key, s.flushed_through, s.pipelines
    UNION ALL
    SELECT s.session_key,
        1 + coalesce(lag(c.flushed_through) OVER (PARTITION BY s.session_key ORDER BY c.number), 0),
        c.flushed_through, c.before -> 'pipelines' @> '["vectors"]'
    FROM s JOIN strandline.policy_change c ON c.shard_key = %(shard_key)s AND c.session_key = s.session_key
), gap AS (
    SELECT s.session_key, greatest(s.flushed_through + 1, s.first_seq) AS from_seq, s.next_seq - 1 AS through_seq,
        true AS fed
    FROM s WHERE s.flushed_through + 1 < s.next_seq
    UNION
    SELECT s.session_key, greatest(f.from_seq, s.first_seq), f.through_seq, false
    FROM s JOIN flushed f USING (session_key)
    WHERE NOT f.fed AND greatest(f.from_seq, s.first_seq) <= f.through_seq
    UNION
    SELECT d.session_key, d.from_seq, d.through_seq, true FROM s JOIN strandline.due d
        ON d.shard_key = %(shard_key)s AND d.session_key = s.session_key AND d.incarnation = s.incarnation
        AND d.generation_id = %(generation_id)s::integer
    UNION
    SELECT d.session_key, d.from_seq, d.through_seq, true FROM s JOIN strandline.dead_letter d
        ON d.shard_key = %(shard_key)s AND d.session_key = s.session_key AND d.incarnation = s.incarnation
        AND d.generation_id = %(generation_id)s::integer AND d.dropped_at IS NULL
)
SELECT g.session_key, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM gap g CROSS JOIN LATERAL (
    SELECT * FROM strandline.message n
    WHERE n.shard_key = %(shard_key)s AND n.session_key = g.session_key
        AND n.seq BETWEEN g.from_seq AND g.through_seq
    ORDER BY n.seq DESC LIMIT %(messages)s) AS m
-- A replay may have covered it since.
WHERE g.fed OR NOT EXISTS (
    SELECT FROM strandline.chunk c
    WHERE c.shard_key = %(shard_key)s AND c.generation_id = %(generation_id)s::integer
        AND c.session_key = g.session_key AND c.from_seq = m.seq)
ORDER BY m.created_at DESC, m.seq DESC LIMIT %(messages)s

-- name: session_names
-- What sessions of an owner are called.
SELECT session_key, session_id FROM strandline.session
WHERE shard_key = %(shard_key)s AND session_key = ANY (%(session_keys)s::uuid[])

-- name: serving_generation
-- Which derivation of a pipeline serves an owner, and what it was made with.
SELECT generation_id, config::text
FROM strandline.serving_v1(%(shard_key)s, ARRAY[%(pipeline)s::text])
