-- Export: everything that is kept about an owner, or about one of its sessions, a page at a time by the keys of each
-- table.  session_key NULL: of all sessions.

-- name: export_sessions
-- Sessions of an owner, with their marks and policy.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, limit bigint
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
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_seq bigint, limit bigint, page_bytes bigint
-- row: message_of_session
-- opens: envelope json message id, metadata json metadata id
SELECT m.session_key, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM @filled((SELECT m.* FROM strandline.message m
    WHERE m.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR m.session_key = %(session_key)s)
        AND (m.session_key, m.seq) > (%(after_session_key)s::uuid, %(after_seq)s::bigint)
    ORDER BY m.session_key, m.seq LIMIT %(limit)s), (page.session_key, page.seq)) AS m
ORDER BY m.session_key, m.seq

-- name: export_corrections
-- How logs were corrected.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_number integer, limit bigint
-- row: session_key uuid, number integer, correction_kind text, from_seq bigint, through_seq bigint, actor text?, created_at
--     timestamptz
SELECT c.session_key, c.number, c.kind AS correction_kind, c.from_seq, c.through_seq, c.actor, c.created_at
FROM strandline.correction c
WHERE c.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR c.session_key = %(session_key)s)
    AND (c.session_key, c.number) > (%(after_session_key)s::uuid, %(after_number)s::integer)
ORDER BY c.session_key, c.number LIMIT %(limit)s

-- name: export_policy_changes
-- How the policies of sessions were changed.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_number integer, limit bigint
-- row: session_key uuid, number integer, before text, after text, actor text?, created_at timestamptz
SELECT c.session_key, c.number, c.before::text, c.after::text, c.actor, c.created_at
FROM strandline.policy_change c
WHERE c.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR c.session_key = %(session_key)s)
    AND (c.session_key, c.number) > (%(after_session_key)s::uuid, %(after_number)s::integer)
ORDER BY c.session_key, c.number LIMIT %(limit)s

-- name: export_runs
-- Runs of agents.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_run_id text, limit bigint
-- row: session_key uuid, run_id text, number integer, status text, agent_id text?, team_id text?, seqs bigint[], created_at
--     timestamptz, changed_at timestamptz
SELECT r.session_key, r.run_id, r.number, r.status, r.agent_id, r.team_id, r.seqs, r.created_at, r.changed_at
FROM strandline.session_run r
WHERE r.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR r.session_key = %(session_key)s)
    AND (r.session_key, r.run_id) > (%(after_session_key)s::uuid, %(after_run_id)s::text)
ORDER BY r.session_key, r.run_id LIMIT %(limit)s

-- name: export_flushes
-- What was delivered to the pipelines, with what became of it in each stage.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_from_seq bigint, limit bigint
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

-- name: export_facts
-- Facts of every derivation, ended ones included; of a session, those that some revision got from it.
-- params: shard_key uuid, session_key uuid?, after_generation_id integer, after_fact_id uuid, limit bigint
-- row: generation_id integer, fact_id uuid, text text, topics text[], said_by text?, about_date date?, said_at timestamptz,
--     valid_from timestamptz, valid_until timestamptz?, live boolean, invalidated_at timestamptz?, invalidated_by uuid?,
--     condensed_into uuid?, input text?, agent_id text?, team_id text?, feedback text?, created_at timestamptz, updated_at
--     timestamptz
-- opens: text text fact, topics name topic, said_by name said_by, input text input, feedback text feedback
SELECT f.generation_id, f.fact_id, f.text, f.topics, f.said_by, f.about_date, f.said_at, f.valid_from, f.valid_until,
    f.live, f.invalidated_at, f.invalidated_by, f.condensed_into, f.input, f.agent_id, f.team_id, f.feedback,
    f.created_at, f.updated_at
FROM strandline.fact f
WHERE f.shard_key = %(shard_key)s
    AND (f.generation_id, f.fact_id) > (%(after_generation_id)s::integer, %(after_fact_id)s::uuid)
    AND (%(session_key)s::uuid IS NULL OR EXISTS (
        SELECT FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
            AND r.generation_id = f.generation_id AND r.fact_id = f.fact_id AND r.session_key = %(session_key)s))
ORDER BY f.generation_id, f.fact_id LIMIT %(limit)s

