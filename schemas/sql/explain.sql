-- Statements of explain: what became of a message, and where a fact came from. They are for people, so index probes
-- per session are good enough if only an id is given.

-- name: explain_find_messages
-- Messages with this id, also from before a reset; within a session, or wherever the namespace has one.
-- params: message_id text
-- row: shard_key uuid, session_key uuid, seq bigint, session_id text, user_id text?, current boolean
SELECT m.shard_key, m.session_key, m.seq, s.session_id, s.user_id, m.incarnation = s.incarnation AS current
FROM strandline.session s
CROSS JOIN LATERAL (
    SELECT s.incarnation AS incarnation
    UNION SELECT e.incarnation FROM strandline.flush_event e
    WHERE e.shard_key = s.shard_key AND e.session_key = s.session_key AND s.log_start_seq > 1
) AS lived
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.incarnation = lived.incarnation
    AND m.id = %(message_id)s AND m.session_key = s.session_key AND @is_visible(m, m.shard_key)
WHERE s.namespace = %(namespace)s AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s)
    AND (%(user_id)s::text IS NULL OR s.user_id = %(user_id)s)
    AND (s.user_id IS NULL OR NOT %(without_user)s)
ORDER BY current DESC, m.seq DESC LIMIT 20

-- name: explain_find_seq
-- A message by its number in a session, if it is still in the log.
-- row: seq bigint
SELECT m.seq FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq = %(seq)s
    AND @is_visible(m, %(shard_key)s)

-- name: explain_find_facts
-- Facts with this id.
-- params: owner_key uuid?
-- row: shard_key uuid, generation_id integer
SELECT f.shard_key, f.generation_id FROM (
    SELECT s.shard_key FROM strandline.session s
    WHERE s.namespace = %(namespace)s AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s)
        AND (%(user_id)s::text IS NULL OR s.user_id = %(user_id)s)
        AND (s.user_id IS NULL OR NOT %(without_user)s)
    UNION SELECT %(owner_key)s::uuid) AS o
CROSS JOIN strandline.generation g
JOIN strandline.fact f ON f.shard_key = o.shard_key AND f.generation_id = g.generation_id
    AND f.fact_id = %(fact_id)s
ORDER BY g.state = 'serving' DESC, f.generation_id DESC

-- name: explain_find_fact_events
-- The owners who had this fact, by people's events or by its messages, even if it is gone.
-- params: owner_key uuid?
-- row: shard_key uuid
SELECT DISTINCT e.shard_key FROM (
    SELECT s.shard_key FROM strandline.session s
    WHERE s.namespace = %(namespace)s AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s)
        AND (%(user_id)s::text IS NULL OR s.user_id = %(user_id)s)
        AND (s.user_id IS NULL OR NOT %(without_user)s)
    UNION SELECT %(owner_key)s::uuid) AS o
JOIN (
    SELECT e.shard_key, e.fact_id FROM strandline.fact_event e
    UNION ALL SELECT f.shard_key, f.fact_id FROM strandline.former_fact f) AS e
    ON e.shard_key = o.shard_key AND e.fact_id = %(fact_id)s

-- name: explain_successors
-- The facts of the serving derivation that come from the messages of a fact which that does not have.
-- row: fact_text
-- opens: text
SELECT DISTINCT f.fact_id, f.text FROM (
    SELECT r.session_key, r.seqs FROM strandline.fact_revision r
    WHERE r.shard_key = %(shard_key)s AND r.fact_id = %(fact_id)s AND r.session_key IS NOT NULL
    UNION SELECT o.session_key, o.seqs FROM strandline.former_fact o
    WHERE o.shard_key = %(shard_key)s AND o.fact_id = %(fact_id)s) AS told
CROSS JOIN @serving(%(shard_key)s, '{facts}') AS g
JOIN strandline.fact_revision r ON r.shard_key = %(shard_key)s AND r.generation_id = g.generation_id
    AND r.session_key = told.session_key AND r.seqs && told.seqs
JOIN strandline.fact f ON f.shard_key = %(shard_key)s AND f.generation_id = g.generation_id AND f.fact_id = r.fact_id
    AND f.live
