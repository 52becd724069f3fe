-- Export (docs/architecture/erasure.md).  Written by `make queries` from schemas/tables.
-- name: export_audit_subject
-- The next rows of audit_subject of an owner.
-- row: subject uuid
SELECT t.subject
FROM strandline.audit_subject t
WHERE t.shard_key = %(shard_key)s
LIMIT %(limit)s

-- name: export_capture_act
-- The next rows of capture_act of an owner.
-- params: owner_key uuid, after_number bigint
-- row: capture_act
SELECT t.number, t.capture::text, t.actor, t.created_at
FROM strandline.capture_act t
WHERE t.namespace = %(namespace)s AND t.owner_key = %(owner_key)s AND (t.number) > (%(after_number)s::bigint)
ORDER BY t.number LIMIT %(limit)s

-- name: export_correction
-- The next rows of correction of an owner, or of one session.
-- params: session_key uuid?, after_number integer
-- row: session_key uuid, number integer, correction text, from_seq bigint, through_seq bigint, actor text?, created_at
--     timestamptz
SELECT t.session_key, t.number, t.kind AS correction, t.from_seq, t.through_seq, t.actor, t.created_at
FROM strandline.correction t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.session_key, t.number) > (%(after_session_key)s::uuid, %(after_number)s::integer)
ORDER BY t.session_key, t.number LIMIT %(limit)s

-- name: export_dead_letter
-- The next rows of dead_letter of an owner, or of one session.
-- params: session_key uuid?, after_generation_id integer, after_stage text, after_from_seq bigint
-- row: session_key uuid, generation_id integer, stage text, from_seq bigint, through_seq bigint, event_id uuid, reason
--     text, created_at timestamptz, dropped_at timestamptz?
SELECT t.session_key, t.generation_id, t.stage, t.from_seq, t.through_seq, t.event_id, t.reason, t.created_at,
    t.dropped_at
FROM strandline.dead_letter t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.session_key, t.generation_id, t.stage, t.from_seq) > (%(after_session_key)s::uuid,
    %(after_generation_id)s::integer, %(after_stage)s::text, %(after_from_seq)s::bigint)
ORDER BY t.session_key, t.generation_id, t.stage, t.from_seq LIMIT %(limit)s

-- name: export_fact
-- The next rows of fact of an owner, or of one session.
-- params: session_key uuid?, after_generation_id integer, after_fact_id uuid
-- row: generation_id integer, fact_id uuid, text text, topics text[], said_by text?, about_date date?, said_at
--     timestamptz, valid_from timestamptz, valid_until timestamptz?, live boolean, invalidated_at timestamptz?,
--     invalidated_by uuid?, condensed_into uuid?, input text?, agent_id text?, team_id text?, feedback text?,
--     doubt_operation text?, doubt_reason text?, doubt_fact_id uuid?, created_at timestamptz, updated_at timestamptz
-- opens: text, topics, said_by, input, feedback
SELECT t.generation_id, t.fact_id, t.text, t.topics, t.said_by, t.about_date, t.said_at, t.valid_from, t.valid_until,
    t.live, t.invalidated_at, t.invalidated_by, t.condensed_into, t.input, t.agent_id, t.team_id, t.feedback,
    t.doubt_operation, t.doubt_reason, t.doubt_fact_id, t.created_at, t.updated_at
FROM strandline.fact t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR @is_fact_of(t, %(shard_key)s, %(session_key)s))
    AND (t.generation_id, t.fact_id) > (%(after_generation_id)s::integer, %(after_fact_id)s::uuid)
ORDER BY t.generation_id, t.fact_id LIMIT %(limit)s

-- name: export_fact_candidate
-- The next rows of fact_candidate of an owner, or of one session.
-- params: session_key uuid?, after_generation_id integer, after_event_id uuid, after_ordinal integer
-- row: generation_id integer, event_id uuid, ordinal integer, session_key uuid, batch_id uuid, text text, seqs
--     bigint[], topics text[], said_by text?, about_date date?, said_at timestamptz, model text, prompt_hash text,
--     dropped_by bigint?, withheld_by bigint?
-- opens: text, topics, said_by
SELECT t.generation_id, t.event_id, t.ordinal, t.session_key, t.batch_id, t.text, t.seqs, t.topics, t.said_by,
    t.about_date, t.said_at, t.model, t.prompt_hash, t.dropped_by, t.withheld_by
FROM strandline.fact_candidate t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.generation_id, t.event_id, t.ordinal) > (%(after_generation_id)s::integer, %(after_event_id)s::uuid,
    %(after_ordinal)s::integer)
ORDER BY t.generation_id, t.event_id, t.ordinal LIMIT %(limit)s

-- name: export_fact_event
-- The next rows of fact_event of an owner.
-- params: after_number bigint
-- row: number bigint, edit text, fact_id uuid?, payload text?, actor text?, instruction uuid?, created_at timestamptz
-- opens: payload
SELECT t.number, t.kind AS edit, t.fact_id, t.payload::text, t.actor, t.instruction, t.created_at
FROM strandline.fact_event t
WHERE t.shard_key = %(shard_key)s AND (t.number) > (%(after_number)s::bigint)
ORDER BY t.number LIMIT %(limit)s

