-- Sessions: their owners, lists of them, and the state of one.  The directory is paged by its keys;
-- the rows of a page's sessions are then looked up by theirs.

-- name: claim_session
-- Write the directory entry of a new session, or return its owner if it has one (claim_session_v1). The directory's
-- shard_key is the directory key; the key that the owner's rows lie under, the parameter shard_key, is its owner_key.
-- kind: a chat, or what is kept for facts alone, which no list of sessions shows.  erasure: the one that keeps the owner
-- or the session away.  first_data_key: what is sealed with an earlier key of the owner is of a life that was erased.
-- full_of: the bound of the namespace that keeps a new session away.
-- params: session_id text
-- row: erasure integer?, owner_key uuid, is_encrypted boolean, first_data_key integer, full_of text?
-- repeatable
SELECT erasure, owner_key, is_encrypted, first_data_key, full_of FROM strandline.claim_session_v1(%(directory_key)s,
    %(namespace)s, %(session_id)s, %(user_id)s, %(shard_key)s, %(session_key)s, %(kind)s)

-- name: find_owner
-- The owner of a session; no row if it was never put to.
-- row: user_id text?, owner_key uuid
SELECT user_id, owner_key FROM strandline.session_owner WHERE shard_key = %(directory_key)s

-- name: namespace_is_known
-- Whether anything was ever put to a namespace, or a fact given to an owner in it.
-- row: known boolean
SELECT EXISTS (SELECT FROM strandline.session_owner o WHERE o.namespace = %(namespace)s)
    OR EXISTS (SELECT FROM strandline.fact_owner f WHERE f.namespace = %(namespace)s) AS known

-- name: known_namespaces
-- The namespaces that hold something, or of which an operator has set something; the first so many of each kind.
-- row: namespace text
WITH RECURSIVE named AS (
    SELECT min(o.namespace) AS namespace FROM strandline.session_owner o
    UNION ALL
    SELECT (SELECT min(o.namespace) FROM strandline.session_owner o WHERE o.namespace > n.namespace)
    FROM named n WHERE n.namespace IS NOT NULL
), given AS (
    SELECT min(f.namespace) AS namespace FROM strandline.fact_owner f
    UNION ALL
    SELECT (SELECT min(f.namespace) FROM strandline.fact_owner f WHERE f.namespace > g.namespace)
    FROM given g WHERE g.namespace IS NOT NULL
), set_up AS (
    SELECT e.namespace FROM strandline.encryption e
    UNION ALL SELECT l.namespace FROM strandline.audit_level l
    UNION ALL SELECT c.namespace FROM strandline.audit_chain c
    UNION ALL SELECT r.namespace FROM strandline.retention_act r
    UNION ALL SELECT m.namespace FROM strandline.namespace_limit m
    UNION ALL SELECT s.namespace FROM strandline.service_key s
    UNION ALL SELECT x.namespace COLLATE "C" FROM strandline.erasure x
)
SELECT k.namespace FROM (
    (SELECT n.namespace COLLATE "C" AS namespace FROM named n LIMIT %(limit)s)
    UNION (SELECT g.namespace COLLATE "C" FROM given g LIMIT %(limit)s)
    UNION SELECT u.namespace FROM set_up u) AS k
WHERE k.namespace IS NOT NULL ORDER BY k.namespace

-- name: namespaces_of_user
-- In which of some namespaces a user of this name has sessions.
-- params: user_id text
-- row: namespace text
SELECT DISTINCT o.namespace FROM strandline.session_owner o
WHERE o.namespace = ANY (%(namespaces)s::text[]) AND o.user_id = %(user_id)s ORDER BY o.namespace

-- name: user_is_known
-- Whether a user has a session, or was given a fact.
-- params: user_id text, owner_key uuid
-- row: known boolean
SELECT EXISTS (
        SELECT FROM strandline.session_owner o
        WHERE o.namespace = %(namespace)s AND o.user_id = %(user_id)s)
    OR EXISTS (SELECT FROM strandline.fact_owner f WHERE f.shard_key = %(owner_key)s) AS known

-- name: directory_page
-- The next sessions of all namespaces, by their names.
-- params: after_namespace text
-- row: session_entry
SELECT o.namespace, o.session_id, o.user_id FROM strandline.session_owner o
WHERE (o.namespace, o.session_id) > (%(after_namespace)s, %(after_session)s) AND o.kind = 'chat'
ORDER BY o.namespace, o.session_id LIMIT %(limit)s

