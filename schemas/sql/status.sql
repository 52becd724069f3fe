-- Status: how the pipeline and its server are.

-- name: status_pipelines
-- Per stage: what is due, held, dead, and how late the oldest work is that waits for no budget (ring_due); a turn in
-- company is late once it is ready.
-- params: dead_after_seconds numeric
-- row: pipeline text, generation_id integer, state text, entry_stage text, config text, due text, leased text, dead
--     text
SELECT g.pipeline, g.generation_id, g.state, g.entry_stage, g.config::text, (
    SELECT coalesce(json_agg(x), '[]') FROM (
        SELECT d.stage, count(*) AS due, coalesce(greatest(0, extract(epoch FROM statement_timestamp()
                - min(coalesce(d.ready_at, d.created_at))
            FILTER (WHERE d.ring_at < '5000-01-01' OR d.ring_at = 'infinity'))), 0) AS lag_seconds
        FROM strandline.due d WHERE d.generation_id = g.generation_id GROUP BY d.stage) AS x)::text AS due, (
    SELECT coalesce(json_agg(x), '[]') FROM (
        SELECT l.stage, count(*) AS leased FROM strandline.lane l
        JOIN strandline.worker w ON w.worker_id = l.holder
        WHERE l.generation_id = g.generation_id AND l.holder IS NOT NULL
            AND l.deadline_at > statement_timestamp()
            AND @beats(w, statement_timestamp(), %(dead_after_seconds)s)
        GROUP BY l.stage) AS x)::text AS leased, (
    SELECT coalesce(json_agg(x), '[]') FROM (
        SELECT d.stage, count(*) AS dead, min(d.retry_at) AS retry_at,
            (array_agg(d.reason ORDER BY d.created_at DESC))[1] AS reason
        FROM strandline.dead_letter d
        WHERE d.generation_id = g.generation_id AND d.dropped_at IS NULL GROUP BY d.stage) AS x)::text AS dead
FROM strandline.generation g WHERE g.state <> 'retired' ORDER BY g.pipeline, g.generation_id

-- name: status_totals
-- Totals; of derived memory only what serves.
-- row: sessions bigint, messages bigint, events bigint, facts bigint, chunks bigint
SELECT (SELECT count(*) FROM strandline.session) AS sessions,
    (SELECT count(*) FROM strandline.message) AS messages,
    (SELECT count(*) FROM strandline.flush_event) AS events,
    (SELECT count(*) FROM strandline.fact f JOIN strandline.generation g USING (generation_id)
        WHERE f.live AND g.state = 'serving') AS facts,
    (SELECT count(*) FROM strandline.chunk JOIN strandline.generation g USING (generation_id)
        WHERE g.state = 'serving') AS chunks

-- name: ledger_totals
-- The ledger of model calls, by model and by what they were for.
-- row: model text, step text, calls bigint, input_tokens bigint, output_tokens bigint, cost_usd float8?, seconds
--     float8, last_at timestamptz
SELECT c.model, c.step, count(*) AS calls, sum(c.input_tokens)::bigint AS input_tokens,
    sum(c.output_tokens)::bigint AS output_tokens, sum(c.cost_usd)::float8 AS cost_usd, avg(c.seconds) AS seconds,
    max(c.created_at) AS last_at
FROM strandline.model_call c GROUP BY c.model, c.step ORDER BY c.model, c.step

-- name: stage_rates
-- The events that each stage was done with, by minutes of the last hour.
-- row: generation_id integer, stage text, minutes_ago integer, events bigint
SELECT r.generation_id, r.stage, m.minutes_ago, count(*) AS events
FROM strandline.receipt r CROSS JOIN LATERAL (
    SELECT greatest(0, floor(extract(epoch FROM statement_timestamp() - r.applied_at) / 60))::integer) AS m (minutes_ago)
WHERE r.applied_at > statement_timestamp() - interval '1 hour' AND m.minutes_ago < 60
GROUP BY r.generation_id, r.stage, m.minutes_ago ORDER BY r.generation_id, r.stage, m.minutes_ago

-- name: longest_due
-- Of each stage the event that waits longest, by name.
-- row: stage text, namespace text, session_id text, user_id text?, from_seq bigint, through_seq bigint, waits_since
--     timestamptz
SELECT DISTINCT ON (d.generation_id, d.stage) d.stage, s.namespace, s.session_id, s.user_id, d.from_seq, d.through_seq,
    coalesce(d.ready_at, d.created_at) AS waits_since
FROM strandline.due d
JOIN strandline.session s ON s.shard_key = d.shard_key AND s.session_key = d.session_key
ORDER BY d.generation_id, d.stage, coalesce(d.ready_at, d.created_at), d.event_id

