-- What the command line shows of one session and of the server; nothing else depends on these.

-- name: show_session
-- Where a session stands: its marks and its short-term tokens.
SELECT s.next_seq - s.log_start_seq - (
        SELECT count(*) FROM strandline.popped p WHERE p.shard_key = s.shard_key
            AND p.session_key = s.session_key AND p.seq >= s.log_start_seq) AS messages, s.pinned_tokens + s.window_tokens AS tokens,
    s.flush_at_tokens, s.token_limit, s.window_from, s.flushed_through, s.pinned_through
FROM strandline.session s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: show_events
-- A session's flush events in order, each with what the pipelines have done with it so far.
SELECT e.event_id, e.cause, e.from_seq, e.through_seq, e.message_count, e.tokens,
    (SELECT coalesce(json_agg(json_build_object(
        'pipeline', g.pipeline, 'stage', r.stage, 'outcome', r.outcome,
        'seconds', extract(epoch FROM r.applied_at - e.created_at))), '[]')
     FROM strandline.receipt r JOIN strandline.serving_v1(%(shard_key)s, NULL) g USING (generation_id)
     WHERE r.shard_key = e.shard_key AND r.event_id = e.event_id)::text AS receipts
FROM strandline.flush_event e
WHERE e.shard_key = %(shard_key)s AND e.session_key = %(session_key)s
ORDER BY e.from_seq

-- name: show_facts
-- How many live facts an owner has, and the latest of them.
SELECT count(*) OVER () AS facts, f.text
FROM strandline.fact f
JOIN strandline.serving_v1(%(shard_key)s, '{facts}') g ON g.generation_id = f.generation_id
WHERE f.shard_key = %(shard_key)s AND f.live
ORDER BY f.said_at DESC, f.fact_id LIMIT %(limit)s

-- name: show_states
-- The newest state of each folding pipeline of a session, or of its owner.
SELECT DISTINCT ON (g.pipeline) g.pipeline, b.state::text, b.through_seq
FROM strandline.block_state b
JOIN strandline.serving_v1(%(shard_key)s, NULL) g ON g.generation_id = b.generation_id
WHERE b.shard_key = %(shard_key)s AND b.scope_key IN (%(session_key)s, %(shard_key)s)
ORDER BY g.pipeline, b.ordinal DESC

-- name: used_pipelines
-- Which pipelines sessions feed; what no live worker serves piles up.
SELECT DISTINCT u.pipeline FROM strandline.session s CROSS JOIN LATERAL unnest(s.pipelines) AS u (pipeline)
ORDER BY u.pipeline

-- name: describe_server
-- Version, pgvector, rights and clock of the server; needs no tables.
SELECT current_setting('server_version') AS server,
    (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vector_installed,
    (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS vector_available,
    has_database_privilege(current_database(), 'CREATE') AS may_create_schema,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
        OR coalesce((SELECT bool_or(trusted) FROM pg_available_extension_versions WHERE name = 'vector'), false)
        AS may_create_vector,
    (SELECT count(*) FROM pg_namespace WHERE nspname = %(schema)s) > 0 AS schema_exists,
    extract(epoch FROM clock_timestamp()) AS epoch_seconds
