-- States of summaries and custom blocks.

-- name: latest_state
-- The state that an ordered lane continues from.
-- row: state text, through_seq bigint
-- opens: state
SELECT state::text, through_seq FROM strandline.block_state
WHERE shard_key = %(shard_key)s AND scope_key = %(scope_key)s AND generation_id = %(generation_id)s
ORDER BY ordinal DESC LIMIT 1

-- name: insert_state
-- The state after a batch, with the next number of its lane.
-- params: state jsonb
-- seals: state
INSERT INTO strandline.block_state (shard_key, scope_key, generation_id, ordinal, through_seq, state, batch_id)
SELECT %(shard_key)s, %(scope_key)s, %(generation_id)s, coalesce(max(b.ordinal), 0) + 1, %(through_seq)s,
    %(state)s::jsonb, %(batch_id)s
FROM strandline.block_state b
WHERE b.shard_key = %(shard_key)s AND b.scope_key = %(scope_key)s AND b.generation_id = %(generation_id)s

-- name: session_summary
-- The summary of a session in the derivation that serves its owner, if there is one; whether the session feeds
-- summaries, and through which message it was delivered.
-- row: is_fed boolean, flushed_through bigint, state text?, through_seq bigint!, created_at timestamptz!
-- opens: state
SELECT 'summary' = ANY (s.pipelines) AS is_fed, s.flushed_through, b.state::text, b.through_seq, b.created_at
FROM strandline.session s
LEFT JOIN LATERAL (
    SELECT t.state, t.through_seq, t.created_at
    FROM @serving(%(shard_key)s, '{summary}') AS serving
    JOIN strandline.block_state t ON t.shard_key = %(shard_key)s AND t.scope_key = %(session_key)s
        AND t.generation_id = serving.generation_id
    ORDER BY t.ordinal DESC LIMIT 1) AS b ON true
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
