-- Retention: how long rows are kept, the steps by which messages leave the log, and where they are archived.

-- name: record_retention_act
-- Record an act of a namespace; no row if another one took the number in the meantime.
-- params: max_messages bigint?, archive text?, keeps_important boolean?, ages jsonb
-- row: number bigint
WITH ruled AS (@rule_ttl(%(namespace)s))
INSERT INTO strandline.retention_act (
    namespace, number, ttl_seconds, max_age_seconds, max_messages, forget_facts, archive, keeps_important, ages,
    actor)
SELECT %(namespace)s, 1 + coalesce(max(a.number), 0), %(ttl_seconds)s::bigint, %(max_age_seconds)s::bigint,
    %(max_messages)s::bigint, %(forget_facts)s::boolean, %(archive)s::text, %(keeps_important)s::boolean, %(ages)s::jsonb,
    %(actor)s
FROM strandline.retention_act a WHERE a.namespace = %(namespace)s
ON CONFLICT DO NOTHING
RETURNING number

-- name: record_session_retention_act
-- The same of one session, which may have no message yet.
-- params: max_messages bigint?, archive text?, tightened text[]
-- row: number bigint
-- repeatable
WITH ruled AS (@rule_ttl(%(namespace)s))
INSERT INTO strandline.session_retention_act (
    shard_key, session_key, number, ttl_seconds, max_age_seconds, max_messages, forget_facts, archive, tightened,
    actor)
SELECT %(shard_key)s, %(session_key)s, 1 + coalesce(max(a.number), 0), %(ttl_seconds)s::bigint,
    %(max_age_seconds)s::bigint, %(max_messages)s::bigint, %(forget_facts)s::boolean, %(archive)s::text, %(tightened)s,
    %(actor)s
FROM strandline.session_retention_act a WHERE a.shard_key = %(shard_key)s AND a.session_key = %(session_key)s
ON CONFLICT DO NOTHING
RETURNING number

-- name: retention_acts
-- The acts of a namespace, newest first.
-- row: number bigint, ttl_seconds bigint?, max_age_seconds bigint?, max_messages bigint?, forget_facts boolean?,
--     archive text?, keeps_important boolean?, ages text, actor text?, created_at timestamptz
SELECT a.number, a.ttl_seconds, a.max_age_seconds, a.max_messages, a.forget_facts, a.archive, a.keeps_important,
    a.ages::text, a.actor, a.created_at
FROM strandline.retention_act a WHERE a.namespace = %(namespace)s ORDER BY a.number DESC LIMIT %(limit)s

-- name: session_retention_acts
-- The acts of a session, newest first.
-- row: number bigint, ttl_seconds bigint?, max_age_seconds bigint?, max_messages bigint?, forget_facts boolean?,
--     archive text?, tightened text[], actor text?, created_at timestamptz
SELECT a.number, a.ttl_seconds, a.max_age_seconds, a.max_messages, a.forget_facts, a.archive, a.tightened, a.actor,
    a.created_at
FROM strandline.session_retention_act a
WHERE a.shard_key = %(shard_key)s AND a.session_key = %(session_key)s ORDER BY a.number DESC LIMIT %(limit)s

-- name: retention_is_set
-- Whether any act was ever recorded: else nothing has to be looked at.
-- row: is_set boolean
SELECT EXISTS (SELECT FROM strandline.retention_act) OR EXISTS (SELECT FROM strandline.session_retention_act) AS is_set