-- name: waiting_messages
-- The messages that no flush has delivered yet, of an owner or of all, and what the next delivery waits for.
-- params: shard_key uuid?
-- row: messages bigint, sessions bigint, tokens bigint?, flush_at_tokens integer?, deliver_at timestamptz?
SELECT coalesce(sum(w.messages), 0)::bigint AS messages, count(*) AS sessions,
    CASE WHEN count(*) = 1 THEN min(w.tokens) END AS tokens,
    CASE WHEN count(*) = 1 THEN min(w.flush_at_tokens) END AS flush_at_tokens, min(w.deliver_at) AS deliver_at
FROM (
    SELECT @undelivered(t) AS messages, t.pinned_tokens + t.window_tokens AS tokens, t.flush_at_tokens,
        @deliver_at(t) AS deliver_at
    -- In two parts, of which a plan leaves out the one that is not asked for.
    FROM (SELECT o.* FROM strandline.session o WHERE o.shard_key = %(shard_key)s::uuid
        UNION ALL SELECT a.* FROM strandline.session a WHERE %(shard_key)s::uuid IS NULL) AS t) AS w
WHERE w.messages > 0

-- name: status_keys
-- Lanes with due work of encrypted namespaces that were given back with an error, by what it says; with the keys that
-- wrap those of their owners. Which of these errors are of a key, the caller sees.
-- row: namespace text, reason text, kek_ids text[], lanes bigint, events bigint
SELECT k.namespace, l.last_error AS reason, array_agg(DISTINCT k.kek_id ORDER BY k.kek_id) AS kek_ids,
    count(DISTINCT (l.shard_key, l.scope_key, l.generation_id, l.stage)) AS lanes, count(DISTINCT d.event_id) AS events
FROM strandline.lane l
JOIN strandline.data_key k ON k.shard_key = l.shard_key
JOIN strandline.due d ON d.shard_key = l.shard_key AND d.scope_key = l.scope_key
    AND d.generation_id = l.generation_id AND d.stage = l.stage
WHERE l.last_error IS NOT NULL AND l.postponements > 0
GROUP BY k.namespace, l.last_error ORDER BY k.namespace, l.last_error

-- name: status_workers
-- The live workers, and the stages that each one serves.
-- params: dead_after_seconds numeric
-- row: worker_id uuid, host text, pid integer, version text, stages text[], started_at timestamptz, beat_seconds_ago
--     numeric, unbuildable integer[], condition text
SELECT w.worker_id, w.host, w.pid, w.version, w.stages, w.started_at,
    extract(epoch FROM statement_timestamp() - w.heartbeat_at) AS beat_seconds_ago, w.unbuildable,
    w.condition::text
FROM strandline.worker w
WHERE @beats(w, statement_timestamp(), %(dead_after_seconds)s)
ORDER BY w.started_at

-- name: failing_stages
-- The stages with due lanes whose last attempt failed, if none has succeeded since; and when the first is tried again.
-- row: generation_id integer, stage text, next_attempt_at timestamptz
SELECT f.generation_id, f.stage, f.next_attempt_at
FROM (
    SELECT d.generation_id, d.stage, max(l.postponed_at) AS failed_at, min(l.next_attempt_at) AS next_attempt_at
    FROM strandline.due d
    JOIN strandline.lane l ON l.shard_key = d.shard_key AND l.scope_key = d.scope_key
        AND l.generation_id = d.generation_id AND l.stage = d.stage
    WHERE l.last_error IS NOT NULL GROUP BY d.generation_id, d.stage) AS f
WHERE NOT EXISTS (
    SELECT FROM strandline.receipt r
    WHERE r.applied_at > f.failed_at AND r.generation_id = f.generation_id AND r.stage = f.stage
        AND r.outcome = 'applied')

-- name: oldest_unchained
-- The age of the oldest act that no worker has chained into its trail; null if all are.
-- row: seconds float8?
SELECT extract(epoch FROM statement_timestamp() - min(e.created_at))::float8 AS seconds
FROM strandline.audit_entry e

-- name: used_pipelines
-- The pipelines that sessions feed; work of those that no live worker serves piles up.
-- row: pipeline text
WITH RECURSIVE lists AS (
    SELECT min(s.pipelines) AS pipelines FROM strandline.session s
    UNION ALL
    SELECT (SELECT min(s.pipelines) FROM strandline.session s WHERE s.pipelines > l.pipelines)
    FROM lists l WHERE l.pipelines IS NOT NULL
)
SELECT DISTINCT u.pipeline FROM lists l CROSS JOIN LATERAL unnest(l.pipelines) AS u (pipeline) ORDER BY u.pipeline