WHERE NOT EXISTS (
    SELECT FROM strandline.fact own WHERE own.shard_key = %(shard_key)s
        AND own.generation_id = g.generation_id AND own.fact_id = %(fact_id)s)
ORDER BY f.fact_id LIMIT 20

-- name: explain_message
-- A message, its session's marks, and the event that delivered it.
-- row: seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata text?,
--     namespace text, session_id text, user_id text?, pinned_through bigint, window_from bigint, current boolean,
--     pipelines text[], fed text[], feeds text[], event_id uuid?, cause text!, from_seq bigint!, through_seq bigint!,
--     flushed_at timestamptz!
-- opens: envelope, metadata
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text,
    s.namespace, s.session_id, s.user_id, s.pinned_through, s.window_from,
    m.incarnation = s.incarnation AS current,
    @ever_fed(%(shard_key)s, %(session_key)s) AS pipelines,
    @fed(%(shard_key)s, %(session_key)s, m.seq) AS fed, s.pipelines AS feeds,
    e.event_id, e.cause, e.from_seq, e.through_seq, e.created_at AS flushed_at
FROM strandline.message m
JOIN strandline.session s ON s.shard_key = m.shard_key AND s.session_key = m.session_key
LEFT JOIN LATERAL (
    SELECT * FROM strandline.flush_event f WHERE f.shard_key = %(shard_key)s
        AND f.session_key = %(session_key)s AND f.from_seq <= m.seq ORDER BY f.from_seq DESC LIMIT 1
) AS e ON e.through_seq >= m.seq
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq = %(seq)s

-- name: explain_stages
-- The outcome of an event, stage by stage, in each generation of the session's pipelines.
-- A lane that was not tried because its provider refuses everything has no error: the workers report it.
-- A budget that a namespace waits for is used up; or it is not, and other workers hold slices of the rest.
-- row: pipeline text, generation_id integer, generation_state text, stage text, outcome text?, applied_at
--     timestamptz!, batch_id uuid?, batch_stage text?, batch_events integer!, event_ids uuid[]!,
--     context_seqs bigint[]!, capture_number bigint?, due_since timestamptz?, reason text?, dropped_at timestamptz?,
--     retry_at timestamptz?, error text?, failures integer?, postponements integer!, held boolean, next_attempt_at
--     timestamptz!, ready_at timestamptz?, waits_until timestamptz?, waits_for text?, is_used_up boolean
SELECT g.pipeline, g.generation_id, g.state AS generation_state, stages.stage, r.outcome, r.applied_at,
    r.batch_id, b.stage AS batch_stage, cardinality(b.event_ids) AS batch_events, b.event_ids, b.context_seqs,
    b.capture_number, d.created_at AS due_since,
    dl.reason, dl.dropped_at, dl.retry_at, coalesce(l.last_error, (
        SELECT w.condition -> 'reasons' ->> (g.generation_id || '/' || stages.stage)
        FROM strandline.worker w WHERE w.heartbeat_at > statement_timestamp() - interval '1 minute'
        ORDER BY 1 LIMIT 1)) AS error, l.failures, l.postponements,
    l.holder IS NOT NULL AS held, l.next_attempt_at,
    CASE WHEN NOT @is_ready(d, statement_timestamp()) THEN d.ready_at END AS ready_at,
    n.waits_until, n.waits_for, coalesce((
        SELECT (n.waits_for ~ 'calls' AND coalesce(sum(b.calls_used), 0) >= n.calls_per_day)
            OR (n.waits_for ~ 'tokens' AND coalesce(sum(b.tokens_used), 0) >= n.tokens_per_day)
            OR (n.waits_for ~ 'usd' AND coalesce(sum(b.usd_used), 0) >= n.usd_per_day)
        FROM strandline.budget_slice b WHERE b.namespace = n.namespace
            AND b.day = (statement_timestamp() AT TIME ZONE 'UTC')::date), false) AS is_used_up
FROM strandline.flush_event e
JOIN strandline.generation g ON g.pipeline = ANY (%(pipelines)s::text[])
CROSS JOIN LATERAL (
    SELECT g.entry_stage AS stage, 0 AS place
    UNION ALL
    SELECT c.stage, 1 FROM unnest(%(stages)s::text[], %(stages_before)s::text[]) AS c (stage, before)
    WHERE c.before = g.entry_stage
) AS stages
LEFT JOIN strandline.receipt r ON r.shard_key = %(shard_key)s AND r.event_id = e.event_id
    AND r.generation_id = g.generation_id AND r.stage = stages.stage
