-- Limits of namespaces, at once and per day.

-- name: set_limits
-- Set limits of a namespace; a limit that is not given (NULL) stays as it was.
-- params: max_lanes integer?, max_lanes_per_worker integer?, calls_per_day bigint?, tokens_per_day bigint?,
--     usd_per_day float8?, agents_read_only boolean?, max_sessions bigint?, max_bytes bigint?
-- row: namespace text
INSERT INTO strandline.namespace_limit AS l (namespace, max_lanes, max_lanes_per_worker, calls_per_day,
    tokens_per_day, usd_per_day, agents_read_only, max_sessions, max_bytes)
VALUES (%(namespace)s, %(max_lanes)s, %(max_lanes_per_worker)s, %(calls_per_day)s, %(tokens_per_day)s,
    %(usd_per_day)s, %(agents_read_only)s, %(max_sessions)s, %(max_bytes)s)
ON CONFLICT (namespace) DO UPDATE SET max_lanes = coalesce(excluded.max_lanes, l.max_lanes),
    max_lanes_per_worker = coalesce(excluded.max_lanes_per_worker, l.max_lanes_per_worker),
    calls_per_day = coalesce(excluded.calls_per_day, l.calls_per_day),
    tokens_per_day = coalesce(excluded.tokens_per_day, l.tokens_per_day),
    usd_per_day = coalesce(excluded.usd_per_day, l.usd_per_day),
    agents_read_only = coalesce(excluded.agents_read_only, l.agents_read_only),
    max_sessions = coalesce(excluded.max_sessions, l.max_sessions),
    max_bytes = coalesce(excluded.max_bytes, l.max_bytes), waits_until = NULL,
    waits_for = NULL, updated_at = excluded.updated_at
RETURNING namespace

-- name: clear_limits
-- Remove the named limits of a namespace.
-- params: cleared text[]
-- row: namespace text
UPDATE strandline.namespace_limit SET
    max_lanes = CASE WHEN 'max_lanes' <> ALL (%(cleared)s::text[]) THEN max_lanes END,
    max_lanes_per_worker = CASE WHEN 'max_lanes_per_worker' <> ALL (%(cleared)s::text[])
        THEN max_lanes_per_worker END,
    calls_per_day = CASE WHEN 'calls_per_day' <> ALL (%(cleared)s::text[]) THEN calls_per_day END,
    tokens_per_day = CASE WHEN 'tokens_per_day' <> ALL (%(cleared)s::text[]) THEN tokens_per_day END,
    usd_per_day = CASE WHEN 'usd_per_day' <> ALL (%(cleared)s::text[]) THEN usd_per_day END,
    agents_read_only = CASE WHEN 'agents_read_only' <> ALL (%(cleared)s::text[]) THEN agents_read_only END,
    max_sessions = CASE WHEN 'max_sessions' <> ALL (%(cleared)s::text[]) THEN max_sessions END,
    max_bytes = CASE WHEN 'max_bytes' <> ALL (%(cleared)s::text[]) THEN max_bytes END,
    waits_until = NULL, waits_for = NULL, updated_at = statement_timestamp()
WHERE namespace = %(namespace)s
RETURNING namespace

-- name: forget_cleared
-- Delete the row of a namespace without any limit.
DELETE FROM strandline.namespace_limit WHERE namespace = %(namespace)s
    AND num_nonnulls(max_lanes, max_lanes_per_worker, calls_per_day, tokens_per_day, usd_per_day,
        agents_read_only, max_sessions, max_bytes) = 0

-- name: count_anew
-- Have what a namespace has stored counted by the next put, if there is a bound on it; after a change of its limits.
WITH bounded AS MATERIALIZED (
    SELECT l.namespace FROM strandline.namespace_limit l
    WHERE l.namespace = %(namespace)s AND num_nonnulls(l.max_sessions, l.max_bytes) > 0
), unbounded AS (
    UPDATE strandline.namespace_rule u SET count_at = NULL, is_full = false
    WHERE u.namespace = %(namespace)s AND NOT EXISTS (SELECT FROM bounded)
)
INSERT INTO strandline.namespace_rule (namespace, count_at) SELECT b.namespace, statement_timestamp() FROM bounded b
ON CONFLICT (namespace) DO UPDATE SET count_at = excluded.count_at