-- name: directory_page_of_namespace
-- The next sessions of a namespace.
-- row: session_entry
SELECT o.namespace, o.session_id, o.user_id FROM strandline.session_owner o
WHERE o.namespace = %(namespace)s AND o.session_id > %(after_session)s AND o.kind = 'chat'
ORDER BY o.session_id LIMIT %(limit)s

-- name: directory_page_of_user
-- The next sessions of a user.
-- params: user_id text
-- row: session_entry
SELECT o.namespace, o.session_id, o.user_id FROM strandline.session_owner o
WHERE o.namespace = %(namespace)s AND o.user_id = %(user_id)s AND o.session_id > %(after_session)s
    AND o.kind = 'chat'
ORDER BY o.session_id LIMIT %(limit)s

-- name: directory_page_without_user
-- The next sessions of a namespace that have no user.  (By the user as well, so that the index gives the order.)
-- row: session_entry
SELECT o.namespace, o.session_id, o.user_id FROM strandline.session_owner o
WHERE o.namespace = %(namespace)s AND o.user_id IS NULL AND o.session_id > %(after_session)s
    AND o.kind = 'chat'
ORDER BY o.user_id, o.session_id LIMIT %(limit)s

-- name: session_rows
-- Marks, sizes and policy of sessions, by their keys.
-- row: session_key uuid, namespace text, session_id text, user_id text?, messages bigint, log_start_seq bigint,
--     pinned_through bigint, flushed_through bigint, window_from bigint, last_seq bigint, pinned_tokens bigint,
--     window_tokens bigint, created_at timestamptz, last_put_at timestamptz, token_limit integer, flush_at_tokens
--     integer, token_flush_size integer, idle_seconds integer?, tokenizer text, pipelines text[], max_facts integer?,
--     shared_scope text?, max_window_messages integer, max_window_bytes integer, message_flush_size integer?,
--     deliver text, time_zone text?
SELECT s.session_key, s.namespace, s.session_id, s.user_id, s.next_seq - s.log_start_seq - (
        SELECT count(*) FROM strandline.popped p WHERE p.shard_key = s.shard_key
            AND p.session_key = s.session_key AND p.seq >= s.log_start_seq)
        - @removed_messages(s, s.shard_key, s.session_key) AS messages,
    s.log_start_seq, s.pinned_through, s.flushed_through, s.window_from, s.next_seq - 1 AS last_seq,
    s.pinned_tokens, s.window_tokens, s.created_at, s.last_put_at, s.token_limit, s.flush_at_tokens,
    s.token_flush_size, s.idle_seconds, s.tokenizer, s.pipelines, s.max_facts, s.shared_scope,
    s.max_window_messages, s.max_window_bytes, s.message_flush_size, s.deliver, s.time_zone
FROM unnest(%(shard_keys)s::uuid[], %(session_keys)s::uuid[]) AS wanted (shard_key, session_key)
JOIN strandline.session s ON s.shard_key = wanted.shard_key AND s.session_key = wanted.session_key

-- name: users_page
-- The next users of a namespace who have a session, or whom people gave facts.
-- params: after text
-- row: user_id text
(SELECT DISTINCT o.user_id FROM strandline.session_owner o
    WHERE o.namespace = %(namespace)s AND o.user_id > %(after)s ORDER BY o.user_id LIMIT %(limit)s)
UNION
(SELECT f.user_id FROM strandline.fact_owner f
    WHERE f.namespace = %(namespace)s AND f.user_id > %(after)s ORDER BY f.user_id LIMIT %(limit)s)
ORDER BY user_id LIMIT %(limit)s

-- name: owner_figures
-- How much there is of an owner: live facts, sessions, and the messages and tokens of their logs as they are; what
-- facts were made from without a chat is no session. Tokens are added up by events, and only of what was not delivered
-- by messages.
-- row: facts bigint, oldest_fact_at timestamptz?, newest_fact_at timestamptz?, sessions bigint, messages bigint,
--     tokens bigint, first_session_at timestamptz?, last_put_at timestamptz?
SELECT known.facts, known.oldest_fact_at, known.newest_fact_at, held.sessions, held.messages, held.tokens,
    held.first_session_at, held.last_put_at