-- name: sessions_to_retain
-- The next sessions in the order of their keys, each with whether something of it may be past its time: it expired, has
-- a step or a life under way, or its oldest message behind the head is past its age, or there are more than are kept.
-- params: namespace text?, session_key uuid?
-- row: shard_key uuid, session_key uuid, is_concerned boolean
SELECT s.shard_key, s.session_key, @is_expired(s, s.shard_key, s.session_key) OR EXISTS (
        SELECT FROM strandline.expired_life l
        WHERE l.shard_key = s.shard_key AND l.session_key = s.session_key AND l.removed_at IS NULL) OR EXISTS (
        SELECT FROM strandline.retention_step o
        WHERE o.shard_key = s.shard_key AND o.session_key = s.session_key AND o.state <> 'removed') OR EXISTS (
        SELECT FROM strandline.given_up_step g
        WHERE g.shard_key = s.shard_key AND g.session_key = s.session_key AND @is_left(g)) OR CASE WHEN r.oldest > '-infinity' THEN coalesce((
        SELECT m.created_at <= r.oldest FROM strandline.message m
        WHERE m.shard_key = s.shard_key AND m.session_key = s.session_key AND m.seq > s.pinned_through
            AND (m.labels @> ARRAY[@important(s.session_key, s.namespace)]) IS NOT TRUE
        ORDER BY m.seq LIMIT 1), false) ELSE false END OR s.log_start_seq > 1 AND r.is_bounded OR coalesce(
        s.next_seq - s.pinned_through - 1 > r.max_messages, false) AS is_concerned
FROM strandline.session s
CROSS JOIN LATERAL (
    SELECT @oldest(s.shard_key, s.session_key, s.namespace) AS oldest,
        @retention_of(max_messages, s.shard_key, s.session_key, s.namespace) AS max_messages,
        coalesce(@retention_of(ttl_seconds, s.shard_key, s.session_key, s.namespace),
            @retention_of(max_age_seconds, s.shard_key, s.session_key, s.namespace)) IS NOT NULL AS is_bounded) AS r
WHERE (s.shard_key, s.session_key) > (%(after_shard_key)s::uuid, %(after_session_key)s::uuid)
    AND (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s)
    AND (%(session_key)s::uuid IS NULL OR s.session_key = %(session_key)s)
ORDER BY s.shard_key, s.session_key LIMIT %(limit)s

-- name: past_messages
-- How many messages of a session no read shows any more, by why; how many of them wait until all of their event is past
-- its time, since events leave whole; and how many important ones stay.
-- row: namespace text, session_id text, expired bigint, aged bigint, surplus bigint, waiting bigint, important bigint
WITH retained AS MATERIALIZED (
    @retained(%(shard_key)s, %(session_key)s)
), s AS MATERIALIZED (
    SELECT t.*, @retention_of(max_messages, %(shard_key)s, %(session_key)s, t.namespace) AS max_messages
    FROM strandline.session t WHERE t.shard_key = %(shard_key)s AND t.session_key = %(session_key)s
), judged AS (
    SELECT (
            SELECT e.from_seq FROM strandline.flush_event e
            WHERE e.shard_key = %(shard_key)s AND e.session_key = %(session_key)s AND e.from_seq <= m.seq
                AND e.through_seq >= m.seq ORDER BY e.from_seq DESC LIMIT 1) AS event_seq,
        m.seq < k.shown_from AND (s.log_start_seq <= m.seq OR EXISTS (
            SELECT FROM strandline.expired_life l WHERE l.shard_key = %(shard_key)s
                AND l.session_key = %(session_key)s AND l.incarnation = m.incarnation)) AS is_expired,
        m.created_at <= k.oldest AND (m.seq > k.pinned_through OR m.seq < s.log_start_seq) AS is_aged,
        row_number() OVER (ORDER BY m.seq DESC) > s.max_messages AND m.seq > k.pinned_through AS is_surplus,
        coalesce(m.labels @> ARRAY[k.important], false) AS is_important
    FROM strandline.message m CROSS JOIN s CROSS JOIN retained k
    WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
), counted AS (
    SELECT j.*, j.event_seq IS NOT NULL AND NOT j.is_expired
            AND NOT bool_and(j.is_aged OR j.is_important) OVER (PARTITION BY j.event_seq)
            AND NOT bool_and(j.is_surplus) OVER (PARTITION BY j.event_seq) AS is_parted
    FROM judged j
)
SELECT s.namespace, s.session_id, count(*) FILTER (WHERE c.is_expired AND NOT c.is_important) AS expired,
    count(*) FILTER (WHERE c.is_aged AND NOT c.is_expired AND NOT c.is_important) AS aged,
    count(*) FILTER (WHERE c.is_surplus AND NOT c.is_aged AND NOT c.is_expired AND NOT c.is_important) AS surplus,
    count(*) FILTER (WHERE (c.is_aged OR c.is_surplus) AND c.is_parted AND NOT c.is_important) AS waiting,
    count(*) FILTER (WHERE c.is_important AND (c.is_expired OR c.is_aged OR c.is_surplus)) AS important
