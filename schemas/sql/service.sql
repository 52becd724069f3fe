-- The HTTP service: its keys, and responses kept for requests that come again.

-- name: find_service_keys
-- Keys by their ids, whatever their state.  The clock is Postgres's, so that all processes agree when one ends.
-- params: key_ids text[]
-- row: key_id text, secret_digest bytea, namespace text?, user_id text?, scopes text[], shared_scopes text[], label text, rotated_from text?,
--     created_at timestamptz, expires_at timestamptz?, revoked_at timestamptz?, seconds_left float8?
SELECT k.key_id, k.secret_digest, k.namespace, k.user_id, k.scopes, k.shared_scopes, k.label, k.rotated_from, k.created_at,
    k.expires_at, k.revoked_at,
    extract(epoch FROM least(k.expires_at, k.revoked_at) - statement_timestamp())::float8 AS seconds_left
FROM strandline.service_key k WHERE k.key_id = ANY(%(key_ids)s)

-- name: lock_service_key
-- The same, locked: to rotate it, or since it makes another.
-- row: key_id text, namespace text?, user_id text?, scopes text[], shared_scopes text[], label text, rotated_from text?,
--     created_at timestamptz, expires_at timestamptz?, revoked_at timestamptz?, is_over boolean
SELECT k.key_id, k.namespace, k.user_id, k.scopes, k.shared_scopes, k.label, k.rotated_from, k.created_at, k.expires_at,
    k.revoked_at, coalesce(least(k.expires_at, k.revoked_at) <= statement_timestamp(), false) AS is_over
FROM strandline.service_key k WHERE k.key_id = %(key_id)s FOR UPDATE

-- name: add_service_key
-- Store a new key, which ends with the key that made it, or before; no row: its request was made before, and made one.
-- params: secret_digest bytea, namespace text?, scopes text[], shared_scopes text[], label text, rotated_from text?,
--     made_by text?, request_key uuid?, expires_in_seconds float8?
-- row: service_key
INSERT INTO strandline.service_key AS k (key_id, secret_digest, namespace, user_id, scopes, shared_scopes, label,
    rotated_from, made_by, request_key, created_at, expires_at)
VALUES (%(key_id)s, %(secret_digest)s, %(namespace)s, %(user_id)s, %(scopes)s, %(shared_scopes)s, %(label)s,
    %(rotated_from)s, %(made_by)s, %(request_key)s, statement_timestamp(),
    least(statement_timestamp() + %(expires_in_seconds)s::float8 * interval '1 second', (
        SELECT m.expires_at FROM strandline.service_key m WHERE m.key_id = %(made_by)s)))
ON CONFLICT (request_key) DO NOTHING
RETURNING k.key_id, k.namespace, k.user_id, k.scopes, k.shared_scopes, k.label, k.rotated_from, k.made_by,
    k.created_at, k.expires_at, k.revoked_at, false AS is_over

-- name: find_requested_service_key
-- The key that a request made.
-- row: key_id text
SELECT k.key_id FROM strandline.service_key k WHERE k.request_key = %(request_key)s

-- name: list_service_keys
-- The next keys by their ids: of a namespace, or of all.
-- params: namespace text?, after text
-- row: service_key
SELECT k.key_id, k.namespace, k.user_id, k.scopes, k.shared_scopes, k.label, k.rotated_from, k.made_by,
    k.created_at, k.expires_at, k.revoked_at, coalesce(least(k.expires_at, k.revoked_at) <= statement_timestamp(), false) AS is_over
FROM strandline.service_key k
WHERE (%(namespace)s::text IS NULL OR k.namespace = %(namespace)s) AND k.key_id > %(after)s
ORDER BY k.key_id LIMIT %(limit)s

-- name: end_service_key
-- Let a key end in so many seconds, unless it ends before.
-- params: in_seconds float8
-- row: key_id text, expires_at timestamptz
UPDATE strandline.service_key SET expires_at = least(expires_at,
    statement_timestamp() + %(in_seconds)s::float8 * interval '1 second')
WHERE key_id = %(key_id)s
RETURNING key_id, expires_at

