-- What namespaces may use at once and per day.

-- name: set_limits
-- A namespace may use so much from now on; what waits for its budget is looked at again.
INSERT INTO strandline.namespace_limit AS l (namespace, max_lanes, max_lanes_per_worker, calls_per_day,
    tokens_per_day, usd_per_day)
VALUES (%(namespace)s, %(max_lanes)s, %(max_lanes_per_worker)s, %(calls_per_day)s, %(tokens_per_day)s,
    %(usd_per_day)s)
ON CONFLICT (namespace) DO UPDATE SET max_lanes = excluded.max_lanes,
    max_lanes_per_worker = excluded.max_lanes_per_worker, calls_per_day = excluded.calls_per_day,
    tokens_per_day = excluded.tokens_per_day, usd_per_day = excluded.usd_per_day, waits_until = NULL,
    waits_for = NULL, updated_at = clock_timestamp()
RETURNING namespace

-- name: clear_limits
-- A namespace may use as much as there is.
DELETE FROM strandline.namespace_limit WHERE namespace = %(namespace)s RETURNING namespace

-- name: ring_namespace
-- What was put off for a namespace's budget is rung for at once.
UPDATE strandline.due SET ring_at = clock_timestamp()
WHERE namespace = %(namespace)s AND ring_at < 'infinity' AND ring_at > clock_timestamp()
RETURNING event_id

-- name: list_limits
-- What namespaces may use, what they used today, and what of theirs is at work and waits.
SELECT l.namespace, l.max_lanes, l.max_lanes_per_worker, l.calls_per_day, l.tokens_per_day, l.usd_per_day,
    used.calls, used.tokens, used.usd, (
        SELECT count(*) FROM strandline.lane n JOIN strandline.worker w ON w.worker_id = n.holder
        WHERE n.holder IS NOT NULL AND n.namespace = l.namespace AND n.deadline_at > clock_timestamp()
            AND abs(extract(epoch FROM clock_timestamp() - w.heartbeat_at)) < %(dead_after_seconds)s) AS lanes,
    (SELECT count(*) FROM strandline.due d WHERE d.namespace = l.namespace) AS due,
    CASE WHEN l.waits_until > clock_timestamp() THEN l.waits_until END AS waits_until,
    CASE WHEN l.waits_until > clock_timestamp() THEN l.waits_for END AS waits_for
FROM strandline.namespace_limit l CROSS JOIN LATERAL (
    SELECT coalesce(sum(b.calls_used), 0)::bigint AS calls, coalesce(sum(b.tokens_used), 0)::bigint AS tokens,
        coalesce(sum(b.usd_used), 0)::double precision AS usd
    FROM strandline.budget_slice b
    WHERE b.namespace = l.namespace AND b.day = (clock_timestamp() AT TIME ZONE 'UTC')::date) AS used
WHERE %(namespace)s::text IS NULL OR l.namespace = %(namespace)s
ORDER BY l.namespace

-- name: take_slice
-- The next slice of a namespace's budget for this worker (take_slice_v1).
SELECT * FROM strandline.take_slice_v1(%(namespace)s, %(worker_id)s, %(day)s, %(calls_used)s, %(tokens_used)s,
    %(usd_used)s, %(tokens_wanted)s, %(slice_seconds)s)

-- name: return_slice
-- What this worker used of a day's budget; it holds nothing of it any more.
INSERT INTO strandline.budget_slice AS b (namespace, day, worker_id, calls_used, calls_granted, tokens_used,
    tokens_granted, usd_used, usd_granted)
VALUES (%(namespace)s, %(day)s, %(worker_id)s, %(calls_used)s, %(calls_used)s, %(tokens_used)s, %(tokens_used)s,
    %(usd_used)s, %(usd_used)s)
ON CONFLICT (namespace, day, worker_id) DO UPDATE SET calls_used = excluded.calls_used,
    calls_granted = excluded.calls_granted, tokens_used = excluded.tokens_used,
    tokens_granted = excluded.tokens_granted, usd_used = excluded.usd_used, usd_granted = excluded.usd_granted,
    expires_at = excluded.expires_at