LEFT JOIN strandline.batch b ON b.shard_key = %(shard_key)s AND b.batch_id = r.batch_id
LEFT JOIN strandline.due d ON d.shard_key = %(shard_key)s AND d.session_key = e.session_key
    AND d.generation_id = g.generation_id AND d.stage = stages.stage AND d.from_seq = e.from_seq
LEFT JOIN strandline.dead_letter dl ON dl.shard_key = %(shard_key)s AND dl.session_key = e.session_key
    AND dl.generation_id = g.generation_id AND dl.stage = stages.stage AND dl.from_seq = e.from_seq
LEFT JOIN strandline.lane l ON l.shard_key = %(shard_key)s AND l.scope_key = d.scope_key
    AND l.generation_id = g.generation_id AND l.stage = stages.stage
LEFT JOIN strandline.namespace_limit n ON n.namespace = d.namespace AND @waits(n, statement_timestamp())
WHERE e.shard_key = %(shard_key)s AND e.event_id = %(event_id)s
ORDER BY g.pipeline, g.generation_id, stages.place

-- name: explain_calls
-- The ledger of some batches: model, time, tokens and cost of each call.
-- params: batch_ids uuid[]
-- row: batch_id uuid, step text, model text, prompt_hash text, input_tokens bigint, output_tokens bigint, cost_usd
--     float8?, seconds float8, created_at timestamptz
SELECT c.batch_id, c.step, c.model, c.prompt_hash, c.input_tokens, c.output_tokens, c.cost_usd::float,
    c.seconds, c.created_at
FROM strandline.model_call c
WHERE c.shard_key = %(shard_key)s AND c.batch_id = ANY (%(batch_ids)s::uuid[])
ORDER BY c.created_at

-- name: explain_candidates
-- The candidates that extract found in a message, and the person's event that dropped each, if any.
-- row: generation_id integer, event_id uuid, text text, batch_id uuid, dropped_by bigint?, withheld_by bigint?,
--     kind text?
-- opens: text
SELECT c.generation_id, c.event_id, c.text, c.batch_id, c.dropped_by, c.withheld_by, (
    SELECT e.kind FROM strandline.fact_event e WHERE e.shard_key = %(shard_key)s AND e.number = c.dropped_by)
FROM strandline.fact_candidate c
WHERE c.shard_key = %(shard_key)s AND c.session_key = %(session_key)s AND c.seqs @> ARRAY[%(seq)s::bigint]
ORDER BY c.generation_id, c.event_id, c.ordinal

-- name: explain_cited
-- The facts that cite a message, and the operation it led to in each.
-- row: fact_id uuid, generation_id integer, text text, live boolean, operations text[]
-- opens: text
SELECT f.fact_id, f.generation_id, f.text, f.live, array_agg(r.operation ORDER BY r.revision) AS operations
FROM strandline.fact_revision r
JOIN strandline.fact f ON f.shard_key = r.shard_key AND f.generation_id = r.generation_id
    AND f.fact_id = r.fact_id
WHERE r.shard_key = %(shard_key)s AND r.session_key = %(session_key)s AND r.seqs @> ARRAY[%(seq)s::bigint]
GROUP BY f.shard_key, f.generation_id, f.fact_id, f.text, f.live
ORDER BY f.generation_id, min(r.created_at), f.fact_id

-- name: explain_contexts
-- The batches that a message was shown to as context, and the messages that they were made of.
-- row: generation_id integer, batch_id uuid, from_seq bigint, through_seq bigint
SELECT b.generation_id, b.batch_id, min(e.from_seq) AS from_seq, max(e.through_seq) AS through_seq
FROM strandline.batch b
JOIN strandline.flush_event e ON e.shard_key = b.shard_key AND e.event_id = ANY (b.event_ids)
WHERE b.shard_key = %(shard_key)s AND b.scope_key = %(session_key)s
    AND b.context_seqs @> ARRAY[%(seq)s::bigint] AND b.state IN ('open', 'applied')
