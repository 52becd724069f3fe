-- Flushing: what leaves the window, and watching the sessions in which it is not decided by a put.

-- name: plan_window
-- What a flush plan is made from: marks, policy and the window's entries, in one snapshot.
SELECT strandline.window_v1(%(shard_key)s, %(session_key)s)

-- name: flush
-- Move the marks and record the events, if nothing changed since the plan.
SELECT generation_id, stage, scope_key FROM strandline.flush_v1(
    %(shard_key)s, %(session_key)s, %(incarnation)s, %(old_window_from)s, %(old_flushed_through)s,
    %(window_from)s, %(flushed_through)s, %(tokens_out)s, %(messages_out)s, %(bytes_out)s, %(cause)s, %(event_ids)s::uuid[],
    %(from_seqs)s::bigint[], %(through_seqs)s::bigint[], %(tokens)s::bigint[], %(messages)s::integer[],
    %(version)s::smallint, %(lazily)s::boolean)

-- name: postpone_planning
-- Nothing could be flushed: do not plan again before the window has grown by so much.
UPDATE strandline.session SET replan_at_tokens = pinned_tokens + window_tokens + %(tokens_more)s
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND incarnation = %(incarnation)s
    AND window_from = %(old_window_from)s AND flushed_through = %(old_flushed_through)s

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