FROM s LEFT JOIN counted c ON true GROUP BY s.namespace, s.session_id

-- name: plan_removal
-- The next step of a session's retention (plan_removal_v1).
-- params: max_messages bigint, max_bytes bigint
-- row: status text, from_seq bigint?, incarnation uuid?, has_given_up boolean
SELECT status, from_seq, incarnation, has_given_up FROM strandline.plan_removal_v1(
    %(shard_key)s, %(session_key)s, %(max_messages)s, %(max_bytes)s, %(busy_seconds)s)

-- name: left_objects
-- Objects that steps of a session which were given up may have left in archives; not those that a process tried to
-- delete within some seconds.
-- params: retry_seconds float8
-- row: step_id uuid, archive text, object_name text
SELECT g.step_id, coalesce(g.archive, '') AS archive, coalesce(g.object_name, '') AS object_name
FROM strandline.given_up_step g
WHERE g.shard_key = %(shard_key)s AND g.session_key = %(session_key)s AND @is_left(g)
    AND (g.tried_at < statement_timestamp() - make_interval(secs => %(retry_seconds)s)) IS NOT FALSE

-- name: try_left_object
-- Record that an object which a given-up step left was deleted, or could not be.
-- params: is_deleted boolean
UPDATE strandline.given_up_step g SET tried_at = statement_timestamp(),
    deleted_at = CASE WHEN %(is_deleted)s::boolean THEN statement_timestamp() END
WHERE g.shard_key = %(shard_key)s AND g.session_key = %(session_key)s AND g.step_id = %(step_id)s

-- name: is_step_given_up
-- Whether a step was given up.
-- row: is_given_up boolean
SELECT EXISTS (
    SELECT FROM strandline.given_up_step g
    WHERE g.shard_key = %(shard_key)s AND g.session_key = %(session_key)s AND g.step_id = %(step_id)s) AS is_given_up

-- name: expired_window
-- What a life that expired has not delivered: its mark, and of each message [seq, role, tokens, calls, answers, bytes],
-- in order; and by what size it is to be divided.
-- row: flushed_through bigint, token_flush_size integer, entries text
SELECT l.flushed_through, s.token_flush_size, (
    SELECT coalesce(json_agg(
        json_build_array(m.seq, m.role, m.tokens, m.calls, m.answers, m.bytes) ORDER BY m.seq), '[]')
    FROM strandline.message m
    WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s AND m.seq > l.flushed_through
        AND m.seq <= l.through_seq)::text AS entries
FROM strandline.expired_life l
JOIN strandline.session s ON s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
WHERE l.shard_key = %(shard_key)s AND l.session_key = %(session_key)s AND l.incarnation = %(incarnation)s

-- name: deliver_expired
-- Record events for it, and make them due (deliver_expired_v1).
-- params: tokens bigint[], messages integer[], version smallint
-- row: is_first boolean
SELECT strandline.deliver_expired_v1(%(shard_key)s, %(session_key)s, %(incarnation)s, %(old_flushed_through)s,
    %(event_ids)s::uuid[], %(from_seqs)s::bigint[], %(through_seqs)s::bigint[], %(tokens)s::bigint[],
    %(messages)s::integer[], %(version)s::smallint) AS is_first

