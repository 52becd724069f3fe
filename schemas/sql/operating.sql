-- What keeps the pipeline running and shows how it is: registry, heartbeat, sweep, status.

-- name: register_generation
-- The first derivation of a pipeline in this database.  One that serves already stays as it was made; only if
-- it has derived nothing yet does it take on what it is to be made with from now on.
WITH adopted AS (
    UPDATE strandline.generation g SET config = %(config)s::jsonb, prompts = %(prompts)s::jsonb
    WHERE g.pipeline = %(pipeline)s AND g.state = 'serving'
        AND (g.version, g.entry_scope) = (%(version)s, %(entry_scope)s)
        AND (g.config, g.prompts) <> (%(config)s::jsonb, %(prompts)s::jsonb)
        AND NOT EXISTS (SELECT FROM strandline.batch b WHERE b.generation_id = g.generation_id)
)
INSERT INTO strandline.generation (pipeline, version, state, entry_stage, entry_scope, config, prompts)
SELECT %(pipeline)s, %(version)s, 'serving', %(entry_stage)s, %(entry_scope)s, %(config)s::jsonb,
    %(prompts)s::jsonb
WHERE NOT EXISTS (
    SELECT FROM strandline.generation g WHERE g.pipeline = %(pipeline)s AND g.state = 'serving')
ON CONFLICT (pipeline) WHERE state = 'serving' DO NOTHING

-- name: serving_generations
-- Which derivation of each pipeline serves everybody who has none of their own.
SELECT generation_id, pipeline, version, state, entry_scope, config::text, prompts::text
FROM strandline.generation WHERE state = 'serving'
ORDER BY pipeline

-- name: beat
-- This worker lives; the database's time counts.
INSERT INTO strandline.worker (worker_id, host, pid, version, stages)
VALUES (%(worker_id)s, %(host)s, %(pid)s, %(version)s, %(stages)s::text[])
ON CONFLICT (worker_id) DO UPDATE SET heartbeat_at = clock_timestamp()

-- name: leave_out
-- Generations that this worker cannot serve: their work is left to others.
UPDATE strandline.worker SET left_out = %(generation_ids)s::integer[] WHERE worker_id = %(worker_id)s

-- name: tell_condition
-- What a worker says of itself: the messages of the broker's that it dropped, and the like.
UPDATE strandline.worker SET condition = %(condition)s::json WHERE worker_id = %(worker_id)s

-- name: leave
-- This worker goes, and gives back what it still holds, so that nobody counts it as a crash, and any sweep
-- rings for it at once.  A lane that is just being written is waited for, which is short.
WITH gone AS (
    DELETE FROM strandline.worker WHERE worker_id = %(worker_id)s
), held AS (
    SELECT l.shard_key, l.scope_key, l.generation_id, l.stage FROM strandline.lane l
    WHERE l.holder = %(worker_id)s
    ORDER BY l.shard_key, l.scope_key, l.generation_id, l.stage FOR UPDATE
), given_back AS (
    UPDATE strandline.lane l SET holder = NULL, deadline_at = NULL
    FROM held h
    WHERE l.shard_key = h.shard_key AND l.scope_key = h.scope_key AND l.generation_id = h.generation_id
        AND l.stage = h.stage
), rung AS (
    UPDATE strandline.due d SET ring_at = statement_timestamp()
    FROM held h CROSS JOIN LATERAL (
        SELECT o.session_key, o.from_seq FROM strandline.due o
        WHERE o.shard_key = h.shard_key AND o.scope_key = h.scope_key
            AND o.generation_id = h.generation_id AND o.stage = h.stage
        ORDER BY o.created_at LIMIT 1) AS oldest
    WHERE d.shard_key = h.shard_key AND d.session_key = oldest.session_key
        AND d.generation_id = h.generation_id AND d.stage = h.stage AND d.from_seq = oldest.from_seq
)
SELECT shard_key, scope_key, generation_id, stage FROM held

-- name: forget_dead_workers
-- Heartbeat rows of workers that died long ago, and what workers took of budgets of days long gone.
WITH old_slices AS (
    DELETE FROM strandline.budget_slice WHERE day < (clock_timestamp() AT TIME ZONE 'UTC')::date - 7
)
DELETE FROM strandline.worker WHERE heartbeat_at < clock_timestamp() - interval '1 hour'

