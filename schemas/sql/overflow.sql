-- The state of a session that an overflow handler is given with the messages.

-- name: flushed_sessions
-- The names of sessions whose events are handed over.
-- row: session_key uuid, namespace text, session_id text, user_id text?
SELECT session_key, namespace, session_id, user_id FROM strandline.session
WHERE shard_key = %(shard_key)s AND session_key = ANY (%(session_keys)s::uuid[])