-- name: begin_attempt
-- Take up a step that no other process has begun within some seconds; no row if one has.
-- row: step_id uuid, incarnation uuid, through_seq bigint, cause text, state text, archive text?, object_name text?,
--     object_digest text?, attempts integer, namespace text, session_id text, user_id text?, shared_key uuid?
UPDATE strandline.retention_step o SET attempted_at = statement_timestamp(), attempts = o.attempts + 1
FROM strandline.session s
WHERE o.shard_key = %(shard_key)s AND o.session_key = %(session_key)s AND o.from_seq = %(from_seq)s
    AND o.state <> 'removed'
    AND (o.attempted_at IS NULL OR o.attempted_at < statement_timestamp() - make_interval(secs => %(busy_seconds)s))
    AND o.acts = @acts_of(%(shard_key)s, %(session_key)s, s.namespace)
    AND s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s
RETURNING o.step_id, o.incarnation, o.through_seq, o.cause, o.state, o.archive, o.object_name, o.object_digest,
    o.attempts, s.namespace, s.session_id, s.user_id, s.shared_key

-- name: leaving_messages
-- The messages of a step as they are stored, in order, each with a digest of all of them.
-- row: seq bigint, id text, role text, tokens integer, created_at timestamptz, envelope text, metadata text?,
--     byte_count integer, digest bytea, calls text?, answers text?, labels bigint?[]?, is_important boolean, rows_digest text
SELECT m.seq, m.id, m.role, m.tokens, m.created_at, m.envelope::text, m.metadata::text, m.bytes AS byte_count, m.digest,
    m.calls::text, m.answers::text, m.labels, coalesce(m.labels @> ARRAY[(
        SELECT @important(%(session_key)s, s.namespace) FROM strandline.session s
        WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s)], false)
        AS is_important,
    @rows_digest(%(shard_key)s, %(session_key)s, %(from_seq)s, %(through_seq)s) AS rows_digest
FROM strandline.message m
WHERE m.shard_key = %(shard_key)s AND m.session_key = %(session_key)s
    AND m.seq BETWEEN %(from_seq)s AND %(through_seq)s
ORDER BY m.seq

-- name: name_object
-- Write down under which name the messages of a step will be in the archive, before they are; no row if another process
-- has taken it up. In a transaction that has looked at the fence: until it commits, none is set.
-- params: object_name text?
-- row: step_id uuid
UPDATE strandline.retention_step SET object_name = %(object_name)s
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND from_seq = %(from_seq)s
    AND step_id = %(step_id)s AND state <> 'removed'
RETURNING step_id

-- name: archive_is_used
-- Whether messages of anybody were ever put into an archive.
-- params: archive text
-- row: is_used boolean
SELECT EXISTS (
    SELECT FROM strandline.retention_step o WHERE o.archive = %(archive)s AND o.object_digest IS NOT NULL) AS is_used

-- name: archive_folders
-- The folders that were ever named as archives.
-- row: archive text!
SELECT a.archive FROM strandline.retention_act a WHERE a.archive LIKE 'file:%%'
UNION SELECT a.archive FROM strandline.session_retention_act a WHERE a.archive LIKE 'file:%%'

-- name: database_mark
-- What names this database in the names of archived objects: a restored copy has another.  One that is recovered from a
-- base backup keeps the server's number, and has the target that it was recovered to.
-- row: mark text!
SELECT left(encode(sha256(convert_to(concat_ws('/', c.system_identifier, d.oid, 'strandline.retention_step'::regclass::oid,
    current_setting('recovery_target'), current_setting('recovery_target_lsn'), current_setting('recovery_target_name'),
    current_setting('recovery_target_time'), current_setting('recovery_target_xid')), 'UTF8')), 'hex'), 16) AS mark
FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()

-- name: archives_with_objects
-- The archives that may hold objects which this database names.
-- row: archive text!
SELECT a.archive
FROM (SELECT archive FROM strandline.retention_step WHERE object_name IS NOT NULL
    UNION SELECT l.archive FROM strandline.given_up_step l WHERE @is_left(l)) AS a
WHERE a.archive IS NOT NULL
ORDER BY a.archive