GROUP BY b.generation_id, b.batch_id ORDER BY b.generation_id, from_seq

-- name: explain_chunks
-- The searchable pieces that hold a message.
-- row: generation_id integer, from_seq bigint, through_seq bigint, pieces bigint
SELECT c.generation_id, c.from_seq, c.through_seq, count(*) AS pieces FROM strandline.chunk c
WHERE c.shard_key = %(shard_key)s AND c.session_key = %(session_key)s
    AND %(seq)s::bigint BETWEEN c.from_seq AND c.through_seq
GROUP BY c.generation_id, c.from_seq, c.through_seq ORDER BY c.generation_id, c.from_seq

-- name: explain_states
-- The first state of each folding pipeline that a message went into.
-- row: generation_id integer, through_seq bigint, state text, batch_id uuid, created_at timestamptz
-- opens: state
SELECT DISTINCT ON (b.generation_id) b.generation_id, b.through_seq, b.state::text, b.batch_id, b.created_at
FROM strandline.block_state b
JOIN strandline.receipt r ON r.shard_key = b.shard_key AND r.event_id = %(event_id)s
    AND r.generation_id = b.generation_id AND r.batch_id = b.batch_id AND r.outcome = 'applied'
WHERE b.shard_key = %(shard_key)s AND b.scope_key IN (%(session_key)s, %(shard_key)s)
ORDER BY b.generation_id, b.ordinal

-- name: explain_fact
-- A fact as it is; if it ended, the fact that replaced or condensed it; if it is doubtful, the fact that it may
-- contradict; and the doubtful facts that may contradict it.
-- row: fact_id uuid, generation_id integer, state text, text text, topics text[], said_by text?, about_date date?,
--     said_at timestamptz, valid_from timestamptz, valid_until timestamptz?, live boolean, invalidated_at
--     timestamptz?, invalidated_by uuid?, condensed_into uuid?, replacement text?, feedback text?, is_doubtful
--     boolean, doubt_operation text?, doubt_reason text?, doubt_fact_id uuid?, doubted text?, doubted_by uuid[],
--     created_at timestamptz, updated_at timestamptz
-- opens: text, topics, said_by, replacement text fact, feedback, doubted text fact
SELECT f.fact_id, f.generation_id, g.state, f.text, f.topics, f.said_by, f.about_date, f.said_at,
    f.valid_from, f.valid_until, f.live, f.invalidated_at, f.invalidated_by, f.condensed_into,
    o.text AS replacement, f.feedback, @is_doubtful(f, %(shard_key)s) AS is_doubtful, f.doubt_operation, f.doubt_reason,
    f.doubt_fact_id, d.text AS doubted, ARRAY(
        SELECT b.fact_id FROM strandline.fact b WHERE b.shard_key = %(shard_key)s
            AND b.generation_id = f.generation_id AND b.doubt_fact_id = f.fact_id AND @is_doubtful(b, %(shard_key)s)
        ORDER BY b.created_at, b.fact_id LIMIT 20) AS doubted_by, f.created_at, f.updated_at
FROM strandline.fact f
JOIN strandline.generation g ON g.generation_id = f.generation_id
LEFT JOIN strandline.fact o ON o.shard_key = %(shard_key)s AND o.generation_id = f.generation_id
    AND o.fact_id = coalesce(f.invalidated_by, f.condensed_into)
LEFT JOIN strandline.fact d ON d.shard_key = %(shard_key)s AND d.generation_id = f.generation_id
    AND d.fact_id = f.doubt_fact_id
WHERE f.shard_key = %(shard_key)s AND f.generation_id = %(generation_id)s AND f.fact_id = %(fact_id)s

-- name: explain_revisions
-- A fact's history, each step with its session and its flush event.
-- row: revision integer, operation text, text text, created_at timestamptz, model text?, prompt_hash text?,
--     extract_batch_id uuid?, merge_batch_id uuid?, condense_batch_id uuid?, event_id uuid?, cause text?, flushed_at
--     timestamptz!, namespace text?, session_id text!, fact_event bigint?, actor text?, carried_from integer?
-- opens: text
SELECT r.revision, r.operation, r.text, r.created_at, r.model, r.prompt_hash, r.extract_batch_id,
    r.merge_batch_id, r.condense_batch_id, r.event_id, e.cause, e.created_at AS flushed_at, s.namespace,
    s.session_id, r.fact_event, p.actor, b.carried_from