-- name: describe_server
-- Version, pgvector, rights and clock of the server; needs no tables.
-- row: server text, vector_installed text?, vector_available text?, may_create_schema boolean, may_create_vector
--     boolean, schema_exists boolean, epoch_seconds numeric, encoding text, is_standby boolean
SELECT current_setting('server_version') AS server,
    (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vector_installed,
    (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS vector_available,
    has_database_privilege(current_database(), 'CREATE') AS may_create_schema,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
        OR coalesce((SELECT bool_or(trusted) FROM pg_available_extension_versions WHERE name = 'vector'), false)
        AS may_create_vector,
    (SELECT count(*) FROM pg_namespace WHERE nspname = %(schema)s) > 0 AS schema_exists,
    extract(epoch FROM clock_timestamp()) AS epoch_seconds,
    current_setting('server_encoding') AS encoding,
    pg_is_in_recovery() AS is_standby

-- name: missing_rights
-- Rights that this user lacks on the schema of the tables, and on pgvector's; an object of each, and their number.
-- repeatable
-- row: right_name text, kind text, schema_name text, example text, objects bigint, role_name text
WITH schemas AS (
    SELECT n.oid, n.nspname, e.oid AS extension
    FROM pg_namespace n LEFT JOIN pg_extension e ON e.extnamespace = n.oid AND e.extname = 'vector'
    WHERE n.nspname = %(schema)s OR e.oid IS NOT NULL
), wanted AS (
    SELECT 'USAGE' AS right_name, 'SCHEMA' AS kind, s.nspname, s.nspname AS name,
        has_schema_privilege(s.oid, 'USAGE') AS has
    FROM schemas s
    UNION ALL
    SELECT r.name, 'TABLE', s.nspname, c.relname, has_table_privilege(c.oid, r.name)
    FROM schemas s
    JOIN pg_class c ON c.relnamespace = s.oid AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS r (name)
    WHERE s.nspname = %(schema)s
    UNION ALL
    -- Postgres may ask about a table before it compares the kind.  SELECT is for pg_dump.
    SELECT r.name, 'SEQUENCE', s.nspname, c.relname,
        CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, r.name) END
    FROM schemas s JOIN pg_class c ON c.relnamespace = s.oid AND c.relkind = 'S'
    CROSS JOIN (VALUES ('USAGE'), ('SELECT')) AS r (name)
    WHERE s.nspname = %(schema)s
    UNION ALL
    -- An import writes its lines to a temporary table first.
    SELECT 'TEMPORARY', 'DATABASE', current_database(), current_database(),
        has_database_privilege(current_database(), 'TEMPORARY')
    UNION ALL
    SELECT 'EXECUTE', 'FUNCTION', s.nspname, p.proname, has_function_privilege(p.oid, 'EXECUTE')
    FROM schemas s
    JOIN pg_proc p ON p.pronamespace = s.oid
    LEFT JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    WHERE s.nspname = %(schema)s OR d.refobjid = s.extension
)
SELECT w.right_name, w.kind, w.nspname::text AS schema_name, min(w.name)::text AS example, count(*) AS objects,
    current_user::text AS role_name
FROM wanted w
WHERE NOT w.has
GROUP BY w.right_name, w.kind, w.nspname
ORDER BY w.kind, w.nspname, w.right_name

-- name: guarded_tables
-- Tables of which this user sees only the rows that policies show it, and whether there are policies.
-- repeatable
-- row: table_name text, has_policies boolean, role_name text
SELECT c.relname::text AS table_name, EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid) AS has_policies,
    current_user::text AS role_name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND row_security_active(c.oid)
ORDER BY c.relname

-- name: stored_functions
-- The functions of the schema, with a digest of their bodies.
-- repeatable
-- row: function_name text, digest text
SELECT p.proname::text AS function_name, encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') AS digest
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = %(schema)s
ORDER BY p.proname

-- name: stored_columns
-- The columns of the schema's tables, as ``table.column``.
-- repeatable
-- row: column_name text!
SELECT c.relname || '.' || a.attname AS column_name
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped

-- name: schema_revision
-- Which migration the tables are at, and whether they are ours: other applications have a table of that name.
-- row: version_num varchar, is_own boolean
SELECT v.version_num, to_regclass('strandline.session_owner') IS NOT NULL AS is_own
FROM strandline.alembic_version v

-- name: set_revision
-- The tables are at another migration.
-- params: revision varchar
UPDATE strandline.alembic_version SET version_num = %(revision)s

-- name: divided_tables
-- The tables that are divided (strandline migrate --partitions), and into how many partitions.
-- row: table_name text, partitions bigint
SELECT c.relname::text AS table_name, count(i.inhrelid) AS partitions
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_inherits i ON i.inhparent = c.oid
WHERE n.nspname = %(schema)s AND c.relkind = 'p'
GROUP BY c.relname ORDER BY c.relname

-- name: table_sizes
-- Each whole table, and each partition of a divided one: about how many rows, and bytes without indexes.
-- row: table_name text, part_name text, row_count bigint, bytes bigint
SELECT coalesce(p.relname, c.relname)::text AS table_name, c.relname::text AS part_name,
    greatest(c.reltuples, 0)::bigint AS row_count, pg_table_size(c.oid) AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE n.nspname = %(schema)s AND c.relkind = 'r' ORDER BY c.relname