-- name: revoke_service_key
-- End a key now, and perhaps the keys that it was rotated from, all that these and it made, that these made, and that any
-- of them was rotated to; one that is revoked keeps its time.
-- params: namespace text?, with_made boolean
-- row: key_id text, namespace text?, user_id text?, scopes text[], shared_scopes text[], label text, rotated_from text?,
--     made_by text?, created_at timestamptz, expires_at timestamptz?, revoked_at timestamptz, is_over boolean
-- repeatable
WITH RECURSIVE line AS (
    SELECT k.key_id, k.rotated_from FROM strandline.service_key k
    WHERE k.key_id = %(key_id)s AND (%(namespace)s::text IS NULL OR k.namespace = %(namespace)s)
    UNION
    SELECT k.key_id, k.rotated_from FROM strandline.service_key k JOIN line l ON k.key_id = l.rotated_from
    WHERE %(with_made)s
), ended AS (
    SELECT l.key_id FROM line l
    UNION
    SELECT k.key_id FROM strandline.service_key k JOIN ended e ON e.key_id IN (k.made_by, k.rotated_from)
    WHERE %(with_made)s
)
UPDATE strandline.service_key k SET revoked_at = coalesce(k.revoked_at, statement_timestamp())
FROM ended e WHERE k.key_id = e.key_id
RETURNING k.key_id, k.namespace, k.user_id, k.scopes, k.shared_scopes, k.label, k.rotated_from, k.made_by, k.created_at,
    k.expires_at, k.revoked_at, true AS is_over

-- name: has_service_key
-- Whether any key opens the service now.
-- row: has_key boolean
SELECT EXISTS (SELECT FROM strandline.service_key k
    WHERE least(k.expires_at, k.revoked_at) IS NULL OR least(k.expires_at, k.revoked_at) > statement_timestamp()
) AS has_key

-- name: begin_kept_response
-- Take a request's place, so that another with the same key waits for this transaction; no row: it was taken.
-- params: session_key uuid?, request_digest bytea
-- row: request_key uuid
INSERT INTO strandline.kept_response AS r (shard_key, request_key, session_key, request_digest, status, created_at)
VALUES (%(shard_key)s, %(request_key)s, %(session_key)s, %(request_digest)s, 0, statement_timestamp())
ON CONFLICT (shard_key, request_key) DO UPDATE SET request_digest = excluded.request_digest,
    session_key = excluded.session_key, created_at = excluded.created_at
WHERE r.created_at < excluded.created_at - interval '1 day'
RETURNING request_key

-- name: keep_response
-- Keep the response of a request in the transaction of its effect.
-- params: status smallint, body json?
-- seals: body json response
UPDATE strandline.kept_response SET status = %(status)s, body = %(body)s
WHERE shard_key = %(shard_key)s AND request_key = %(request_key)s

-- name: find_kept_response
-- The response that was given to a request.
-- row: request_digest bytea, status smallint, body text?
-- opens: body json response
SELECT r.request_digest, r.status, r.body::text FROM strandline.kept_response r
WHERE r.shard_key = %(shard_key)s AND r.request_key = %(request_key)s