-- name: ring_due
-- Lanes of a stage with work that nobody picked up: postpone the next look, and say which they are.
-- The wait doubles up to 8 seconds, so that a backlog is not rung for again and again.  What waits for its
-- namespace's budget is not rung for: its time lies 5,000 years behind the end of the wait, where only those find it
-- who look for it (bring_rings_forward).  The limits are locked, so that those who set others find all that was put
-- off by the former ones.
-- (clock_timestamp() is volatile: compared with it, the index would be read to its end.)
-- (By place, since rows that are locked here do not move: by keys, a plan made while nothing was due would
-- compare them with all that is due later.)
WITH ripe AS (
    SELECT d.ctid AS place, (
        SELECT n.waits_until FROM strandline.namespace_limit n
        WHERE n.namespace = d.namespace AND n.waits_until > statement_timestamp()
            AND n.waits_until <= statement_timestamp() + interval '1 day' FOR SHARE) AS waits_until
    FROM strandline.due d
    WHERE d.stage = %(stage)s AND d.ring_at <= statement_timestamp()
    ORDER BY d.ring_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), rung AS (
    UPDATE strandline.due d SET rings = d.rings + 1,
        ring_at = coalesce(r.waits_until + interval '5000 years', clock_timestamp()
            + make_interval(secs => least(8, power(2, d.rings + 1)) * (0.75 + random() / 2)))
    FROM ripe r WHERE d.ctid = r.place
    RETURNING d.shard_key, d.scope_key, d.generation_id, d.stage, r.waits_until
)
SELECT DISTINCT shard_key, scope_key, generation_id, stage FROM rung WHERE waits_until IS NULL

