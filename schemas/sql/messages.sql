-- Messages: put, import, read, pop and reset.

-- name: put_one
-- Accept one message in the simple case: the session exists, the message is not part of its head, crosses none of its
-- marks, ends no turn that is to be delivered, and no watch has to be planned. No row: nothing was done, and put_v1 decides. It also decides if the id was
-- used before: the unique index refuses it then, which undoes all of this.
-- params: tokens integer, bytes integer, role text, shard_key uuid, session_key uuid, id text, digest bytea, envelope
--     json, metadata json?, calls json?, answers text?, created_at timestamptz?
-- row: seq bigint
-- repeatable
WITH moved AS (
    UPDATE strandline.session t SET
        next_seq = t.next_seq + 1, window_tokens = t.window_tokens + %(tokens)s::integer,
        window_messages = t.window_messages + 1, window_bytes = t.window_bytes + %(bytes)s::integer,
        replan_at_tokens = CASE WHEN %(role)s::text IN ('user', 'tool') THEN 0 ELSE t.replan_at_tokens END,
        last_put_at = statement_timestamp()
    WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s
        AND NOT (t.next_seq = t.pinned_through + 1 AND %(role)s::text IN ('system', 'developer'))
        AND t.pinned_tokens + t.window_tokens + %(tokens)s::integer <= t.flush_at_tokens
        AND t.window_messages < t.max_window_messages
        AND t.window_bytes + %(bytes)s::integer <= t.max_window_bytes
        AND (t.idle_seconds IS NULL OR t.watched_until >= statement_timestamp())
        AND NOT @ends_turn(t, %(role)s::text, %(calls)s::json)
    RETURNING t.next_seq - 1 AS seq, t.incarnation, t.last_put_at
)
INSERT INTO strandline.message (
    shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
    answers, created_at)
SELECT %(shard_key)s, %(session_key)s, n.seq, n.incarnation, %(id)s::text, %(role)s::text,
    %(tokens)s::integer, %(bytes)s::integer, %(digest)s::bytea, %(envelope)s::json, %(metadata)s::json, %(calls)s::json,
    %(answers)s::text, coalesce(%(created_at)s::timestamptz, n.last_put_at)
FROM moved n
RETURNING seq

-- name: put_many
-- The same for one message into each of several sessions, all different, in one commit; returns the sessions whose
-- message was stored. A message whose id was used before is left out, and one whose session is locked: so it keeps no
-- other waiting, and two such statements never wait for each other.
-- (JSON, since it is written in a third of the time that psycopg takes for arrays.  No CTE is joined to
-- another: their sizes are unknown to the planner, which would compare all with all.)
-- params: messages json
-- row: session_key text, seq bigint
-- repeatable
WITH held AS (
    SELECT g.*, t.next_seq, t.incarnation
    FROM json_to_recordset(%(messages)s::json) AS g (
        shard_key uuid, session_key uuid, id text, role text, tokens integer, bytes integer, digest bytea,
        envelope json, metadata json, created_at timestamptz, calls json, answers text)
    JOIN strandline.session t ON t.shard_key = g.shard_key AND t.session_key = g.session_key
    WHERE NOT (t.next_seq = t.pinned_through + 1 AND g.role IN ('system', 'developer'))
        AND t.pinned_tokens + t.window_tokens + g.tokens <= t.flush_at_tokens
        AND t.window_messages < t.max_window_messages AND t.window_bytes + g.bytes <= t.max_window_bytes
        AND (t.idle_seconds IS NULL OR t.watched_until >= statement_timestamp())
        AND NOT @ends_turn(t, g.role, g.calls)
    FOR NO KEY UPDATE OF t SKIP LOCKED
), stored AS (
    INSERT INTO strandline.message (
        shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest, envelope, metadata, calls,
        answers, created_at)
    SELECT h.shard_key, h.session_key, h.next_seq, h.incarnation, h.id, h.role, h.tokens, h.bytes, h.digest,
        h.envelope, h.metadata, h.calls, h.answers, coalesce(h.created_at, statement_timestamp())
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
)
SELECT session_key::text, seq FROM stored

