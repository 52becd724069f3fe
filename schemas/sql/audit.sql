-- The audit trail: acts appended, and the level of each namespace.

-- name: append_act
-- Append an act to the trail, in this transaction, if the namespace's level has it recorded (append_act_v1).
-- params: shard_key uuid, has_owner boolean, namespace text, user_id text?, session_key uuid?, act jsonb, lazily boolean
-- row: is_recorded boolean
SELECT strandline.append_act_v1(%(shard_key)s, %(has_owner)s, %(namespace)s, %(user_id)s, %(session_key)s,
    %(act)s::jsonb, %(lazily)s) AS is_recorded

-- name: put_one_recorded
-- As put_one, with the act in the audit trail if the namespace's level has it recorded. Without a row nothing was
-- done, and put_v1 decides; it also makes the owner's pseudonym.
-- params: tokens integer, bytes integer, role text, shard_key uuid, session_key uuid, id text, digest bytea, envelope
--     json, metadata json?, calls json?, answers text?, created_at timestamptz?, labels bigint[]?, sealed boolean,
--     entry_id uuid, level text, actor text?, origin text?, flags text[]
-- row: seq bigint, is_recorded boolean
-- repeatable
WITH moved AS (
    @move_marks(EXISTS (SELECT FROM strandline.audit_subject w WHERE w.shard_key = %(shard_key)s))
), stored AS (
    @insert_message()
    RETURNING seq
), recorded AS (
    INSERT INTO strandline.audit_entry (
        shard_key, entry_id, namespace, act, actor, origin, subject, session, seq, count, flags, created_at)
    SELECT %(shard_key)s, %(entry_id)s::uuid, n.namespace, 'put', @named_actor(%(actor)s::text, n.user_id, a.subject),
        %(origin)s::text, a.subject, @session_pseudonym(a.salt, %(session_key)s::uuid), n.seq, 1, %(flags)s::text[],
        n.last_put_at
    FROM moved n CROSS JOIN strandline.audit_subject a
    WHERE a.shard_key = %(shard_key)s AND @is_recorded(n.namespace, %(level)s::text)
    RETURNING entry_id
)
SELECT n.seq, EXISTS (SELECT FROM recorded) AS is_recorded FROM stored n

-- name: put_many_recorded
-- As put_many, with the acts in the audit trail; a message without an entry_id is left out where puts are recorded.
-- params: messages json
-- row: session_key text, seq bigint, is_recorded boolean
-- repeatable
WITH held AS (
    SELECT g.*, t.next_seq, t.incarnation, t.namespace, t.user_id, a.subject, a.salt
    FROM json_to_recordset(%(messages)s::json) AS g (
        shard_key uuid, session_key uuid, id text, role text, tokens integer, bytes integer, digest bytea,
        envelope json, metadata json, created_at timestamptz, calls json, answers text, labels bigint[], sealed boolean,
        entry_id uuid, level text, actor text, origin text, flags text[])
    JOIN strandline.session t ON t.shard_key = g.shard_key AND t.session_key = g.session_key
    LEFT JOIN strandline.audit_subject a ON a.shard_key = g.shard_key
    WHERE NOT (t.next_seq = t.pinned_through + 1 AND g.role IN ('system', 'developer'))
        AND t.pinned_tokens + t.window_tokens + g.tokens <= t.flush_at_tokens
        AND t.window_messages < t.max_window_messages AND t.window_bytes + g.bytes <= t.max_window_bytes
        AND (t.idle_seconds IS NULL OR t.watched_until >= statement_timestamp())
        AND NOT @ends_turn(t, g.role, g.calls) AND (g.sealed OR NOT t.sealed)
        AND CASE WHEN g.entry_id IS NULL THEN NOT @is_recorded(t.namespace, 'all') ELSE a.subject IS NOT NULL END
    FOR NO KEY UPDATE OF t SKIP LOCKED
), stored AS (
    INSERT INTO strandline.message (
        shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
        answers, created_at, labels)
    SELECT h.shard_key, h.session_key, h.next_seq, h.incarnation, h.id, h.role, h.tokens, h.bytes, h.digest,
        h.envelope, h.metadata, h.calls, h.answers, coalesce(h.created_at, statement_timestamp()), h.labels
    FROM held h
    ON CONFLICT (shard_key, incarnation, id) DO NOTHING
    RETURNING shard_key, session_key, seq, role, tokens, bytes
), moved AS (
    UPDATE strandline.session t SET
        next_seq = t.next_seq + 1, window_tokens = t.window_tokens + n.tokens,
        window_messages = t.window_messages + 1, window_bytes = t.window_bytes + n.bytes,
        replan_at_tokens = CASE WHEN n.role IN ('user', 'tool') THEN 0 ELSE t.replan_at_tokens END,
        last_put_at = statement_timestamp()
    FROM stored n WHERE t.shard_key = n.shard_key AND t.session_key = n.session_key
), recorded AS (
    -- At most as many as one group has: to compare all with all takes no time that counts.
    INSERT INTO strandline.audit_entry (
        shard_key, entry_id, namespace, act, actor, origin, subject, session, seq, count, flags, created_at)
    SELECT h.shard_key, h.entry_id, h.namespace, 'put', @named_actor(h.actor, h.user_id, h.subject), h.origin, h.subject,
        @session_pseudonym(h.salt, h.session_key), n.seq, 1, coalesce(h.flags, '{}'), statement_timestamp()
    FROM stored n JOIN held h ON h.session_key = n.session_key
    WHERE h.entry_id IS NOT NULL AND @is_recorded(h.namespace, h.level)
    RETURNING entry_id
)
SELECT n.session_key::text, n.seq, EXISTS (SELECT FROM recorded) AS is_recorded FROM stored n

-- name: level_of_namespace
-- The level of a namespace's trail.
-- params: namespace text
-- row: level text
-- repeatable
SELECT coalesce((SELECT l.level FROM strandline.audit_level l WHERE l.namespace = %(namespace)s), 'changes') AS level

-- name: names_of_owner
-- The names of an owner, from one of the sessions.
-- params: shard_key uuid
-- row: namespace text, user_id text?
-- repeatable
SELECT s.namespace, s.user_id FROM strandline.session s WHERE s.shard_key = %(shard_key)s LIMIT 1