-- name: export_fact_revision
-- The next rows of fact_revision of an owner, or of one session.
-- params: session_key uuid?, after_generation_id integer, after_fact_id uuid, after_revision integer
-- row: generation_id integer, fact_id uuid, revision integer, operation text, text text, own_text text?, event_id
--     uuid?, session_key uuid?, seqs bigint[], extract_batch_id uuid?, merge_batch_id uuid?, condense_batch_id uuid?,
--     edit bigint?, model text?, prompt_hash text?, created_at timestamptz
-- opens: text, own_text
SELECT t.generation_id, t.fact_id, t.revision, t.operation, t.text, t.own_text, t.event_id, t.session_key, t.seqs,
    t.extract_batch_id, t.merge_batch_id, t.condense_batch_id, t.fact_event AS edit, t.model, t.prompt_hash,
    t.created_at
FROM strandline.fact_revision t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.generation_id, t.fact_id, t.revision) > (%(after_generation_id)s::integer, %(after_fact_id)s::uuid,
    %(after_revision)s::integer)
ORDER BY t.generation_id, t.fact_id, t.revision LIMIT %(limit)s

-- name: export_model_call
-- The next rows of model_call of an owner, or of one session.
-- params: session_key uuid?, after_call_id uuid
-- row: call_id uuid, generation_id integer?, stage text, batch_id uuid, step text, model text, prompt_hash text,
--     input_tokens bigint, output_tokens bigint, seconds float8, cost_usd numeric?, created_at timestamptz
SELECT t.call_id, t.generation_id, t.stage, t.batch_id, t.step, t.model, t.prompt_hash, t.input_tokens,
    t.output_tokens, t.seconds, t.cost_usd, t.created_at
FROM strandline.model_call t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR @is_call_of(t, %(shard_key)s, %(session_key)s))
    AND (t.call_id) > (%(after_call_id)s::uuid)
ORDER BY t.call_id LIMIT %(limit)s

-- name: export_policy_change
-- The next rows of policy_change of an owner, or of one session.
-- params: session_key uuid?, after_number integer
-- row: session_key uuid, number integer, before text, after text, actor text?, created_at timestamptz
SELECT t.session_key, t.number, t.before::text, t.after::text, t.actor, t.created_at
FROM strandline.policy_change t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.session_key, t.number) > (%(after_session_key)s::uuid, %(after_number)s::integer)
ORDER BY t.session_key, t.number LIMIT %(limit)s

-- name: export_retention_step
-- The next rows of retention_step of an owner, or of one session.
-- params: session_key uuid?, after_from_seq bigint
-- row: session_key uuid, from_seq bigint, through_seq bigint, cause text, state text, archive text?, object_name
--     text?, object_digest text?, messages integer, removed integer, kept_seqs bigint[], removed_at timestamptz?
SELECT t.session_key, t.from_seq, t.through_seq, t.cause, t.state, t.archive, t.object_name, t.object_digest,
    t.messages, t.removed, t.kept_seqs, t.removed_at
FROM strandline.retention_step t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.session_key, t.from_seq) > (%(after_session_key)s::uuid, %(after_from_seq)s::bigint)
ORDER BY t.session_key, t.from_seq LIMIT %(limit)s

-- name: export_service_key
-- The next rows of service_key of an owner.
-- params: user_id text, after_key_id text
-- row: key_id text, scopes text[], label text, created_at timestamptz, expires_at timestamptz?, revoked_at
--     timestamptz?
SELECT t.key_id, t.scopes, t.label, t.created_at, t.expires_at, t.revoked_at
FROM strandline.service_key t
WHERE t.namespace = %(namespace)s AND t.user_id = %(user_id)s AND (t.key_id) > (%(after_key_id)s::text)
ORDER BY t.key_id LIMIT %(limit)s

-- name: export_session_retention_act
-- The next rows of session_retention_act of an owner, or of one session.
-- params: session_key uuid?, after_number bigint
-- row: session_key uuid, number bigint, ttl_seconds bigint?, max_age_seconds bigint?, max_messages bigint?,
--     forget_facts boolean?, archive text?, actor text?, created_at timestamptz
SELECT t.session_key, t.number, t.ttl_seconds, t.max_age_seconds, t.max_messages, t.forget_facts, t.archive, t.actor,
    t.created_at
FROM strandline.session_retention_act t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.session_key, t.number) > (%(after_session_key)s::uuid, %(after_number)s::bigint)
ORDER BY t.session_key, t.number LIMIT %(limit)s

-- name: export_session_run
-- The next rows of session_run of an owner, or of one session.
-- params: session_key uuid?, after_run_id text
-- row: session_key uuid, run_id text, number integer, status text, agent_id text?, team_id text?, seqs bigint[],
--     created_at timestamptz, changed_at timestamptz
SELECT t.session_key, t.run_id, t.number, t.status, t.agent_id, t.team_id, t.seqs, t.created_at, t.changed_at
FROM strandline.session_run t
WHERE t.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR t.session_key = %(session_key)s) AND
    (t.session_key, t.run_id) > (%(after_session_key)s::uuid, %(after_run_id)s::text)
ORDER BY t.session_key, t.run_id LIMIT %(limit)s