FROM (
    SELECT count(*) AS facts, min(f.said_at) AS oldest_fact_at, max(f.said_at) AS newest_fact_at
    FROM strandline.fact f
    JOIN @serving(%(shard_key)s, '{facts}') g ON g.generation_id = f.generation_id
    WHERE f.shard_key = %(shard_key)s AND f.live) AS known
CROSS JOIN (
    SELECT count(*) AS sessions, coalesce(sum(s.next_seq - s.log_start_seq - gone.popped
            - @removed_messages(s, %(shard_key)s, s.session_key)), 0)::bigint AS messages,
        coalesce(sum(s.pinned_tokens + delivered.tokens + fresh.tokens), 0)::bigint AS tokens,
        min(s.created_at) AS first_session_at, max(s.last_put_at) AS last_put_at
    FROM strandline.session s
    CROSS JOIN LATERAL (
        SELECT count(*) AS popped FROM strandline.popped p
        WHERE p.shard_key = %(shard_key)s AND p.session_key = s.session_key AND p.seq >= s.log_start_seq) AS gone
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(e.tokens), 0) AS tokens,
            coalesce(bool_or(e.cause IN ('source', 'instruction')), false) AS is_source FROM strandline.flush_event e
        WHERE e.shard_key = %(shard_key)s AND e.session_key = s.session_key
            AND e.incarnation = s.incarnation) AS delivered
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(m.tokens), 0) AS tokens FROM strandline.message m
        WHERE m.shard_key = %(shard_key)s AND m.session_key = s.session_key
            AND m.seq > s.flushed_through AND m.seq < s.next_seq) AS fresh
    WHERE s.shard_key = %(shard_key)s AND NOT delivered.is_source) AS held

-- name: session_coverage
-- The progress of each pipeline of a session: due and dead events in the derivation that serves its owner (null if no
-- worker has registered it), and where the first of them begins.
-- row: pipeline text, generation_id integer?, due bigint, dead bigint, first_pending bigint?
SELECT fed.pipeline, g.generation_id, count(*) FILTER (WHERE p.kind = 'due') AS due,
    count(*) FILTER (WHERE p.kind = 'dead') AS dead, min(p.from_seq) AS first_pending
FROM strandline.session s
CROSS JOIN LATERAL unnest(s.pipelines) AS fed (pipeline)
LEFT JOIN @serving(%(shard_key)s, NULL) g ON g.pipeline = fed.pipeline
LEFT JOIN LATERAL (
    SELECT 'due' AS kind, d.from_seq FROM strandline.due d
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s
        AND d.generation_id = g.generation_id AND d.incarnation = s.incarnation
    UNION ALL
    SELECT 'dead', d.from_seq FROM strandline.dead_letter d
    WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s
        AND d.generation_id = g.generation_id AND d.incarnation = s.incarnation AND d.dropped_at IS NULL
) AS p ON true
WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
GROUP BY fed.pipeline, g.generation_id ORDER BY fed.pipeline

-- name: session_flushes
-- The newest flush events of a session's current incarnation, and how many there are.
-- row: event_id uuid, cause text, from_seq bigint, through_seq bigint, message_count integer, tokens bigint,
--     created_at timestamptz, flushes bigint
SELECT e.event_id, e.cause, e.from_seq, e.through_seq, e.message_count, e.tokens, e.created_at,
    count(*) OVER () AS flushes
FROM strandline.flush_event e
JOIN strandline.session s ON s.shard_key = e.shard_key AND s.session_key = e.session_key
    AND s.incarnation = e.incarnation
WHERE e.shard_key = %(shard_key)s AND e.session_key = %(session_key)s
ORDER BY e.from_seq DESC LIMIT %(limit)s

-- name: session_dead_letters
-- The first thousand holes of a session, oldest first.
-- row: event_id uuid, stage text, generation_id integer, from_seq bigint, through_seq bigint, created_at timestamptz,
--     reason text
SELECT d.event_id, d.stage, d.generation_id, d.from_seq, d.through_seq, d.created_at, d.reason
FROM strandline.dead_letter d
WHERE d.shard_key = %(shard_key)s AND d.session_key = %(session_key)s AND d.dropped_at IS NULL
ORDER BY d.from_seq, d.generation_id, d.stage LIMIT 1000