-- name: mark_archived
-- Record that the messages of a step are in the archive; not of an owner who is being erased.
-- params: object_digest text?, rows_digest text, messages integer
-- row: step_id uuid
UPDATE strandline.retention_step SET state = 'archived', object_digest = %(object_digest)s, rows_digest = %(rows_digest)s, messages = %(messages)s,
    archived_at = statement_timestamp()
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND from_seq = %(from_seq)s
    AND step_id = %(step_id)s AND state IN ('planned', 'archived') AND NOT EXISTS (
        SELECT FROM strandline.erasure_fence f WHERE f.shard_key = %(shard_key)s AND @stands(f)
            AND f.scope_key IN (%(shard_key)s, %(session_key)s))
RETURNING step_id

-- name: mark_read_back
-- Record that the archived object was read, and is as it was written.
-- row: step_id uuid
UPDATE strandline.retention_step SET state = 'read_back', read_back_at = statement_timestamp()
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND from_seq = %(from_seq)s
    AND step_id = %(step_id)s AND state IN ('archived', 'read_back')
RETURNING step_id

-- name: remove_messages
-- Take the messages of a step out of the log (remove_messages_v1).
-- row: status text, removed integer, touched uuid[]
SELECT status, removed, touched FROM strandline.remove_messages_v1(
    %(shard_key)s, %(session_key)s, %(from_seq)s, %(step_id)s)

-- name: give_up_attempt
-- Record why an attempt failed; it is repeated after a while, or at once.
-- params: reason text, at_once boolean
UPDATE strandline.retention_step SET last_error = %(reason)s,
    failed_at = statement_timestamp(), attempted_at = CASE WHEN %(at_once)s::boolean THEN NULL ELSE attempted_at END
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND from_seq = %(from_seq)s
    AND step_id = %(step_id)s AND state <> 'removed'

-- name: drop_step
-- Remove a step of which nothing has left the log.
DELETE FROM strandline.retention_step
WHERE shard_key = %(shard_key)s AND session_key = %(session_key)s AND from_seq = %(from_seq)s
    AND step_id = %(step_id)s AND state <> 'removed'

-- name: archived_objects
-- Archived ranges of an owner, or of one of its sessions, in order: those that left the log, and those on their way.
-- params: session_key uuid?
-- row: session_key uuid, session_id text, from_seq bigint, through_seq bigint, step_id uuid, cause text, state text,
--     archive text?, object_name text?, object_digest text?, messages integer, removed integer, kept_seqs bigint[],
--     last_error text?, planned_at timestamptz, removed_at timestamptz?
SELECT o.session_key, coalesce(s.session_id, '') AS session_id, o.from_seq, o.through_seq, o.step_id, o.cause, o.state,
    o.archive, o.object_name, o.object_digest, o.messages, o.removed, o.kept_seqs, o.last_error, o.planned_at,
    o.removed_at
FROM strandline.retention_step o
LEFT JOIN strandline.session s ON s.shard_key = %(shard_key)s AND s.session_key = o.session_key
WHERE o.shard_key = %(shard_key)s AND (%(session_key)s::uuid IS NULL OR o.session_key = %(session_key)s)
ORDER BY o.session_key, o.from_seq

-- name: restore_range
-- Put archived messages into a session of their own (restore_session_v1).
-- params: old_key uuid, policy jsonb, messages json
-- row: status text, messages integer
SELECT status, messages FROM strandline.restore_session_v1(%(shard_key)s, %(session_key)s, %(old_key)s,
    %(policy)s::jsonb, %(event_id)s, %(before_id)s, %(from_seq)s, %(through_seq)s, %(messages)s::json)

-- name: open_archived
-- Messages of an owner as an archive holds them, for the drivers to open.
-- params: metadata text?[]
-- row: shard_key uuid, id text, envelope text, metadata text?
-- opens: envelope, metadata
SELECT %(shard_key)s::uuid AS shard_key, o.id, o.envelope, o.metadata
FROM unnest(%(ids)s::text[], %(envelopes)s::text[], %(metadata)s::text[]) WITH ORDINALITY
    AS o (id, envelope, metadata, place)
ORDER BY o.place

-- name: insert_archived_input
-- Messages from the archive, as the input of a derivation; existing rows stay.
-- params: messages json
INSERT INTO strandline.archived_input (
    shard_key, session_key, seq, generation_id, id, role, tokens, envelope, metadata, created_at)