-- name: put
-- Accept messages: one round trip.
-- params: shard_key uuid, session_key uuid, claimed boolean, session jsonb, ids text[], roles text[], tokens
--     integer[], bytes integer[], digests bytea[], envelopes text[], metadata text?[], created_at timestamptz?[],
--     calls text?[], answers text?[]
-- row: status text, detail text?, seqs bigint?[]?, to_flush text?
-- repeatable
SELECT status, detail, seqs, to_flush FROM strandline.put_v1(
    %(shard_key)s, %(session_key)s, %(claimed)s, %(session)s::jsonb, %(ids)s::text[], %(roles)s::text[],
    %(tokens)s::integer[], %(bytes)s::integer[], %(digests)s::bytea[], %(envelopes)s::text[],
    %(metadata)s::text[], %(created_at)s::timestamptz[], %(calls)s::text[], %(answers)s::text[])

-- name: history
-- A page of the whole log, in order.
-- params: after_seq bigint, shard_key uuid, session_key uuid, page_size bigint
-- row: seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata text?
-- repeatable
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    AND m.seq >= s.log_start_seq AND m.seq < s.next_seq AND m.seq > %(after_seq)s
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
ORDER BY m.seq LIMIT %(page_size)s

-- name: newest_message
-- The message that a pop would remove.
-- params: shard_key uuid, session_key uuid
-- row: seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata text?
-- repeatable
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text
FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.session_key = s.session_key
    AND m.seq >= s.log_start_seq
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
ORDER BY m.seq DESC LIMIT 1

-- name: pop
-- Remove it, if it is still the newest, and was not delivered.
-- params: shard_key uuid, session_key uuid, seq bigint, pop_id uuid
-- row: status text
-- repeatable
SELECT strandline.pop_v1(%(shard_key)s, %(session_key)s, %(seq)s, %(pop_id)s) AS status

-- name: known_messages
-- How many of these ids exist in the session's current incarnation.
-- params: ids text[], shard_key uuid, session_key uuid
-- row: messages bigint
-- repeatable
SELECT count(*) AS messages FROM strandline.session s
JOIN strandline.message m ON m.shard_key = s.shard_key AND m.incarnation = s.incarnation
    AND m.id = ANY (%(ids)s::text[])
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: make_import_table
-- Where COPY writes to: a table of this connection alone, empty again when the transaction ends.
CREATE TEMPORARY TABLE IF NOT EXISTS strandline_import (
    place integer, id text, role text, tokens integer, bytes integer, digest bytea, envelope text, metadata text,
    created_at timestamptz, calls text, answers text) ON COMMIT DELETE ROWS

-- name: copy_import
-- Messages in their order.
COPY pg_temp.strandline_import (
    place, id, role, tokens, bytes, digest, envelope, metadata, created_at, calls, answers) FROM STDIN

-- name: put_imported
-- Put what was copied, as ``put`` does.
-- params: shard_key uuid, session_key uuid, claimed boolean, session jsonb
-- row: status text, detail text?, seqs bigint?[]?, to_flush text?
SELECT p.status, p.detail, p.seqs, p.to_flush
FROM (
    SELECT array_agg(i.id ORDER BY i.place) AS ids, array_agg(i.role ORDER BY i.place) AS roles,
        array_agg(i.tokens ORDER BY i.place) AS tokens, array_agg(i.bytes ORDER BY i.place) AS bytes,
        array_agg(i.digest ORDER BY i.place) AS digests,
        array_agg(i.envelope ORDER BY i.place) AS envelopes,
        array_agg(i.metadata ORDER BY i.place) AS metadata,
        array_agg(i.created_at ORDER BY i.place) AS created_at,
        array_agg(i.calls ORDER BY i.place) AS calls, array_agg(i.answers ORDER BY i.place) AS answers
    FROM pg_temp.strandline_import i) AS a
CROSS JOIN LATERAL strandline.put_v1(
    %(shard_key)s, %(session_key)s, %(claimed)s, %(session)s::jsonb, a.ids, a.roles, a.tokens, a.bytes, a.digests,
    a.envelopes, a.metadata, a.created_at, a.calls, a.answers) AS p

-- name: reset
-- Start the log over; with derived, forget the derived memory.
-- params: shard_key uuid, session_key uuid, derived boolean
-- row: messages bigint, ended uuid[]?, touched uuid[]?
-- repeatable
SELECT messages, ended, touched FROM strandline.reset_v1(%(shard_key)s, %(session_key)s, %(derived)s)