FROM @newest_revisions(%(shard_key)s, %(generation_id)s, %(fact_id)s) AS r
LEFT JOIN strandline.batch b ON b.shard_key = %(shard_key)s AND b.batch_id = r.extract_batch_id
LEFT JOIN strandline.fact_event p ON p.shard_key = %(shard_key)s AND p.number = r.fact_event
LEFT JOIN strandline.flush_event e ON e.shard_key = %(shard_key)s AND e.event_id = r.event_id
LEFT JOIN strandline.session s ON s.shard_key = %(shard_key)s AND s.session_key = r.session_key
ORDER BY r.revision

-- name: explain_fact_events
-- People's events on a fact, by its id or by the events that worded it; for a deleted fact, clearings too.
-- params: generation_id integer?
-- row: number bigint, kind text, created_at timestamptz, actor text?
SELECT e.number, e.kind, e.created_at, e.actor
FROM @newest((SELECT o.* FROM strandline.fact_event o
    WHERE o.shard_key = %(shard_key)s AND (o.fact_id = %(fact_id)s OR o.number IN (
        SELECT r.fact_event FROM strandline.fact_revision r WHERE r.shard_key = %(shard_key)s
            AND r.generation_id = %(generation_id)s::integer AND r.fact_id = %(fact_id)s)
        OR (o.kind = 'clear' AND %(generation_id)s::integer IS NULL))), number) AS e
ORDER BY e.number

-- name: explain_sources
-- The messages that a fact's history cites, the newest first, up to the one that fills a page.
-- row: source_message
-- opens: envelope, metadata
SELECT m.revision, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM @filled((SELECT r.revision, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope, m.metadata, m.bytes
    FROM @newest_revisions(%(shard_key)s, %(generation_id)s, %(fact_id)s) AS r
    CROSS JOIN LATERAL unnest(r.seqs) AS cited (seq)
    JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = r.session_key
        AND m.seq = cited.seq AND @is_visible(m, %(shard_key)s)), (page.revision, page.seq) DESC) AS m
ORDER BY m.revision, m.seq

-- name: explain_removed_sources
-- The messages that a fact's history cites and that retention has removed: by range, and where they are archived.
-- row: revision integer, from_seq bigint, through_seq bigint, cause text, removed_at timestamptz, archive text?,
--     object_name text?
SELECT r.revision, min(cited.seq) AS from_seq, max(cited.seq) AS through_seq, g.cause, g.removed_at, g.archive,
    g.object_name
FROM @newest_revisions(%(shard_key)s, %(generation_id)s, %(fact_id)s) AS r
CROSS JOIN LATERAL unnest(r.seqs) AS cited (seq)
JOIN strandline.retention_step g ON g.shard_key = %(shard_key)s AND g.session_key = r.session_key
    AND cited.seq BETWEEN g.from_seq AND g.through_seq AND g.state = 'removed' AND cited.seq <> ALL (g.kept_seqs)
GROUP BY r.revision, g.from_seq, g.cause, g.removed_at, g.archive, g.object_name ORDER BY r.revision, 2

-- name: explain_context_sources
-- The messages that extract saw as context when it found what each step of a fact's history says, as far as they fill
-- a page.
-- row: source_message
-- opens: envelope, metadata
SELECT m.revision, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM @filled((SELECT r.revision, m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope, m.metadata, m.bytes
    FROM @newest_revisions(%(shard_key)s, %(generation_id)s, %(fact_id)s) AS r
    JOIN strandline.batch b ON b.shard_key = %(shard_key)s AND b.batch_id = r.extract_batch_id
    CROSS JOIN LATERAL unnest(b.context_seqs) AS shown (seq)
    JOIN strandline.message m ON m.shard_key = %(shard_key)s AND m.session_key = r.session_key AND m.seq = shown.seq
        AND @is_visible(m, %(shard_key)s)), (page.revision, page.seq) DESC) AS m
ORDER BY m.revision, m.seq