-- name: agents_may_write
-- Whether agents may change memories of a namespace by their tools.
-- row: may_write boolean
SELECT NOT EXISTS (SELECT FROM strandline.namespace_limit l
    WHERE l.namespace = %(namespace)s AND l.agents_read_only) AS may_write

-- name: revoke_slices
-- Make workers return the slices of a namespace's budget, which were cut from the earlier one.
UPDATE strandline.budget_slice SET expires_at = '-infinity'
WHERE namespace = %(namespace)s AND expires_at > statement_timestamp()

-- name: revoked_slices
-- The namespaces whose slices this worker is to return.
-- params: days date[]
-- row: namespace text
SELECT b.namespace FROM unnest(%(namespaces)s::text[], %(days)s::date[]) AS held (namespace, day)
JOIN strandline.budget_slice b ON b.namespace = held.namespace AND b.day = held.day
    AND b.worker_id = %(worker_id)s AND b.expires_at = '-infinity'

-- name: ring_put_off
-- Ring now for a page of the work that waited for a namespace's budget; by owner, and locked in this order.
-- row: shard_key uuid
WITH page AS MATERIALIZED (
    SELECT d.shard_key, d.session_key, d.generation_id, d.stage, d.from_seq FROM strandline.due d
    WHERE d.namespace = %(namespace)s AND d.ring_at >= '5000-01-01' AND d.ring_at < 'infinity'
        AND d.shard_key >= %(from_shard)s
    ORDER BY d.shard_key, d.session_key, d.generation_id, d.stage, d.from_seq LIMIT %(limit)s FOR UPDATE
)
UPDATE strandline.due d SET ring_at = statement_timestamp() FROM page p
WHERE d.shard_key = p.shard_key AND d.session_key = p.session_key AND d.generation_id = p.generation_id
    AND d.stage = p.stage AND d.from_seq = p.from_seq
RETURNING d.shard_key

-- name: list_limits
-- The limits of namespaces, their use today, and their work under way and waiting.
-- params: dead_after_seconds numeric, namespace text?
-- row: namespace text, max_lanes integer?, max_lanes_per_worker integer?, calls_per_day bigint?, tokens_per_day
--     bigint?, usd_per_day float8?, agents_read_only boolean, max_sessions bigint?, max_bytes bigint?, sessions_stored
--     bigint?, bytes_stored bigint?, calls_today bigint, tokens_today bigint, usd_today float8, lanes_at_work bigint,
--     due bigint, waits_until timestamptz?, waits_for text!
SELECT l.namespace, l.max_lanes, l.max_lanes_per_worker, l.calls_per_day, l.tokens_per_day, l.usd_per_day,
    coalesce(l.agents_read_only, false) AS agents_read_only, l.max_sessions, l.max_bytes,
    stored.sessions AS sessions_stored, stored.bytes AS bytes_stored, used.calls_today, used.tokens_today, used.usd_today, (
        SELECT count(*) FROM strandline.lane n JOIN strandline.worker w ON w.worker_id = n.holder
        WHERE n.holder IS NOT NULL AND n.namespace = l.namespace AND n.deadline_at > statement_timestamp()
            AND @beats(w, statement_timestamp(), %(dead_after_seconds)s)) AS lanes_at_work,
    (SELECT count(*) FROM strandline.due d WHERE d.namespace = l.namespace) AS due, waits.waits_until, waits.waits_for
FROM strandline.namespace_limit l
LEFT JOIN strandline.namespace_rule stored ON stored.namespace = l.namespace AND stored.count_at IS NOT NULL
LEFT JOIN LATERAL (
    SELECT l.waits_until, l.waits_for WHERE @waits(l, statement_timestamp())) AS waits ON true