-- name: export_revisions
-- The histories of facts: which messages, prompt and model, or which edit, did what.
-- params: shard_key uuid, session_key uuid?, after_generation_id integer, after_fact_id uuid, after_revision integer, limit bigint
-- row: generation_id integer, fact_id uuid, revision integer, operation text, text text, own_text text?, event_id uuid?,
--     session_key uuid?, seqs bigint[], extract_batch_id uuid?, merge_batch_id uuid?, condense_batch_id uuid?, fact_event
--     bigint?, model text?, prompt_hash text?, created_at timestamptz
-- opens: text text fact, own_text text fact
SELECT r.generation_id, r.fact_id, r.revision, r.operation, r.text, r.own_text, r.event_id, r.session_key, r.seqs,
    r.extract_batch_id, r.merge_batch_id, r.condense_batch_id, r.fact_event, r.model, r.prompt_hash, r.created_at
FROM strandline.fact_revision r
WHERE r.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR r.session_key = %(session_key)s)
    AND (r.generation_id, r.fact_id, r.revision)
        > (%(after_generation_id)s::integer, %(after_fact_id)s::uuid, %(after_revision)s::integer)
ORDER BY r.generation_id, r.fact_id, r.revision LIMIT %(limit)s

-- name: export_edits
-- What people and agents did to facts.
-- params: shard_key uuid, after_number bigint, limit bigint
-- row: number bigint, edit text, fact_id uuid?, payload text?, actor text?, instruction uuid?, created_at timestamptz
-- opens: payload within text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic
SELECT e.number, e.kind AS edit, e.fact_id, e.payload::text, e.actor, e.instruction, e.created_at
FROM strandline.fact_event e
WHERE e.shard_key = %(shard_key)s AND e.number > %(after_number)s
ORDER BY e.number LIMIT %(limit)s

-- name: export_candidates
-- What was found in messages as possible facts.
-- params: shard_key uuid, session_key uuid?, after_generation_id integer, after_event_id uuid, after_ordinal integer, limit
--     bigint
-- row: generation_id integer, event_id uuid, ordinal integer, session_key uuid, batch_id uuid, text text, seqs bigint[],
--     topics text[], said_by text?, about_date date?, said_at timestamptz, model text, prompt_hash text, dropped_by
--     bigint?, withheld_by bigint?
-- opens: text text fact, topics name topic, said_by name said_by
SELECT c.generation_id, c.event_id, c.ordinal, c.session_key, c.batch_id, c.text, c.seqs, c.topics, c.said_by,
    c.about_date, c.said_at, c.model, c.prompt_hash, c.dropped_by, c.withheld_by
FROM strandline.fact_candidate c
WHERE c.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR c.session_key = %(session_key)s)
    AND (c.generation_id, c.event_id, c.ordinal)
        > (%(after_generation_id)s::integer, %(after_event_id)s::uuid, %(after_ordinal)s::integer)
ORDER BY c.generation_id, c.event_id, c.ordinal LIMIT %(limit)s

-- name: export_states
-- Summaries and the states of custom blocks, each after each batch.
-- params: shard_key uuid, scope_key uuid?, after_scope_key uuid, after_generation_id integer, after_ordinal bigint, limit bigint,
--     page_bytes bigint
-- row: scope_key uuid, generation_id integer, pipeline text, ordinal bigint, through_seq bigint, state text, batch_id uuid,
--     created_at timestamptz
-- opens: state json state
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
-- The raw answers of models; of vectors, which are numbers, the size alone.
-- params: shard_key uuid, scope_key uuid?, after_batch_id uuid, after_step text, limit bigint, page_bytes bigint
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

-- name: export_dead_letters
-- Events that a lane went past, and why.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_generation_id integer, after_stage text, after_from_seq
--     bigint, limit bigint
-- row: session_key uuid, generation_id integer, stage text, from_seq bigint, through_seq bigint, event_id uuid, reason text,
--     created_at timestamptz, dropped_at timestamptz?
SELECT d.session_key, d.generation_id, d.stage, d.from_seq, d.through_seq, d.event_id, d.reason, d.created_at,
    d.dropped_at
FROM strandline.dead_letter d
WHERE d.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR d.session_key = %(session_key)s)
    AND (d.session_key, d.generation_id, d.stage, d.from_seq)
        > (%(after_session_key)s::uuid, %(after_generation_id)s::integer, %(after_stage)s::text, %(after_from_seq)s::bigint)