-- name: bring_rings_forward
-- Work that is to be rung for later than any wait is long: the clock has stepped back.  And work whose namespace has
-- waited for its budget long enough (ring_due).
WITH ahead AS (
    SELECT d.ctid AS place FROM strandline.due d
    WHERE d.stage = ANY (%(stages)s::text[]) AND d.ring_at > statement_timestamp() + interval '10 seconds'
        AND d.ring_at < '5000-01-01'
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), waited AS (
    SELECT d.ctid AS place FROM strandline.due d
    WHERE d.stage = ANY (%(stages)s::text[]) AND d.ring_at >= '5000-01-01'
        AND d.ring_at <= statement_timestamp() + interval '5000 years'
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE strandline.due d SET ring_at = statement_timestamp()
FROM (SELECT place FROM ahead UNION ALL SELECT place FROM waited) AS a WHERE d.ctid = a.place

-- name: orphaned_lanes
-- Lanes whose holder died or kept them past their deadline: taken over at once, whatever ring_at says and
-- whatever waits in the queue.
SELECT l.shard_key, l.scope_key, l.generation_id, l.stage FROM strandline.lane l
WHERE l.holder IS NOT NULL AND l.stage = ANY (%(stages)s::text[])
    AND (l.deadline_at < clock_timestamp() OR NOT EXISTS (
        SELECT FROM strandline.worker w WHERE w.worker_id = l.holder
            AND abs(extract(epoch FROM clock_timestamp() - w.heartbeat_at)) < %(dead_after_seconds)s))
    AND EXISTS (
        SELECT FROM strandline.due d WHERE d.shard_key = l.shard_key AND d.scope_key = l.scope_key
            AND d.generation_id = l.generation_id AND d.stage = l.stage AND d.ring_at < 'infinity')
LIMIT %(limit)s

-- name: ripe_watches
-- Sessions that it is time to look at.  Nothing is locked: a flush is a compare-and-set.
SELECT w.shard_key, w.session_key, w.watch_id, w.cause FROM strandline.watch w
WHERE w.check_at <= statement_timestamp() ORDER BY w.check_at LIMIT %(limit)s

-- name: end_watch
-- Looked at.
DELETE FROM strandline.watch
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND watch_id = %(watch_id)s

-- name: watch_again
-- The session was used since: replace this watch by one for when it will have been idle for its time.
WITH ended AS (
    DELETE FROM strandline.watch
    WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND watch_id = %(watch_id)s
    RETURNING shard_key, session_key
)
INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
SELECT shard_key, session_key, 'idle', clock_timestamp() + make_interval(secs => %(wait_seconds)s) FROM ended

-- name: put_off_watch
-- Looking at this session failed: let the others come first for a while.
UPDATE strandline.watch SET check_at = clock_timestamp() + make_interval(secs => %(wait_seconds)s)
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND watch_id = %(watch_id)s
RETURNING watch_id

-- name: status_pipelines
-- Per stage: what is due, held, dead, and how old the oldest work is that waits for no budget (ring_due).
SELECT g.pipeline, g.generation_id, g.state, g.entry_stage, g.config::text, (
    SELECT coalesce(json_agg(x), '[]') FROM (
        SELECT d.stage, count(*) AS due, coalesce(extract(epoch FROM clock_timestamp() - min(d.created_at)
            FILTER (WHERE d.ring_at < '5000-01-01' OR d.ring_at = 'infinity')), 0) AS lag_seconds
        FROM strandline.due d WHERE d.generation_id = g.generation_id GROUP BY d.stage) AS x)::text AS due, (
    SELECT coalesce(json_agg(x), '[]') FROM (
        SELECT l.stage, count(*) AS leased FROM strandline.lane l
        JOIN strandline.worker w ON w.worker_id = l.holder
        WHERE l.generation_id = g.generation_id AND l.holder IS NOT NULL
            AND l.deadline_at > clock_timestamp()
            AND abs(extract(epoch FROM clock_timestamp() - w.heartbeat_at)) < %(dead_after_seconds)s
        GROUP BY l.stage) AS x)::text AS leased, (
    SELECT coalesce(json_agg(x), '[]') FROM (
        SELECT d.stage, count(*) AS dead FROM strandline.dead_letter d
        WHERE d.generation_id = g.generation_id AND d.dropped_at IS NULL GROUP BY d.stage) AS x)::text AS dead
FROM strandline.generation g WHERE g.state <> 'retired' ORDER BY g.pipeline, g.generation_id

-- name: status_totals
-- How much there is; of what is derived, what serves.
SELECT (SELECT count(*) FROM strandline.session) AS sessions,
    (SELECT count(*) FROM strandline.message) AS messages,
    (SELECT count(*) FROM strandline.flush_event) AS events,
    (SELECT count(*) FROM strandline.fact f JOIN strandline.generation g USING (generation_id)
        WHERE f.live AND g.state = 'serving') AS facts,
    (SELECT count(*) FROM strandline.chunk JOIN strandline.generation g USING (generation_id)
        WHERE g.state = 'serving') AS chunks,
    (SELECT coalesce(json_agg(x), '[]') FROM (
        SELECT c.model, count(*) AS calls, sum(c.input_tokens) AS input_tokens,
            sum(c.output_tokens) AS output_tokens, sum(c.cost_usd)::float AS cost_usd
        FROM strandline.model_call c GROUP BY c.model ORDER BY c.model) AS x)::text AS calls_by_model

-- name: status_workers
-- Who is alive, and what each one serves.
SELECT worker_id, host, pid, version, stages, started_at,
    extract(epoch FROM clock_timestamp() - heartbeat_at) AS beat_seconds_ago, left_out,
    condition::text
FROM strandline.worker
WHERE abs(extract(epoch FROM clock_timestamp() - heartbeat_at)) < %(dead_after_seconds)s
ORDER BY started_at

-- name: find_sessions
-- Sessions of a namespace by name or user, for commands.
SELECT o.namespace, o.session_id, o.user_id FROM strandline.session_owner o
WHERE o.namespace = %(namespace)s
    AND (%(session_id)s::text IS NULL OR o.session_id = %(session_id)s)
    AND (%(user_id)s::text IS NULL OR o.user_id = %(user_id)s)
ORDER BY o.session_id LIMIT %(limit)s

-- name: schema_revision
-- Which migration the tables are at.
SELECT version_num FROM strandline.alembic_version
