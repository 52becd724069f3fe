-- Taking the newest message back.

-- name: newest_message
-- What a pop would take.
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    AND m.seq >= s.log_start_seq
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
ORDER BY m.seq DESC LIMIT 1

-- name: pop
-- Take it, if it is still the newest, and the pipelines do not have it.
SELECT strandline.pop_v1(%(shard_key)s, %(session_key)s, %(seq)s, %(pop_id)s)