-- name: forget_kept_responses
-- Delete a page of responses that were kept for a day.
-- row: shard_key uuid
WITH page AS MATERIALIZED (
    SELECT r.shard_key, r.request_key FROM strandline.kept_response r
    WHERE r.created_at < statement_timestamp() - interval '1 day'
    ORDER BY r.created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM strandline.kept_response r USING page p
WHERE r.shard_key = p.shard_key AND r.request_key = p.request_key
RETURNING r.shard_key

-- name: settled
-- The clock, and the time up to which whatever was written is there to be read: a row bears the time of its write, and
-- is seen after the commit of its transaction.  A transaction that writes and is still open holds it back, but for no
-- longer than latest_seconds; late_seconds is for those that this role may not see.
-- params: late_seconds float8, latest_seconds float8
-- row: at timestamptz, settled timestamptz
SELECT statement_timestamp() AS at, greatest(
    statement_timestamp() - %(latest_seconds)s::float8 * interval '1 second',
    least(statement_timestamp() - %(late_seconds)s::float8 * interval '1 second', (
        SELECT min(a.xact_start) FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL))) AS settled

-- name: happenings
-- What happened behind a time, an event and a derivation, up to another time, oldest first, for those who listen to namespaces: flushes,
-- how pipelines ended with them in the derivation that serves, and changes of derivations, which concern all.  Only of
-- one session, if it is named.  Many rows may bear the same time, so a page ends at all three.
-- A receipt of an earlier stage is no end, nor is one while the event is due again.  The rows of a time are looked up
-- one by one (LIMIT 1): what is read then follows from what happened, and not from how much there is.
-- params: session_key uuid?, since timestamptz, after_event uuid, after_generation integer, until timestamptz
-- row: at timestamptz, event_id uuid, generation_id integer, kind text, namespace text?, session_key uuid?, session_id
--     text?, user_id text?, from_seq bigint?, through_seq bigint?, cause text?, pipeline text?, state text?
-- repeatable
(SELECT e.created_at AS at, e.event_id, 0 AS generation_id, 'flushed' AS kind, o.namespace, e.session_key, o.session_id,
    o.user_id, e.from_seq, e.through_seq, e.cause, NULL AS pipeline, NULL AS state
FROM strandline.flush_event e
CROSS JOIN LATERAL (
    SELECT s.namespace, s.session_id, s.user_id FROM strandline.session s
    WHERE s.shard_key = e.shard_key AND s.session_key = e.session_key
        AND s.namespace = ANY (%(namespaces)s::text[]) LIMIT 1) AS o
WHERE (e.created_at, e.event_id) > (%(since)s, %(after_event)s) AND e.created_at <= %(until)s
    AND (%(session_key)s::uuid IS NULL OR e.session_key = %(session_key)s)
    AND e.cause NOT IN ('source', 'instruction')
ORDER BY e.created_at, e.event_id LIMIT %(limit)s)
UNION ALL
(SELECT r.applied_at, r.event_id, r.generation_id, o.kind, o.namespace, o.session_key, o.session_id, o.user_id,
    o.from_seq, o.through_seq, NULL, o.pipeline, NULL
FROM strandline.receipt r
CROSS JOIN LATERAL (
    SELECT s.namespace, e.session_key, s.session_id, s.user_id, e.from_seq, e.through_seq, g.pipeline, CASE
            WHEN EXISTS (SELECT FROM strandline.dead_letter l
                WHERE l.shard_key = r.shard_key AND l.session_key = e.session_key
                    AND l.generation_id = r.generation_id AND l.from_seq = e.from_seq
                    AND l.dropped_at IS NULL) THEN 'dead'
            ELSE 'covered' END AS kind
    FROM strandline.flush_event e
    JOIN strandline.session s ON s.shard_key = r.shard_key AND s.session_key = e.session_key
    CROSS JOIN LATERAL @serving(r.shard_key, s.pipelines) AS g
    WHERE e.shard_key = r.shard_key AND e.event_id = r.event_id AND g.generation_id = r.generation_id
        AND s.namespace = ANY (%(namespaces)s::text[])
        AND (%(session_key)s::uuid IS NULL OR e.session_key = %(session_key)s)
        AND e.cause NOT IN ('source', 'instruction')
        AND NOT EXISTS (SELECT FROM strandline.due d
            WHERE d.shard_key = r.shard_key AND d.session_key = e.session_key
                AND d.generation_id = r.generation_id AND d.from_seq = e.from_seq)
        AND NOT EXISTS (SELECT FROM strandline.receipt later
            WHERE later.shard_key = r.shard_key AND later.event_id = r.event_id
                AND later.generation_id = r.generation_id AND later.applied_at > r.applied_at)
    LIMIT 1) AS o
WHERE (r.applied_at, r.event_id, r.generation_id) > (%(since)s, %(after_event)s, %(after_generation)s)
    AND r.applied_at <= %(until)s
ORDER BY r.applied_at, r.event_id, r.generation_id LIMIT %(limit)s)
UNION ALL
(SELECT g.state_since, '00000000-0000-0000-0000-000000000000'::uuid, g.generation_id, 'generation', NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, g.pipeline, g.state
FROM strandline.generation g
WHERE (g.state_since, '00000000-0000-0000-0000-000000000000'::uuid, g.generation_id)
    > (%(since)s, %(after_event)s, %(after_generation)s) AND g.state_since <= %(until)s
ORDER BY g.state_since, g.generation_id LIMIT %(limit)s)
ORDER BY at, event_id, generation_id LIMIT %(limit)s