CROSS JOIN LATERAL (
    SELECT coalesce(sum(b.calls_used), 0)::bigint AS calls_today,
        coalesce(sum(b.tokens_used), 0)::bigint AS tokens_today,
        coalesce(sum(b.usd_used), 0)::double precision AS usd_today
    FROM strandline.budget_slice b
    WHERE b.namespace = l.namespace AND b.day = (statement_timestamp() AT TIME ZONE 'UTC')::date) AS used
WHERE %(namespace)s::text IS NULL OR l.namespace = %(namespace)s
ORDER BY l.namespace

-- name: take_slice
-- The next slice of a namespace's budget for this worker (take_slice_v1).
-- params: tokens_wanted bigint, slice_seconds float8
-- row: day date, has_budget boolean, is_granted boolean, calls bigint?, tokens bigint?, usd float8?, seconds float8,
--     waits_for text?
SELECT * FROM strandline.take_slice_v1(%(namespace)s, %(worker_id)s, %(day)s, %(calls_used)s, %(tokens_used)s,
    %(usd_used)s, %(tokens_wanted)s, %(slice_seconds)s)

-- name: return_slice
-- Record this worker's use of a day's budget; it no longer holds a slice of it.
INSERT INTO strandline.budget_slice AS b (namespace, day, worker_id, calls_used, calls_granted, tokens_used,
    tokens_granted, usd_used, usd_granted)
VALUES (%(namespace)s, %(day)s, %(worker_id)s, %(calls_used)s, %(calls_used)s, %(tokens_used)s, %(tokens_used)s,
    %(usd_used)s, %(usd_used)s)
ON CONFLICT (namespace, day, worker_id) DO UPDATE SET calls_used = excluded.calls_used,
    calls_granted = excluded.calls_granted, tokens_used = excluded.tokens_used,
    tokens_granted = excluded.tokens_granted, usd_used = excluded.usd_used, usd_granted = excluded.usd_granted,
    expires_at = excluded.expires_at

-- name: admit_call
-- Count a producer's model call before it is made; no row without a budget (admit_call_v1).
-- params: tokens bigint
-- row: day date?, waits_for text?, seconds float8
SELECT * FROM strandline.admit_call_v1(%(namespace)s, %(tokens)s)

-- name: settle_call
-- Count the difference between the use of a producer's call and its estimate.
-- params: calls bigint, tokens bigint, usd float8
UPDATE strandline.budget_slice SET calls_used = calls_used + %(calls)s, calls_granted = calls_used + %(calls)s,
    tokens_used = tokens_used + %(tokens)s, tokens_granted = tokens_used + %(tokens)s,
    usd_used = usd_used + %(usd)s, usd_granted = usd_used + %(usd)s
WHERE namespace = %(namespace)s AND day = %(day)s AND worker_id = '00000000-0000-0000-0000-000000000000'

-- name: record_call
-- Write a producer's model call, which belongs to no derivation, into the ledger (record_call_v1).
-- params: call_id uuid, purpose text
-- row: nothing void?
SELECT strandline.record_call_v1(%(shard_key)s, %(call_id)s, %(purpose)s, %(batch_id)s, %(step)s, %(model)s,
    %(prompt_hash)s, %(input_tokens)s, %(output_tokens)s, %(seconds)s, %(cost_usd)s::numeric) AS nothing

-- name: lock_pace
-- The pace that workers keep with a model server, as JSON, and the present in seconds; locked to the end of the
-- transaction.
-- row: pace text?, now float8
INSERT INTO strandline.replay_budget AS b (namespace, calls_left) VALUES ('server ' || %(server)s, 0)
ON CONFLICT (namespace) DO UPDATE SET filled_at = excluded.filled_at
RETURNING b.pace, extract(epoch FROM statement_timestamp())::double precision AS now

-- name: keep_pace
-- Keep the pace that was locked.
-- params: pace text
UPDATE strandline.replay_budget SET pace = %(pace)s WHERE namespace = 'server ' || %(server)s