SELECT %(shard_key)s, %(session_key)s, m.seq, %(generation_id)s, m.id, m.role, m.tokens, m.envelope::json,
    m.metadata::json, m.created_at
FROM json_to_recordset(%(messages)s::json) AS m (
    seq bigint, id text, role text, tokens integer, envelope text, metadata text, created_at timestamptz)
ON CONFLICT DO NOTHING

-- name: forget_archived_input
-- The derivation is made: messages that it was made of are in the archive alone.
DELETE FROM strandline.archived_input WHERE shard_key = %(shard_key)s AND generation_id = %(generation_id)s

-- name: owners_with_input
-- Owners for whom messages were taken from the archive for a derivation.
-- params: after uuid
-- row: shard_key uuid
SELECT DISTINCT i.shard_key FROM strandline.archived_input i
WHERE i.generation_id = %(generation_id)s AND i.shard_key > %(after)s ORDER BY i.shard_key LIMIT %(limit)s

-- name: carry_base
-- Begin a derivation of an owner with what the one that serves keeps of removed messages (carry_base_v1).
-- params: old_id integer
-- row: events integer
SELECT strandline.carry_base_v1(%(shard_key)s, %(generation_id)s, %(old_id)s, %(stages)s::text[]) AS events

-- name: removed_events
-- How many events of an owner have lost their messages to retention, of those that a derivation has applied.
-- row: events bigint
SELECT count(*) AS events FROM strandline.flush_event e
WHERE e.shard_key = %(shard_key)s AND @is_event_removed(e, %(shard_key)s) AND EXISTS (
    SELECT FROM strandline.receipt r WHERE r.shard_key = %(shard_key)s AND r.event_id = e.event_id
        AND r.generation_id = %(generation_id)s AND r.outcome = 'applied')

-- name: begin_run
-- Begin a pass over all sessions, of a namespace or all, unless one is under way or has just been.
-- params: namespace text?, interval_seconds float8
-- row: run_id integer
INSERT INTO strandline.retention_run (namespace)
SELECT %(namespace)s WHERE NOT EXISTS (
    SELECT FROM strandline.retention_run r
    WHERE r.namespace IS NOT DISTINCT FROM %(namespace)s::text AND (
        r.state = 'running' OR r.started_at > statement_timestamp() - make_interval(secs => %(interval_seconds)s)))
RETURNING run_id

-- name: take_run
-- The pass that is under way, locked, so that each of its pages is taken once.
-- params: namespace text?
-- row: run_id integer, position_shard uuid?, position_session uuid?
SELECT r.run_id, r.position_shard, r.position_session FROM strandline.retention_run r
WHERE r.namespace IS NOT DISTINCT FROM %(namespace)s::text AND r.state = 'running'
ORDER BY r.run_id LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: advance_run
-- How far a pass is; done if there are no more sessions.
-- params: run_id integer, position_shard uuid?, position_session uuid?, is_done boolean
UPDATE strandline.retention_run SET
    position_shard = coalesce(%(position_shard)s, position_shard),
    position_session = coalesce(%(position_session)s, position_session),
    state = CASE WHEN %(is_done)s::boolean THEN 'done' ELSE state END, updated_at = statement_timestamp(),
    ended_at = CASE WHEN %(is_done)s::boolean THEN statement_timestamp() END
WHERE run_id = %(run_id)s

-- name: count_run
-- Add to the counts of a pass.
-- params: run_id integer
UPDATE strandline.retention_run r SET updated_at = statement_timestamp(), counts = (
    SELECT coalesce(jsonb_object_agg(n.name, n.number), '{}') FROM (
        SELECT b.key AS name, sum(b.value::bigint) AS number FROM (
            SELECT * FROM jsonb_each_text(r.counts) UNION ALL SELECT * FROM jsonb_each_text(%(counts)s::jsonb)) AS b
        GROUP BY b.key) AS n)
WHERE r.run_id = %(run_id)s