ORDER BY d.session_key, d.generation_id, d.stage, d.from_seq LIMIT %(limit)s

-- name: export_calls
-- The ledger of model calls; of a session, those of its batches.
-- params: shard_key uuid, scope_key uuid?, after_call_id uuid, limit bigint
-- row: call_id uuid, generation_id integer?, stage text, batch_id uuid, step text, model text, prompt_hash text,
--     input_tokens bigint, output_tokens bigint, seconds float8, cost_usd numeric?, created_at timestamptz
SELECT m.call_id, m.generation_id, m.stage, m.batch_id, m.step, m.model, m.prompt_hash, m.input_tokens,
    m.output_tokens, m.seconds, m.cost_usd, m.created_at
FROM strandline.model_call m
WHERE m.shard_key = %(shard_key)s AND m.call_id > %(after_call_id)s AND (%(scope_key)s::uuid IS NULL OR EXISTS (
        SELECT FROM strandline.batch b WHERE b.shard_key = %(shard_key)s AND b.batch_id = m.batch_id
            AND b.scope_key = %(scope_key)s))
ORDER BY m.call_id LIMIT %(limit)s

-- name: export_capture_acts
-- The choices on capturing of one owner.
-- params: namespace text, owner_key uuid, after_number bigint, limit bigint
-- row: capture_act
SELECT a.number, a.capture::text, a.actor, a.created_at FROM strandline.capture_act a
WHERE a.namespace = %(namespace)s AND a.owner_key = %(owner_key)s AND a.number > %(after_number)s
ORDER BY a.number LIMIT %(limit)s

-- name: export_archived
-- The next ranges of messages that left an owner's logs, or one session's, or are on their way; and where they are.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_from_seq bigint, limit bigint
-- row: session_key uuid, from_seq bigint, through_seq bigint, cause text, state text, archive text?, object_name text?,
--     object_digest text?, messages integer, removed integer, kept_seqs bigint[], removed_at timestamptz?
-- repeatable
SELECT o.session_key, o.from_seq, o.through_seq, o.cause, o.state, o.archive, o.object_name, o.object_digest,
    o.messages, o.removed, o.kept_seqs, o.removed_at
FROM strandline.retention_step o
WHERE o.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR o.session_key = %(session_key)s)
    AND (o.session_key, o.from_seq) > (%(after_session_key)s::uuid, %(after_from_seq)s::bigint)
ORDER BY o.session_key, o.from_seq LIMIT %(limit)s

-- name: export_retention_acts
-- The next acts on retention of an owner's sessions, or of one.
-- params: shard_key uuid, session_key uuid?, after_session_key uuid, after_number bigint, limit bigint
-- row: session_key uuid, number bigint, ttl_seconds bigint?, max_age_seconds bigint?, max_messages bigint?, forget_facts
--     boolean?, archive text?, actor text?, created_at timestamptz
-- repeatable
SELECT a.session_key, a.number, a.ttl_seconds, a.max_age_seconds, a.max_messages, a.forget_facts, a.archive, a.actor,
    a.created_at
FROM strandline.session_retention_act a
WHERE a.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR a.session_key = %(session_key)s)
    AND (a.session_key, a.number) > (%(after_session_key)s::uuid, %(after_number)s::bigint)
ORDER BY a.session_key, a.number LIMIT %(limit)s

-- name: export_pseudonym
-- The pseudonym of an owner in the audit trail; no row if nothing was recorded of it.
-- params: shard_key uuid, limit bigint
-- row: subject uuid
-- repeatable
SELECT a.subject FROM strandline.audit_subject a WHERE a.shard_key = %(shard_key)s LIMIT %(limit)s

-- name: export_service_keys
-- The next keys of the HTTP service that open one user alone; without their digests.
-- params: namespace text, user_id text, after_key_id text, limit bigint
-- row: key_id text, scopes text[], label text, created_at timestamptz, expires_at timestamptz?, revoked_at timestamptz?
-- repeatable
SELECT k.key_id, k.scopes, k.label, k.created_at, k.expires_at, k.revoked_at FROM strandline.service_key k
WHERE k.namespace = %(namespace)s AND k.user_id = %(user_id)s AND k.key_id > %(after_key_id)s
ORDER BY k.key_id LIMIT %(limit)s