-- name: session_policy
-- The policy of a session, to make a change from.
-- row: token_limit integer, flush_at_tokens integer, token_flush_size integer, idle_seconds integer?, tokenizer text,
--     pipelines text[], max_facts integer?, shared_scope text?, max_window_messages integer, max_window_bytes integer,
--     message_flush_size integer?, deliver text, time_zone text?
SELECT s.token_limit, s.flush_at_tokens, s.token_flush_size, s.idle_seconds, s.tokenizer, s.pipelines,
    s.max_facts, s.shared_scope, s.max_window_messages, s.max_window_bytes, s.message_flush_size, s.deliver,
    s.time_zone
FROM strandline.session s WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s

-- name: set_policy
-- Change the policy, if it is still the one that the change was made from, and record the change.
-- params: before jsonb, after jsonb, act jsonb?
-- row: status text, detail text?, over boolean
-- repeatable
SELECT status, detail, over FROM strandline.set_policy_v1(
    %(shard_key)s, %(session_key)s, %(before)s::jsonb, %(after)s::jsonb, %(actor)s::text, %(act)s::jsonb)

-- name: policy_changes
-- How a session's policy was changed, oldest first: the newest changes.
-- row: number integer, before text, after text, flushed_through bigint, actor text?, created_at timestamptz
SELECT c.number, c.before::text, c.after::text, c.flushed_through, c.actor, c.created_at
FROM @newest((SELECT o.* FROM strandline.policy_change o
    WHERE o.shard_key = %(shard_key)s AND o.session_key = %(session_key)s), number) AS c
ORDER BY c.number

-- name: fork_session
-- Begin another session of the same owner with the messages of one, up to a number (fork_v1).
-- params: new_key uuid, session_id text, through_seq bigint?, act jsonb?
-- row: status text, through_seq bigint, messages bigint
SELECT status, through_seq, messages FROM strandline.fork_v1(
    %(shard_key)s, %(session_key)s, %(new_key)s, %(session_id)s, %(through_seq)s, %(act)s::jsonb)

-- name: session_corrections
-- The newest corrections of a session that concern a range of its messages, oldest first; all: from 0, through NULL.
-- params: through_seq bigint?
-- row: number integer, kind text, from_seq bigint, through_seq bigint, messages bigint, actor text?, created_at
--     timestamptz
SELECT c.number, c.kind, c.from_seq, c.through_seq, (
        SELECT count(*) FROM strandline.superseded u WHERE u.shard_key = %(shard_key)s
            AND u.session_key = %(session_key)s AND u.number = c.number) AS messages, c.actor, c.created_at
FROM @newest((SELECT o.* FROM strandline.correction o
    WHERE o.shard_key = %(shard_key)s AND o.session_key = %(session_key)s AND o.through_seq >= %(from_seq)s
        AND (%(through_seq)s::bigint IS NULL OR o.from_seq <= %(through_seq)s)), number) AS c
ORDER BY c.number

-- name: find_sessions
-- Sessions of a namespace by name or user, or those without a user, for commands.
-- row: session_entry
SELECT o.namespace, o.session_id, o.user_id FROM strandline.session_owner o
WHERE o.namespace = %(namespace)s
    AND (%(session_id)s::text IS NULL OR o.session_id = %(session_id)s)
    AND (%(user_id)s::text IS NULL OR o.user_id = %(user_id)s)
    AND (o.user_id IS NULL OR NOT %(without_user)s)
ORDER BY o.session_id LIMIT %(limit)s

-- name: show_events
-- A session's flush events in order, each with its outcome in the pipelines so far.
-- row: event_id uuid, cause text, from_seq bigint, through_seq bigint, message_count integer, tokens bigint, receipts
--     text
SELECT e.event_id, e.cause, e.from_seq, e.through_seq, e.message_count, e.tokens,
    (SELECT coalesce(json_agg(json_build_object(
        'pipeline', g.pipeline, 'stage', r.stage, 'outcome', r.outcome,
        'seconds', extract(epoch FROM r.applied_at - e.created_at))), '[]')
     FROM strandline.receipt r JOIN @serving(%(shard_key)s, NULL) g USING (generation_id)
     WHERE r.shard_key = %(shard_key)s AND r.event_id = e.event_id)::text AS receipts
FROM strandline.flush_event e
WHERE e.shard_key = %(shard_key)s AND e.session_key = %(session_key)s
ORDER BY e.from_seq