-- name: retention_runs
-- The last passes, newest first.
-- row: run_id integer, namespace text?, state text, counts text, started_at timestamptz, updated_at timestamptz,
--     ended_at timestamptz?
SELECT r.run_id, r.namespace, r.state, r.counts::text, r.started_at, r.updated_at, r.ended_at
FROM strandline.retention_run r ORDER BY r.run_id DESC LIMIT %(limit)s

-- name: forget_runs
-- Passes of longer ago than a month need not be known.
DELETE FROM strandline.retention_run
WHERE state = 'done' AND ended_at < statement_timestamp() - interval '30 days'

-- name: open_steps
-- Steps under way, those longest first that nobody works on.
-- params: namespace text?
-- row: shard_key uuid, session_key uuid, from_seq bigint, through_seq bigint, state text, archive text?, attempts
--     integer, last_error text?, planned_at timestamptz, attempted_at timestamptz?, namespace text, session_id text
SELECT o.shard_key, o.session_key, o.from_seq, o.through_seq, o.state, o.archive, o.attempts, o.last_error, o.planned_at,
    o.attempted_at, s.namespace, s.session_id
FROM strandline.retention_step o
JOIN strandline.session s ON s.shard_key = o.shard_key AND s.session_key = o.session_key
WHERE o.state <> 'removed' AND (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s)
ORDER BY o.attempted_at NULLS FIRST, o.shard_key, o.session_key LIMIT %(limit)s

-- name: retention_totals
-- Ranges of a namespace or of all that have left the log, are under way, or wait.
-- params: namespace text?
-- row: removed bigint, kept bigint, archived bigint, open_steps bigint, failing_steps bigint, waiting_lives bigint
SELECT coalesce(sum(o.removed) FILTER (WHERE o.state = 'removed'), 0)::bigint AS removed,
    coalesce(sum(cardinality(o.kept_seqs)), 0)::bigint AS kept,
    coalesce(sum(o.messages) FILTER (WHERE o.object_name IS NOT NULL), 0)::bigint AS archived,
    count(*) FILTER (WHERE o.state <> 'removed') AS open_steps,
    count(*) FILTER (WHERE o.state <> 'removed' AND o.last_error IS NOT NULL) AS failing_steps, (
        SELECT count(*) FROM strandline.expired_life l
        JOIN strandline.session s ON s.shard_key = l.shard_key AND s.session_key = l.session_key
        WHERE l.removed_at IS NULL AND (%(namespace)s::text IS NULL OR s.namespace = %(namespace)s)) AS waiting_lives
FROM strandline.retention_step o
JOIN strandline.session s ON s.shard_key = o.shard_key AND s.session_key = o.session_key
WHERE %(namespace)s::text IS NULL OR s.namespace = %(namespace)s

-- name: retained_namespaces
-- Namespaces whose newest act names ages of the tables that grow next to the log.
-- row: namespace text, ages text
SELECT a.namespace, a.ages::text FROM (
    SELECT DISTINCT ON (n.namespace) n.namespace, n.ages FROM strandline.retention_act n
    ORDER BY n.namespace, n.number DESC) AS a
WHERE a.ages <> '{}'::jsonb ORDER BY a.namespace

-- name: aged_owners
-- The next owners of a namespace, for what grows next to their logs; also those who have facts and no session.
-- row: shard_key uuid
SELECT s.shard_key FROM strandline.session s
WHERE s.namespace = %(namespace)s AND s.shard_key > %(after_shard_key)s
UNION
SELECT f.shard_key FROM strandline.fact_owner f
WHERE f.namespace = %(namespace)s AND f.shard_key > %(after_shard_key)s
ORDER BY shard_key LIMIT %(limit)s

-- name: forget_old_answers
-- Answers of batches that ended so long ago. A replay in place asks a model again for what it lacks, and leaves facts as
-- they are.
-- row: batch_id uuid
DELETE FROM strandline.answer a
WHERE a.shard_key = %(shard_key)s AND a.batch_id IN (
    SELECT b.batch_id FROM strandline.batch b
    JOIN strandline.answer o ON o.shard_key = %(shard_key)s AND o.batch_id = b.batch_id
    WHERE b.shard_key = %(shard_key)s AND b.state <> 'open'
        AND b.closed_at < statement_timestamp() - make_interval(secs => %(age_seconds)s) LIMIT %(limit)s)
