-- Flushing: moving messages out of the window, and watching the sessions in which no put decides it.

-- name: plan_window
-- The input of a flush plan: marks, policy and the window's entries, in one snapshot.
-- row: to_flush text?
-- repeatable
SELECT strandline.window_v1(%(shard_key)s, %(session_key)s) AS to_flush

-- name: flush
-- Move the marks and record the events, if nothing changed since the plan.
-- params: corrections integer, window_from bigint, flushed_through bigint, tokens_out bigint, messages_out integer,
--     bytes_out bigint, cause text, tokens bigint[], messages integer[], version smallint,
--     delay_seconds float8, traceparent text?
-- row: generation_id integer?, stage text!, scope_key uuid!
-- repeatable
SELECT generation_id, stage, scope_key FROM strandline.flush_v1(
    %(shard_key)s, %(session_key)s, %(incarnation)s, %(corrections)s, %(old_window_from)s, %(old_flushed_through)s,
    %(window_from)s, %(flushed_through)s, %(tokens_out)s, %(messages_out)s, %(bytes_out)s, %(cause)s, %(event_ids)s::uuid[],
    %(from_seqs)s::bigint[], %(through_seqs)s::bigint[], %(tokens)s::bigint[], %(messages)s::integer[],
    %(version)s::smallint, %(lazily)s::boolean, %(delay_seconds)s,
    %(traceparent)s)

-- name: end_delay
-- The work of a session waits no longer for more to share its model calls; returns its lanes.
-- row: lane
WITH waiting AS MATERIALIZED (
    SELECT d.generation_id, d.stage, d.from_seq FROM strandline.due d
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s AND d.ready_at IS NOT NULL
    ORDER BY d.generation_id, d.stage, d.from_seq FOR UPDATE SKIP LOCKED
)
UPDATE strandline.due d SET ready_at = NULL, ring_at = statement_timestamp() FROM waiting w
WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s
    AND d.generation_id = w.generation_id AND d.stage = w.stage AND d.from_seq = w.from_seq
RETURNING d.shard_key, d.scope_key, d.generation_id, d.stage

-- name: postpone_planning
-- Nothing could be flushed: do not plan again before the window has grown by so much.
-- params: tokens_more bigint
-- repeatable
UPDATE strandline.session SET replan_at_tokens = pinned_tokens + window_tokens + %(tokens_more)s
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND incarnation = %(incarnation)s
    AND window_from = %(old_window_from)s AND flushed_through = %(old_flushed_through)s

-- name: ripe_watches
-- Sessions that it is time to look at.  Nothing is locked: a flush is a compare-and-set.
-- row: shard_key uuid, session_key uuid, watch_id uuid, cause text
SELECT w.shard_key, w.session_key, w.watch_id, w.cause FROM strandline.watch w
WHERE w.check_at <= statement_timestamp() ORDER BY w.check_at LIMIT %(limit)s

-- name: end_watch
-- Delete a watch that was looked at.
-- repeatable
DELETE FROM strandline.watch
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND watch_id = %(watch_id)s

-- name: watch_again
-- The session was used since: replace this watch by one for the end of its new idle period.
-- repeatable
WITH ended AS (
    DELETE FROM strandline.watch
    WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND watch_id = %(watch_id)s
    RETURNING shard_key, session_key
)
INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
SELECT shard_key, session_key, 'idle', statement_timestamp() + make_interval(secs => %(wait_seconds)s) FROM ended

-- name: put_off_watch
-- Looking at this session failed: let the others come first for a while.
-- row: watch_id uuid
UPDATE strandline.watch SET check_at = statement_timestamp() + make_interval(secs => %(wait_seconds)s)
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND watch_id = %(watch_id)s
RETURNING watch_id
