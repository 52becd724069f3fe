-- Export: everything that is kept about an owner, or about one of its sessions, a page at a time by the keys of each
-- table.  session_key NULL: of all sessions.

-- name: export_sessions
-- Sessions of an owner, with their marks and policy.
-- params: session_key uuid?
-- row: session_key uuid, session_id text, created_at timestamptz, last_put_at timestamptz, log_start_seq bigint, next_seq
--     bigint, corrections integer, tokenizer text, pipelines text[], shared_scope text?, token_limit integer,
--     flush_at_tokens integer, time_zone text?
SELECT s.session_key, s.session_id, s.created_at, s.last_put_at, s.log_start_seq, s.next_seq, s.corrections, s.tokenizer,
    s.pipelines, s.shared_scope, s.token_limit, s.flush_at_tokens, s.time_zone
FROM strandline.session s
WHERE s.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR s.session_key = %(session_key)s)
    AND s.session_key > %(after_session_key)s
ORDER BY s.session_key LIMIT %(limit)s

-- name: export_messages
-- Messages, those from before a reset included.
-- params: session_key uuid?, after_seq bigint
-- row: message_of_session
-- opens: envelope, metadata
SELECT m.session_key, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM @filled((SELECT m.* FROM strandline.message m
    WHERE m.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR m.session_key = %(session_key)s)
        AND (m.session_key, m.seq) > (%(after_session_key)s::uuid, %(after_seq)s::bigint)
    ORDER BY m.session_key, m.seq LIMIT %(limit)s), (page.session_key, page.seq)) AS m
ORDER BY m.session_key, m.seq

-- name: export_flushes
-- Deliveries to the pipelines, with their outcome in each stage.
-- params: session_key uuid?, after_from_seq bigint
-- row: session_key uuid, event_id uuid, cause text, from_seq bigint, through_seq bigint, message_count integer, tokens
--     bigint, created_at timestamptz, receipts text
SELECT e.session_key, e.event_id, e.cause, e.from_seq, e.through_seq, e.message_count, e.tokens, e.created_at, (
        SELECT coalesce(json_agg(json_build_object('generation_id', r.generation_id, 'stage', r.stage,
            'outcome', r.outcome, 'batch_id', r.batch_id) ORDER BY r.generation_id, r.stage), '[]')
        FROM strandline.receipt r WHERE r.shard_key = %(shard_key)s AND r.event_id = e.event_id)::text AS receipts
FROM strandline.flush_event e
WHERE e.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR e.session_key = %(session_key)s)
    AND (e.session_key, e.from_seq) > (%(after_session_key)s::uuid, %(after_from_seq)s::bigint)
ORDER BY e.session_key, e.from_seq LIMIT %(limit)s

-- name: export_states
-- Summaries and the states of custom blocks, each after each batch.
-- params: scope_key uuid?, after_scope_key uuid, after_generation_id integer, after_ordinal bigint
-- row: scope_key uuid, generation_id integer, pipeline text, ordinal bigint, through_seq bigint, state text, batch_id uuid,
--     created_at timestamptz
-- opens: state
SELECT b.scope_key, b.generation_id, b.pipeline, b.ordinal, b.through_seq, b.state::text, b.batch_id, b.created_at
FROM @filled((SELECT b.*, g.pipeline, octet_length(b.state::text) AS bytes
    FROM strandline.block_state b JOIN strandline.generation g ON g.generation_id = b.generation_id
    WHERE b.shard_key = %(shard_key)s AND (%(scope_key)s::uuid IS NULL OR b.scope_key = %(scope_key)s)
        AND (b.scope_key, b.generation_id, b.ordinal)
            > (%(after_scope_key)s::uuid, %(after_generation_id)s::integer, %(after_ordinal)s::bigint)
    ORDER BY b.scope_key, b.generation_id, b.ordinal LIMIT %(limit)s),
    (page.scope_key, page.generation_id, page.ordinal)) AS b
ORDER BY b.scope_key, b.generation_id, b.ordinal

-- name: export_answers
-- Raw answers of models; for vectors, which are numbers, the size alone.
-- params: scope_key uuid?, after_batch_id uuid, after_step text
-- row: batch_id uuid, step text, stage text?, scope_key uuid?, model text, prompt_hash text, body bytea?, bytes integer,
--     created_at timestamptz
-- opens: body bytes answer
SELECT a.batch_id, a.step, a.stage, a.scope_key, a.model, a.prompt_hash,
    CASE WHEN a.stage IS DISTINCT FROM 'vectors' THEN a.body END AS body, a.bytes, a.created_at
FROM @filled((SELECT a.*, b.stage, b.scope_key, length(a.body) AS bytes FROM strandline.answer a
    LEFT JOIN strandline.batch b ON b.shard_key = %(shard_key)s AND b.batch_id = a.batch_id
    WHERE a.shard_key = %(shard_key)s AND (%(scope_key)s::uuid IS NULL OR b.scope_key = %(scope_key)s)
        AND (a.batch_id, a.step) > (%(after_batch_id)s::uuid, %(after_step)s::text)
    ORDER BY a.batch_id, a.step LIMIT %(limit)s), (page.batch_id, page.step)) AS a
ORDER BY a.batch_id, a.step