RETURNING a.batch_id

-- name: forget_old_calls
-- The ledger of calls so long ago.
-- row: call_id uuid
DELETE FROM strandline.model_call c
WHERE c.shard_key = %(shard_key)s AND c.call_id IN (
    SELECT o.call_id FROM strandline.model_call o WHERE o.shard_key = %(shard_key)s
        AND o.created_at < statement_timestamp() - make_interval(secs => %(age_seconds)s) LIMIT %(limit)s)
RETURNING c.call_id

-- name: forget_old_traces
-- What tombstones recognise by: after so long, the words of what a person took away are new knowledge if a replay finds
-- them.
-- row: number bigint
UPDATE strandline.fact_event e SET traces = '[]'
WHERE e.shard_key = %(shard_key)s AND e.number IN (
    SELECT o.number FROM strandline.fact_event o WHERE o.shard_key = %(shard_key)s AND o.traces <> '[]'::jsonb
        AND o.created_at < statement_timestamp() - make_interval(secs => %(age_seconds)s) LIMIT %(limit)s)
RETURNING e.number

-- name: forget_ended_facts
-- Facts that ended so long ago because of another, with their revisions, and the candidates that only these were made of.
-- Lanes and facts are locked first, as an edit locks them: one that a correction or an edit revives in the meantime stays.
-- row: fact_id uuid
WITH locked AS MATERIALIZED (
    SELECT l.generation_id FROM strandline.lane l
    WHERE l.shard_key = %(shard_key)s AND l.scope_key = %(shard_key)s AND l.stage = 'merge'
    ORDER BY l.generation_id FOR UPDATE
), ended AS MATERIALIZED (
    SELECT f.generation_id, f.fact_id FROM strandline.fact f
    WHERE (SELECT count(*) FROM locked) >= 0
        AND f.shard_key = %(shard_key)s AND NOT f.live AND f.condensed_into IS NULL
        AND f.invalidated_at < statement_timestamp() - make_interval(secs => %(age_seconds)s)
        -- Not one that still says why another ended.
        AND NOT EXISTS (
            SELECT FROM strandline.fact o WHERE o.shard_key = %(shard_key)s AND o.generation_id = f.generation_id
                AND f.fact_id IN (o.invalidated_by, o.condensed_into) AND o.fact_id <> f.fact_id
                AND (o.invalidated_at >= statement_timestamp() - make_interval(secs => %(age_seconds)s)
                    OR o.invalidated_at IS NULL))
    ORDER BY f.invalidated_at LIMIT %(limit)s FOR UPDATE OF f
), revisions AS (
    DELETE FROM strandline.fact_revision v USING ended e
    WHERE v.shard_key = %(shard_key)s AND v.generation_id = e.generation_id AND v.fact_id = e.fact_id
    RETURNING v.generation_id, v.event_id, v.extract_batch_id, v.seqs
), candidates AS (
    DELETE FROM strandline.fact_candidate c USING revisions v
    WHERE c.shard_key = %(shard_key)s AND c.generation_id = v.generation_id AND c.event_id = v.event_id
        AND c.batch_id = v.extract_batch_id AND c.seqs = v.seqs AND NOT EXISTS (
            SELECT FROM strandline.fact_revision o
            WHERE o.shard_key = %(shard_key)s AND o.generation_id = c.generation_id AND o.event_id = c.event_id
                AND o.extract_batch_id = c.batch_id AND o.seqs = c.seqs
                AND o.fact_id NOT IN (SELECT e.fact_id FROM ended e))
)
DELETE FROM strandline.fact f USING ended e
WHERE f.shard_key = %(shard_key)s AND f.generation_id = e.generation_id AND f.fact_id = e.fact_id
RETURNING f.fact_id
