-- Workers: their heartbeats and their reports.

-- name: beat
-- Record a heartbeat of this worker, by the database's clock.
-- params: host text, pid integer, version text
-- repeatable
INSERT INTO strandline.worker (worker_id, host, pid, version, stages)
VALUES (%(worker_id)s, %(host)s, %(pid)s, %(version)s, %(stages)s::text[])
ON CONFLICT (worker_id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at

-- name: tell_unbuildable
-- Generations that this worker cannot serve: their work is left to others.
UPDATE strandline.worker SET unbuildable = %(generation_ids)s::integer[] WHERE worker_id = %(worker_id)s

-- name: tell_condition
-- Record a worker's condition: the broker's messages that it dropped, and the like.
-- params: condition json
UPDATE strandline.worker SET condition = %(condition)s::json WHERE worker_id = %(worker_id)s

-- name: leave
-- Remove this worker, and release the lanes it still holds, so that they do not count as crashes, and any sweep
-- rings for them at once. Wait for a lane that is being written, which is short.
-- row: lane
WITH gone AS (
    DELETE FROM strandline.worker WHERE worker_id = %(worker_id)s
), held AS (
    SELECT l.shard_key, l.scope_key, l.generation_id, l.stage FROM strandline.lane l
    WHERE l.holder = %(worker_id)s
    ORDER BY l.shard_key, l.scope_key, l.generation_id, l.stage FOR UPDATE
), released AS (
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
-- Delete heartbeat rows of workers that died long ago, and budget slices of days long gone.
WITH old_slices AS (
    DELETE FROM strandline.budget_slice WHERE day < (statement_timestamp() AT TIME ZONE 'UTC')::date - 7
)
DELETE FROM strandline.worker WHERE heartbeat_at < statement_timestamp() - interval '1 hour'
